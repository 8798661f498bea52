"""Measure the LightGBM ranker: its objectives against the other models, its features' speed, its scale.

``python benchmarks/ranker.py [--quick] [--parts quality features halves scale] [--seeds N]``. ``quality``
trains every objective on every collection, and reads the runs of ``make submit`` for the other models.
Finished trainings are kept in ``benchmarks/results/ranker/`` by settings and data, and are not repeated.
``features`` times the whole table of a graph against two pandas versions of the same definitions, and
measures a graph of 100,000 configurations. ``halves`` trains on a random half of one published program's
configurations and evaluates on the other half and on an unseen program. ``scale`` trains on many rows.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common import graph_files, ranker_scale, report
from common import options as shared
from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, Collection
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import commit
from fastslow.core.errors import DataError
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features
from fastslow.kaggle.solution import read_solution
from fastslow.rankers.fit import fit
from fastslow.rankers.objectives import OBJECTIVES
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.table import read_table
from fastslow.rankers.train import read_training
from fastslow.workflow.presets import preset_settings
from fastslow.workflow.steps import parse_overrides

PARTS = ("quality", "features", "halves", "scale")
EVALUATED = (VALID, TEST)
CHOSEN = "ranker, best on valid"


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser)
    shared.add_data_option(parser)
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default all)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each objective (default 3)")
    parser.add_argument("--repeats", type=int, default=5, help="random halves of unet3d (default 5)")
    parser.add_argument(
        "--epochs", type=int, default=300, help="epochs of the GNN on a half (default 300), 0 for no GNN"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="rows to train on in scale (default 1000000)"
    )
    parser.add_argument(
        "--runs",
        default="runs/sample",
        help="runs of make submit, for the other models (default runs/sample)",
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.repeats, options.epochs, options.rows = 1, 1, 0, 2000
        options.preset = "smoke"
    torch.set_num_threads(options.threads)
    return options


class Quality:
    """Train and evaluate every objective on every collection, or read the results of an earlier call.

    Args:
        options: The command line.
        place: Folder of features and results.
        collections: Those to build features of; all by default.
    """

    def __init__(self, options: Namespace, place: Path, collections: Sequence[Collection] = ()):
        self.options, self.place, self.overrides = options, place, parse_overrides(options.set)
        solution = resolve(options.data_root) / "solution.csv"
        self.solution = read_solution(solution) if solution.is_file() else {}
        self.features = {}
        for collection in collections or COLLECTIONS:
            folder = place / "features" / "ranker" / digest(options.data_root) / collection.slug
            where = {"collection": collection.name, "folder": str(folder), "workers": 1}
            settings = preset_settings(options.preset, self.overrides, "features", collection.kind)
            build_features(FeatureSettings(**{**settings, **where, "data_root": options.data_root}))
            self.features[collection] = Features(folder)

    def labels(self, collection: Collection) -> dict[str, dict]:
        """Return the runtimes of valid and, where known, of test."""
        features = self.features[collection]
        labels = {VALID: features.labels(VALID)}
        if self.solution:
            names = features.names(TEST)
            labels[TEST] = {name: self.solution[f"{collection.name}:{name}"] for name in names}
        return labels

    def objectives(self, collection: Collection, seed: int) -> list[dict]:
        """Return the results of every objective and of the one that is best on valid."""
        given = preset_settings(self.options.preset, self.overrides, "ranker", collection.kind)
        settings = RankerSettings(**{**given, "objective": "best"})
        folder = str(self.features[collection].folder)
        settings = settings.replace(features=folder, seed=seed, num_threads=self.options.threads)
        path = self.place / "ranker" / f"{settings.artifact().fingerprint}.json"
        if not path.is_file():
            write_json(path, {"commit": commit(), "rows": self._train(collection, settings)})
        rows = read_json(path)["rows"]
        best = max(rows, key=lambda row: row[VALID]["mean"])
        return [*rows, {**best, "model": CHOSEN, "objective": best["model"]}]

    def _train(self, collection: Collection, settings: RankerSettings) -> list[dict]:
        training, labels, rows = read_training(settings), self.labels(collection), []
        tables = {split: read_table(self.features[collection], split) for split in labels}
        for objective in OBJECTIVES:
            fitted = fit(settings, objective, training)
            predictions = {split: fitted.predict(table) for split, table in tables.items()}
            result = {s: collection_score(collection.kind, labels[s], predictions[s]) for s in labels}
            facts = {"model": objective, "rounds": fitted.num_trees}
            rows.append({**facts, "collection": collection.name, "seed": settings.seed, **result})
        return rows

    def trained(self, collection: Collection, seed: int) -> list[dict]:
        """Return the results of ``make submit``'s GNN and, with the first seed, ensemble."""
        names = {"gnn": f"gnn-{collection.slug}-s{seed}"}
        if seed == 0:
            names["ensemble"] = f"ensemble-{collection.slug}"
        labels, rows = self.labels(collection), []
        for model, name in names.items():
            try:
                predictions = read_predictions(resolve(self.options.runs) / name)
                result = {s: collection_score(collection.kind, labels[s], predictions[s]) for s in labels}
            except DataError as error:
                print(f"left out: {error}", flush=True)
                continue
            rows.append({"model": model, "collection": collection.name, "seed": seed, **result})
        return rows


def summarise(rows: list[dict]) -> list[dict]:
    """Return the results over seeds per collection and model, then their means over collections."""
    table = []
    models = list(dict.fromkeys(row["model"] for row in rows))
    for collection in COLLECTIONS:
        for model in models:
            own = [r for r in rows if r["model"] == model and r["collection"] == collection.name]
            if own:
                facts = {"collection": collection.name, "model": model, "seeds": len(own)}
                table.append(facts | {s: [r[s]["mean"] for r in own] for s in EVALUATED if s in own[0]})
    for scope, collections in (
        ("mean of layouts", [c.name for c in COLLECTIONS if c.kind == "layout"]),
        ("mean of five", [c.name for c in COLLECTIONS]),
    ):
        for model in models:
            own = [r for r in table if r["model"] == model and r["collection"] in collections]
            if len(own) == len(collections):
                seeds = min(row["seeds"] for row in own)
                means = {
                    s: np.mean([row[s][:seeds] for row in own], axis=0).tolist()
                    for s in EVALUATED
                    if s in own[0]
                }
                table.append({"collection": scope, "model": model, "seeds": seeds, **means})
    return table


def show(table: list[dict]) -> list[dict]:
    """Return the summary as table rows."""
    cells = []
    for row in table:
        text = {key: str(row[key]) for key in ("collection", "model", "seeds")}
        for split in (s for s in EVALUATED if s in row):
            text[split] = report.spread(row[split], 2)
        cells.append(text)
    return cells


def measure_quality(options: Namespace, place: Path) -> dict:
    """Evaluate every objective and the models of ``make submit`` on every collection."""
    quality, rows = Quality(options, place), []
    for seed in range(options.seeds):
        for collection in COLLECTIONS:
            new = [*quality.objectives(collection, seed), *quality.trained(collection, seed)]
            text = ", ".join(f"{row['model']} {row[VALID]['mean']:.3f}" for row in new)
            print(f"{collection.name} seed {seed}: valid {text}", flush=True)
            rows += new
    table = summarise(rows)
    print("\nKendall's tau (tile: 1 - slowdown): mean over seeds (minimum to maximum)\n")
    print(report.table(show(table)))
    return {"table": table, "runs": rows}


def measure_features(options: Namespace) -> dict:
    """Time the table against pandas, and measure the memory of 100,000 configurations."""
    path = next((p for p in graph_files.default_files(options.quick) if "/nlp/random/" in str(p)), None)
    path = path or graph_files.default_files(options.quick)[0]
    speed = ranker_scale.against_pandas(path, 1 if options.quick else 9)
    configs = "2000" if options.quick else "100000"
    large = ranker_scale.in_own_process("large_graph", str(path), configs)
    for title, result in (
        ("The whole table against pandas, medians of interleaved calls", speed),
        ("A graph of many configurations", large),
    ):
        print(f"\n{title}\n")
        print(report.table([{"": key, "value": _text(value)} for key, value in result.items()]))
    return {"pandas": speed, "many configurations": large}


def measure_halves(options: Namespace) -> dict:
    """Train on a random half of unet3d's configurations and evaluate on the rest and an unseen program."""
    if not (graph_files.REAL / ranker_scale.UNET3D).is_file():
        print(f"halves: left out, no {graph_files.REAL / ranker_scale.UNET3D}")
        return {}
    results, rounds = [], 10 if options.quick else 500
    for repeat in range(options.repeats):
        half = ranker_scale.random_half(graph_files.REAL, repeat, options.epochs, rounds, options.device)
        results.append(half)
        text = {m: {k: round(v, 3) for k, v in tau.items()} for m, tau in half.items()}
        print(f"unet3d, half {repeat}: {text}", flush=True)
    summary = {
        model: {graph: [result[model][graph] for result in results] for graph in ("test_half", "unseen")}
        for model in results[0]
    }
    rows = [
        {"model": m} | {g: f"{np.mean(t):.3f} ± {np.std(t):.3f}" for g, t in tau.items()}
        for m, tau in summary.items()
    ]
    print(
        "\nKendall's tau after training on a random half of unet3d, mean ± standard deviation over halves\n"
    )
    print(report.table(rows))
    return summary


def measure_scale(options: Namespace) -> dict:
    """Measure training time and memory on many rows, per objective."""
    rounds, results = "5" if options.quick else "100", []
    for objective in ("regression", "lambdarank", "pairwise")[: 1 if options.quick else None]:
        arguments = (str(options.rows), rounds, str(options.threads), objective)
        results.append(ranker_scale.in_own_process("many_rows", *arguments))
    print("\nTraining on many rows\n")
    print(report.table([{key: _text(value) for key, value in row.items()} for row in results]))
    return {"training": results}


def _text(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run(options: Namespace, place: Path) -> None:
    """Measure the requested parts, then print the JSON object."""
    result = {"benchmark": "ranker", "environment": report.environment(options.threads, options.device)}
    if "quality" in options.parts:
        result["quality"] = measure_quality(options, place)
    if "features" in options.parts:
        result["features"] = measure_features(options)
    if "halves" in options.parts:
        result["halves"] = measure_halves(options)
    if "scale" in options.parts:
        result["scale"] = measure_scale(options)
    report.finish(result)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
