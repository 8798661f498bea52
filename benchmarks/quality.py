"""Compare our layout network with the 1st place's by Kendall's tau on the sample competition, over seeds.

``python benchmarks/quality.py [--quick] [--seeds N] [--collections SLUG ...]``. Ours is trained as by
``make submit``: one network for several collections. The winner has one network per collection. Together they
have (a) exactly the seconds that ours took or (b) as many steps. Both select their weights on valid; test is
only reported. Finished runs are kept in ``benchmarks/results/``: an interrupted call resumes.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import options as shared
from common import report
from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, Collection, training_groups
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import commit
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import resolve
from fastslow.core.source import source_digest
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import read_solution
from fastslow.features.build import FeatureSettings, build_features
from fastslow.features.store import Features
from fastslow.networks.hardware.devices import pick_device
from fastslow.networks.predict.dataset import make_dataset
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import train
from fastslow.workflow.presets import network_settings
from fastslow.workflow.steps import parse_overrides
from reference.winner import HOPS
from reference.winner_recipe import train_winner

TABLE = {"hours": 2.5, "needs": ("torch_geometric",), "commands": (("--threads", "1"),)}
HERE = Path(__file__).resolve().parent
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]
QUICK = ["gnn.epochs=1", "gnn.layout.train_on=collection", "features.workers=1"]
EQUAL_TIME, EQUAL_STEPS = "winner, equal time", "winner, equal steps"
CONTENDERS = ("ours", EQUAL_TIME, EQUAL_STEPS)
EVALUATED = (VALID, TEST)
Trained = dict[str, dict]  # by slug: predictions of valid and test, ``seconds`` and ``steps``


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser)
    shared.add_data_option(parser)
    parser.add_argument(
        "--seeds", type=int, default=3, help="trainings of each contender (default 3, quick 1)"
    )
    parser.add_argument(
        "--collections",
        nargs="+",
        default=[c.slug for c in LAYOUTS],
        help="slugs (default all four layouts)",
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.preset, options.collections = 1, "smoke", ["layout-xla-random"]
        options.set = [*QUICK, *options.set]
    torch.set_num_threads(options.threads)
    return options


class Comparison:
    """Train and evaluate the contenders, or read the results of an earlier call.

    Args:
        options: The command line.
        place: Folder of features and results.
    """

    def __init__(self, options: Namespace, place: Path):
        self.options, self.place = options, place
        self.sources = source_digest("quality:main", HERE)
        self.device = pick_device(options.device)
        solution = resolve(options.data_root) / "solution.csv"
        self.solution = read_solution(solution) if solution.is_file() else {}
        for collection in LAYOUTS:
            self._build_features("ours", collection, shared.our_settings(options, "features"))
            self._build_features("winner", collection, {"hops": HOPS, "merge_duplicates": False})

    def _features(self, whose: str, collection: Collection) -> Path:
        return self.place / "features" / whose / digest(self.options.data_root) / collection.slug

    def _build_features(self, whose: str, collection: Collection, settings: dict) -> None:
        where = {
            "collection": collection.name,
            "data_root": self.options.data_root,
            "folder": str(self._features(whose, collection)),
            "workers": 1,
        }
        build_features(FeatureSettings(**{**settings, **where}))

    def groups(self) -> list[list[Collection]]:
        """Return the requested collections, grouped with those that ours is trained on together."""
        overrides = parse_overrides(self.options.set)
        train_on = network_settings(self.options.preset, overrides, "layout")[1]
        groups = training_groups("layout", train_on).values()
        return [group for group in groups if {c.slug for c in group} & {*self.options.collections}]

    def run(self, group: list[Collection], seed: int) -> list[dict]:
        """Run every contender with one seed on collections that ours is trained on together."""
        found = self._cached("ours", group, seed, {}, lambda: self._train_ours(group, seed))
        seconds, steps = (found[0][what] / len(group) for what in ("seconds", "steps"))
        for name, limit in ((EQUAL_TIME, {"seconds": seconds}), (EQUAL_STEPS, {"steps": round(steps)})):
            for own in group:
                train_it = partial(self._train_winner, own, seed, limit)
                found += self._cached(name, [own], seed, limit, train_it)
        return found

    def _our_settings(self, group: list[Collection], seed: int, place: Path) -> TrainSettings:
        fixed = {
            "features": [str(self._features("ours", own)) for own in group],
            "runs": [str(place / own.slug) for own in group],
            "folder": str(place),
            "device": self.device.type,
            "seed": seed,
        }
        return TrainSettings(**{**shared.our_settings(self.options, "gnn"), **fixed})

    def _cached(
        self, contender: str, group: list[Collection], seed: int, limit: dict, train_it: Callable[[], Trained]
    ) -> list[dict]:
        """Return the result of a training on each collection; train where one of them is missing."""
        options = self.options
        made_from = {
            "seed": seed,
            "contender": contender,
            "settings": self._our_settings(group, seed, self.place).identity(),
            "features": [Features(self._features("ours", own)).fingerprint for own in LAYOUTS],
            "sources": self.sources,
            "threads": options.threads,
            "device": options.device,
            **limit,
        }
        facts = [{"collection": own.name, "together": [c.name for c in group], **made_from} for own in group]
        paths = [self.place / "quality" / f"{digest(own)}.json" for own in facts]
        if not all(path.is_file() for path in paths):
            trained = train_it()
            for own, known, path in zip(group, facts, paths, strict=True):
                result = trained[own.slug]
                labels = self._labels(own)
                taus = {s: collection_score("layout", labels[s], result["predictions"][s]) for s in labels}
                spent = {what: result[what] for what in ("seconds", "steps")}
                write_json(path, {**known, **spent, "commit": commit(), **taus})
        return [read_json(path) for path in paths]

    def _labels(self, collection: Collection) -> dict[str, dict[str, np.ndarray]]:
        features = Features(self._features("ours", collection))
        labels = {VALID: features.labels(VALID)}
        if self.solution:
            name = collection.name
            labels[TEST] = {graph: self.solution[f"{name}:{graph}"] for graph in features.names(TEST)}
        return labels

    def _train_ours(self, group: list[Collection], seed: int) -> Trained:
        with tempfile.TemporaryDirectory(dir=self.place) as place:
            settings = self._our_settings(group, seed, Path(place))
            began = time.perf_counter()
            manifest = train(settings)
            seconds = time.perf_counter() - began
            predictions = {own.slug: read_predictions(Path(place) / own.slug) for own in group}
        graphs = len(make_dataset(settings).trainable())
        steps = manifest["epochs"] * -(-graphs // settings.graphs_per_step)
        spent = {"seconds": seconds, "steps": steps}
        return {slug: {**spent, "predictions": own} for slug, own in predictions.items()}

    def _train_winner(self, own: Collection, seed: int, limit: dict) -> Trained:
        every = self._our_settings([own], seed, self.place).evaluate_every
        features = Features(self._features("winner", own))
        return {own.slug: train_winner(features, seed, self.device, every, **limit)}


def summarise(runs: list[dict]) -> dict:
    """Average over collections per contender, split and seed, and return the gains of ours."""

    def mean(contender: str, split: str, seed: int) -> float:
        return float(np.mean([run[split]["mean"] for run in _of(runs, contender) if run["seed"] == seed]))

    seeds = sorted({run["seed"] for run in runs})
    there = _contenders(runs)
    means = {c: {split: [mean(c, split, seed) for seed in seeds] for split in _splits(runs)} for c in there}
    gains = {
        c: {split: float(np.mean(means["ours"][split]) - np.mean(means[c][split])) for split in _splits(runs)}
        for c in there[1:]
    }
    return {"mean of collections by seed": means, "gain of ours": gains}


def collection_rows(runs: list[dict]) -> list[dict]:
    """Return table rows of tau, seconds and steps per collection and contender, then of the means."""
    rows = []
    for collection in dict.fromkeys(run["collection"] for run in runs):
        for contender in _contenders(runs):
            own = _of(runs, contender, collection)
            row = {"collection": collection, "network": contender}
            row |= {split: report.spread([run[split]["mean"] for run in own], 2) for split in _splits(runs)}
            rows.append(
                row | {what: f"{np.mean([r[what] for r in own]):.0f}" for what in ("seconds", "steps")}
            )
    for contender, by_split in summarise(runs)["mean of collections by seed"].items():
        row = {"collection": "**mean**", "network": contender}
        row |= {split: report.spread(values, 2) for split, values in by_split.items()}
        rows.append(row | {"seconds": "", "steps": ""})
    return rows


def _of(runs: list[dict], contender: str, collection: str = "") -> list[dict]:
    return [r for r in runs if r["contender"] == contender and r["collection"].startswith(collection)]


def _contenders(runs: list[dict]) -> list[str]:
    return [c for c in CONTENDERS if any(run["contender"] == c for run in runs)]


def _splits(runs: list[dict]) -> list[str]:
    return [split for split in EVALUATED if split in runs[0]]


def compare(options: Namespace, place: Path) -> None:
    """Run all collections and seeds, then print the tables and the JSON object."""
    comparison = Comparison(options, place)
    runs = []
    for seed in range(options.seeds):
        for group in comparison.groups():
            for run in comparison.run(group, seed):
                tau = ", ".join(f"{split} {run[split]['mean']:.3f}" for split in EVALUATED if split in run)
                what = f"{run['collection']} seed {seed} {run['contender']}"
                print(f"{what}: {tau} ({run['seconds']:.0f} s)", file=sys.stderr, flush=True)
                runs.append(run)
    print("\nKendall's tau: mean over seeds (minimum to maximum)\n")
    print(report.table(collection_rows(runs)))
    report.finish(
        {
            "benchmark": "quality",
            "environment": report.environment(options.threads, options.device),
            "settings": shared.our_settings(options, "gnn"),
            **summarise(runs),
            "runs": runs,
        }
    )


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(compare, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
