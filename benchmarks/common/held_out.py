"""Train variants of our layout network without some architectures, and evaluate them on these, over seeds.

What ``models.py`` and ``ablations.py`` share. Train and valid of the sample competition are
split into folds grouped by architecture; each fold is held out in turn, and test is never read. The evaluated
weights are the last ones, averaged as configured: nothing is selected on the held-out programs. Finished
runs are kept in ``benchmarks/results/held_out`` by settings, data and code, and are not repeated.
"""

import argparse
import shutil
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import torch

from common import options as shared
from common.folds import HeldOut, build_layouts, split_source
from fastslow.competition.catalog import COLLECTIONS, VALID, get_collection, training_groups
from fastslow.core.artifacts import commit
from fastslow.core.errors import SettingsError
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.source import source_digest
from fastslow.evaluation.metric_table import graph_metrics
from fastslow.features.store import Features
from fastslow.networks.dataset import predict
from fastslow.networks.settings import ENTRY, TrainSettings
from fastslow.networks.train import Training, make_dataset
from fastslow.workflow.presets import network_settings, preset_settings
from fastslow.workflow.steps import parse_overrides

BASE = "base"
"""Name of the variant that all others are compared with."""
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every comparison: the data, and what is trained, held out and evaluated."""
    shared.add_data_option(parser)
    add = parser.add_argument
    add("--seeds", type=int, default=3, help="seeds of each variant (default 3)")
    add("--folds", type=int, default=2, help="folds of the cross-validation (default 2)")
    add("--held-out", type=int, default=0, help="folds that are held out in turn (default 0: all)")
    add("--minutes", type=float, default=float("inf"), help="start no training after this many minutes")
    add("--jobs", type=int, default=1, help="trainings in parallel (default 1)")
    slugs = [collection.slug for collection in LAYOUTS]
    add("--collections", nargs="+", default=slugs, help="slugs (default all layouts)")


def make_quick(options: Namespace) -> None:
    """Set what ``--quick`` means for the options of :func:`add_options`."""
    options.seeds, options.collections = 1, ["layout-xla-random"]
    options.set = ["gnn.layout.epochs=1", "gnn.layout.train_on=collection", *options.set]


def parse(description: str, variants: Sequence[str], arguments: list[str], quick: Sequence[str]) -> Namespace:
    """Parse a command line that compares variants; the base is always among them.

    Args:
        description: What the script does.
        variants: Names of all variants.
        arguments: The command line.
        quick: The variants of ``--quick``.

    Raises:
        SettingsError: A variant is unknown.
    """
    parser = shared.make_parser(description)
    shared.add_model_options(parser, threads=1)
    add_options(parser)
    parser.add_argument(
        "--variants", nargs="+", default=list(variants), help="names of variants (default all)"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        make_quick(options)
        options.preset, options.variants = "smoke", list(quick)
    options.variants = list(dict.fromkeys([BASE, *options.variants]))
    for name in options.variants:
        if name not in variants:
            raise SettingsError(f"--variants: {name!r} is not one of {', '.join(variants)}")
    return options


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        variant: Name of what differs from the base.
        seed: Seed of the network.
        fold: Number of the held-out fold.
        held_out: Its architectures.
        features: Features folders of the collections.
        settings: Settings of the network.
        without: Columns of ``config_feat`` to leave out.
    """

    variant: str
    seed: int
    fold: int
    held_out: tuple[str, ...]
    features: list[Path]
    settings: dict
    without: tuple[str, ...] = ()

    def train_settings(self) -> TrainSettings:
        """Return the validated settings."""
        return TrainSettings(**{**self.settings, "seed": self.seed})

    def path(self, place: Path) -> Path:
        """Return the path of its result, whose name is a digest of everything that changes the result."""
        inputs = [Features(folder).fingerprint for folder in self.features]
        code, settings = source_digest(ENTRY), self.train_settings().identity()
        key = [code, settings, sorted(self.held_out), inputs, self.without]
        return place / "held_out" / f"{digest(key)}.json"


def plan(
    options: Namespace,
    place: Path,
    variants: Mapping[str, Sequence[str]],
    left_out: Mapping[str, Sequence[str]] | None = None,
) -> list[Run]:
    """List every run, seed by seed, and build the features that the runs need.

    Args:
        options: The command line, see :func:`parse`.
        place: Folder of features and results.
        variants: Settings that each variant changes, by name, as for ``--set``.
        left_out: Columns of ``config_feat`` that a variant leaves out, by its name.
    """
    left_out = left_out or {}
    runs = []
    for variant in options.variants:
        overrides = parse_overrides([*options.set, *variants[variant]])
        of_features = preset_settings(options.preset, overrides, "features", "layout")
        folder = place / "features" / "held_out" / digest(of_features)
        build_layouts(of_features, options.data_root, folder)
        settings, train_on = network_settings(options.preset, overrides, "layout")
        settings["device"] = options.device
        for group in training_groups("layout", train_on).values():
            slugs = [collection.slug for collection in group]
            if set(slugs).isdisjoint(options.collections):
                continue
            folds, features = _folds(folder, slugs, options.folds), [folder / slug for slug in slugs]
            for seed in range(options.seeds):
                for fold, families in enumerate(folds[: options.held_out or None]):
                    held_out, without = tuple(sorted(families)), tuple(left_out.get(variant, ()))
                    runs.append(Run(variant, seed, fold, held_out, features, settings, without))
    return sorted(runs, key=lambda run: run.seed)


def _folds(folder: Path, slugs: list[str], num_folds: int) -> list[set[str]]:
    """Return the architectures of each fold; both searches of a source have the same folds."""
    by_source = [split_source(folder, slug, num_folds) for slug in slugs]
    return [set().union(*fold) for fold in zip(*by_source, strict=True)]


def train_held_out(run: Run, place: Path, threads: int) -> dict:
    """Train without the held-out programs and evaluate on them, or read the result of an earlier call."""
    path = run.path(place)
    if not path.is_file():
        torch.set_num_threads(threads)
        settings, families = run.train_settings(), set(run.held_out)
        began = time.process_time()
        sources = [HeldOut(folder, families, run.without) for folder in run.features]
        training = Training(settings, make_dataset(settings, sources))
        checkpoints = path.with_suffix("")
        training.run(checkpoints, path.stem)
        if training.validation.recent:
            training.network.load_state_dict(training.validation.recent_average())
        seconds = time.process_time() - began
        facts = {"seed": run.seed, "seconds": seconds, "commit": commit()}
        predictions, metrics = {}, {}
        for slug, labels in training.validation.labels.items():
            own = _predict_held_out(training, slug)
            collection = get_collection(slug).name
            predictions[collection] = {graph: values.tolist() for graph, values in own.items()}
            metrics[collection] = graph_metrics(labels, own).to_dict(orient="index")
        facts |= {"settings": settings.identity(), "per_graph": metrics, "predictions": predictions}
        write_json(path, facts)
        shutil.rmtree(checkpoints)
    return {**read_json(path), "variant": run.variant, "fold": run.fold}


def _predict_held_out(training: Training, slug: str) -> dict[str, np.ndarray]:
    """Predict each held-out graph of one of the collections that were trained on together."""
    together = training.settings.inference_configs
    predictions = predict(training.network, training.dataset, slug, VALID, together)
    # a diverged network predicts NaN, which counts as one constant: tau 0
    return {name: np.nan_to_num(own) for name, own in predictions.items()}


def finished(runs: list[Run], options: Namespace, place: Path) -> Iterator[dict]:
    """Yield results as they finish, until the time is up; results of earlier calls need no time."""
    end = time.monotonic() + 60 * options.minutes
    jobs = (
        joblib.delayed(train_held_out)(run, place, options.threads)
        for run in runs
        if time.monotonic() < end or run.path(place).is_file()
    )
    parallel = joblib.Parallel(options.jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
    for result in parallel(jobs):
        taus = ", ".join(
            f"{c} {np.mean([of_graph['tau'] for of_graph in graphs.values()]):.3f}"
            for c, graphs in result["per_graph"].items()
        )
        what = f"seed {result['seed']} fold {result['fold']} {result['variant']}"
        print(f"{what}: {taus}, {result['seconds']:.0f} s", flush=True)
        yield result
