"""The ensemble of one collection: a weighted mean of its members' normalised predictions.

Each model has a weight, divided among its seeds. It is half way between equal weights and weights that are
searched on the valid programs. Where all models were trained with ``folds``, the weights are searched on the
train programs, each predicted by the member that left it out, and are not pulled to equal ones.
``benchmarks/ensemble.py`` compares these rules on programs that chose no weight.
"""

import glob
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Le

from fastslow.competition.catalog import PREDICTED_SPLITS, TRAIN, VALID
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError, listed
from fastslow.core.settings import Names, Positive, Settings, Unread, resolve, unkeyed
from fastslow.ensemble.baselines import RIDGE, fit_baselines, predict_configs
from fastslow.ensemble.weights import (
    NORMALISATIONS,
    combine,
    equal_weights,
    pull_to_equal,
    search_weights,
)
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import Predictions, draw_configs
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import (
    RUN_FILES,
    check_predictions,
    read_held_out,
    read_predictions,
    replace_run,
    write_predictions,
)
from fastslow.runs.run_manifest import HELD_OUT, PREDICTIONS, identity_of, models_of, read_run_manifest

_WRITE = "Write it with fastslow.runs.predictions.write_run, or remove it"
_INPUTS = ("data", "features", "trained")  # of an ensemble, beside its members
_RULE = "ridge"  # member where there are no others
ENSEMBLE_ENTRY = "fastslow.steps.ensemble:build_ensemble"


class EnsembleSettings(Settings):
    """Settings of the ensemble notebook."""

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of the collection; any that was built from the same data will do."""
    runs: list[str] = [f"runs/sample/{m}-layout-xla-random-s0" for m in ("gnn", "ranker")]
    """Run folders of the members: networks, rankers, other ensembles; if empty, the ridge regression of the
    baselines is the only member."""
    extra: Names = []
    """Models of your own that are members too: patterns of run folders, such as ``runs/mine/*``. Of these the
    runs of this collection take part."""
    trained: str = unkeyed("")
    """Folder of a finished ensemble or model of this collection that predicts in place of ``runs``, with its
    own members and weights: nothing is searched. Empty for none."""
    folder: str = unkeyed("runs/play/ensemble")
    """Folder to write; it is a run folder like its members' folders."""
    normalisation: Literal[*NORMALISATIONS] = "min_max"
    """What the predictions of a graph become: ``min_max`` (0 to 1), ``rank``, or ``raw``, as they are."""
    max_models: Annotated[Positive, Le(1000)] = 20
    """Maximum number of models that the weight search adds, one at a time, with repetition."""

    def check(self) -> None:
        """Check that no run is named twice, and that ``runs`` or ``trained`` is empty.

        Raises:
            SettingsError: One is wrong.
        """
        folders = [resolve(run).resolve() for run in self.runs]
        self.require(len(set(folders)) == len(folders), "runs", "a list without repetition")
        self.require(not (self.runs and self.trained), "runs", "empty: trained has members of its own")

    def unread(self) -> Unread:
        """Return the fields that only a search of weights reads, where ``trained`` has its own."""
        names = ("extra", "normalisation", "max_models") if self.trained else ()
        return dict.fromkeys(names, ("with trained", "leave trained empty"))

    def members(self) -> dict[str, str]:
        """Return the run folder of each member by name: its last part, or the whole where that is taken.

        Raises:
            SettingsError: A pattern of ``extra`` matches no run folder.
            DataError: The features or a run that a pattern matches are not finished, or damaged.
        """
        runs = [*self.runs, *self._extra_runs()] if self.extra else self.runs
        names = [Path(run).name for run in runs]
        taken = [name for name in names if names.count(name) > 1 or name in _INPUTS]
        return {run if name in taken else name: run for name, run in zip(names, runs, strict=True)}

    def _extra_runs(self) -> list[str]:
        """Return the run folders of the collection that ``extra`` names and that are not named already.

        Of those beside the ensemble, where the workflow writes, only what no code of this package made.
        """
        collection = Features(resolve(self.features)).collection.name
        home = resolve("")
        beside = resolve(self.folder).resolve().parent
        runs: list[str] = []
        for path in self.extra_folders():
            made = read_manifest(path, _WRITE)
            is_run = (path / PREDICTIONS).is_file() or "collection" in made["settings"]
            if not is_run or (path.resolve().parent == beside and made.get("code")):
                continue
            if read_run_manifest(path)["settings"]["collection"] == collection:
                runs.append(str(path.relative_to(home) if path.is_relative_to(home) else path))
        known = {resolve(run).resolve() for run in self.runs}
        return [run for run in dict.fromkeys(runs) if resolve(run).resolve() not in known]

    def extra_folders(self) -> list[Path]:
        """Return the run folders that match ``extra``, of any collection; it needs no features.

        Raises:
            SettingsError: A pattern matches no run folder.
        """
        folders: list[Path] = []
        home = glob.escape(str(resolve("")))
        for pattern in self.extra:
            found = glob.glob(os.path.join(home, os.path.expanduser(pattern)))
            paths = [Path(path) for path in sorted(found)]
            matching = [path for path in paths if any((path / name).is_file() for name in RUN_FILES)]
            self.require(bool(matching), "extra", f"a pattern of run folders ({pattern} matches none)")
            folders += matching
        return folders

    def check_extra(self) -> None:
        """Read the models that ``extra`` names, to refuse a broken one before others are trained.

        Raises:
            DataError: One of them is not finished, or its predictions are incomplete or of other data.
        """
        features = Features(resolve(self.features))
        for run in self._extra_runs():
            read_member(resolve(run), read_run_manifest(resolve(run)), features)

    def read_inputs(self) -> tuple[Features, dict[str, dict]]:
        """Open the features and read the manifest of each member.

        Returns:
            The features, and the manifests by name of the member, see :meth:`members`.

        Raises:
            DataError: The features folder or a run is not finished.
        """
        manifests = {name: read_run_manifest(resolve(run)) for name, run in self.members().items()}
        return Features(resolve(self.features)), manifests

    def artifact(self, opened: tuple[Features, dict[str, dict]] | None = None) -> Artifact:
        """Return the ensemble's folder; it depends on :meth:`read_inputs`, called here by default."""
        features, manifests = opened or self.read_inputs()
        members = {name: identity_of(manifest) for name, manifest in manifests.items()}
        if self.trained:
            members["trained"] = identity_of(read_run_manifest(resolve(self.trained)))
        settings = {**self.identity(), "runs": sorted(manifests)}
        settings |= {"model": "ensemble", "collection": features.collection.name}
        inputs = {"data": features.data, "features": features.fingerprint, **members}
        return Artifact(resolve(self.folder), settings, inputs, ENSEMBLE_ENTRY)


def read_member(folder: Path, manifest: Mapping, features: Features) -> Predictions:
    """Read the predictions of one run for an ensemble.

    Args:
        folder: The run folder.
        manifest: Its manifest.
        features: Features of the collection, which the predictions must fit.

    Returns:
        As :func:`fastslow.runs.predictions.read_predictions` does.

    Raises:
        DataError: The run belongs to another collection or to other data, or its predictions are incomplete.
    """
    collection = manifest["settings"].get("collection")
    if collection != features.collection.name:
        problem = f"is a run of {collection}, not of {features.collection.name}"
        raise DataError(folder, problem, "Remove it from the ensemble's runs")
    if manifest["inputs"].get("data") != features.data:
        raise DataError(folder, "trained on other data files than the features", "Train it again on these")
    predictions = read_predictions(folder)
    check_predictions(folder, predictions, features)
    return predictions


def build_ensemble(settings: EnsembleSettings) -> dict:
    """Choose weights, combine the members' predictions and write them as a run folder.

    The baselines that it must beat are written beside it, into the folder ``baselines``.

    Returns:
        The manifest: ``valid`` (mean and per graph), ``members`` (valid score, weight, folder and model of
        each), ``gain`` over the best model alone on valid (seeds averaged), ``normalisation``, and
        ``baselines`` (valid score, folder and what was chosen, see :mod:`fastslow.ensemble.baselines`).

    Raises:
        DataError: A member's predictions are missing, of another collection or broken; it is named.
    """
    features, manifests = settings.read_inputs()
    artifact = settings.artifact((features, manifests))
    with artifact.building() as needed:
        if needed and settings.trained:
            from fastslow.steps.trained_ensemble import write_trained  # torch takes seconds

            write_trained(resolve(settings.trained), features, artifact, f"{settings.folder}/members")
        elif needed:
            baselines = write_baselines(features, f"{settings.folder}/baselines")
            folders = settings.members()
            if not folders:
                folders = {_RULE: baselines[RIDGE]["folder"]}
                manifests = {_RULE: read_run_manifest(resolve(folders[_RULE]))}
            predictions, facts = _ensemble(settings, features, manifests, folders)
            warnings = write_predictions(artifact.folder, predictions) + _warn_of_folds(manifests)
            rules = [resolve(rule["folder"]) / name for rule in baselines.values() for name in RUN_FILES]
            artifact.finish((PREDICTIONS, *rules), **facts, baselines=baselines, warnings=warnings)
    return read_manifest(artifact.folder)


def _warn_of_folds(manifests: Mapping[str, dict]) -> list[str]:
    """Return a warning where some members were trained with folds and others were not."""
    without = [name for name, manifest in manifests.items() if HELD_OUT not in manifest["outputs"]]
    if len(without) in (0, len(manifests)):
        return []
    return [f"weights are searched on valid: {listed(without)} left out no train programs (folds)"]


def _ensemble(
    settings: EnsembleSettings, features: Features, manifests: Mapping[str, dict], folders: Mapping[str, str]
) -> tuple[Predictions, dict]:
    models = models_of(manifests)
    members = {name: read_member(resolve(run), manifests[name], features) for name, run in folders.items()}
    labels = features.labels(VALID)
    kind = features.collection.kind

    valid_score = _mean_score(kind, labels)
    normalisation = settings.normalisation
    folded = all(HELD_OUT in manifest["outputs"] for manifest in manifests.values())
    if folded:
        weights = _weights_of_folds(settings, features, models, folders)
    else:
        searched = search_weights(members, normalisation, settings.max_models, valid_score, models.values())
        weights = pull_to_equal(searched, models.values())
    alone = [combine(members, VALID, normalisation, equal_weights([runs])) for runs in models.values()]
    combined = {split: combine(members, split, normalisation, weights) for split in PREDICTED_SPLITS}
    valid = collection_score(kind, labels, combined[VALID])
    model_of = {run: model for model, runs in models.items() for run in runs}
    used = sum(weight > 0 for weight in weights.values())
    chosen_on = ", chosen on left-out train programs" if folded else ""
    facts: dict[str, dict] = {}
    for run, predictions in members.items():
        facts[run] = {"valid": valid_score(predictions[VALID]), "weight": weights[run]}
        facts[run] |= {"folder": folders[run], "model": model_of[run]}
    return combined, {
        "valid": {**valid, "weights": f"{used} of {len(weights)} members{chosen_on}"},
        "members": facts,
        "features": features.recipe,
        "gain": valid["mean"] - max(map(valid_score, alone)),
        "normalisation": normalisation,
    }


def _mean_score(kind: str, labels: Mapping[str, np.ndarray]) -> Callable[[Mapping[str, np.ndarray]], float]:
    """Return the function from the predictions of labelled programs to their mean score."""

    def score(predictions: Mapping[str, np.ndarray]) -> float:
        return collection_score(kind, labels, predictions)["mean"]

    return score


def _weights_of_folds(
    settings: EnsembleSettings,
    features: Features,
    models: Mapping[str, list[str]],
    folders: Mapping[str, str],
) -> dict[str, float]:
    """Search weights on the train programs, each predicted by the member of a model that left it out.

    The valid programs choose no weight then. Programs that no member of some model left out do not count.
    """
    held_out: dict[str, dict[str, np.ndarray]] = {}
    for model, runs in models.items():
        held_out[model] = {}
        for run in runs:
            held_out[model] |= read_held_out(resolve(folders[run]))
    names = set.intersection(*({*predictions} for predictions in held_out.values()))
    labels = {}
    for name in sorted(names):
        runtime = features.read_labels(TRAIN, name, "runtime")
        labels[name] = runtime[draw_configs(len(runtime), HELD_OUT_CONFIGS, 0, name)]
    if not labels:
        remedy = "Train as many seeds as folds (folds= of a run does)"
        raise DataError(settings.folder, "no train program was left out by every model", remedy)
    score = _mean_score(features.collection.kind, labels)
    # as of a split: search_weights reads the split valid
    parts = {model: {VALID: {name: held_out[model][name] for name in labels}} for model in models}
    single = [[model] for model in models]
    weights = search_weights(parts, settings.normalisation, settings.max_models, score, single)
    return {run: weights[model] / len(runs) for model, runs in models.items() for run in runs}


def write_baselines(features: Features, folder: str) -> dict[str, dict]:
    """Fit the baselines of a collection, and write a run folder of predictions for each.

    So their scores are computed like the models' scores.

    Args:
        features: The features of the collection.
        folder: Folder of the run folders, named as in the settings.

    Returns:
        By name ``valid`` (mean score), ``folder``, ``chosen`` (in words) and what its ``record`` gives.
    """
    baselines = fit_baselines(features)
    written = {}
    predictions = {name: {split: {} for split in PREDICTED_SPLITS} for name in baselines}
    for split in PREDICTED_SPLITS:
        for graph in features.names(split):
            stored = features.graph(split, graph)
            for name, baseline in baselines.items():
                predictions[name][split][graph] = predict_configs(baseline, stored)
    for name, baseline in baselines.items():
        run = f"{folder}/{name.replace(' ', '-')}"
        chosen = baseline.describe(features.config_columns)
        manifest = replace_run(resolve(run), features, predictions[name], model=name, chosen=chosen)
        written[name] = {"valid": manifest["valid"]["mean"], "folder": run, "chosen": chosen}
        written[name] |= baseline.record(features.config_columns)
    return written
