"""The command ``rank``: run the ranking notebook for a program and print what was found."""

from pathlib import Path

import pandas as pd

from fastslow.commands.notebook import print_facts, run_notebook, with_absolute_paths
from fastslow.core.artifacts import read_manifest
from fastslow.programs.user_program import Source
from fastslow.ranking.rank import EFFECTS, ENDS, IMPOSED, TABLE
from fastslow.ranking.settings import RankSettings
from fastslow.workflow.run import NOTEBOOK

_SHOWN = ["rank", "config", "prediction", "runtime", "over_default", "estimated_cycles"]
_ROWS = 10


def rank_program(settings: RankSettings) -> Path:
    """Rank a program by executing ``notebooks/52_rank.ipynb``, and print the fastest configurations.

    Args:
        settings: Of the ranking. ``source`` and ``data_root`` start at the working folder, and so does
            ``run`` where there is such a folder; otherwise it starts at the repository.

    Returns:
        The CSV that was written.

    Raises:
        SettingsError: A setting is wrong, or the source is of no kind that can be ranked.
        DataError: The source does not exist, no run was trained, or the run is of another collection.
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    settings = with_absolute_paths(settings, "source", "data_root", "hlo_folder", "run")
    Source.of(settings.source, settings.kernel)  # refused before a notebook starts, as is a missing run
    print(f"run: {settings.find_run()}\n", flush=True)
    folder = run_notebook("52_rank", settings)
    table = pd.read_csv(folder / TABLE)
    print(table[[name for name in _SHOWN if name in table]].head(_ROWS).to_string(index=False), "\n")
    facts = read_manifest(folder)["summary"]
    facts |= {"ranking": folder / TABLE, "effects of the choices": folder / EFFECTS}
    if (folder / IMPOSED).exists():
        print(pd.read_csv(folder / IMPOSED).head(_ROWS).to_string(index=False), "\n")
        facts["what can be imposed"] = folder / IMPOSED
    facts |= {"fastest and slowest": folder / ENDS, "notebook": folder / NOTEBOOK}
    print_facts(facts)
    return folder / TABLE
