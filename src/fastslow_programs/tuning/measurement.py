"""Times of a program's configurations on this machine: ``fastslow measure`` and ``fastslow.measure``.

A function is measured as it is lowered for this machine, which is another HLO than the TPU compiler's. So it
is kept beside the table: the table belongs to a ranking of that file.
"""

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, read_json, write_json, writer_lock
from fastslow.core.progress import progress, ticking
from fastslow.core.settings import resolve
from fastslow.hlo.messages import Module
from fastslow.hlo.reader import HloProgram
from fastslow_programs.compiler.bench import Bench, Times
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.device import ROUNDS, device_identity, device_name
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import decode
from fastslow_programs.compiler.lowering import LAYOUTS
from fastslow_programs.program.convert import ConvertedProgram, count_failures, make_program
from fastslow_programs.program.measured import MEASURED_FOLDER, Measured, module_digest
from fastslow_programs.program.program_settings import MeasureSettings
from fastslow_programs.program.user_program import Source
from fastslow_programs.ranking.settings import RankSettings, words_of_draw
from fastslow_programs.tuning.confirmation import FEWEST
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.measurement_result import Measurement, fastest_config, median_ratios
from fastslow_programs.tuning.target import read_local

_UNREAD = dict.fromkeys(
    ("label", "collection", "generation"), ("on what this machine measures", "convert the program")
)
TO_RANK = "to rank with it"
"""Name of the fact that is a command."""
_BATCH = 8  # configurations that are compiled and timed together


@dataclass(frozen=True)
class _Lowered(Source):
    """A function as it is lowered for this machine. Messages name the function, not the file of its HLO.

    Args:
        module: Its HLO, simplified.
    """

    module: Module = field(default_factory=Module)

    def read(self, labeller: Labeller | None = None, ask_compiler: bool = False) -> HloProgram:
        """See :class:`fastslow_programs.program.user_program.Source`."""
        return HloProgram(self.module, {})


def measure_source(settings: MeasureSettings) -> Measurement:
    """Measure configurations of a program on this machine.

    Args:
        settings: The source, the number of configurations and the limit of a compile. A digest of the
            program is written to the folder of the measurements, and of a function its HLO. What each batch
            gave is kept there for later rankings and searches, also where the next one is interrupted.

    Raises:
        SettingsError: JAX is not installed, or the program does not run here.
        DataError: As :func:`make_program`; or no configuration runs, or the table of this name has the times
            of another program.
    """
    settings.require_defaults(settings.unread_by_source() | _UNREAD)
    origin = settings.origin
    local = read_local(origin, settings.seed)
    local.require_one_device(LAYOUTS)
    source = str(settings.source)
    _claim_table(settings, local.module)
    if origin.function:
        path = resolve(settings.data_root) / MEASURED_FOLDER / f"{settings.program}.hlo.pb"
        with atomic_path(path) as temporary:
            temporary.write_bytes(serialised(local.module))
        source = str(path)
        module = Source.of(source).read().module  # as a ranking reads it, which is simplified
        local = replace(local, module=module)
        settings = settings.of(_Lowered(origin.path, origin.function, module=module))
    program = make_program(settings)
    drawn = [decode(row, program.nodes) for row in program.arrays["node_config_feat"]]
    modules = [bind_differences(local.module, layouts, program.nodes) for layouts in drawn]
    kept = _kept(program, settings)
    batches: list[Times] = []
    starts = progress(range(0, len(modules), _BATCH), desc="measure", unit="batch")
    with Bench(local, ROUNDS, settings.seconds).running() as times, ticking(starts):
        for start in starts:
            batch = times(modules[start : start + _BATCH])
            values = median_ratios(batch.ratios, batch.failures)
            kept.add((drawn[start + n], value) for n, value in values.items())
            batches.append(batch)
        failures = [failure for batch in batches for failure in batch.failures]
        if all(failures):
            remedy = "Give more time (seconds=1200), or a program that this machine compiles and runs"
            raise DataError(origin.path, count_failures(failures, len(failures)), remedy)
        measurement = _join(program, source, batches, failures)
        fastest = fastest_config(program, measurement.ratios)
        paired = [] if fastest is None else _compare(modules[fastest], times)
    return replace(measurement, paired=paired)


def _kept(program: ConvertedProgram, settings: MeasureSettings) -> Measured:
    return Measured(resolve(settings.data_root), program.module, program.nodes, device_identity())


def _join(
    program: ConvertedProgram, source: str, batches: Sequence[Times], failures: Sequence[str]
) -> Measurement:
    """Return the measurement of all configurations, which were timed in batches."""
    default = np.concatenate([batch.seconds[:, :2] for batch in batches])
    noise = np.concatenate([batch.noise for batch in batches])
    return Measurement(
        program=program,
        source=source,
        device=device_name(),
        default_ns=float(np.nanmedian(default)) * 1e9,
        noise=float(np.nanmedian(noise)),
        rounds=np.concatenate([batch.ratios for batch in batches], 1),
        failures=failures,
    )


def _compare(module: Module, times: Callable[[Sequence[Module]], Times]) -> list[float]:
    """Return the logarithm of a configuration's time over the default's, both loaded anew for each.

    The fastest of many was chosen by its time, so that time is too low: only what is measured afterwards
    tells whether it is faster.
    """
    logarithms: list[float] = []
    rounds = progress(range(FEWEST), desc="the fastest again", unit="round")
    with ticking(rounds):
        for _ in rounds:
            again = times([module])
            if again.failures[0]:
                break
            logarithms.append(float(np.log(np.median(again.ratios[:, 0]))))
    return logarithms


def table_path(settings: MeasureSettings) -> Path:
    """Return the CSV file of a program's measured runtimes."""
    return resolve(settings.data_root) / MEASURED_FOLDER / f"{settings.program}.csv"


def claiming_table(settings: MeasureSettings) -> AbstractContextManager[None]:
    """Let one process at a time measure for a table, and another of the same name wait.

    Two programs of one name that were measured at the same time would each find no table, and write one.
    """
    return writer_lock(table_path(settings).with_suffix(""))


def _claim_table(settings: MeasureSettings, module: Module) -> None:
    """Refuse to replace the table of another program; note whose it is.

    Raises:
        DataError: The table has the times of another program.
    """
    path = table_path(settings)
    note = path.with_suffix(".json")
    facts = {"program": module_digest(module)}
    if path.exists() and note.is_file() and read_json(note) != facts:
        remedy = f"Give this program another name (name={settings.program}-2) or another output folder"
        raise DataError(path, "has the times of another program", f"{remedy}, or delete that table")
    write_json(note, facts)


def write_measurement(measurement: Measurement, settings: MeasureSettings) -> dict[str, Any]:
    """Write the table and the page.

    Returns:
        What to show, by name.
    """
    path = table_path(settings)
    with atomic_path(path) as temporary:
        measurement.table.to_csv(temporary, index=False)
    page = path.with_suffix(".html")
    with atomic_path(page) as temporary:
        temporary.write_text(measurement.page(settings.program))
    kept = _kept(measurement.program, settings).path
    files = {"table": path, "page": page, "kept for rank and tune": kept}
    return measurement.facts | files | {TO_RANK: rank_command(measurement.source, settings)}


def rank_command(source: str, settings: MeasureSettings) -> str:
    """Return the command, for a shell, that ranks a source with what was measured of it.

    Args:
        source: The file that a ranking reads: of a function the HLO that ran here.
        settings: Settings of the measurement. Those that decide which configurations are drawn, and where
            results are, are in the command where the ranking has another default.
    """
    words = words_of_draw(settings)
    if settings.is_measured or settings.configs > RankSettings().configs:  # else it draws these and more
        words.append(f"configs={settings.configs}")
    return shlex.join(["fastslow", "rank", source, f"known={table_path(settings)}", *words])
