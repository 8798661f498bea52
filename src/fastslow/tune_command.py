"""The commands ``tune`` and ``fleet``: run their notebooks and print what was found."""

from pathlib import Path

from fastslow.convert_command import with_absolute_paths
from fastslow.core.artifacts import read_manifest
from fastslow.core.settings import PROJECT, resolve
from fastslow.programs.user_program import Source
from fastslow.steps import Step
from fastslow.tuning.config import TuneConfig
from fastslow.tuning.result import BEST, CURVE, EVALUATIONS, PROGRAM
from fastslow.workflow import NOTEBOOK, run_step


def tune_program(config: TuneConfig) -> Path:
    """Tune a program by executing ``notebooks/54_tune.ipynb``, and print what was found.

    Args:
        config: Settings. ``source`` and ``data_root`` start at the working folder, and so does ``run`` where
            there is such a folder; otherwise it starts at the repository.

    Returns:
        The folder of the study.

    Raises:
        ConfigError: A setting is wrong, or the source is of no kind that can be tuned.
        DataError: The source does not exist, no run was trained, or the run is of another collection.
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    paths = ["source", "data_root"] + (["run"] if Path(config.run).is_dir() else [])
    config = with_absolute_paths(config, *paths)
    Source.of(config.source)  # refused before a notebook is started, as is a missing or a wrong run
    config.find_run()
    run_step(Step("tune", PROJECT / "notebooks" / "54_tune.ipynb", config))
    folder = resolve(config.folder)
    facts = read_manifest(folder)["summary"]
    files = {"best configuration": BEST, "its HLO, to compile": PROGRAM, "every evaluation": EVALUATIONS}
    files |= {"curve": CURVE, "study": config.ledger.name, "notebook": NOTEBOOK}
    facts |= {what: folder / name for what, name in files.items() if (folder / name).exists()}
    for name, value in facts.items():
        print(f"{name:22} {value}")
    return folder
