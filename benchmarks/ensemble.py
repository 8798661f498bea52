"""How the ensemble's weights are best chosen: left-out architectures of valid, after `make submit`.

``python benchmarks/ensemble.py [--quick] [--run sample]``. Weights are chosen on the valid programs of all
architectures but one (the first word of a program's name) and scored on that one, in turn; test is not read.
The members are those of the run's ensembles, which chose their epoch or round on all of valid: that helps
each way of choosing weights alike.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from common import measure
from common.folds import family_of
from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import commit, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble import NORMALISATIONS, EnsembleConfig, combine, models_of, search_weights
from fastslow.evaluation.predictions import Predictions, read_predictions
from fastslow.features.store import Features

Weights = dict[str, float]


class Members:
    """The members of a collection's ensemble on valid, some of its programs at a time.

    Args:
        features: Features folder of the collection.
        ensemble: Its ensemble's folder.
    """

    def __init__(self, features: Features, ensemble: Path):
        runs = {name: resolve(m["folder"]) for name, m in read_manifest(ensemble)["members"].items()}
        self.collection = features.collection
        self.labels = features.labels("valid")
        self.scores = {name: read_predictions(run) for name, run in runs.items()}
        self.models = list(models_of({name: read_manifest(run) for name, run in runs.items()}).values())

    def of(self, graphs: list[str]) -> dict[str, Predictions]:
        """Predictions of some programs by member."""
        return {name: {"valid": {g: own["valid"][g] for g in graphs}} for name, own in self.scores.items()}

    def tau(self, graphs: list[str], normalisation: str, weights: Weights) -> dict[str, float]:
        """Kendall tau of some programs."""
        scores = combine(self.of(graphs), "valid", normalisation, weights)
        return collection_score("layout", {g: self.labels[g] for g in graphs}, scores)["per_graph"]


def equal(names: list[str]) -> Weights:
    """The same weight for each."""
    return dict.fromkeys(names, 1 / len(names))


def ways(members: Members) -> dict[str, Callable[[list[str], str], Weights]]:
    """Ways to get weights from some programs of valid, by name."""

    def search(graphs: list[str], normalisation: str, models: list[list[str]]) -> Weights:
        labels = {g: members.labels[g] for g in graphs}

        def valid_score(scores: Mapping[str, np.ndarray]) -> float:
            return collection_score("layout", labels, scores)["mean"]

        return search_weights(
            members.of(graphs), normalisation, EnsembleConfig().max_models, valid_score, models
        )

    alone = {names[0].split("-")[0]: names for names in members.models}
    return {
        **{f"{kind} alone": lambda *_, names=names: equal(names) for kind, names in alone.items()},
        "equal weights": lambda *_: equal(list(members.scores)),
        "a weight for each member": lambda graphs, n: search(graphs, n, [[name] for name in members.scores]),
        "a weight for each model": lambda graphs, n: search(graphs, n, members.models),
    }


def left_out(members: Members, normalisation: str) -> dict[str, float]:
    """Mean tau of the programs left out, by way.

    Raises:
        DataError: All programs of valid are of one architecture.
    """
    taus: dict[str, dict[str, float]] = {}
    families = sorted(set(map(family_of, members.labels)))
    if len(families) < 2:
        raise DataError(members.collection.name, "valid has one architecture", "Leave it out")
    for family in progress(families, desc=members.collection.name):
        out = [graph for graph in members.labels if family_of(graph) == family]
        rest = [graph for graph in members.labels if family_of(graph) != family]
        for way, choose in ways(members).items():
            taus.setdefault(way, {}).update(members.tau(out, normalisation, choose(rest, normalisation)))
    return {way: float(np.mean(list(own.values()))) for way, own in taus.items()}


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="sample", help="name of the run (default sample)")
    parser.add_argument("--quick", action="store_true", help="min_max alone, xla:default alone")
    options = parser.parse_args(arguments)
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    result: dict[str, dict[str, dict[str, float]]] = {}
    for normalisation in ["min_max"] if options.quick else [n for n in NORMALISATIONS if n != "raw"]:
        for collection in layouts[:1] if options.quick else layouts:
            features = Features(resolve(f"features/{options.run}/{collection.slug}"))
            members = Members(features, resolve(f"runs/{options.run}/ensemble-{collection.slug}"))
            for way, tau in left_out(members, normalisation).items():
                result.setdefault(f"{way}, {normalisation}", {})[collection.name] = tau
    means = {way: float(np.mean(list(taus.values()))) for way, taus in result.items()}
    rows = [
        {"weights": way, **{c: f"{tau:.3f}" for c, tau in result[way].items()}, "mean": f"{means[way]:.3f}"}
        for way in sorted(means, key=means.get, reverse=True)
    ]
    print("\nKendall tau of left-out valid programs\n")
    print(measure.table(rows))
    print(json.dumps({"benchmark": "ensemble", "commit": commit(), "tau": result, "mean": means}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
