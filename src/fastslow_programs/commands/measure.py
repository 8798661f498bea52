"""The command ``measure``: times of a program's configurations on this machine, for ``rank known=``."""

import shlex
from typing import Any

import numpy as np
import pandas as pd

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow_programs.commands.facts import print_facts
from fastslow_programs.compiler.bench import Bench
from fastslow_programs.compiler.device import ROUNDS, device_identity, device_name
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import decode
from fastslow_programs.program.convert import count_failures, make_program
from fastslow_programs.program.identity import identify
from fastslow_programs.program.measured import Measured
from fastslow_programs.program.program_settings import ConvertSettings
from fastslow_programs.tuning.target import read_local

_UNREAD = dict.fromkeys(
    ("label", "collection", "generation"), ("on what this machine measures", "convert the program")
)
_BATCH = 8  # configurations that are compiled and timed together


def measure_program(settings: ConvertSettings) -> dict[str, Any]:
    """Measure configurations of an HLO file, write a table of their runtimes, and print where it is.

    A row of the table is a configuration in a round: ``id``, as in a ranking, ``round`` and ``runtime`` in
    nanoseconds. It is the time over the unconstrained program's in the same round, times the
    median of the latter, so a machine that becomes slower in between changes no order.

    Raises:
        SettingsError: The source is no HLO file, JAX is not installed, or the program does not run here.
        DataError: As :func:`make_program`; or no configuration runs.
    """
    settings = settings.from_working_folder("source", "data_root")
    settings.require_defaults(settings.unread_by_source() | _UNREAD)
    source = settings.origin
    if source.function:
        remedy = "write jax.jit(function).lower(...).compiler_ir('hlo').as_hlo_text() into one"
        raise SettingsError("source", f"{settings.source!r} is no HLO file; {remedy}")
    program = make_program(settings)
    local = read_local(source, settings.seed)
    drawn = [decode(row, program.nodes) for row in program.arrays["node_config_feat"]]
    modules = [bind_differences(local.module, layouts, program.nodes) for layouts in drawn]
    with Bench(local, ROUNDS, settings.seconds).running() as times:
        starts = progress(range(0, len(modules), _BATCH), desc="measure", unit="batch")
        batches = [times(modules[start : start + _BATCH]) for start in starts]
    failures = [failure for batch in batches for failure in batch.failures]
    if all(failures):
        raise DataError(source.path, count_failures(failures, len(failures)), "Measure another program")
    unconstrained_ns = float(np.nanmedian(np.concatenate([batch.seconds[:, :2] for batch in batches]))) * 1e9
    ratios = np.concatenate([batch.ratios for batch in batches], 1)
    kept = Measured(resolve(settings.data_root), local.module, program.nodes, device_identity())
    sound = [number for number, failure in enumerate(failures) if not failure]
    kept.add(zip([drawn[number] for number in sound], np.median(ratios[:, sound], 0).tolist(), strict=True))
    runtime = ratios * unconstrained_ns
    config, number = np.nonzero(~np.isnan(runtime.T))
    columns = {"id": identify(program)[config], "round": number}
    path = kept.path.with_name(f"{settings.program}.csv")
    with atomic_path(path) as temporary:
        pd.DataFrame(columns | {"runtime": runtime.T[config, number]}).to_csv(temporary, index=False)
    noise = float(np.nanmedian(np.concatenate([batch.noise for batch in batches])))
    facts = {
        "device": device_name(),
        "configurations": len(np.unique(config)),
        "unconstrained program, ns": round(unconstrained_ns),
        "two runs of it differ by": f"{noise:.1%}",
        "table": path,
        "kept for rank and tune": kept.path,
        "to rank with it": shlex.join(["fastslow", "rank", settings.source, f"known={path}"]),
    }
    if failed := [failure for failure in failures if failure]:
        facts["failures"] = count_failures(failed, len(failures))
    print_facts(facts)
    return facts
