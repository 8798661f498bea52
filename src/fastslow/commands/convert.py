"""The command ``convert``: run the conversion notebook for a program and print what was found."""

from pathlib import Path

from fastslow.commands.notebook import print_facts, run_notebook, with_absolute_paths
from fastslow.core.artifacts import read_manifest
from fastslow.programs.convert import PICTURE, TABLE, ConvertSettings
from fastslow.workflow.run import NOTEBOOK


def convert_program(settings: ConvertSettings) -> Path:
    """Convert a program by executing ``notebooks/50_convert.ipynb``, and print the result.

    Args:
        settings: Settings of the conversion. Relative paths in it start at the working folder; the default of
            ``data_root`` stays in the repository.

    Returns:
        The npz file that was written.

    Raises:
        SettingsError: A setting is wrong, or the source is neither an HLO file nor ``model.py:FUNCTION``.
        DataError: The source does not exist.
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    settings = with_absolute_paths(settings, "source", "data_root")
    npz = settings.npz  # refuses a missing source before a notebook is started
    folder = run_notebook("50_convert", settings)
    facts = read_manifest(folder)["summary"] | {"npz": npz}
    facts |= {"picture": folder / PICTURE, "table": folder / TABLE, "notebook": folder / NOTEBOOK}
    print_facts(facts)
    return npz
