"""Train the layout network on labels as noisy and damaged as genuine ones, with and without regard to noise.

``python benchmarks/noise.py [--quick] [--seeds N] [--arms NAME ...]``. The layout collections of the sample
get noise, repeated configurations and blocks of rows that jump (``common/noisy_sample.py``). For each seed,
noise and network are drawn anew. One network learns from all four collections with the settings of ``make
submit``. Weights are selected on noisy valid labels, as a user would; scores are on the exact labels of test.
The first table compares labels of repeated configurations on genuine files: Kendall's tau between three runs,
joined in one way, and the mean of the others. Finished trainings are kept in ``benchmarks/results/noise``:
an interrupted call resumes.
"""

import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from common import report
from common.graph_files import REAL
from common.kept import Kept
from common.noisy_sample import write_noisy
from common.options import make_parser
from fastslow.competition.catalog import COLLECTIONS, TEST, VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.reader import config_groups, read_competition_file
from fastslow.core.artifacts import commit
from fastslow.core.files import digest
from fastslow.core.settings import resolve
from fastslow.core.source import source_digest
from fastslow.evaluation.baselines import SINGLE, fit_baselines, predict_configs
from fastslow.evaluation.metric_table import true_runtimes
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features
from fastslow.networks.settings.train_settings import ENTRY, TrainSettings
from fastslow.networks.training.train import train
from fastslow.workflow.presets import network_settings

TABLE = {"hours": 1.0}
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]
EQUAL = "equal"
ARMS = {
    EQUAL: {"pair_weights": "equal"},
    "certainty": {"pair_weights": "certainty"},
    "ceiling 0.6": {"min_ceiling": 0.6},
}
"""Settings of the network, by the name that a table shows."""
JOINED = {"mean": np.mean, "median": np.median, "minimum": np.min}
EXACT = "exact"
"""The arm of the sample as it is, for which all settings train the same network."""


def build(options: Namespace, place: Path, seed: int | None) -> list[Features]:
    """Return the features of every layout collection; of the sample as it is without a seed."""
    root = resolve(options.data_root)
    if seed is not None:
        root, source = place / f"noisy-{seed}", root
        write_noisy(source, root, seed, options.limit)
    folders = [place / f"features-{'exact' if seed is None else seed}" / own.slug for own in LAYOUTS]
    for collection, folder in zip(LAYOUTS, folders, strict=True):
        where = {"collection": collection.name, "data_root": str(root), "folder": str(folder)}
        build_features(FeatureSettings(workers=1, **where))
    return [Features(folder) for folder in folders]


def scores(sources: list[Features], predictions: list[dict], truth_root: Path) -> dict[str, float]:
    """Return the mean tau of every collection and split, of valid on the labels of its files."""
    found = {}
    for source, own in zip(sources, predictions, strict=True):
        for split, truth in true_runtimes(source, truth_root).items():
            known = {name: truth[name] for name in own[split]}
            found[f"{split} {source.collection.name[7:]}"] = float(
                np.mean([kendall_tau(runtime, own[split][name]) for name, runtime in known.items()])
            )
    for split in (VALID, TEST):
        found[split] = float(np.mean([tau for name, tau in found.items() if name.startswith(f"{split} ")]))
    return found


def trained(options: Namespace, place: Path, arm: str, seed: int) -> dict[str, float]:
    """Train one network and score it."""
    sources = build(options, place, None if arm == EXACT else seed)
    settings, _ = network_settings(options.preset, {}, "layout")
    settings |= {"seed": seed, "device": "cpu", "folder": str(place / "runs" / f"{digest(arm)}-{seed}")}
    settings |= {"features": [str(own.folder) for own in sources], **ARMS.get(arm, {})}
    own, began = TrainSettings(**settings), time.process_time()
    train(own)
    spent = {"cpu seconds": time.process_time() - began}
    predictions = [read_predictions(Path(run)) for run in own.run_folders()]
    return {**scores(sources, predictions, resolve(options.data_root)), **spent}


def rules(options: Namespace, place: Path, seed: int | None) -> dict[str, float]:
    """Score the best single feature, chosen on the labels of train and valid."""
    sources = build(options, place, seed)
    predictions = []
    for source in sources:
        rule = fit_baselines(source)[SINGLE]
        predictions.append(
            {
                split: {
                    name: predict_configs(rule, source.graph(split, name)) for name in source.names(split)
                }
                for split in (VALID, TEST)
            }
        )
    return scores(sources, predictions, resolve(options.data_root))


def label_rules(draws: int = 40) -> list[dict]:
    """Return a row for each genuine file: how well three runs of a configuration order the other runs."""
    rows = []
    for path in sorted(REAL.glob("npz_all/npz/layout/xla/default/[tv][ra]*/*.npz")):
        runtime, group = config_groups(read_competition_file(path, "layout"))
        runs = [
            own
            for own in np.split(
                np.log(runtime)[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1]
            )
            if len(own) > 3
        ]
        rng, taus = np.random.default_rng(0), {name: [] for name in JOINED}
        for _ in range(draws):
            drawn = [rng.permutation(own) for own in runs]
            rest = [own[3:].mean() for own in drawn]
            for name, join in JOINED.items():
                taus[name].append(kendall_tau(rest, [join(own[:3]) for own in drawn]))
        means = {name: f"{np.mean(own):.3f}" for name, own in taus.items()}
        rows.append({"file": path.stem, "configurations": len(runs), **means})
    return rows


def measure(options: Namespace, results: Path) -> None:
    """Train every arm with every seed, then print the table and the JSON object."""
    torch.set_num_threads(1)
    place = results / "noise"
    place.mkdir(parents=True, exist_ok=True)
    settings = {
        arm: {**network_settings(options.preset, {}, "layout")[0], **own} for arm, own in ARMS.items()
    }
    kept = Kept(place / f"{digest([source_digest(ENTRY), settings, options.limit])}.json")
    seeds = range(options.seeds)
    found: dict[str, list[dict]] = {}
    for seed in seeds:
        for arm in options.arms:
            make = lambda arm=arm, seed=seed: trained(options, place, arm, seed)  # noqa: E731
            found.setdefault(arm, []).append(kept.part(f"{arm}, seed {seed}", make))
            print(arm, seed, found[arm][-1], file=sys.stderr, flush=True)
        rule = kept.part(f"{SINGLE}, seed {seed}", lambda seed=seed: rules(options, place, seed))
        found.setdefault(SINGLE, []).append(rule)
    rows = []
    for arm, own in found.items():
        columns = [name for name in own[0] if name.startswith(f"{TEST} ")]
        row = {
            "labels": EXACT if arm == EXACT else "noisy",
            "pairs, or rule": "either" if arm == EXACT else arm,
        }
        row |= {name.partition(" ")[2]: f"{np.mean([one[name] for one in own]):.3f}" for name in columns}
        row["mean of test"] = report.spread([one[TEST] for one in own])
        row["valid, as labelled"] = report.spread([one[VALID] for one in own])
        gains = [one[TEST] - base[TEST] for one, base in zip(own, found.get(EQUAL, []), strict=False)]
        row["gain"] = "" if arm in (EQUAL, EXACT) else report.spread(gains)
        rows.append(row)
    rules_of_labels = label_rules(2 if options.quick else 40)
    if rules_of_labels:
        print(f"Labels of repeated configurations, genuine files\n\n{report.table(rules_of_labels)}\n")
    print(f"Kendall's tau on exact labels of test, {options.seeds} seeds: mean (minimum to maximum)\n")
    print(report.table(rows))
    report.finish(
        {"benchmark": "noise", "environment": report.environment(), "commit": commit(), "arms": found}
    )


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data-root", default="data/sample", help="the sample (default data/sample)")
    add("--seeds", type=int, default=3, help="seeds of noise and network (default 3)")
    add(
        "--arms",
        nargs="+",
        default=[EQUAL, "certainty"],
        choices=[*ARMS, EXACT],
        help="default equal and certainty",
    )
    options = parser.parse_args(arguments)
    options.preset, options.limit = "sample", None
    if options.quick:
        options.preset, options.limit, options.seeds = "smoke", 2, 1
        options.arms = [EQUAL, "certainty"]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(measure, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
