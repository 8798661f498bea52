"""The ensemble of one collection: a weighted mean of its members' normalised scores.

Runs that differ in their seed alone share a weight: on the few programs of valid a weight of its own for each
fits their noise (measured by ``benchmarks/ensemble.py``).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow.core.settings import Config, Positive, resolve, unkeyed
from fastslow.evaluation.predictions import (
    PREDICTED_SPLITS,
    Predictions,
    check_predictions,
    read_predictions,
    read_run_manifest,
    write_predictions,
)
from fastslow.features.store import Features

FORMAT = 3  # raise it with every change of code that changes what an ensemble gives


def min_max(score: np.ndarray) -> np.ndarray:
    """Predictions of a graph moved to 0 (fastest) to 1; all 0 where they are equal."""
    span = score.max() - score.min()
    return (score - score.min()) / span if span > 0 else np.zeros_like(score)


def rank_mean(score: np.ndarray) -> np.ndarray:
    """Ranks of a graph's scores from 0 to 1, equal scores sharing their mean rank."""
    return (rankdata(score) - 1) / max(len(score) - 1, 1)


def raw(score: np.ndarray) -> np.ndarray:
    """Predictions as they are."""
    return score


NORMALISATIONS = {"min_max": min_max, "rank": rank_mean, "raw": raw}


class EnsembleConfig(Config):
    """Settings of the ensemble notebook."""

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of the collection; any that was built from the same data will do."""
    runs: list[str] = [f"runs/sample/{m}-layout-xla-random-s0" for m in ("gnn", "ranker", "additive")]
    """Run folders of the members: networks, rankers, other ensembles."""
    folder: str = unkeyed("runs/sample/ensemble-layout-xla-random")
    """Folder to write; it is itself a run folder."""
    normalisation: Literal[*NORMALISATIONS, "best"] = "best"
    """``min_max`` (each graph to 0..1), ``rank``, ``raw``, or ``best``: whichever scores best on valid."""
    rounds: Positive = 20
    """Models that the weight search may add, one at a time; the weights are shares of it."""

    def check(self) -> None:
        """Check ranges."""
        self.require(bool(self.runs), "runs", "a list of at least one run folder")
        folders = [resolve(run).resolve() for run in self.runs]
        self.require(len(set(folders)) == len(folders), "runs", "a list without repetition")

    def members(self) -> dict[str, str]:
        """Run folder by name: the folder's own name, or all of its path where two share one."""
        names = [Path(run).name for run in self.runs]
        return {
            name if names.count(name) == 1 else run: run for name, run in zip(names, self.runs, strict=True)
        }

    def artifact(self) -> Artifact:
        """The ensemble's folder; it depends on every member."""
        features = Features(resolve(self.features))
        runs = {name: read_run_manifest(resolve(run)) for name, run in self.members().items()}
        members = {name: run["fingerprint"] for name, run in runs.items()}
        settings = {**self.identity(), "runs": sorted(members)}
        settings |= {"model": "ensemble", "format": FORMAT, "collection": features.collection.name}
        return Artifact(resolve(self.folder), settings, {"data": features.data, **members})


def read_member(folder: Path, features: Features) -> Predictions:
    """Predictions of one run, refused where they are not of this collection and this data.

    Raises:
        DataError: The run is not finished, belongs unkeyed, or its scores are incomplete.
    """
    manifest = read_run_manifest(folder)
    collection = manifest["settings"].get("collection")
    if collection != features.collection.name:
        problem = f"a run of {collection}, {features.collection.name} wanted"
        raise DataError(folder, problem, "Take it out of the ensemble's runs")
    if manifest["inputs"].get("data") != features.data:
        raise DataError(folder, "trained on other data files than the features", "Train it again on these")
    scores = read_predictions(folder)
    check_predictions(folder, scores, features)
    return scores


def combine(
    members: Mapping[str, Predictions], split: str, normalisation: str, weights: Mapping[str, float]
) -> dict:
    """Weighted mean of normalised scores by graph; of one member alone, its scores as they are.

    Args:
        members: Predictions by member.
        split: ``valid`` or ``test``.
        normalisation: One of ``NORMALISATIONS``.
        weights: Weight by member, adding up to 1.

    Returns:
        ``(C,)`` float64 by graph.
    """
    used = {name: weight for name, weight in weights.items() if weight}
    if len(used) == 1:  # rounding in a normalisation could only merge scores
        return dict(members[next(iter(used))][split])
    normalise = NORMALISATIONS[normalisation]
    graphs = next(iter(members.values()))[split]
    return {
        graph: sum(weight * normalise(members[name][split][graph]) for name, weight in used.items())
        for graph in graphs
    }


def models_of(manifests: Mapping[str, dict]) -> list[list[str]]:
    """The members that are one model with different seeds, and each other member alone.

    Args:
        manifests: By member.
    """
    models: dict[str, list[str]] = {}
    for name, manifest in manifests.items():
        settings = dict(manifest["settings"])
        seed = settings.pop("seed", None)
        same = name if seed is None else digest([settings, manifest["inputs"]])
        models.setdefault(same, []).append(name)
    return list(models.values())


def search_weights(
    members: Mapping[str, Predictions],
    normalisation: str,
    rounds: int,
    valid_score,
    models: Sequence[Sequence[str]] | None = None,
) -> dict[str, float]:
    """Weights by greedy forward selection with replacement (Caruana et al. 2004).

    It starts from the best model alone and adds, one at a time, the model that helps the mean most, so
    on valid the ensemble is never worse than its best model.

    Args:
        members: Predictions by member.
        normalisation: One of ``NORMALISATIONS``.
        rounds: Most models added.
        valid_score: Function from scores by graph to the mean metric on valid.
        models: Members that share a weight, such as the seeds of one model; each alone unless told.

    Returns:
        Weights by member, adding up to 1.
    """
    models = [[name] for name in members] if models is None else models
    chosen: Counter[int] = Counter()
    best, best_weights = -math.inf, {}
    for total in range(1, rounds + 1):
        trials = [_shares(models, chosen + Counter([tried]), total) for tried in range(len(models))]
        values = [valid_score(combine(members, "valid", normalisation, weights)) for weights in trials]
        added = int(np.argmax(values))
        chosen[added] += 1
        if values[added] > best:
            best, best_weights = values[added], trials[added]
    return {name: best_weights[name] for name in members}


def _shares(models: Sequence[Sequence[str]], times: Mapping[int, int], total: int) -> dict[str, float]:
    """Weight of each member where each model was chosen so many times out of ``total``."""
    return {name: times[number] / total / len(names) for number, names in enumerate(models) for name in names}


def build_ensemble(config: EnsembleConfig) -> dict:
    """Search weights on valid, combine the members' scores and write them like any run's.

    Args:
        config: Settings.

    Returns:
        The manifest: ``valid`` (mean and per graph), ``members`` (valid score, weight, folder of each),
        ``gain`` over the best model alone on valid, ``normalisation``.

    Raises:
        DataError: A member's scores are missing, foreign or broken; the member is named.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            features = Features(resolve(config.features))
            runs = {name: resolve(run) for name, run in config.members().items()}
            members = {name: read_member(run, features) for name, run in runs.items()}
            models = models_of({name: read_run_manifest(run) for name, run in runs.items()})
            scores, facts = _ensemble(config, features, members, models)
            write_predictions(artifact.folder, scores)
            artifact.finish(**facts)
    return read_manifest(artifact.folder)


def _ensemble(
    config: EnsembleConfig, features: Features, members: dict[str, Predictions], models: list[list[str]]
) -> tuple[Predictions, dict]:
    labels, kind = features.labels("valid"), features.collection.kind

    def valid_score(scores: dict) -> float:
        return collection_score(kind, labels, scores)["mean"]

    single = {name: valid_score(scores["valid"]) for name, scores in members.items()}
    tried = {}
    for normalisation in NORMALISATIONS if config.normalisation == "best" else (config.normalisation,):
        weights = search_weights(members, normalisation, config.rounds, valid_score, models)
        tried[normalisation] = weights, valid_score(combine(members, "valid", normalisation, weights))
    normalisation = max(tried, key=lambda name: tried[name][1])
    weights = tried[normalisation][0]
    alone = (combine(members, "valid", normalisation, dict.fromkeys(m, 1 / len(m))) for m in models)
    scores = {split: combine(members, split, normalisation, weights) for split in PREDICTED_SPLITS}
    valid = collection_score(kind, labels, scores["valid"])
    return scores, {
        "valid": {**valid, "weights": f"{sum(w > 0 for w in weights.values())} of {len(weights)} members"},
        "members": {
            name: {"valid": single[name], "weight": weights[name], "folder": run}
            for name, run in config.members().items()
        },
        "gain": valid["mean"] - max(map(valid_score, alone)),
        "normalisation": normalisation,
        "normalisations": {name: value for name, (_, value) in tried.items()},
    }
