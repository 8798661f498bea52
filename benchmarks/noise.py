"""Train the layout network on labels as noisy and damaged as genuine ones, and on exact ones.

``python benchmarks/noise.py [--quick] [--seeds N] [--arms NAME ...]``. The layout collections of the sample
get noise, repeated configurations and blocks of rows that jump (``common/noisy_sample.py``). For each seed,
noise and network are drawn anew. One network learns from all four collections with the settings of ``make
submit``. Weights are selected on the valid labels of the arm; scores are on the exact labels of test.
The first table is about genuine files: one measurement of each repeated configuration is held out, and labels
are made from the others and the exact labels of the sample's train programs. Finished trainings are kept in
``benchmarks/results/noise``: an interrupted call resumes.
"""

import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from common import report
from common.graph_files import REAL
from common.kept import kept_parts
from common.noisy_sample import write_noisy
from common.options import make_parser, network_settings
from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, VALID, get_collection, list_programs
from fastslow.competition.metrics import kendall_tau, ranking_tau
from fastslow.core.artifacts import commit
from fastslow.core.files import digest
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import SINGLE, fit_baselines, predict_configs
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import solution_of, truth_of
from fastslow.features.build import build_features, build_graph
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features, Graph
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.denoising import denoised_labels
from fastslow.networks.training.train import train

TABLE = {
    "hours": 0.6,
    "needs": ("real",),
    "commands": (("--seeds", "3", "--arms", "train and valid", "train and valid, denoise"),),
}
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]
NOISY = "train and valid"
ARMS: dict[str, tuple[tuple[str, ...], dict]] = {
    NOISY: ((TRAIN, VALID), {}),
    f"{NOISY}, denoise": ((TRAIN, VALID), {"denoise": True}),
    "valid": ((VALID,), {}),
    "none": ((), {}),
}
"""Splits with noisy labels and settings of the network, by the name that a table shows."""


def build(options: Namespace, place: Path, arm: str, seed: int) -> list[Features]:
    """Return the features of every layout collection."""
    own = place / f"{digest([ARMS[arm][0], options.limit])}-{seed}"
    root = own / "data"
    write_noisy(resolve(options.data_root), root, seed, options.limit, ARMS[arm][0])
    folders = [own / "features" / collection.slug for collection in LAYOUTS]
    for collection, folder in zip(LAYOUTS, folders, strict=True):
        where = {"collection": collection.name, "data_root": str(root), "folder": str(folder)}
        build_features(FeatureSettings(workers=1, **where))
    return [Features(folder) for folder in folders]


def scores(sources: list[Features], predictions: list[dict], truth_root: Path) -> dict[str, float]:
    """Return the mean tau of every collection and split, of valid on the labels of its files."""
    found = {}
    for source, own in zip(sources, predictions, strict=True):
        for split, truth in truth_of(source, solution_of(truth_root)).items():
            known = {name: truth[name] for name in own[split]}
            found[f"{split} {source.collection.name[7:]}"] = float(
                np.mean([ranking_tau(runtime, own[split][name]) for name, runtime in known.items()])
            )
    for split in (VALID, TEST):
        found[split] = float(np.mean([tau for name, tau in found.items() if name.startswith(f"{split} ")]))
    return found


def trained(options: Namespace, place: Path, arm: str, seed: int) -> dict[str, float]:
    """Train one network and score it."""
    sources = build(options, place, arm, seed)
    settings, _ = network_settings(options.preset, {}, "layout")
    settings |= {"seed": seed, "device": "cpu", "folder": str(place / "runs" / f"{digest(arm)}-{seed}")}
    settings |= {"features": [str(own.folder) for own in sources], **ARMS[arm][1]}
    own, began = TrainSettings(**settings), time.process_time()
    train(own)
    spent = {"cpu seconds": time.process_time() - began}
    predictions = [read_predictions(Path(run)) for run in own.run_folders()]
    return {**scores(sources, predictions, resolve(options.data_root)), **spent}


def rules(options: Namespace, place: Path, seed: int) -> dict[str, float]:
    """Score the best single feature, chosen on the noisy labels of train and valid."""
    sources = build(options, place, NOISY, seed)
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


def held_out(graph: Graph, seed: int) -> tuple[Graph, np.ndarray, np.ndarray]:
    """Return a graph without a run of each repeated configuration: which these are, and these runs."""
    order = np.random.default_rng(seed).permutation(len(graph.config_row))
    order = order[np.argsort(graph.config_row[order], kind="stable")]
    repeated = np.flatnonzero(graph.count > 1)
    out = order[np.searchsorted(graph.config_row[order], repeated)]
    row, runtime = np.delete(graph.config_row, out), np.delete(graph.file_runtime, out)
    label = np.bincount(row, runtime) / np.bincount(row)
    rest = replace(graph, runtime=label, config_row=row, file_runtime=runtime)
    return rest, repeated, graph.file_runtime[out]


def genuine(exact: list[Features], draws: int = 5) -> list[dict]:
    """Return a row for each genuine file: how well labels of repeated configurations order another run."""
    collection, rows = get_collection("layout:xla:default"), []
    programs = [p for split in (TRAIN, VALID) for p in list_programs(REAL, collection, split)]
    settings = FeatureSettings(collection=collection.name, data_root=str(REAL))
    sample = {source.collection.slug: source for source in exact}
    names = [f"{slug}/{name}" for slug, source in sample.items() for name in source.names(TRAIN)]
    for program in programs:
        graph, taus = build_graph(program, settings)[0], []
        for seed in range(draws):
            rest, repeated, runs = held_out(graph, seed)
            own = SimpleNamespace(graph=lambda split, name, rest=rest: rest)
            labels = denoised_labels({**sample, "": own}, {TRAIN: [*names, program.name]})[TRAIN]
            label = labels.get(program.name, rest.runtime)
            taus.append([kendall_tau(runs, values[repeated]) for values in (rest.runtime, label)])
        means = dict(zip(("mean of the other runs", "denoise"), np.mean(taus, 0), strict=True))
        rows.append(
            {"file": program.name, "repeated": len(repeated)} | {k: f"{tau:.3f}" for k, tau in means.items()}
        )
    return rows


def measure(options: Namespace, results: Path) -> None:
    """Train every arm with every seed, then print the table and the JSON object."""
    torch.set_num_threads(1)
    place = results / "noise"
    place.mkdir(parents=True, exist_ok=True)
    kept = kept_parts(__file__, options)
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
        row = {"noisy labels": arm if arm in ARMS else f"{NOISY}: {arm}"}
        row |= {name.partition(" ")[2]: f"{np.mean([one[name] for one in own]):.3f}" for name in columns}
        row["mean of test"] = report.spread([one[TEST] for one in own])
        gains = [one[TEST] - base[TEST] for one, base in zip(own, found.get(NOISY, []), strict=False)]
        row["above the first"] = "" if arm == NOISY else report.spread(gains)
        rows.append(row)
    if REAL.is_dir():
        labels = genuine(build(options, place, "none", 0), 1 if options.quick else 5)
        print(f"Kendall's tau with a held-out run, genuine files\n\n{report.table(labels)}\n")
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
        default=[*ARMS],
        choices=[*ARMS],
        help="rows of the table (default all)",
    )
    options = parser.parse_args(arguments)
    options.preset, options.limit = "sample", None
    if options.quick:
        options.preset, options.limit, options.seeds = "smoke", 2, 1
        options.arms = [NOISY, f"{NOISY}, denoise"]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(measure, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
