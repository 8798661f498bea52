"""The steps from npz files to a submission: notebook, settings and order of each."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.core.errors import SettingsError
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import PROJECT, find_data, parse_value, resolve
from fastslow.runs.packaged import packaged_models
from fastslow.runs.run_manifest import find_members, find_run, read_run_manifest
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings, recipe_settings
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.submission import SubmissionSettings
from fastslow.steps.training_groups import TRAIN_ON, training_groups
from fastslow.workflow.settings.presets import MODELS, PACKAGED, STAGES, preset_seeds, trained_models
from fastslow.workflow.settings.sections import SCOPES, SECTIONS, preset_settings, sections_of

VALID_CONFIGS = 1000
"""Configurations of a valid program that trained models predict: as many as a published test program has. All
of a published valid program, 56,534 in the mean for nlp, would take most of the time."""
DATA_ROOTS = {"sample": "data/sample", "kaggle": "data/raw"}
NOTEBOOKS = {
    "features": "10_features",
    "gnn": "20_train_network",
    "ranker": "22_train_ranker",
    "ensemble": "30_ensemble",
}
"""The notebook of each section's step."""
ROUNDS = {"gnn": "epochs", "ranker": "num_iterations"}
"""By model, the setting that the time of its training is proportional to."""


@dataclass(frozen=True)
class Step:
    """One execution of one notebook."""

    stage: str  # one of STAGES; a stage needs all steps of those before it
    notebook: Path
    settings: Any
    section: str = ""  # of the command line, whose settings it reads: gnn.layout-xla-default

    @property
    def name(self) -> str:
        """Last part of the folder it writes, such as ``training-tile-s0``; of features ``features NAME``."""
        folder = Path(self.settings.folder).name
        return f"features {folder}" if self.stage == "features" else folder


@dataclass(frozen=True)
class Plan:
    """A plan: data, preset, seeds and settings, from which the steps follow.

    Args:
        data: ``sample``, ``kaggle``, or a folder that holds ``npz_all/``.
        name: Name of the run: its features, runs and submission are stored under it.
        preset: Name of the preset.
        seeds: Number of seeds of each model; 0 for the preset's.
        overrides: Settings by section, which take precedence over the preset's.
        jobs: Maximum number of notebooks that run in parallel; 0: planned by their needs.
        models: Models to train, separated by commas; empty for the preset's.
        only: Names of the collections to train and predict; empty for all that the preset has.
        fill: Whether a rule fills the rows of the other collections.
        predict_with: Trained models that predict, so that none is trained: ``package``, or a folder of runs
            or of one model; empty for none.
        init: Trained models whose networks the training of networks starts from, named likewise.
        logger: What takes every row of metrics of the training of networks, see ``TrainSettings``.
        folds: Parts of the train programs, of which each member leaves out one; 0 for seeds.
    """

    data: str
    name: str
    preset: str
    seeds: int
    overrides: dict[str, dict]
    jobs: int
    models: str = ""
    only: tuple[str, ...] = ()
    fill: bool = False
    predict_with: str = ""
    init: str = ""
    logger: str = ""
    folds: int = 0

    @property
    def data_root(self) -> str:
        """Folder that holds ``npz_all/``."""
        return DATA_ROOTS.get(self.data, self.data)

    @property
    def collections(self) -> list[Collection]:
        """The chosen collections that the chosen models predict."""
        models = trained_models(self.preset, self.models)
        return [c for c in COLLECTIONS if c.kind in models and (not self.only or c.name in self.only)]

    @property
    def filled(self) -> list[Collection]:
        """The collections without a model whose rows a rule fills."""
        predicted = self.collections
        return [c for c in COLLECTIONS if self.fill and c not in predicted]

    @property
    def csv(self) -> str:
        """The CSV to submit."""
        return f"submissions/{self.name}.csv"

    def _step(self, stage: str, section: str, scope: str, /, **fixed) -> Step:
        settings = TrainSettings if section == "gnn" else SECTIONS[section]
        with self.naming(section, scope):
            given = preset_settings(self.preset, self.overrides, section, scope)
            given.pop("train_on", None)  # known by the features, or among the fixed
            for name in given:
                if name in fixed:
                    problem = "is set by the workflow; run the notebook alone to choose it"
                    raise SettingsError(name, problem)
            step = Step(stage, _notebook(section), settings(**{**given, **fixed}), f"{section}.{scope}")
            if isinstance(step.settings, RankerSettings):
                step.settings.require_kind(scope.partition("-")[0])
        return step

    @contextlib.contextmanager
    def naming(self, section: str, scope: str) -> Iterator[None]:
        """Name a setting in an error by the path that was typed for it."""
        try:
            yield
        except SettingsError as error:
            if not error.name:
                raise
            paths = sections_of(section, scope)
            typed = [path for path in paths if error.name in self.overrides.get(path, {})]
            raise error.named(f"{typed[-1] if typed else paths[1]}.{error.name}") from None

    def steps(self, last: str = "") -> list[Step]:
        """Return every step in order of the stages.

        Args:
            last: Stage to end with; empty for the last one that the preset has.

        Raises:
            SettingsError: A setting is not allowed, is set by the workflow, or belongs to a step that is not
                run; or a submission needs models that predict all collections.
        """
        collections = self.collections
        kinds = {collection.kind for collection in collections}
        trained = trained_models(self.preset, self.models)
        models = {kind: names for kind, names in trained.items() if kind in kinds}
        if not models:
            raise SettingsError(
                "collections", f"preset {self.preset} predicts none of {', '.join(self.only)}"
            )
        self._check_overrides(models)
        filled = self.filled
        every = [c for c in COLLECTIONS if c in (*collections, *filled)]
        long = sorted(every[::-1], key=lambda c: c.kind == "layout" and c.slug != "layout-nlp-random")
        steps = [self._feature_step(c) for c in long]  # what takes longest starts first, as with models
        if not self.predict_with:
            for model in ("gnn", "ranker"):  # the longest first: networks, then the ranker of tile
                trainings: list[Step] = []
                for kind in models:
                    if model in models[kind]:
                        trainings += self._trainings(model, kind)
                steps += trainings if model == "gnn" else trainings[::-1]
        steps += [self._ensemble_step(c, () if c in filled else models[c.kind]) for c in every]
        if len(every) == len(COLLECTIONS):
            steps.append(self._submission())
        elif last == "submission":
            what = f"models: {self.models}" if self.models else f"preset: {self.preset}"
            what = f"{what} predicts only {', '.join(models)}"
            what = f"collections: only {self._chosen}" if self.only else what
            remedy = "a submission needs all five collections; run `make train` or `make ensemble` with it,"
            remedy += " or give fill=True: a rule fills the others' rows"
            raise SettingsError(f"{what}; {remedy}")
        return [step for step in steps if not last or STAGES.index(step.stage) <= STAGES.index(last)]

    def trained(self, c: Collection) -> Path | None:
        """Return the folder of the trained ensemble or model that predicts a collection, if one is given.

        Raises:
            DataError: ``predict_with`` names no such folder, or one without models of the collection.
        """
        if not self.predict_with or c in self.filled:
            return None
        return _trained_run(self.predict_with, c)

    def _start(self, group: list[Collection], seed: int) -> str:
        """Return the run folder of the network that a seed starts from, which learned with that seed.

        The first collection of the group that has networks gives it: a rule may have filled others.
        """
        networks: list[Path] = []
        for c in group:
            ensemble = _trained_run(self.init, c)
            manifest = read_run_manifest(ensemble)
            networks = [*find_members(ensemble, manifest, "gnn").values()]
            if networks or "members" not in manifest:  # a single model has none for other collections
                break
        if not networks:
            raise SettingsError("init", f"{self.init} has no network among its members; name another run")
        return str(networks[seed % len(networks)])

    def _feature_step(self, c: Collection) -> Step:
        trained = self.trained(c)
        fixed = {"data_root": self.data_root, "folder": self._features(c), "train": not trained}
        step = self._step("features", "features", c.slug, collection=c.name, **fixed)
        if trained:
            keyed = recipe_settings(trained).asdict()
            recipe = {name: keyed[name] for name in FeatureSettings.keyed()}
            drawn = step.settings.valid_configs or VALID_CONFIGS
            return replace(step, settings=step.settings.replace(**recipe, valid_configs=drawn))
        return step

    def _groups(self, model: str, kind: str) -> tuple[str, dict[str, list[Collection]]]:
        """Return the collections that one model learns from together, by the name that they share.

        Where only a part of a group is chosen, a narrower ``train_on`` makes the groups; it comes first.
        """
        with self.naming(model, kind):
            given = preset_settings(self.preset, self.overrides, model, kind)
            if model == "gnn":
                given = {**given, "kind": kind}
            widest = SECTIONS[model](**given).asdict()["train_on"]
        chosen = {*self.collections}
        for train_on in TRAIN_ON[TRAIN_ON.index(widest) :: -1]:
            every = training_groups(kind, train_on)
            groups = {name: group for name, group in every.items() if chosen & {*group}}
            if all(chosen >= {*group} for group in groups.values()):
                break
        return train_on, groups

    def _trainings(self, model: str, kind: str) -> list[Step]:
        """Return the trainings of a model: each learns from a group of collections and predicts for all."""
        steps = []
        train_on, groups = self._groups(model, kind)
        for name, group in groups.items():
            for seed in self._seeds(kind):
                features = [self._features(c) for c in group]
                runs = [self._run(model, c, seed) for c in group]
                if model == "gnn":
                    folder = f"runs/{self.name}/training-{name}-s{seed}"
                    fixed = {"kind": kind, "features": features, "folder": folder, "runs": runs}
                    if self.init:
                        fixed["init"] = self._start(group, seed)
                    if self.logger:
                        fixed["logger"] = self.logger
                else:
                    fixed = {"features": features[0], "folder": runs[0], "runs": runs[1:]}
                    fixed["train_on"] = train_on
                if self.folds:
                    fixed["folds"] = self.folds
                steps.append(self._step("train", model, _scope(name, group), seed=seed, **fixed))
        return steps

    def _ensemble_step(self, c: Collection, models: tuple[str, ...]) -> Step:
        folders = {"features": self._features(c), "folder": self._ensemble(c)}
        if trained := self.trained(c):
            settings = EnsembleSettings(trained=str(trained), runs=[], **folders)
            return Step("ensemble", _notebook("ensemble"), settings, f"ensemble.{c.slug}")
        runs = [self._run(model, c, seed) for model in models for seed in self._seeds(c.kind)]
        return self._step("ensemble", "ensemble", c.slug, runs=runs, trained="", **folders)

    def _submission(self) -> Step:
        submission = SubmissionSettings(
            data_root=self.data_root,
            features=[self._features(c) for c in COLLECTIONS],
            ensembles=[self._ensemble(c) for c in COLLECTIONS],
            csv=self.csv,
            folder=f"runs/{self.name}/submission",
        )
        return Step("submission", PROJECT / "notebooks" / "40_submission.ipynb", submission)

    def _check_overrides(self, models: dict[str, tuple[str, ...]]) -> None:
        """Refuse settings of what is not trained, or of a part of what is trained together."""
        for section, given in self.overrides.items():
            step, _, scope = section.partition(".")
            decided = [name for name in given if step != "features" or name in FeatureSettings.keyed()]
            if self.predict_with and decided:
                problem = "is decided by the trained models; leave it out, or do without predict_with"
                raise SettingsError(f"{section}.{decided[0]}", problem)
            kind = scope.partition("-")[0]
            trains = step in MODELS["layout"]
            collections = self.collections if trains else [*self.collections, *self.filled]
            kinds = [c.kind for c in collections if not scope or f"{c.slug}-".startswith(f"{scope}-")]
            if not kinds or (trains and not any(step in models[kind] for kind in kinds)):
                raise SettingsError(section, self._no_step(models, step, scope))
            if not trains or scope in ("", kind):
                continue
            if "train_on" in given:
                raise SettingsError(f"{section}.train_on", f"is chosen for a kind: {step}.{kind}.train_on")
            _, groups = self._groups(step, kind)
            if not any(f"{_scope(*group)}-".startswith(f"{scope}-") for group in groups.items()):
                remedy = f"set {step}.{kind}.train_on='collection', or give the setting for {step}.{kind}"
                raise SettingsError(section, f"is trained together with other collections; {remedy}")

    def _no_step(self, models: dict[str, tuple[str, ...]], step: str, scope: str) -> str:
        """Return why no step reads a section: which setting, of models or collections, leaves it out."""
        every = trained_models(self.preset, self.models)
        kinds = {c.kind for c in COLLECTIONS if not scope or f"{c.slug}-".startswith(f"{scope}-")}
        trains = step in MODELS["layout"]
        if self.only and any(kind in kinds and (step in every[kind] or not trains) for kind in every):
            what = "this choice of collections has no such step; it trains"
            return f"{what} {self._chosen if any(models.values()) else 'nothing'} (see collections)"
        what = "this choice of models" if self.models else f"preset {self.preset}"
        named = [f"{', '.join(names)} of {kind}" for kind, names in models.items() if names]
        return f"{what} has no such step; it trains {' and '.join(named) or 'nothing'} (see models)"

    @property
    def _chosen(self) -> str:
        return ", ".join(collection.name for collection in self.collections)

    def _seeds(self, kind: str) -> range:
        return range(self.folds or self.seeds or preset_seeds(self.preset, kind))

    def _features(self, collection: Collection) -> str:
        return f"features/{self.name}/{collection.slug}"

    def _run(self, model: str, collection: Collection, seed: int) -> str:
        return f"runs/{self.name}/{model}-{collection.slug}-s{seed}"

    def _ensemble(self, collection: Collection) -> str:
        return f"runs/{self.name}/ensemble-{collection.slug}"


def _trained_run(named: str, c: Collection) -> Path:
    """Return the folder of the ensemble or model of a collection in the package or in a folder of runs."""
    return find_run(packaged_models() if named == PACKAGED else resolve(named), c)


def _notebook(section: str) -> Path:
    return PROJECT / "notebooks" / f"{NOTEBOOKS[section]}.ipynb"


def _scope(name: str, group: list[Collection]) -> str:
    """Return the scope of a group of collections: the one collection, or the part of the name they share."""
    return group[0].slug if len(group) == 1 else name


def chosen_collections(names: list[str]) -> list[Collection]:
    """Return the collections of some names, in the order of the names.

    Args:
        names: Such as ``layout:xla:random``, in tables ``xla:random``, in folders ``layout-xla-random``.

    Raises:
        SettingsError: There is no collection of a name.
    """
    known = {collection.name.removeprefix("layout:"): collection for collection in COLLECTIONS}
    known |= {name: collection for collection in COLLECTIONS for name in (collection.name, collection.slug)}
    if unknown := [name for name in names if name not in known]:
        listed = ", ".join(collection.name for collection in COLLECTIONS)
        raise SettingsError("collections", f"{unknown[0]!r} is none of {listed}{nearest(unknown[0], known)}")
    return [known[name] for name in names]


def check_data(data: str) -> None:
    """Refuse data of a wrong name. The files of the competition may not be there yet.

    Raises:
        SettingsError: They are neither ``sample`` nor ``kaggle`` nor a folder.
    """
    if data not in DATA_ROOTS and not find_data(data).is_dir():
        problem = f"{data!r} is neither sample nor kaggle nor a folder; name one that holds npz_all/"
        raise SettingsError("data", f"{problem}{nearest(data, DATA_ROOTS)}")


def parse_overrides(texts: list[str]) -> dict[str, dict]:
    """Read settings of steps from texts such as ``gnn.epochs=20`` or ``gnn.layout.epochs=20``.

    Args:
        texts: Each ``SECTION.NAME=VALUE`` or ``SECTION.SCOPE.NAME=VALUE``, the value as
            :func:`fastslow.core.settings.parse_value` reads it.

    Returns:
        Values by name, by section, such as ``{"gnn.layout": {"epochs": 20}}``. Names and values are not
        checked.

    Raises:
        SettingsError: The text is not of that form, there is no such section, or a setting is given twice.
    """
    overrides: dict[str, dict] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        section, dot, name = path.rpartition(".")
        scoped = [f"{step}.{scope}" for step in SECTIONS for scope in SCOPES]
        if not (equals and dot and name) or section not in (*SECTIONS, *scoped):
            known = ", ".join(SECTIONS)
            raise SettingsError(
                f"{text!r}: a setting is given as SECTION.NAME=VALUE or SECTION.SCOPE.NAME=VALUE, with a"
                f" section of {known} and a scope of {', '.join(SCOPES)} (for example gnn.layout.epochs=20)"
                f"{nearest(section, (*SECTIONS, *scoped)) if dot else ''}"
            )
        given = overrides.setdefault(section, {})
        if name in given:
            raise SettingsError(path, f"is given twice, as {given[name]!r} and {value!r}; give it once")
        given[name] = parse_value(value)
    return overrides
