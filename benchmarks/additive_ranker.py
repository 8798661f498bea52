"""Compare the additive ranker with the LightGBM ranker by cross-validation, alone and ensembled, over seeds.

``python benchmarks/additive_ranker.py [--quick] [--seeds N] [--folds N] [--collections SLUG ...] [--gnn]``.
Train and valid of the sample competition are split into folds grouped by architecture, and each is held out
in turn; test is never read. The additive ranker predicts the sum of f(state) over a configuration's states of
nodes and copies, f being boosted trees (``fastslow.rankers.additive_fit``); the LightGBM ranker's trees see
the states' summed features. ``ranker`` is the best of five objectives on the held-out programs of a fold, and
every model keeps its best round on them: all figures are optimistically biased, the ranker's most. ``a + b``
is the plain mean of the members' predictions, min-max normalised per graph. Finished trainings are kept in
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

from common import options as shared
from common import report
from common.folds import HeldOut, build_layouts, split_source
from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID, trained_together
from fastslow.competition.metrics import kendall_tau
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import Config
from fastslow.core.source import source_digest
from fastslow.evaluation.ensemble_weights import min_max
from fastslow.features.train_graphs import trainable
from fastslow.networks import config as network_config
from fastslow.networks.config import TrainConfig
from fastslow.networks.train import Training as NetworkTraining
from fastslow.networks.train import make_dataset
from fastslow.rankers import additive_train
from fastslow.rankers import config as ranker_config
from fastslow.rankers.config import AdditiveRankerConfig, RankerConfig
from fastslow.rankers.fit import BIN_ROWS, Training
from fastslow.rankers.objectives import BEST
from fastslow.rankers.table import read_table
from fastslow.rankers.train import fit_objectives

LAYOUTS = [collection.slug for collection in COLLECTIONS if collection.kind == "layout"]
ENSEMBLES = (("ranker", "additive"), ("gnn", "ranker"), ("gnn", "additive"), ("gnn", "ranker", "additive"))
Predicted = dict[str, dict[str, list[float]]]  # model -> graph -> prediction per configuration


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser, threads=1)
    shared.add_data_option(parser)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each model (default 3)")
    parser.add_argument("--folds", type=int, default=3, help="folds of the cross-validation (default 3)")
    parser.add_argument("--collections", nargs="+", default=LAYOUTS, help="slugs (default all layouts)")
    parser.add_argument("--gnn", action="store_true", help="train networks as well, half a minute each")
    options = parser.parse_args(arguments)
    options.train_on = "source"
    if options.quick:
        options.seeds, options.folds, options.preset = 1, 2, "smoke"
        options.collections, options.train_on = ["layout-xla-random"], "collection"
    torch.set_num_threads(options.threads)
    return options


@dataclass(frozen=True)
class Fold:
    """One collection with some architectures held out as its valid split.

    Args:
        folder: Features folder of the collection, beside those of the others.
        families: The held-out architectures.
        train_on: As in the models' settings.
    """

    folder: Path
    families: frozenset[str]
    train_on: str

    def features(self) -> tuple[HeldOut, dict[str, HeldOut]]:
        """Return the collection and, by folder name, the others that are trained on."""
        own = HeldOut(self.folder, self.families)
        others = trained_together(own.collection, self.train_on)
        return own, {o.slug: HeldOut(self.folder.parent / o.slug, self.families) for o in others}


def train_rankers(config: RankerConfig, fold: Fold) -> Predicted:
    """Train the LightGBM ranker with every objective."""
    own, also = fold.features()
    names = trainable({"": own, **also})
    bins = min(config.configs_per_graph, max(2, BIN_ROWS // len(names)))
    train, bins = (
        read_table(own, TRAIN, names, also=also, max_configs=most, seed=config.seed)
        for most in (config.configs_per_graph, bins)
    )
    training = Training("layout", train, bins, read_table(own, VALID))
    fits = fit_objectives(config, training, fold.folder.name)
    return {objective: _lists(fitted.predict(training.valid)) for objective, fitted in fits.items()}


def train_additive(config: AdditiveRankerConfig, fold: Fold) -> Predicted:
    """Train the additive ranker."""
    own, also = fold.features()
    fitted = additive_train.fit(config, own, also, fold.folder.name)
    return {"additive": _lists(additive_train.predict_split(fitted, own, VALID))}


def train_network(config: TrainConfig, fold: Fold) -> Predicted:
    """Train the GNN."""
    own, also = fold.features()
    training = NetworkTraining(config, make_dataset(config, [own, *also.values()]))
    with tempfile.TemporaryDirectory() as checkpoints:
        training.run(Path(checkpoints), "gnn")
    _, predictions = training.validation.choose_weights(own.collection.slug)
    return {"gnn": _lists(predictions)}


def _lists(predictions: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: np.asarray(own, np.float64).tolist() for name, own in predictions.items()}


def models(options: Namespace, fold: Fold, seed: int) -> list[tuple[str, Config, Callable[..., Predicted]]]:
    """Return entry, settings and training function of every model."""
    where = {"features": str(fold.folder), "seed": seed, "train_on": options.train_on}
    where["num_threads"] = options.threads
    ranker = RankerConfig(**{"objective": BEST, **shared.our_settings(options, "ranker"), **where})
    additive = AdditiveRankerConfig(**{**shared.our_settings(options, "additive"), **where})
    found = [
        (ranker_config.ENTRY, ranker, train_rankers),
        (ranker_config.ADDITIVE_ENTRY, additive, train_additive),
    ]
    if options.gnn:
        settings = shared.our_settings(options, "gnn")
        network = TrainConfig(**{**settings, "seed": seed, "device": options.device})
        found.append((network_config.ENTRY, network, train_network))
    return found


def predict_all(options: Namespace, fold: Fold, seed: int, place: Path) -> tuple[Predicted, dict[str, float]]:
    """Return the predictions of every model and the seconds of each training; train what is missing."""
    predictions, seconds = {}, {}
    own, also = fold.features()
    inputs = [features.fingerprint for features in (own, *also.values())]
    for entry, config, train in models(options, fold, seed):
        key = [source_digest(entry), config.identity(), sorted(fold.families), inputs, fold.folder.name]
        path = place / "additive_ranker" / f"{digest(key)}.json"
        if not path.is_file():
            began = time.perf_counter()
            found = train(config, fold)
            write_json(path, {"seconds": time.perf_counter() - began, "predictions": found})
        result = read_json(path)
        predictions |= result["predictions"]
        seconds[train.__name__] = result["seconds"]
    return predictions, seconds


def taus(predictions: Predicted, labels: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return Kendall's tau per model and graph: of each, of the best objective, and of ensembles."""
    found = {
        model: {name: kendall_tau(labels[name], np.array(own[name])) for name in labels}
        for model, own in predictions.items()
    }
    objectives = [model for model in predictions if model not in ("additive", "gnn")]
    best = max(objectives, key=lambda model: np.mean(list(found[model].values())))
    found["ranker"] = found[best]
    members = {"ranker": predictions[best]}
    members |= {m: predictions[m] for m in ("additive", "gnn") if m in predictions}
    for together in ENSEMBLES:
        if set(together) <= set(members):
            mean = {name: sum(min_max(np.array(members[m][name])) for m in together) for name in labels}
            found[" + ".join(together)] = {name: kendall_tau(labels[name], mean[name]) for name in labels}
    return found


def summarise(runs: list[dict]) -> dict[str, dict]:
    """Return model -> collection (or ``mean`` over them) -> mean tau over held-out graphs, per seed."""
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
    """Return the summary as table rows."""
    return [
        {"model": model} | {c: report.spread(t) for c, t in own.items()} for model, own in summary.items()
    ]


def run(options: Namespace, place: Path) -> None:
    """Do every training, then print the table and the JSON object."""
    settings = shared.our_settings(options, "features")
    folder = place / "features" / "additive_ranker" / digest([settings, options.data_root])
    build_layouts(settings, options.data_root, folder)
    runs = []
    for seed in range(options.seeds):
        for slug in options.collections:
            for families in split_source(folder, slug, options.folds):
                fold = Fold(folder / slug, frozenset(families), options.train_on)
                predictions, seconds = predict_all(options, fold, seed, place)
                found = taus(predictions, fold.features()[0].labels(VALID))
                runs.append({"collection": slug, "seed": seed, "tau": found, "seconds": seconds})
                text = ", ".join(f"{m} {np.mean(list(own.values())):.3f}" for m, own in found.items())
                print(f"seed {seed} {slug} without {len(families)} architectures: {text}", flush=True)
    summary = summarise(runs)
    print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum)\n")
    print(report.table(show(summary)))
    seconds = {name: float(np.mean([r["seconds"][name] for r in runs])) for name in runs[0]["seconds"]}
    result = {
        "benchmark": "additive_ranker",
        "environment": report.environment(options.threads, options.device),
    }
    report.finish({**result, "tau": summary, "seconds": seconds, "runs": runs})


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
