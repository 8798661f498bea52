"""The plan of a run: its outdated steps with reasons and time."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError, counted
from fastslow.core.settings import resolve
from fastslow.core.tables import wrapped
from fastslow.evaluation.training_files import NOTEBOOK, notebook_seconds
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.training_groups import trained_together
from fastslow.workflow.settings.presets import HOURS, STAGES
from fastslow.workflow.steps import ROUNDS, Step

_MOST_NAMED = 3  # steps that another one waits for


def look(step: Step) -> tuple[bool, list[str]]:
    """Return whether a step is up to date, and what has changed since it was made."""
    artifact = step.settings.artifact()
    current = artifact.is_current() and (artifact.folder / NOTEBOOK).is_file()
    return current, [] if current else artifact.changes()


def print_outlook(steps: list[Step], preset: str, data: str, refused: str = "") -> None:
    """Print which steps would run, stage by stage, with reasons and time; nothing is run or written.

    Args:
        steps: In the order of their stages.
        preset: Name of the preset; empty where nothing is trained.
        data: ``sample``, ``kaggle`` or a folder. The hours of a preset hold for its own data only.
        refused: Why the run would raise an error; empty if it would not.
    """
    outdated: dict[str, str] = {}  # name of the step that will write a folder
    due = []
    for stage in STAGES:
        of_stage = [step for step in steps if step.stage == stage]
        reasons = {step.name: _reasons(step, outdated) for step in of_stage}
        if of_stage:
            print(f"{stage}: {sum(not why for why in reasons.values())} of {len(of_stage)} up to date")
        _print_reasons(reasons)
        for step in (step for step in of_stage if reasons[step.name]):
            outdated |= dict.fromkeys(_outputs(step), step.name)
            due.append(step)
    if due:
        print_wrapped(_estimate(due, preset if preset == data else ""))
    ends = f". The command would end with an error: {refused.removeprefix('name: ')}" if refused else ""
    print_wrapped(f"this is the plan; nothing was run{ends}")


def print_wrapped(text: str, first: str = "", further: str = "") -> None:
    """Print a text on lines as wide as the terminal, with indents of the first line and of further ones."""
    print(wrapped(text, shutil.get_terminal_size().columns, first, further), flush=True)


def _print_reasons(reasons: Mapping[str, Sequence[str]]) -> None:
    """Print each reason once, with the steps of a stage that it holds for, on lines of a terminal.

    Args:
        reasons: Why a step would run, by its name; nothing where it is up to date.
    """
    names: dict[str, list[str]] = {}
    for name, of_step in reasons.items():
        for reason in of_step:
            names.setdefault(reason, []).append(name)
    for reason, of_reason in names.items():
        said = "all" if 1 < len(of_reason) == len(reasons) else ", ".join(of_reason)
        print_wrapped(f"{said}: {reason}", "  ", "      ")


def _estimate(steps: list[Step], preset: str) -> str:
    """Return how long steps take by their executed notebooks of the last run, or by what is measured.

    Args:
        steps: The steps that would run.
        preset: Name of the preset that trains on its own data; empty for none.
    """
    known = [seconds for seconds in map(_expected_seconds, steps) if seconds is not None]
    minutes = f"{sum(known) / 60:.0f} min for {len(known)} of {counted(len(steps), 'step')}"
    said = [f"{minutes}, one after the other, as last time, in proportion to epochs and trees"]
    if len(known) < len(steps):
        never = f"not known of {counted(len(steps) - len(known), 'step')}, which never ran here"
        if hours := HOURS.get(preset):
            never += f"; the whole preset {preset} takes about {hours:g} h on two cores"
        said = said * bool(known) + [never]
    return f"time: {'; '.join(said)}"


def _expected_seconds(step: Step) -> float | None:
    """Return the seconds of a step by its last run; None where it never ran here."""
    folder = resolve(step.settings.folder)
    seconds = notebook_seconds(folder)
    if seconds is None:
        return None
    try:
        before = read_manifest(folder)["settings"]
    except DataError:  # the step was begun again since, so its settings of last time are not known
        return seconds
    now = step.settings.asdict()
    for name in ROUNDS.values():
        if name in before:
            seconds *= now[name] / before[name]
    return seconds


def _reasons(step: Step, outdated: dict[str, str]) -> list[str]:
    """Return why a step would run; nothing where it is up to date."""
    after = _after({outdated[path] for path in _inputs(step) if path in outdated})
    try:
        current, changes = look(step)
    except DataError as error:
        return after or [str(error)]
    made = (resolve(step.settings.folder) / MANIFEST).is_file()
    reasons = [] if current else list(changes)
    if not (current or changes or made):
        reasons.append("not made yet")
    reasons += after
    if not (current or reasons):
        reasons.append("incomplete")
    return reasons


def _after(names: set[str]) -> list[str]:
    """Return in words after which other steps a step runs; nothing where it waits for none."""
    if len(names) > _MOST_NAMED:
        return [f"after {counted(len(names), 'step')} above"]
    return [f"after {', '.join(sorted(names))}"] if names else []


def _outputs(step: Step) -> list[str]:
    trains = isinstance(step.settings, TrainSettings | RankerSettings)
    return [step.settings.folder, *(step.settings.runs if trains else [])]


def _inputs(step: Step) -> Iterator[str]:
    """Yield the folders that a step reads, and other texts of its settings."""
    settings = step.settings
    for value in settings.asdict().values():
        if isinstance(value, list):
            yield from value
        elif isinstance(value, str):
            yield value
    if isinstance(settings, RankerSettings):
        features = Path(settings.features)
        for collection in (each for each in COLLECTIONS if each.slug == features.name):
            for other in trained_together(collection, settings.train_on):
                yield str(features.parent / other.slug)
