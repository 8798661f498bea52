"""The command ``convert``: convert a program and print what was found."""

from typing import Any

from fastslow.core.settings import resolve
from fastslow.core.tables import facts_text
from fastslow_programs.program.convert import PICTURE, TABLE, summarise, write_conversion
from fastslow_programs.program.program_settings import ConvertSettings


def convert_program(settings: ConvertSettings) -> dict[str, Any]:
    """Convert a program, and print and return what was found and where it is.

    Args:
        settings: Settings of the conversion. Relative paths in it start at the working folder; the default of
            ``data_root`` stays in the repository.

    Raises:
        SettingsError: A setting is wrong, or the source is neither an HLO file nor ``model.py:FUNCTION``.
        DataError: The source does not exist or cannot be converted.
    """
    settings = settings.from_working_folder("source", "data_root")
    facts = summarise(write_conversion(settings)).to_dict()
    folder = resolve(settings.folder)
    facts |= {"npz": settings.npz, "picture": folder / PICTURE, "table": folder / TABLE}
    print(facts_text(facts))
    return facts
