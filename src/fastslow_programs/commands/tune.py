"""The commands ``tune`` and ``fleet``: search, and print what was found."""

from typing import Any

from fastslow.core.artifacts import MANIFEST
from fastslow.core.files import read_json
from fastslow.core.tables import facts_text, sentences_text
from fastslow_programs.compiler.tuned import TUNED
from fastslow_programs.ranking.models import describe_run
from fastslow_programs.tuning.fleet import PAGE as FLEET_PAGE
from fastslow_programs.tuning.fleet import PROGRAMS, tune_fleet, write_fleet
from fastslow_programs.tuning.result import BEST, CURVE, EVALUATIONS, PAGE, write_result
from fastslow_programs.tuning.settings import NO_RUN, FleetSettings, TuneSettings
from fastslow_programs.tuning.tune import complete_study


def tune_program(settings: TuneSettings) -> dict[str, Any]:
    """Tune a program, write the result, and print and return what was found.

    Args:
        settings: ``source`` and ``data_root`` start at the working folder, and so does ``run`` where
            there is such a folder; otherwise it starts at the repository.

    Raises:
        SettingsError: A setting is wrong, or a source of this kind cannot be tuned.
        DataError: The source does not exist, no run was trained, or the run belongs to another collection.
    """
    settings = settings.from_working_folder("source", "data_root", "run")
    _print_models(settings)
    folder = write_result(complete_study(settings))
    facts = read_json(folder / MANIFEST)["summary"]
    files = {"best configuration": BEST, "its HLO, to compile": TUNED, "every evaluation": EVALUATIONS}
    files |= {"page with the curve": PAGE, "curve": CURVE, "study": settings.journal.name}
    facts |= {what: folder / name for what, name in files.items() if (folder / name).exists()}
    print(facts_text(facts))
    return facts | {"best": read_json(folder / BEST) if (folder / BEST).exists() else None}


def _print_models(*programs: TuneSettings) -> None:
    """Print which trained models guide, before anything is computed."""
    runs = dict.fromkeys(program.find_run() for program in programs)
    models = [f"models: {describe_run(run) if run else NO_RUN}" for run in runs]
    print(sentences_text(models), end="\n\n", flush=True)


def tune_programs(settings: FleetSettings) -> dict[str, Any]:
    """Tune the programs of a list with one budget, write the result, and print and return what was saved.

    Raises:
        SettingsError: A setting is wrong.
        DataError: The list, a program, its run or a study cannot be used, or all evaluations failed.
    """
    settings = settings.typed()
    _print_models(*(program for program, _ in settings.read()))
    folder = write_fleet(tune_fleet(settings), settings)
    files = {"page": folder / FLEET_PAGE, "table": folder / PROGRAMS}
    facts = read_json(folder / MANIFEST)["summary"] | files
    print(facts_text(facts))
    return facts
