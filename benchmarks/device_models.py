"""Models trained on runtimes that were measured on this machine, scored on held-out programs.

``python benchmarks/device_models.py [--quick] [--seeds N] [--epochs N] [--data-root FOLDER]``, after ``make
sample LABELS=device``. Network, ranker and ensemble have the settings of ``make submit`` on the sample and
learn from the train programs; the network has so many epochs more that it takes as many steps as there. The
best single feature and the ridge regression are chosen on train and valid. Scores are Kendall's tau of orders
(``ranking_tau``) on test programs, whose families are not in train or valid.

*replicate tau*: tau between labels of the first and of the second half of the rounds. *ceiling*: tau that a
perfect predictor would reach on labels of half the rounds (``competition/data_quality.py``); the labels that
are scored join both halves, so their ceiling is higher.
"""

import hashlib
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from common import report
from common.options import make_parser
from fastslow.competition.catalog import TEST, TRAIN, VALID
from fastslow.competition.data_quality import quality_of
from fastslow.competition.metrics import kendall_tau, ranking_tau
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble import EnsembleSettings, build_ensemble
from fastslow.evaluation.metric_table import true_runtimes
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.results import list_runs
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import train
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.train import train_ranker
from fastslow.workflow.presets import network_settings, preset_settings
from make_sample.measured_sample import COLLECTION, REPLICATES
from make_sample.zoo import PRODUCTS, PROGRAMS

TABLE = {"hours": 0.2, "needs": ("device",), "sample": False, "commands": ((), ("--epochs", "20"))}
SAMPLE_GRAPHS = 198  # that a network of the sample learns from in an epoch


def train_models(options: Namespace, features: Features, place: Path) -> Path:
    """Train network and ranker of every seed and join them; return the ensemble's folder."""
    own, runs = str(features.folder), []
    for seed in range(options.seeds):
        runs += [str(place / f"gnn-s{seed}"), str(place / f"ranker-s{seed}")]
        network, _ = network_settings(options.preset, {}, "layout")
        network |= {"features": [own], "folder": str(place / f"training-s{seed}"), "runs": [runs[-2]]}
        if not options.quick:
            network["epochs"] = options.epochs or round(
                TrainSettings().epochs * SAMPLE_GRAPHS / len(features.names(TRAIN))
            )
        train(TrainSettings(**network | {"seed": seed, "device": "cpu"}))
        ranker = preset_settings(options.preset, {}, "ranker", "layout")
        ranker |= {"features": own, "folder": runs[-1], "train_on": "collection", "num_threads": 1}
        train_ranker(RankerSettings(**ranker | {"seed": seed}))
    ensemble = EnsembleSettings(features=own, runs=runs, folder=str(place / "ensemble"))
    build_ensemble(ensemble)
    return resolve(ensemble.folder)


def noise_of(root: Path) -> dict[str, dict[str, float]]:
    """Return the replicate tau and the ceiling of every graph by ID."""
    found = {}
    for graph, own in pd.read_csv(root / REPLICATES).groupby("ID"):
        halves = own[["first", "second"]].to_numpy().T
        rows = np.tile(np.arange(halves.shape[1]), 2)
        ceiling = quality_of(halves.ravel(), rows).ceiling
        found[graph] = {"replicate tau": float(kendall_tau(*halves)), "ceiling": ceiling}
    return found


def score(ensemble: Path, truth: dict[str, np.ndarray], split: str) -> dict[str, dict[str, list[float]]]:
    """Return the tau of every graph by model, one for each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for model, _, _, path in list_runs(ensemble):
        predictions = read_predictions(path)[split]
        for graph, runtime in truth.items():
            own = found.setdefault(model, {}).setdefault(graph, [])
            own.append(float(ranking_tau(runtime, predictions[graph])))
    return found


def page(features: Features, root: Path, ensemble: Path) -> tuple[str, dict]:
    """Return the tables in Markdown, and all scores."""
    truth, noise = true_runtimes(features, root), noise_of(root)
    taus = {split: score(ensemble, truth[split], split) for split in (VALID, TEST)}
    names = {hashlib.md5(p.encode(), usedforsecurity=False).hexdigest(): p for p in PRODUCTS | PROGRAMS}
    rows = []
    for graph in truth[TEST]:
        row = {"program": names.get(graph, graph), "configs": str(len(truth[TEST][graph]))}
        row |= noise[f"{COLLECTION}:{graph}"]
        rows.append(row | {model: float(np.mean(own[graph])) for model, own in taus[TEST].items()})
    summary = []
    for model, own in taus[TEST].items():
        seeds = [float(np.mean(one)) for one in zip(*own.values(), strict=True)]
        graphs = [float(np.mean(one)) for one in own.values()]
        valid = [float(np.mean(one)) for one in zip(*taus[VALID][model].values(), strict=True)]
        said = f"{min(graphs):.3f} to {max(graphs):.3f}"
        summary.append(
            {"model": model, "test": report.spread(seeds), "by graph": said, "valid": report.spread(valid)}
        )
    for name in ("replicate tau", "ceiling"):
        own = [row[name] for row in rows]
        summary.append({"model": name, "test": f"{np.mean(own):.3f}", "valid": ""})
        summary[-1]["by graph"] = f"{min(own):.3f} to {max(own):.3f}"
    sizes = ", ".join(f"{len(features.names(split))} {split}" for split in (TRAIN, VALID, TEST))
    head = f"Programs: {sizes}. Mean over test programs (range over seeds); the range over programs."
    chosen = read_manifest(ensemble)["baselines"]["best single feature"]["chosen"]
    head += f" The best single feature is {chosen}."
    tables = [head, report.table(summary), report.table([report.cells(row) for row in rows])]
    return "\n\n".join(tables), {"taus": taus, "noise": noise}


def measure(options: Namespace, results: Path) -> None:
    """Train, then print the tables and the JSON object."""
    torch.set_num_threads(1)
    root = resolve(options.data_root)
    if not (root / REPLICATES).is_file():
        raise DataError(root, "is no measured sample", "Make one: make sample LABELS=device")
    own = digest([(root / REPLICATES).read_text(), options.preset, options.epochs])
    place = results / "device_models" / own
    where = {"collection": COLLECTION, "data_root": str(root), "folder": str(place / "features")}
    build_features(FeatureSettings(workers=1, **where))
    features = Features(place / "features")
    text, found = page(features, root, train_models(options, features, place))
    print(text)
    report.finish({"benchmark": "device_models", "environment": report.environment(), **found})


def parse_options(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--data-root", default="data/device", help="measured sample (default data/device)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each model (default 3)")
    parser.add_argument("--epochs", type=int, default=0, help="of the network (default equal steps)")
    options = parser.parse_args(arguments)
    options.preset = "sample"
    if options.quick:
        options.preset, options.seeds = "smoke", 1
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(measure, parse_options(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
