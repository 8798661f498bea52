"""Train every published baseline by its preset, beside our default network and the best single feature.

``python benchmarks/baselines.py [--quick] [--presets NAME ...] [--minutes M]``. Each network is trained as by
``make train PRESET=NAME`` and scored on valid and test: Kendall's tau and ordered pair accuracy (OPA, a tie
counts one half) for layout, slowdown of the best of five and of one (lower is better) for tile. Finished
trainings are kept in ``benchmarks/results/baselines``. Interrupt it at any time: the next call resumes from
the checkpoint of the interrupted training.
"""

import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from common import options as shared
from common import report
from fastslow.competition.catalog import TEST, VALID
from fastslow.competition.metrics import mean_metrics
from fastslow.core.artifacts import commit
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import fit_baselines, predict_configs
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import solution_of, truth_of
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import train
from fastslow.workflow.published_presets import PUBLISHED
from fastslow.workflow.steps import Plan, parse_overrides

TABLE = {"hours": 3.0}
OURS = "sample"
SINGLE = "best single feature"
PRESETS = [OURS, *(name for name, published in PUBLISHED.items() if len(published.kinds) == 1)]
SHOWN = {"layout": ("tau", "opa"), "tile": ("top_5_error", "top_1_error", "opa")}
"""Metrics by kind, names of ``competition.metrics.ALL_METRICS``."""


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_data_option(parser)
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=PRESETS, help="which (default all)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each (default 1)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no training after these")
    parser.add_argument("--set", nargs="*", default=[], help="settings of networks, for all: gnn.epochs=3")
    options = parser.parse_args(arguments)
    if options.quick:
        options.set, options.presets = ["gnn.epochs=1", *options.set], ["tpugraphs-resmodel"]
    return options


def trainings(
    preset: str, options: Namespace, place: Path
) -> list[tuple[list[FeatureSettings], TrainSettings]]:
    """Return the trainings of a preset, each with the features that it needs; equal features are shared."""
    overrides = parse_overrides(options.set)
    steps = Plan(options.data_root, "baselines", preset, options.seeds, overrides, 1).steps("train")
    features, networks = {}, []
    for step in steps:
        if isinstance(step.settings, FeatureSettings):
            own = step.settings.identity()
            folder = place / "features" / "baselines" / digest([options.data_root, own])
            features[step.settings.folder] = step.settings.replace(folder=str(folder), workers=1)
        elif isinstance(step.settings, TrainSettings):
            needed = [features[folder] for folder in step.settings.features]
            folder = place / "baselines" / preset / Path(step.settings.folder).name
            moved = {"features": [own.folder for own in needed], "folder": str(folder), "device": "cpu"}
            moved["runs"] = [str(folder / Path(run).name) for run in step.settings.runs]
            networks.append((needed, step.settings.replace(**moved)))
    return networks


def run(preset: str, needed: list[FeatureSettings], settings: TrainSettings, data_root: str) -> list[dict]:
    """Train, or read the result of an earlier call; return one row for each collection and split."""
    facts = {
        "preset": preset,
        "settings": settings.identity(),
        "features": [own.identity() for own in needed],
    }
    path = Path(settings.folder) / f"{digest([facts, data_root])}.json"
    if not path.is_file():
        for own in needed:
            build_features(own)
        began = time.process_time()
        manifest = train(settings)
        spent = {"epochs": manifest["epochs"], "cpu seconds": time.process_time() - began}
        rows = []
        for folder, own in zip(settings.runs, settings.sources(), strict=True):
            rows += score(preset, own, read_predictions(Path(folder)), data_root, spent)
            if preset == OURS:
                rows += score(SINGLE, own, single_feature(own), data_root, {"epochs": 0, "cpu seconds": 0.0})
        write_json(path, {**facts, "commit": commit(), "rows": rows})
    return read_json(path)["rows"]


def single_feature(features: Features) -> dict[str, dict[str, np.ndarray]]:
    """Return the predictions of the best single feature, chosen on train and valid."""
    baseline = fit_baselines(features)[SINGLE]
    return {
        split: {
            name: predict_configs(baseline, features.graph(split, name)) for name in features.names(split)
        }
        for split in (VALID, TEST)
    }


def score(
    model: str, features: Features, predictions: dict[str, dict], data_root: str, spent: dict
) -> list[dict]:
    """Return every metric, the mean over graphs, of a model's splits whose runtimes are known."""
    collection, kind = features.collection.name, features.collection.kind
    rows = []
    for split, truth in truth_of(features, solution_of(resolve(data_root))).items():
        means = mean_metrics(truth, predictions[split])
        metrics = {name: means[name] for name in SHOWN[kind]}
        rows.append({"model": model, "collection": collection, "split": split, **spent, **metrics})
    return rows


def tables(rows: pd.DataFrame) -> list[tuple[str, list[dict]]]:
    """Return a table for each kind: a row per model, test scores by collection and their mean."""
    found = []
    for kind, metrics in SHOWN.items():
        own = rows[rows["collection"].str.startswith(kind)]
        lines = []
        for model, part in own.groupby("model", sort=False):
            test = part[part["split"] == TEST]
            line = {"model": model, "seeds": int(test.groupby("collection").size().max())}
            for name in metrics[:1] if kind == "layout" else ():
                by_collection = test.groupby("collection", sort=False)[name].mean()
                line |= {f"{slug.partition(':')[2]} {name}": f"{v:.3f}" for slug, v in by_collection.items()}
            for name in metrics:
                for split in (VALID, TEST):
                    value = part[part["split"] == split].groupby("collection")[name].mean().mean()
                    line[f"{split} {name}"] = f"{value:.3f}"
            line["epochs"] = f"{test['epochs'].mean():.0f}"
            line["CPU s"] = f"{test.drop_duplicates(['cpu seconds'])['cpu seconds'].sum():.0f}"
            lines.append(line)
        if lines:
            found.append((kind, lines))
    return found


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(measure, parse_arguments(arguments))


def measure(options: Namespace, place: Path) -> None:
    """Do every training that there is time for, then print the tables and the JSON object."""
    torch.set_num_threads(options.threads)
    end, rows, left = time.monotonic() + 60 * options.minutes, [], 0
    for preset in options.presets:
        for needed, settings in trainings(preset, options, place):
            if time.monotonic() > end:
                left += 1
                continue
            rows += run(preset, needed, settings, options.data_root)
            print(f"{preset}: {Path(settings.folder).name}", file=sys.stderr, flush=True)
    print(f"\n{left} trainings are left\n")
    for kind, lines in tables(pd.DataFrame(rows)) if rows else ():
        print(f"{kind}: means over graphs, then over collections\n")
        print(report.table(lines) + "\n")
    facts = {"benchmark": "baselines", "environment": report.environment(options.threads), "left": left}
    report.finish({**facts, "rows": rows})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
