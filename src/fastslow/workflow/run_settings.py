"""Settings of a run, the plan that they make, and what a run of that name was begun with."""

import contextlib
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Le

from fastslow.core.cluster.dask_cluster import check_address
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import writer_lock
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import PLAY, Count, Names, Settings, Unread, find_data, resolve
from fastslow.evaluation.run_record import PICTURES, PLACED, SMOKE, read_run_record, record_run
from fastslow.steps.loggers import require_logger
from fastslow.workflow.presets import MODELS, PRESETS, RULES, SECTIONS, SET_BY_THE_WORKFLOW
from fastslow.workflow.published_presets import PUBLISHED
from fastslow.workflow.steps import DATA_ROOTS, STAGES, Plan, chosen_collections, parse_overrides

# that decide what a run makes; steps' too
_MEMBERS = {"seeds": 0, "folds": 0}  # settings that only a training reads, and their defaults
_OF_NETWORKS = {"init": "", "logger": ""}  # likewise of networks
_RECORDED = ("data", "preset", "seeds", "models", "collections")
_RESERVED = {
    "all": "every run for `make clean`",
    "README.md": "a file of the repository beside the runs",
    PICTURES: "the folder of the plots of `fastslow compare`",
    PLACED: "the folder of the results of `fastslow place`",
    PLAY: "the run of notebooks that are run by hand",
}
"""Names that no run may have, each with what it is."""


class RunSettings(Settings):
    """Settings of a run from npz files to a submission."""

    target: Literal[*STAGES, "submit"] = "submit"
    """Last stage to run; ``submit`` also uploads."""
    data: str = "sample"
    """``sample``, ``kaggle`` (``data/raw``), or a folder that holds ``npz_all/``."""
    preset: Literal["", *PRESETS] = ""
    """Settings to start from; if empty, the data's preset (``kaggle`` for a folder). From ``tpugraphs-mlp``
    on they are published baselines (``docs/baselines.md``): only networks, most of them for one kind."""
    name: str = ""
    """Name of the run: its features, runs and submission are stored under it; if empty, the name of the data
    (with ``predict_with`` and of these models) or of a published baseline. A run that is named resumes with
    the settings that it was begun with."""
    seeds: Count = 0
    """Seeds of each model; 0 for 3, but 1 for tile in the preset ``sample`` and for all in ``smoke``, 5 in
    ``kaggle-full``."""
    models: str = ""
    """Models to train, of ``gnn,ranker``; the preset's if empty. ``rules`` trains none and submits ridge
    regression."""
    folds: Annotated[int, Ge(0), Le(100)] = 0
    """Train so many members of each model in place of ``seeds``; each leaves out another part of the train
    programs, and predicts it. Their predictions of test are averaged. The ensemble's weights are then chosen
    on the parts left out, and valid chooses only epochs. 0 for seeds that learn from all train programs."""
    hours: Annotated[float, Gt(0), Le(10_000)] = 0.0
    """Hours that the run may take. Steps are measured; then seeds and epochs are chosen, at most the
    preset's, and networks learn from segments of large graphs where whole ones take too long. Features and a
    CSV of ridge regression come first, whatever they take. The chosen settings are recorded. Without hours a
    run on this machine has no limit."""
    collections: Names = []
    """Collections to train and predict, such as ``xla:random,nlp:random``; if empty, all that the preset has.
    A submission needs every collection, see ``fill``."""
    fill: bool = False
    """Submit although some collections have no model: ridge regression on their configurations' features
    fills their rows. A warning names them, also on the page of the submission and on the leaderboard."""
    predict_with: str = ""
    """Trained models that predict, so that nothing is trained: ``package`` for the models in the package, or
    a folder of runs (``runs/sample``), also of other data. Features are built as these models read them, of
    test programs and of 1,000 configurations of each valid program. If empty, models are trained."""
    init: str = ""
    """Trained models whose networks the networks start from: ``package``, or a folder of runs. Architecture
    and features must be theirs. With a few epochs networks are better than from nothing. If empty, weights
    are drawn."""
    logger: str = ""
    """What takes every row of metrics of a network's training, beside ``metrics.jsonl``: ``wandb``,
    ``trackio`` (``pip install`` them), or a function of yours as ``module:function``. Empty for none."""
    jobs: Count = 0
    """Maximum number of notebooks that run in parallel; 0 for as many as memory, cores and GPUs allow."""
    cluster: str = ""
    """Dask cluster whose workers run the notebooks: its scheduler (``tcp://host:8786``), or ``slurm`` for up
    to ``jobs`` SLURM jobs as dask-jobqueue is configured; empty for this machine."""
    unproven_order: bool = False
    """Upload although the layout test files are not known to have the row order that Kaggle scores
    (``data/README.md``)."""
    set: list[str] = []
    """Settings of steps, each ``SECTION.NAME=VALUE`` or ``SECTION.SCOPE.NAME=VALUE``, such as
    ``gnn.layout.epochs=20``; a scope is a kind, a source (``layout-xla``) or a collection."""
    overwrite: bool = False
    """Go on with these settings where a run of this name was begun with others, instead of an error. Where
    the run is named, settings that are not given stay those that it was begun with; else they return to their
    defaults."""
    plan: bool = False
    """Print what would run and why, and run nothing."""

    def check(self) -> None:
        """Refuse a logger that is not there and a cluster that can be none, before anything is computed."""
        self.require(bool(self.data.strip()), "data", "sample, kaggle or a folder")
        require_logger(self.logger)
        check_address(self.cluster)
        self.require(self.folds != 1, "folds", "0, or 2 and more")

    def unread(self) -> Unread:
        """Return the fields that this run does not read, each with the reason and the remedy.

        Only a training reads them, and models that are trained already are given, or rules alone are chosen.
        With ``folds`` the number of members is given, so seeds and hours are not read. Only an upload reads
        ``unproven_order``.
        """
        unread: dict[str, tuple[str, str]] = {}
        if self.target != "submit":
            unread["unproven_order"] = "without an upload", "type fastslow submit"
        if self.predict_with:
            names = ("models", "seeds", "folds", "hours", "init", "logger")
            reason = ("with predict_with, which trains nothing", "do without predict_with")
            return unread | dict.fromkeys(names, reason)
        names = [name.strip() for name in self.models.split(",")]
        if self.models and "gnn" not in names:
            unread |= dict.fromkeys(_OF_NETWORKS, ("without networks", "add gnn to models"))
        if self.models == RULES:
            trains_nothing = "with models=rules, which trains nothing", "choose models to train"
            unread |= dict.fromkeys(_MEMBERS, trains_nothing)
        elif self.folds:
            unread["seeds"] = ("with folds: a member for each", "do without folds")
            unread["hours"] = ("with folds, all of which are trained in full", "do without folds")
        return unread

    @classmethod
    def _hint(cls, name: str) -> str:
        """Return which setting may have been meant, of the run or, with its section, of a step."""
        fields = {field for settings in SECTIONS.values() for field in settings.model_fields}
        fields -= {*SET_BY_THE_WORKFLOW}
        if name not in fields and nearest(name, cls.model_fields):
            return super()._hint(name)
        near = difflib.get_close_matches(name, fields, 1)
        sections = [section for section, settings in SECTIONS.items() if {*near} & {*settings.model_fields}]
        if not sections:
            return super()._hint(name)
        named = " or ".join(repr(f"{section}.layout.{near[0]}") for section in sections)
        return f"a setting of a step is typed with its step; did you mean {named}?"


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
        whole = _OF_NETWORKS | whole
    if kept_models == [RULES]:
        whole = _MEMBERS | whole
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
