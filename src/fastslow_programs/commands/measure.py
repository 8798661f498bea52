"""The command ``measure``: times of a program's configurations on this machine, for ``rank known=``."""

from typing import Any

from fastslow.core.files import check_writable
from fastslow.core.tables import facts_text
from fastslow_programs.program.program_settings import MeasureSettings
from fastslow_programs.tuning.measurement import (
    TO_RANK,
    claiming_table,
    measure_source,
    table_path,
    write_measurement,
)


def measure_program(settings: MeasureSettings) -> dict[str, Any]:
    """Measure configurations of a program, write a table of their runtimes, and print where it is.

    Raises:
        SettingsError: JAX is not installed, or the program does not run here.
        DataError: As :func:`measure_source`.
    """
    settings = settings.from_working_folder("source", "data_root")
    check_writable(table_path(settings))
    with claiming_table(settings):
        facts = write_measurement(measure_source(settings), settings)
    print(facts_text({name: fact for name, fact in facts.items() if name != TO_RANK}))
    print(f"{TO_RANK}:\n{facts[TO_RANK]}")  # on one line, to be copied
    return facts
