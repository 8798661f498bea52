"""The command ``place``: run the placing notebook for a program and print the comparison."""

import json
from typing import Any

import pandas as pd

from fastslow.core.files import read_json, remove_abandoned
from fastslow.core.settings import PROJECT, resolve
from fastslow.core.tables import sentences_text, table_text
from fastslow.evaluation.training_files import NOTEBOOK
from fastslow.workflow.execution import counting, run_step
from fastslow.workflow.steps import Step
from fastslow_placement.place import (
    DECISION,
    DEVICE_TABLE,
    PAGE,
    PICTURES,
    PLACEMENT,
    TABLE,
    WORDS,
    readable_methods,
    refuse_another_program,
)
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.settings import PlaceSettings

WHOLE = "Whole operators go to devices, and none is split: splitting is the task of Alpa and Shardy"


def place_program(settings: PlaceSettings) -> dict[str, Any]:
    """Compare all methods on a program by executing ``notebooks/61_place.ipynb``, and print the table.

    Args:
        settings: Settings. Relative paths in it start at the working folder; a zoo program and the default of
            ``out`` do not.

    Returns:
        The rows of the table, the words and the files, as they are printed, and what a placement gains.

    Raises:
        SettingsError: A setting is wrong, or no decision is valid.
        DataError: The source does not exist or is wrong, or the folder has the placement of another program.
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    settings = settings.typed()
    path = settings.path
    if path and not settings.function:
        read_cost_graph(path, settings.device_model)  # refuses a wrong one before a notebook starts
        refuse_another_program(settings, None)
    folder = resolve(settings.folder)
    remove_abandoned(folder.parent, "*/.*")  # of an interrupted run of another program
    print(sentences_text([WHOLE]), flush=True)
    with counting("place"):
        run_step(Step("place", PROJECT / "notebooks" / "61_place.ipynb", settings))
    table = pd.read_csv(folder / TABLE)
    print(f"{table_text(readable_methods(table))}\n")
    print(sentences_text((folder / WORDS).read_text().splitlines()), end="\n\n")
    if (folder / DEVICE_TABLE).is_file():
        print(f"{table_text(pd.read_csv(folder / DEVICE_TABLE))}\n")
    names = (PAGE, TABLE, PLACEMENT, DECISION, *PICTURES, NOTEBOOK)
    files = [folder / name for name in names if (folder / name).is_file()]
    print(*files, sep="\n")
    found = (folder / WORDS).read_text().splitlines()
    rows = json.loads(table.to_json(orient="records"))
    gain = read_json(folder / DECISION).get("gain")
    return {"found": found, "gain": gain, "table": rows, "files": files}
