"""Compare ways of choosing ensemble weights by leave-one-architecture-out on valid, after ``make submit``.

``python benchmarks/ensemble.py [--quick] [--run sample]``. Weights are chosen on the valid programs of all
architectures but one (the first word of a program's name) and evaluated on that one, in turn; test is not
read. The members come from the run's ensembles. The networks' epochs were selected on all of valid, which
favours weights that prefer networks. ± is the standard error over programs, both searches of one together.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import LeaveOneGroupOut

from common import report
from common.folds import family_of
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, VALID, Collection
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.ensemble.baselines import SINGLE
from fastslow.ensemble.weights import NORMALISATIONS, combine, equal_weights, search_weights
from fastslow.features.graph_set import Predictions
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import models_of, read_predictions
from fastslow.steps.ensemble import EnsembleSettings

TABLE = {"hours": 0.1, "needs": ("run",)}
Weights = dict[str, float]
EQUAL = "equal weights"
SEARCHED = "a weight for each model (default)"


class Members:
    """The members of a collection's ensemble on valid, restricted to some of its programs.

    Args:
        features: Features folder of the collection.
        ensemble: Its ensemble's folder.
        weak: Whether the best single feature is one more member: a model that is worse than the others.
    """

    def __init__(self, features: Features, ensemble: Path, weak: bool = False):
        manifest = read_manifest(ensemble)
        runs = {name: resolve(member["folder"]) for name, member in manifest["members"].items()}
        if weak:
            runs[SINGLE] = resolve(manifest["baselines"][SINGLE]["folder"])
        self.collection = features.collection
        self.labels = features.labels(VALID)
        self.predictions = {name: read_predictions(run) for name, run in runs.items()}
        self.models = list(models_of({name: read_manifest(run) for name, run in runs.items()}).values())

    def of(self, graphs: list[str]) -> dict[str, Predictions]:
        """Return the predictions of some programs by member."""
        return {
            name: {VALID: {graph: predictions[VALID][graph] for graph in graphs}}
            for name, predictions in self.predictions.items()
        }

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

    single = {f"{names[0].split('-')[0]} only": [names] for names in members.models}
    return {
        **{way: lambda *_, models=models: equal_weights(models) for way, models in single.items()},
        EQUAL: lambda *_: equal_weights(members.models),
        "a weight for each member": partial(search, models=[[name] for name in members.predictions]),
        SEARCHED: search,
    }


def left_out(members: Members, normalisation: str) -> dict[str, dict[str, float]]:
    """Return the tau of each left-out program, by way.

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
    return taus


def compare(run: str, collections: list[Collection], normalisation: str, weak: bool = False) -> pd.DataFrame:
    """Return tau of every left-out program: columns ``way``, ``collection``, ``program``, ``tau``."""
    rows = []
    for collection in collections:
        features = Features(resolve(f"features/{run}/{collection.slug}"))
        members = Members(features, resolve(f"runs/{run}/ensemble-{collection.slug}"), weak)
        for way, taus in left_out(members, normalisation).items():
            rows += [
                {"way": way, "collection": collection.name, "program": graph, "tau": tau}
                for graph, tau in taus.items()
            ]
    return pd.DataFrame(rows)


def summary(taus: pd.DataFrame, normalisation: str) -> list[dict]:
    """Return a row for each way: mean tau by collection, and its paired difference from equal weights.

    The difference has its standard error over programs; both searches of a program count once.
    """
    means = taus.groupby(["way", "collection"])["tau"].mean().unstack()
    source = taus["collection"].str.split(":").str[1]
    programs = taus.assign(source=source).groupby(["way", "source", "program"])["tau"].mean().unstack("way")
    gains = programs.sub(programs[EQUAL], axis=0)
    rows = []
    for way, by_collection in means.iterrows():
        row = {"weights": f"{way}, {normalisation}"}
        row |= {name: f"{tau:.3f}" for name, tau in by_collection.items()}
        row["mean"] = f"{by_collection.mean():.3f}"
        row["minus equal weights"] = (
            "" if way == EQUAL else f"{gains[way].mean():+.3f} ± {gains[way].sem():.3f}"
        )
        rows.append(row)
    return sorted(rows, key=lambda row: row["mean"], reverse=True)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--run", default="sample", help="name of the run of make submit (default sample)")
    options = parser.parse_args(arguments)
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    if options.quick:
        layouts = layouts[:1]
    rows = []
    for normalisation in ["min_max"] if options.quick else [*NORMALISATIONS]:
        rows += summary(compare(options.run, layouts, normalisation), normalisation)
    rows.sort(key=lambda row: row["mean"], reverse=True)
    weak = summary(compare(options.run, layouts, "min_max", weak=True), "min_max")
    print("\nKendall's tau of left-out valid programs\n")
    print(report.table(rows))
    print("\nThe same with one more member, the best single feature\n")
    print(report.table(weak))
    report.finish({"benchmark": "ensemble", "environment": report.environment(), "tau": rows, "weak": weak})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
