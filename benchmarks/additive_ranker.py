"""The additive ranker beside the LightGBM ranker, alone and together, on held-out programs over seeds.

``python benchmarks/additive_ranker.py [--quick] [--seeds N] [--folds N] [--collections SLUG ...] [--gnn]``.
Train and valid of the sample competition are dealt into folds by architecture and each is held out in turn;
test is never read. The additive ranker's score is the sum of f(state) over the states of nodes and copies
that a configuration has, f being boosted trees (``fastslow.rankers.additive_fit``); the ranker's trees see
the states' summed features. ``ranker`` is, of five objectives, the best on the held-out programs of a fold,
and every model keeps its best round on them: all figures flatter, the ranker's most. ``a + b`` is the plain
mean of the members' scores, each graph's moved to 0 to 1. Finished trainings lie in
``benchmarks/results/additive_ranker/`` by settings and data, and are not repeated.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common import measure
from common.folds import HeldOut, build_layouts, deal_source
from fastslow.competition.catalog import COLLECTIONS, trained_together
from fastslow.competition.metrics import kendall_tau
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import Config
from fastslow.evaluation.ensemble import min_max
from fastslow.networks import config as network_config
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import predict
from fastslow.networks.train import Training as NetworkTraining
from fastslow.networks.train import make_dataset
from fastslow.presets import network_settings, preset_settings
from fastslow.rankers import additive_train
from fastslow.rankers import config as ranker_config
from fastslow.rankers.additive_train import AdditiveRankerConfig
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.fit import BIN_ROWS, Training
from fastslow.rankers.table import read_table
from fastslow.rankers.train import fit_objectives
from fastslow.rankers.train_graphs import trainable
from fastslow.steps import parse_overrides

LAYOUTS = [collection.slug for collection in COLLECTIONS if collection.kind == "layout"]
ENSEMBLES = (("ranker", "additive"), ("gnn", "ranker"), ("gnn", "additive"), ("gnn", "ranker", "additive"))
Scores = dict[str, dict[str, list[float]]]  # model -> graph -> score by configuration


def parse_arguments(arguments: list[str]) -> Namespace:
    """The command line."""
    parser = measure.make_parser(__doc__.splitlines()[0])
    parser.set_defaults(threads=1)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each model (default 3)")
    parser.add_argument("--folds", type=int, default=3, help="parts that are held out in turn (default 3)")
    parser.add_argument("--collections", nargs="+", default=LAYOUTS, help="slugs (default: all layouts)")
    parser.add_argument("--gnn", action="store_true", help="train networks too, half a minute each")
    parser.add_argument("--preset", default="sample", help="settings of the ranker and the network")
    parser.add_argument("--data-root", default="data/sample", help="folder of npz_all/")
    options = parser.parse_args(arguments)
    options.train_on, options.rounds = "source", AdditiveRankerConfig.rounds
    if options.quick:
        options.seeds, options.folds, options.preset = 1, 2, "smoke"
        options.collections, options.train_on, options.rounds = ["layout-xla-random"], "collection", 10
    torch.set_num_threads(options.threads)
    return options


@dataclass(frozen=True)
class Fold:
    """One collection without some families of programs, which are its valid split.

    Args:
        folder: Features of the collection, beside those of the others.
        families: What is held out.
        train_on: As for the models' settings.
    """

    folder: Path
    families: frozenset[str]
    train_on: str

    def features(self) -> tuple[HeldOut, dict[str, HeldOut]]:
        """The collection, and by folder name the others that are trained on."""
        own = HeldOut(self.folder, self.families)
        others = trained_together(own.collection, self.train_on)
        return own, {o.slug: HeldOut(self.folder.parent / o.slug, self.families) for o in others}


def train_rankers(config: RankerConfig, fold: Fold) -> Scores:
    """Every objective of the settings."""
    own, also = fold.features()
    names = trainable(own, also)
    bins = min(config.configs_per_graph, max(2, BIN_ROWS // len(names)))
    train, bins = (
        read_table(own, "train", names, also=also, most=most, seed=config.seed)
        for most in (config.configs_per_graph, bins)
    )
    training = Training("layout", train, bins, read_table(own, "valid"))
    fits = fit_objectives(config, training, fold.folder.name)
    return {objective: _lists(fitted.scores(training.valid)) for objective, fitted in fits.items()}


def train_additive(config: AdditiveRankerConfig, fold: Fold) -> Scores:
    """The additive ranker."""
    own, also = fold.features()
    fitted = additive_train.fit(config, own, also, fold.folder.name)
    return {"additive": _lists(additive_train.predict_split(fitted, own, "valid"))}


def train_network(config: TrainConfig, fold: Fold) -> Scores:
    """The GNN."""
    own, also = fold.features()
    training = NetworkTraining(config, make_dataset(config, [own, *also.values()]))
    with tempfile.TemporaryDirectory() as checkpoints:
        training.run(Path(checkpoints), "gnn")
    slug = own.collection.slug
    training.choose_weights(slug)
    scores = predict(training.network, training.inputs, slug, "valid", config.inference_configs)
    return {"gnn": _lists(scores)}


def _lists(scores: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: np.asarray(score, np.float64).tolist() for name, score in scores.items()}


def models(options: Namespace, fold: Fold, seed: int) -> list[tuple[int, Config, Callable[..., Scores]]]:
    """Format, settings and training function of every model."""
    overrides = parse_overrides(options.set)
    where = {"features": str(fold.folder), "seed": seed, "train_on": options.train_on}
    settings = preset_settings(options.preset, overrides, "ranker", "layout")
    ranker = RankerConfig(**{**settings, **where, "num_threads": options.threads})
    additive = AdditiveRankerConfig.of(
        {**where, "num_iterations": options.rounds, "num_threads": options.threads}
    )
    found = [
        (ranker_config.FORMAT, ranker, train_rankers),
        (additive_train.FORMAT, additive, train_additive),
    ]
    if options.gnn:
        settings, _ = network_settings(options.preset, overrides, "layout")
        network = TrainConfig(**{**settings, "seed": seed, "device": options.device})
        found.append((network_config.FORMAT, network, train_network))
    return found


def scores_of(options: Namespace, fold: Fold, seed: int, place: Path) -> tuple[Scores, dict[str, float]]:
    """Scores of every model, and the seconds of each training; trains what was not trained before."""
    scores, seconds = {}, {}
    own, also = fold.features()
    inputs = [features.fingerprint for features in (own, *also.values())]
    for version, config, train in models(options, fold, seed):
        key = [train.__name__, version, config.identity(), sorted(fold.families), inputs, fold.folder.name]
        path = place / "additive_ranker" / f"{digest(key)}.json"
        if not path.is_file():
            began = time.perf_counter()
            found = train(config, fold)
            write_json(path, {"seconds": time.perf_counter() - began, "scores": found})
        result = read_json(path)
        scores |= result["scores"]
        seconds[train.__name__] = result["seconds"]
    return scores, seconds


def taus(scores: Scores, labels: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Kendall's tau by model and graph: of each, of the best ranker, and of means of normalised scores."""
    found = {
        model: {name: kendall_tau(labels[name], np.array(own[name])) for name in labels}
        for model, own in scores.items()
    }
    objectives = [model for model in scores if model not in ("additive", "gnn")]
    best = max(objectives, key=lambda model: np.mean(list(found[model].values())))
    found["ranker"] = found[best]
    members = {"ranker": scores[best], **{m: scores[m] for m in ("additive", "gnn") if m in scores}}
    for together in ENSEMBLES:
        if set(together) <= set(members):
            mean = {name: sum(min_max(np.array(members[m][name])) for m in together) for name in labels}
            found[" + ".join(together)] = {name: kendall_tau(labels[name], mean[name]) for name in labels}
    return found


def summarise(runs: list[dict]) -> dict[str, dict]:
    """Model -> collection -> mean tau over all held-out graphs, by seed; ``mean`` is over collections."""
    summary: dict[str, dict] = {}
    for model in runs[0]["tau"]:
        taus_of: dict[str, dict[int, list[float]]] = {}
        for run in runs:
            of_seed = taus_of.setdefault(run["collection"], {}).setdefault(run["seed"], [])
            of_seed += run["tau"][model].values()
        summary[model] = {c: [float(np.mean(t)) for t in own.values()] for c, own in taus_of.items()}
        summary[model]["mean"] = np.mean(list(summary[model].values()), axis=0).tolist()
    return summary


def show(summary: dict[str, dict]) -> list[dict]:
    """The summary with numbers as text."""
    return [
        {"model": model} | {c: f"{np.mean(t):.3f} ({min(t):.3f} to {max(t):.3f})" for c, t in own.items()}
        for model, own in summary.items()
    ]


def run(options: Namespace, place: Path) -> None:
    """Every training, the table and the JSON object."""
    settings = preset_settings(options.preset, parse_overrides(options.set), "features", "layout")
    folder = place / "features" / "additive_ranker" / digest([settings, options.data_root])
    build_layouts(settings, options.data_root, folder)
    runs = []
    for seed in range(options.seeds):
        for slug in options.collections:
            for families in deal_source(folder, slug, options.folds):
                fold = Fold(folder / slug, frozenset(families), options.train_on)
                scores, seconds = scores_of(options, fold, seed, place)
                found = taus(scores, fold.features()[0].labels("valid"))
                runs.append({"collection": slug, "seed": seed, "tau": found, "seconds": seconds})
                told = ", ".join(f"{m} {np.mean(list(own.values())):.3f}" for m, own in found.items())
                print(f"seed {seed} {slug} without {len(families)} families: {told}", flush=True)
    summary = summarise(runs)
    print("\nKendall tau of held-out programs: mean over seeds (least to most)\n")
    print(measure.table(show(summary)))
    seconds = {name: float(np.mean([r["seconds"][name] for r in runs])) for name in runs[0]["seconds"]}
    result = {"benchmark": "additive_ranker", "environment": measure.environment(options)}
    measure.finish({**result, "tau": summary, "seconds": seconds, "runs": runs})


def main(arguments: list[str]) -> int:
    """Run from the command line; the exit status."""
    return measure.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
