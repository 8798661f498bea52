"""Stacking without leakage: the GNN's scores as one more column of the ranker's table.

``python benchmarks/stacking.py [--quick] [--seeds N] [--folds N] [--sources xla nlp] [--scale z]``. The train
programs of a source are dealt into folds by architecture, alike in both searches. A GNN trained on the other
folds scores the train graphs of each, so that the column of a train graph is from a network that saw neither
it nor its like; one trained on all train graphs fills the column of valid and test. The networks learn from
both searches together and keep their best weights on valid of random, and the ranker its best objective on
valid; ensembles are weighted on valid as ``make submit`` does. Test is scored and chooses nothing. Finished
trainings lie in ``benchmarks/results/stacking/`` by settings and data, and are not repeated.
"""

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import measure
from fastslow import train_config
from fastslow.arrays import read_arrays, write_arrays
from fastslow.artifacts import digest
from fastslow.collections import get_collection
from fastslow.ensemble import NORMALISATIONS, EnsembleConfig, combine, rank_mean, search_weights
from fastslow.graphs import Features
from fastslow.inputs import predict
from fastslow.metrics import collection_score
from fastslow.presets import network_settings, preset_settings
from fastslow.ranker import fit_objectives
from fastslow.ranker_config import RankerConfig
from fastslow.ranker_fit import read_training
from fastslow.ranker_table import Table, draw_configs, read_table
from fastslow.scores import SCORED_SPLITS, Scores
from fastslow.steps import parse_overrides
from fastslow.train import Training, make_inputs
from fastslow.train_config import LayoutTrainConfig
from folds import HeldOut, deal
from ranker import Quality, show, summarise

HELD_OUT = "held_out"
COLUMN = "network_score"
ENSEMBLES = {
    "ensemble": ("gnn", "ranker"),
    "ensemble with stacked": ("gnn", "stacked"),
    "ensemble of three": ("gnn", "ranker", "stacked"),
}
LEAST_GAIN = 0.01


def z_score(score: np.ndarray) -> np.ndarray:
    """Scores of a graph less their mean, over their deviation."""
    return (score - score.mean()) / max(score.std(), 1e-9)


SCALES = {"z": z_score, "rank": rank_mean}


class OutOfFold(HeldOut):
    """A features folder whose train graphs of some families are split ``held_out``; it has no test.

    Args:
        folder: The folder that a feature notebook wrote.
        families: Which are held out of train.
    """

    def __init__(self, folder: Path, families: set[str]):
        super().__init__(folder, families)  # calls them valid, and every other graph train
        valid = self.index["name"].map(self._origin) == "valid"
        split = self.index["split"].replace("valid", HELD_OUT).mask(valid, "valid")
        self.index = self.index.assign(split=split)


def parse_arguments(arguments: list[str]) -> Namespace:
    """The command line."""
    parser = measure.make_parser(__doc__.splitlines()[0])
    parser.set_defaults(threads=1)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of networks and rankers (default 3)")
    parser.add_argument("--folds", type=int, default=3, help="folds of the train programs (default 3)")
    parser.add_argument("--sources", nargs="+", default=["xla", "nlp"], choices=("xla", "nlp"))
    parser.add_argument("--scale", default="z", choices=SCALES, help="scale of a graph's column (default z)")
    parser.add_argument("--preset", default="sample", help="settings of all models (default sample)")
    parser.add_argument("--data-root", default="data/sample", help="folder of npz_all/ and solution.csv")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.folds, options.sources, options.preset = 1, 2, ["xla"], "smoke"
        options.set = ["gnn.epochs=1", "gnn.width=8", "ranker.rounds=5", *options.set]
    torch.set_num_threads(options.threads)
    return options


class Source:
    """Trains what the collections of one source need, or finds what was trained before.

    Args:
        options: The command line.
        name: ``xla`` or ``nlp``.
        place: Folder of features and results.
    """

    def __init__(self, options: Namespace, name: str, place: Path):
        self.options, self.place = options, place / "stacking"
        overrides = parse_overrides(options.set)
        self.settings = {
            "gnn": network_settings(options.preset, overrides, "layout")[0],
            "ranker": preset_settings(options.preset, overrides, "ranker", "layout"),
        }
        collections = [get_collection(f"layout:{name}:{search}") for search in ("random", "default")]
        self.data = Quality(options, place, collections)
        self.features = list(self.data.features.values())
        self.folds = deal([name for own in self.features for name in own.names("train")], options.folds)

    def network(self, seed: int, families: set[str]) -> tuple[str, dict[str, np.ndarray]]:
        """A network trained without the train graphs of some families: its key and its scores.

        They are, by ``SLUG/SPLIT/GRAPH``, those of the graphs held out or, where none is, of valid and test.
        """
        where = {"device": self.options.device, "seed": seed}
        config = LayoutTrainConfig.of({**self.settings["gnn"], **where})
        inputs = [features.fingerprint for features in self.features]
        key = digest([train_config.FORMAT, config.identity(), sorted(families), inputs])
        path = self.place / f"gnn-{key}.npz"
        if not path.is_file():
            sources = [OutOfFold(f.folder, families) for f in self.features] if families else self.features
            _keep(path, lambda: _train_network(config, sources, path.with_suffix("")))
        return key, read_arrays(path)

    def networks(self, seed: int) -> tuple[list[str], dict[str, np.ndarray]]:
        """Keys of one seed's networks, and scores by ``SLUG/SPLIT/GRAPH``: those of train are out of fold."""
        keys, scores = [], {}
        for families in (set(), *self.folds):
            key, own = self.network(seed, families)
            keys.append(key)
            scores |= {name.replace(f"/{HELD_OUT}/", "/train/"): score for name, score in own.items()}
        return keys, scores

    def ranker(self, features: Features, seed: int, column: tuple[list[str], dict] | None = None) -> dict:
        """Scores by ``SPLIT/GRAPH`` of a ranker; its table is widened where networks' scores are given."""
        config = {**self.settings["ranker"], "threads": self.options.threads, "train_on": "source"}
        config = RankerConfig.of({**config, "seed": seed, "features": str(features.folder)})
        key = [config.artifact().fingerprint]
        if column:
            key += [self.options.scale, column[0]]
        path = self.place / f"ranker-{digest(key)}.npz"
        if not path.is_file():
            _keep(path, lambda: self._train_ranker(config, features, column[1] if column else {}))
        return read_arrays(path)

    def _train_ranker(self, config: RankerConfig, features: Features, scores: dict) -> dict:
        slug, scale = features.folder.name, SCALES[self.options.scale]

        def widened(table: Table, split: str, seed: int = 0) -> Table:
            return widen(table, slug, split, scores, scale, seed) if scores else table

        training = read_training(config)
        training = replace(
            training,
            train=widened(training.train, "train", config.seed),
            bins=widened(training.bins, "train", config.seed),
            valid=widened(training.valid, "valid"),
        )
        tables = {split: widened(read_table(features, split), split) for split in SCORED_SPLITS}
        labels, best, kept = features.labels("valid"), -np.inf, {}
        for objective, fitted in fit_objectives(config, training, slug).items():
            found = {split: fitted.scores(table) for split, table in tables.items()}
            tau = collection_score("layout", labels, found["valid"])["mean"]
            if tau > best:
                best, kept = tau, {f"{s}/{name}": v for s, own in found.items() for name, v in own.items()}
                kept["objective"] = np.array(objective)
        return kept


def widen(table: Table, slug: str, split: str, scores: dict, scale: Callable, seed: int = 0) -> Table:
    """A ranker's table with one more column, of networks' scores by ``SLUG/SPLIT/GRAPH``.

    Its graphs are of ``slug`` or, called ``SLUG/GRAPH``, of another collection; the seed is the one with
    which configurations of too large ones were drawn.
    """
    most, rows = max(table.sizes), []
    for name, own in zip(table.names, table.rows, strict=True):
        other, _, graph = name.rpartition("/")
        column = scale(scores[f"{other or slug}/{split}/{graph}"])
        chosen = draw_configs(len(column), most, seed, name)
        rows.append(np.column_stack([own, column[chosen].astype(np.float32)]))
    return Table(table.names, rows, table.runtimes, [*table.columns, COLUMN])


def _keep(path: Path, train: Callable[[], dict[str, np.ndarray]]) -> None:
    """Write what a training gives, and its seconds."""
    began = time.perf_counter()
    arrays = train()
    write_arrays(path, arrays | {"seconds": np.array(time.perf_counter() - began)})
    print(f"{path.stem}: {time.perf_counter() - began:.0f} s", flush=True)


def _train_network(config: LayoutTrainConfig, sources: list[Features], checkpoints: Path) -> dict:
    training = Training(config, make_inputs(config, sources))
    training.run(checkpoints, checkpoints.name)
    arrays = {}
    for slug, features in training.inputs.sources.items():
        training.choose_weights(slug)
        for split in (HELD_OUT,) if features.names(HELD_OUT) else SCORED_SPLITS:
            scores = predict(training.network, training.inputs, slug, split, config.inference_configs)
            arrays |= {f"{slug}/{split}/{name}": score for name, score in scores.items()}
    shutil.rmtree(checkpoints)
    return arrays


def by_split(arrays: dict[str, np.ndarray], prefix: str = "") -> Scores:
    """Scores of valid and test by graph, of arrays called ``[PREFIX/]SPLIT/GRAPH``."""
    found: Scores = {split: {} for split in SCORED_SPLITS}
    for key in (key for key in arrays if "/" in key and key.startswith(prefix)):
        split, _, name = key.removeprefix(prefix).partition("/")
        if split in found:
            found[split][name] = arrays[key]
    return found


def blend(labels: dict[str, dict], members: dict[str, Scores]) -> Scores:
    """The ensemble of some members, weights and normalisation chosen on valid as ``make submit`` does."""

    def valid_score(scores: dict) -> float:
        return collection_score("layout", labels["valid"], scores)["mean"]

    tried = {n: search_weights(members, n, EnsembleConfig.rounds, valid_score) for n in NORMALISATIONS}
    best = max(tried, key=lambda n: valid_score(combine(members, "valid", n, tried[n])))
    return {split: combine(members, split, best, tried[best]) for split in SCORED_SPLITS}


def compare(source: Source, seed: int) -> list[dict]:
    """Tau of every model and ensemble of one seed, a row each, on both collections of a source."""
    keys, scores = source.networks(seed)
    rows = []
    for features in source.features:
        name, labels = features.collection.name, source.data.labels(features.collection)
        members = {"gnn": by_split(scores, f"{features.folder.name}/")}
        for ranker, column in (("ranker", None), ("stacked", (keys, scores))):
            members[ranker] = by_split(source.ranker(features, seed, column))
        blends = {e: blend(labels, {m: members[m] for m in own}) for e, own in ENSEMBLES.items()}
        models = {**members, **blends}
        for model, own in models.items():
            tau = {split: collection_score("layout", labels[split], own[split]) for split in labels}
            rows.append({"collection": name, "seed": seed, "model": model, **tau})
        told = ", ".join(f"{row['model']} {row['valid']['mean']:.3f}" for row in rows[-len(models) :])
        print(f"{name} seed {seed}: valid {told}", flush=True)
    return rows


def gains(rows: list[dict]) -> dict[str, dict[str, list[float]]]:
    """How far the ensembles with the stacked ranker are above the one without, by collection and seed."""
    tau = {model: [row for row in rows if row["model"] == model] for model in ENSEMBLES}
    pairs = {m: list(zip(tau[m], tau["ensemble"], strict=True)) for m in ENSEMBLES if m != "ensemble"}
    splits = [split for split in SCORED_SPLITS if split in rows[0]]
    return {m: {s: [a[s]["mean"] - b[s]["mean"] for a, b in own] for s in splits} for m, own in pairs.items()}


def run(options: Namespace, place: Path) -> None:
    """Every seed of every source, the tables and the JSON object."""
    sources = [Source(options, name, place) for name in options.sources]
    rows = [row for seed in range(options.seeds) for source in sources for row in compare(source, seed)]
    table, gain = summarise(rows), gains(rows)
    print("\nKendall tau: mean over seeds (least to most)\n")
    print(measure.table(show(table)))
    print(f"\nAbove the ensemble of GNN and ranker; it would be kept from {LEAST_GAIN} on valid on\n")
    spread = {m: {s: f"{np.mean(v):+.4f} ± {np.std(v):.4f}" for s, v in g.items()} for m, g in gain.items()}
    print(measure.table([{"ensemble": model, **cells} for model, cells in spread.items()]))
    facts = {"environment": measure.environment(options), "scale": options.scale, "folds": options.folds}
    measure.finish(
        {"benchmark": "stacking", **facts, "table": table, "above the ensemble": gain, "runs": rows}
    )


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit status."""
    return measure.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
