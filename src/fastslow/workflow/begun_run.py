"""The plan that the settings of a run make, and what a run of that name was begun with."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import writer_lock
from fastslow.core.settings import PLAY, find_data, resolve
from fastslow.evaluation.run_record import PICTURES, PLACED, SMOKE, read_run_record, record_run
from fastslow.workflow.settings.presets import MODELS, RULES
from fastslow.workflow.settings.published_presets import PUBLISHED
from fastslow.workflow.settings.run_settings import OF_NETWORKS, OF_TRAINING, RunSettings
from fastslow.workflow.settings.sections import SECTIONS
from fastslow.workflow.steps import DATA_ROOTS, Plan, chosen_collections, parse_overrides

_RECORDED = ("data", "preset", "seeds", "models", "collections")  # that decide what a run makes
_RESERVED = {
    "all": "every run for `make clean`",
    "README.md": "a file of the repository beside the runs",
    PICTURES: "the folder of the plots of `fastslow compare`",
    PLACED: "the folder of the results of `fastslow place`",
    PLAY: "the run of notebooks that are run by hand",
}
"""Names that no run may have, each with what it is."""


def make_plan(settings: RunSettings) -> Plan:
    """Return the plan of a run: its data, preset, name and steps.

    Args:
        settings: An empty preset is the data's (``kaggle`` for a folder). An empty name is the data's, or a
            published baseline's.

    Raises:
        SettingsError: The name is no plain folder name, or names something else.
    """
    known = settings.data in DATA_ROOTS
    preset = settings.preset or (settings.data if known else "kaggle")
    folder = settings.data if known else Path(os.path.realpath(resolve(settings.data))).name
    name = settings.name or folder
    if not settings.name and preset == SMOKE:
        name = SMOKE
    elif not settings.name and preset in PUBLISHED:
        name = preset if folder == "sample" else f"{folder}-{preset}"
    if not settings.name and settings.predict_with:
        name = f"{name}-{Path(settings.predict_with).name}"
    plain = Path(name).name == name == name.strip() and not name.startswith(".")
    if not name or not plain or len(name.encode()) > 100:
        allowed = "a plain folder name of at most 100 bytes, without blanks at its ends"
        raise SettingsError("name", f"{name[:60]!r} is not {allowed}")
    if name in _RESERVED:
        raise SettingsError("name", f"{name!r} is {_RESERVED[name]}; give this run another NAME (name=mine)")
    overrides = parse_overrides(settings.set)
    only = tuple(collection.name for collection in chosen_collections(settings.collections))
    return Plan(
        data=settings.data,
        name=name,
        preset=preset,
        seeds=settings.seeds,
        overrides=overrides,
        jobs=settings.jobs,
        models=settings.models,
        only=only,
        fill=settings.fill,
        predict_with=settings.predict_with,
        init=settings.init,
        logger=settings.logger,
        folds=settings.folds,
    )


class Resumed(NamedTuple):
    """A run that may have been begun before.

    Args:
        plan: The plan, with the settings that a budget of hours chose, if any.
        recorded: Settings that decide what it makes, for its record.
        chosen: Settings that a budget of hours chose; None where it has not been asked yet.
        used: Seconds of a budget of hours that were used before an interruption, where nothing is chosen yet.
        refused: Reason to refuse it; empty where no run of that name was begun with other settings. A
            default that is given is no other setting.
        changed: In words, which settings it was begun with and now has others; empty where there are none.
    """

    plan: Plan
    recorded: dict[str, Any]
    chosen: dict[str, Any] | None
    used: float = 0.0
    refused: str = ""
    changed: str = ""


def add_chosen(settings: RunSettings, chosen: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run with what a budget of hours chose in place of its own."""
    kept_models = chosen.get("models", ",".join(MODELS["layout"])).split(",")
    gone = {*chosen, *MODELS["layout"]} - {*kept_models}
    kept = [text for text in settings.set if gone.isdisjoint({_name(text), text.partition(".")[0]})]
    whole, steps = _texts(chosen)
    if "gnn" in gone:
        whole = OF_NETWORKS | whole
    if kept_models == [RULES]:
        whole = OF_TRAINING | whole
    return settings.replace(**whole, set=[*kept, *steps])


def begun_with(settings: RunSettings, recorded: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a command with recorded settings in place of all that decide what it makes."""
    typed = _recorded(settings, make_plan(settings))
    whole, steps = _texts(recorded)
    undecisive = [text for text in settings.set if _name(text) not in typed]  # such as features.workers
    return settings.replace(**whole, set=[*undecisive, *steps])


def resume(settings: RunSettings) -> Resumed:
    """Return the plan of a run that may have been begun before.

    Where it is named, settings that are not given are those that it was begun with, with ``overwrite`` too.
    A run of the preset ``smoke`` without a name is always begun anew.

    Raises:
        SettingsError: A setting is wrong, or does not fit those that the run was begun with.
    """
    plan = make_plan(settings)
    typed = _recorded(settings, plan)
    record = {}
    with contextlib.suppress(DataError):  # broken: written anew
        record = read_run_record(resolve(f"runs/{plan.name}"))
    before = record.get("settings", {})
    if not before or (plan.preset == SMOKE and not settings.name):
        return Resumed(plan, typed, None)
    given = {name: typed[name] for name in typed if name in settings.model_fields_set or "." in name}
    merged = before | given if settings.name else typed
    changes = _changes(before, merged, plan.name)
    if changes or settings.overwrite:
        return _go_on(settings, plan, typed, merged, changes)
    begun = begun_with(settings, before)
    chosen = record.get("chosen")
    return Resumed(make_plan(add_chosen(begun, chosen or {})), before, chosen, record.get("used", 0.0))


def _go_on(
    settings: RunSettings, plan: Plan, typed: dict[str, Any], merged: dict[str, Any], changes: list[str]
) -> Resumed:
    """Return a begun run with other settings. Without ``overwrite``, or if they do not fit, refuse it."""
    changed = f"runs/{plan.name} was begun {'; '.join(changes) or 'before'}"
    remedy = "or overwrite=True to go on with these"
    try:
        other = make_plan(begun_with(settings, merged))
        other.steps()
    except SettingsError as error:
        remedy = f"or change what does not fit the settings that it was begun with ({error})"
    else:
        plan, typed = other, merged
        if settings.overwrite:
            return Resumed(plan, merged, None, changed=changed if changes else "")
    refused = f"name: {changed}. Give another NAME (name=mine) for a run of its own, {remedy}; see --plan"
    return Resumed(plan, typed, None, refused=refused, changed=changed)


def begin(settings: RunSettings, resumed: Resumed) -> None:
    """Write down what a run is begun with, before anything that takes seconds.

    Another command may have begun a run of this name since :func:`resume` looked. Check and record are under
    one lock, so that the later of two ends with the error of one that starts later.

    Args:
        settings: Settings of the command.
        resumed: What :func:`resume` made of them.

    Raises:
        SettingsError: A run of this name was begun with other settings, or holds a single model.
    """
    plan = resumed.plan
    folder = resolve(f"runs/{plan.name}")
    with writer_lock(folder):
        now = resume(settings)
        if now.refused:
            raise SettingsError(now.refused)
        if now.recorded != resumed.recorded:  # which a command that gives only the name would have taken
            problem = f"runs/{plan.name} was begun by another command just now"
            raise SettingsError("name", f"{problem}; type this one again, and it resumes that run")
        record_run(folder, plan.data_root, plan.preset, now.recorded, now.chosen, now.used)


def _recorded(settings: RunSettings, plan: Plan) -> dict[str, Any]:
    """Return the settings of a command that decide what it makes, a step's by its dotted name."""
    recorded = {name: getattr(settings, name) for name in _RECORDED}
    recorded |= {"preset": plan.preset, "collections": [*plan.only]}
    if settings.hours:
        recorded["hours"] = settings.hours
    if settings.fill:
        recorded["fill"] = True
    for name in ("predict_with", "init", "folds"):
        if value := getattr(settings, name):
            recorded[name] = value
    for section, values in plan.overrides.items():
        decisive = SECTIONS[section.partition(".")[0]].decisive()
        recorded |= {f"{section}.{name}": value for name, value in values.items() if name in decisive}
    return recorded


def _changes(before: Mapping[str, Any], merged: Mapping[str, Any], name: str) -> list[str]:
    """Return which settings differ, in words; none where both make the same, such as a default given."""
    if before == merged:
        return []
    with contextlib.suppress(SettingsError):  # of a former version: what it made is not known
        if _resolved(before, name) == _resolved(merged, name):
            return []
    differing = [key for key in {**before, **merged} if before.get(key) != merged.get(key)]
    begun = [f"with {key}={before[key]!r}" if key in before else f"without {key}" for key in differing]
    now = [f"{key}={merged[key]!r}" if key in merged else f"without {key}" for key in differing]
    return [f"{first}, now {second}" for first, second in zip(begun, now, strict=True)]


def _resolved(recorded: Mapping[str, Any], name: str) -> tuple:
    """Return what settings come to: data, hours, and by step every value that decides what it makes."""
    whole, texts = _texts(recorded)
    settings = RunSettings(**whole, set=texts, name=name)
    plan = make_plan(settings)
    steps = {}
    for step in plan.steps():
        values = step.settings.asdict()
        unread = step.settings.unread()
        steps[step.name] = {key: values[key] for key in step.settings.decisive() if key not in unread}
    return os.path.realpath(find_data(plan.data_root)), settings.hours, steps


def _texts(recorded: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a whole run by name, and a step's as texts for ``set``."""
    whole = {name: value for name, value in recorded.items() if "." not in name}
    return whole, [f"{name}={value!r}" for name, value in recorded.items() if "." in name]


def _name(text: str) -> str:
    return text.partition("=")[0]
