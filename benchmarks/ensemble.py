"""Compare ways of choosing ensemble weights on programs that chose none, after ``make submit``.

``python benchmarks/ensemble.py [--quick] [--run runs/sample]``. The members come from the run's ensembles;
test is not read. *Further programs*: weights are chosen on all valid programs and evaluated on the layout
programs of ``data/more`` (``make sample SIZE=more``), which chose neither weights nor epochs. These decide.
*Left-out valid programs*: weights are chosen on the valid programs of all architectures but one (the first
word of a program's name) and evaluated on that one, in turn. The networks' epochs were selected on all of
valid, which favours weights that prefer networks. *minus the default* is the difference of *mean*, which
weights all collections alike; ± is its standard error over programs, both searches of one together.
The tables of a weak member have the best single feature as one more model, as one of your own may be.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import LeaveOneGroupOut

from common import report
from common.clusters import collection_mean, source_of
from common.command_line import run_main
from common.folds import family_of
from common.options import make_parser
from common.pretrained import features_of, run_with_features
from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, VALID, Collection, list_programs
from fastslow.competition.metrics import collection_score
from fastslow.competition.reader import read_npz
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.ensemble.baselines import SINGLE
from fastslow.ensemble.weights import NORMALISATIONS, combine, equal_weights, pull_to_equal, search_weights
from fastslow.features.graph import Predictions
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import models_of
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.finished_run import best_rule
from fastslow.steps.unseen import build_unseen
from fastslow_programs.ranking.models import Models

TABLE = {"hours": 0.1, "needs": ("run", "more")}
MORE = "data/more"
FURTHER = ("Further programs", "Further programs, a weak member")
LEFT_OUT = ("Left-out valid programs", "Left-out valid programs, a weak member")
Weights = dict[str, float]
EQUAL = "equal weights"
SEARCHED = "a weight for each model"
PULLED = "half way to equal weights (default)"


class Members:
    """The members of a collection's ensemble on valid, restricted to some of its programs.

    Args:
        run: Folder of a run of ``make submit``.
        collection: The collection.
        weak: Whether the best single feature is one more member: a model that is worse than the others.
    """

    def __init__(self, run: Path, collection: Collection, weak: bool = False):
        manifest = read_manifest(run / f"ensemble-{collection.slug}")
        features = Features(features_of(run) / collection.slug)
        runs = {name: resolve(member["folder"]) for name, member in manifest["members"].items()}
        if weak:
            runs[SINGLE] = resolve(manifest["baselines"][SINGLE]["folder"])
        self.collection = collection
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
        PULLED: lambda graphs, normalisation: pull_to_equal(search(graphs, normalisation), members.models),
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


class Further:
    """The programs of ``data/more`` of a collection with several configurations, as its members predict them.

    Args:
        run: Folder of a run of ``make submit``.
        collection: The collection.
        number: Use only the first programs.
    """

    def __init__(self, run: Path, collection: Collection, number: int | None = None):
        finished = Models(run).of(collection)
        files = list_programs(resolve(MORE), collection, TRAIN)[:number]
        self.labels: dict[str, np.ndarray] = {}
        self.predictions: dict[str, Predictions] = {}
        for program in progress([read_npz(file, labelled=True) for file in files], desc=collection.name):
            if not len(program.choices.varying):
                continue
            graphs = build_unseen(finished.folder, [program])
            graph = graphs.graph(TEST, program.name)
            self.labels[program.name] = graph.runtime
            orders = {
                member: values[program.name] for member, values in finished.predict_members(graphs).items()
            }
            orders[SINGLE] = best_rule(finished, graphs, program.name).prediction
            for member, order in orders.items():
                split = self.predictions.setdefault(member, {VALID: {}})[VALID]
                split[program.name] = order[graph.config_ids]

    def taus(self, normalisation: str, weights: Weights) -> dict[str, float]:
        """Return Kendall's tau of each program."""
        predictions = combine(self.predictions, VALID, normalisation, weights)
        return collection_score("layout", self.labels, predictions)["per_graph"]


def on_further(members: Members, further: Further, normalisation: str) -> dict[str, dict[str, float]]:
    """Return the tau of each further program, by way; all valid programs choose the weights."""
    chosen = {way: choose([*members.labels], normalisation) for way, choose in ways(members).items()}
    return {way: further.taus(normalisation, weights) for way, weights in chosen.items()}


def rows_of(collection: Collection, taus: dict[str, dict[str, float]]) -> list[dict]:
    """Return a row for the tau of every program: ``way``, ``collection``, ``program``, ``tau``."""
    return [
        {"way": way, "collection": collection.name, "program": graph, "tau": tau}
        for way, of_programs in taus.items()
        for graph, tau in of_programs.items()
    ]


def summary(taus: pd.DataFrame, normalisation: str) -> list[dict]:
    """Return a row for each way: mean tau by collection, and its paired difference from the default.

    The difference has its standard error over programs; both searches of a program count once.
    """
    means = taus.groupby(["way", "collection"])["tau"].mean().unstack()
    programs = taus.pivot(index=["collection", "program"], columns="way", values="tau")
    gains = programs.sub(programs[PULLED], axis=0).reset_index()
    name = gains["collection"].map(source_of) + gains["program"]
    rows = []
    for way, by_collection in means.iterrows():
        row = {"weights": f"{way}, {normalisation}"}
        row |= {name: f"{tau:.3f}" for name, tau in by_collection.items()}
        row["mean"] = f"{by_collection.mean():.3f}"
        mean, error = collection_mean(gains[way], gains["collection"], name)
        row["minus the default"] = "" if way == PULLED else f"{mean:+.3f} ± {error:.3f}"
        rows.append(row)
    return rows


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--run", default="runs/sample", help="folder of a run of make submit (default runs/sample)"
    )
    options = parser.parse_args(arguments)
    run = run_with_features(options.run)
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    if options.quick:
        layouts = layouts[:1]
    normalisations = ["min_max"] if options.quick else [*NORMALISATIONS]
    taus: dict[tuple[str, str], list[dict]] = {}
    for collection in layouts:
        further = Further(run, collection, 2 if options.quick else None)
        for weak, names in ((False, normalisations), (True, ["min_max"])):
            members = Members(run, collection, weak)
            for name in names:
                of_further = on_further(members, further, name)
                taus.setdefault((FURTHER[weak], name), []).extend(rows_of(collection, of_further))
                of_valid = left_out(members, name)
                taus.setdefault((LEFT_OUT[weak], name), []).extend(rows_of(collection, of_valid))
    tables: dict[str, list[dict]] = {}
    for title in (*FURTHER, *LEFT_OUT):
        parts = [summary(pd.DataFrame(rows), name) for (table, name), rows in taus.items() if table == title]
        tables[title] = sorted(chain(*parts), key=lambda row: row["mean"], reverse=True)
        print(f"\n## {title}\n\n{report.table(tables[title])}")
    report.finish({"benchmark": "ensemble", "environment": report.environment(), **tables})
    return 0


if __name__ == "__main__":
    run_main(main)
