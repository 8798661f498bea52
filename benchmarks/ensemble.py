"""Compare ways of choosing ensemble weights by leave-one-architecture-out on valid, after ``make submit``.

``python benchmarks/ensemble.py [--quick] [--run sample]``. Weights are chosen on the valid programs of all
architectures but one (the first word of a program's name) and evaluated on that one, in turn; test is not
read. The members come from the run's ensembles. Their epoch or round was selected on all of valid, which
biases all ways of choosing weights equally.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut

from common import report
from common.folds import family_of
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, VALID
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.ensemble.weights import NORMALISATIONS, Predictions, combine, equal_weights, search_weights
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import models_of, read_predictions
from fastslow.steps.ensemble import EnsembleSettings

TABLE = {"hours": 0.1, "needs": ("run",)}
Weights = dict[str, float]


class Members:
    """The members of a collection's ensemble on valid, restricted to some of its programs.

    Args:
        features: Features folder of the collection.
        ensemble: Its ensemble's folder.
    """

    def __init__(self, features: Features, ensemble: Path):
        runs = {name: resolve(m["folder"]) for name, m in read_manifest(ensemble)["members"].items()}
        self.collection = features.collection
        self.labels = features.labels(VALID)
        self.predictions = {name: read_predictions(run) for name, run in runs.items()}
        self.models = list(models_of({name: read_manifest(run) for name, run in runs.items()}).values())

    def of(self, graphs: list[str]) -> dict[str, Predictions]:
        """Return the predictions of some programs by member."""
        return {name: {VALID: {g: own[VALID][g] for g in graphs}} for name, own in self.predictions.items()}

    def tau(self, graphs: list[str], normalisation: str, weights: Weights) -> dict[str, float]:
        """Return Kendall's tau of each of some programs."""
        predictions = combine(self.of(graphs), VALID, normalisation, weights)
        return collection_score("layout", {g: self.labels[g] for g in graphs}, predictions)["per_graph"]


def ways(members: Members) -> dict[str, Callable[[list[str], str], Weights]]:
    """Return ways to choose weights on some programs of valid, by name."""

    def search(graphs: list[str], normalisation: str, models: list[list[str]] = members.models) -> Weights:
        labels = {g: members.labels[g] for g in graphs}

        def valid_score(predictions: Mapping[str, np.ndarray]) -> float:
            return collection_score("layout", labels, predictions)["mean"]

        most = EnsembleSettings().max_models
        return search_weights(members.of(graphs), normalisation, most, valid_score, models)

    some = {f"{names[0].split('-')[0]} only": [names] for names in members.models}
    for left_out in members.models if len(members.models) > 2 else ():
        kind = left_out[0].split("-")[0]
        some[f"equal weights without {kind}"] = [names for names in members.models if names != left_out]
    return {
        **{way: lambda *_, models=models: equal_weights(models) for way, models in some.items()},
        "equal weights": lambda *_: equal_weights(members.models),
        "a weight for each member": partial(search, models=[[name] for name in members.predictions]),
        "a weight for each model (default)": search,
    }


def left_out(members: Members, normalisation: str) -> dict[str, float]:
    """Return the mean tau of the left-out programs, by way.

    Raises:
        DataError: All programs of valid have one architecture.
    """
    taus: dict[str, dict[str, float]] = {}
    graphs = np.array(list(members.labels))
    families = [family_of(graph) for graph in graphs]
    if len(set(families)) < 2:
        problem = "all valid programs have the same architecture, so none can be left out"
        raise DataError(members.collection.name, problem, "Use a run whose valid has two or more")
    splits = list(LeaveOneGroupOut().split(graphs, groups=families))
    for rest, out in progress(splits, desc=members.collection.name):
        for way, choose in ways(members).items():
            weights = choose(graphs[rest].tolist(), normalisation)
            taus.setdefault(way, {}).update(members.tau(graphs[out].tolist(), normalisation, weights))
    return {way: float(np.mean(list(own.values()))) for way, own in taus.items()}


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="sample", help="name of the run of make submit (default sample)")
    options = parser.parse_args(arguments)
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    result: dict[str, dict[str, dict[str, float]]] = {}
    for normalisation in ["min_max"] if options.quick else [*NORMALISATIONS]:
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
    print("\nKendall's tau of left-out valid programs\n")
    print(report.table(rows))
    report.finish(
        {"benchmark": "ensemble", "environment": report.environment(), "tau": result, "mean": means}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
