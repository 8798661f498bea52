"""Times of a program's configurations on this machine: ``fastslow measure`` and ``fastslow.measure``.

A function is measured as it is lowered for this machine, which is another HLO than the TPU compiler's. So it
is kept beside the table: the table belongs to a ranking of that file.
"""

import shlex
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress, ticking
from fastslow.core.settings import resolve
from fastslow.core.shown import Shown
from fastslow_programs.compiler.bench import Bench
from fastslow_programs.compiler.device import ROUNDS, device_identity, device_name
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import decode
from fastslow_programs.program.convert import ConvertedProgram, count_failures, make_program
from fastslow_programs.program.identity import identify
from fastslow_programs.program.measured import MEASURED_FOLDER, Measured
from fastslow_programs.program.program_settings import ConvertSettings
from fastslow_programs.program.user_program import Source
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.target import read_local

_UNREAD = dict.fromkeys(
    ("label", "collection", "generation"), ("on what this machine measures", "convert the program")
)
_BATCH = 8  # configurations that are compiled and timed together


@dataclass(frozen=True)
class Measurement(Shown):
    """Times of a program's configurations.

    Args:
        program: The program with its configurations.
        source: What to rank with these times: the HLO file.
        table: A row is a configuration in a round: ``id``, as in a ranking, ``round`` and ``runtime`` in
            nanoseconds. It is the time over the unconstrained program's in the same round, times the median
            of the latter, so a machine that becomes slower in between changes no order.
        ratios: Position of each configuration that ran, and the median of its time over the unconstrained
            program's.
        facts: What was measured, in words by name.
    """

    program: ConvertedProgram
    source: str
    table: pd.DataFrame
    ratios: dict[int, float]
    facts: dict[str, Any]

    def words(self) -> list[str]:
        """Return what was measured, one ``name: fact`` each."""
        return [f"{name}: {fact}" for name, fact in self.facts.items()]


def measure_source(settings: ConvertSettings) -> Measurement:
    """Measure configurations of a program on this machine.

    Args:
        settings: The source, the number of configurations and the limit of a compile. For a function its HLO
            is written to the folder of the measurements.

    Raises:
        SettingsError: JAX is not installed, or the program does not run here.
        DataError: As :func:`make_program`; or no configuration runs.
    """
    settings.require_defaults(settings.unread_by_source() | _UNREAD)
    local = read_local(settings.origin, settings.seed)
    local.require_one_device("layouts")
    source = str(settings.source)
    if settings.origin.function:
        path = resolve(settings.data_root) / MEASURED_FOLDER / f"{settings.program}.hlo.pb"
        with atomic_path(path) as temporary:
            temporary.write_bytes(serialised(local.module))
        source = str(path)
        settings = ConvertSettings(**settings.asdict() | {"source": source, "name": settings.program})
    program = make_program(settings)
    if local.signature:  # a file's module is simplified when it is read
        local = replace(local, module=Source.of(source).read().module)
    drawn = [decode(row, program.nodes) for row in program.arrays["node_config_feat"]]
    modules = [bind_differences(local.module, layouts, program.nodes) for layouts in drawn]
    starts = progress(range(0, len(modules), _BATCH), desc="measure", unit="batch")
    with Bench(local, ROUNDS, settings.seconds).running() as times, ticking(starts):
        batches = [times(modules[start : start + _BATCH]) for start in starts]
    failures = [failure for batch in batches for failure in batch.failures]
    if all(failures):
        raise DataError(source, count_failures(failures, len(failures)), "Measure another program")
    unconstrained_ns = float(np.nanmedian(np.concatenate([batch.seconds[:, :2] for batch in batches]))) * 1e9
    ratios = np.concatenate([batch.ratios for batch in batches], 1)
    runtime = ratios * unconstrained_ns
    config, number = np.nonzero(~np.isnan(runtime.T))
    columns = {"id": identify(program)[config], "round": number, "runtime": runtime.T[config, number]}
    noise = float(np.nanmedian(np.concatenate([batch.noise for batch in batches])))
    facts = {
        "device": device_name(),
        "configurations": len(np.unique(config)),
        "unconstrained program, ns": round(unconstrained_ns),
        "two runs of it differ by": f"{noise:.1%}",
    }
    if failed := [failure for failure in failures if failure]:
        facts["failures"] = count_failures(failed, len(failures))
    medians = np.median(ratios, 0).tolist()
    sound = {n: medians[n] for n, failure in enumerate(failures) if not failure}
    return Measurement(program, source, pd.DataFrame(columns), sound, facts)


def write_measurement(measurement: Measurement, settings: ConvertSettings) -> dict[str, Any]:
    """Write the table, and keep the values for later rankings and searches; return what to show, by name."""
    program = measurement.program
    kept = Measured(resolve(settings.data_root), program.module, program.nodes, device_identity())
    drawn = program.arrays["node_config_feat"]
    kept.add((decode(drawn[n], program.nodes), value) for n, value in measurement.ratios.items())
    path = kept.path.with_name(f"{settings.program}.csv")
    with atomic_path(path) as temporary:
        measurement.table.to_csv(temporary, index=False)
    ranked = shlex.join(["fastslow", "rank", measurement.source, f"known={path}"])
    return measurement.facts | {"table": path, "kept for rank and tune": kept.path, "to rank with it": ranked}
