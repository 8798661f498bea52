"""Train variants of our layout network without some architectures, and evaluate them on these, over seeds.

Train and valid of the sample competition are split into folds by architecture. Each fold is held out in turn;
test is never read. The evaluated weights are the last ones, averaged as configured: nothing is selected on
the held-out programs. Finished runs are kept in ``benchmarks/results/held_out`` by settings, data and code.
"""

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import torch

from common.folds import HeldOut, build_layouts, split_source
from fastslow.competition.catalog import COLLECTIONS, VALID, get_collection, training_groups
from fastslow.competition.metrics import ranking_tau
from fastslow.core.artifacts import commit
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.source import source_digest
from fastslow.features.store import Features
from fastslow.networks.predict.dataset import make_dataset, predict
from fastslow.networks.settings.train_settings import ENTRY, TrainSettings
from fastslow.networks.training.train import Training
from fastslow.workflow.presets import network_settings, preset_settings
from fastslow.workflow.steps import parse_overrides

BASE = "base"
"""Name of the variant that all others are compared with."""
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        variant: Name of the difference from the base.
        seed: Seed of the network.
        fold: Number of the held-out fold.
        held_out: Its architectures.
        features: Features folders of the collections.
        settings: Settings of the network.
    """

    variant: str
    seed: int
    fold: int
    held_out: tuple[str, ...]
    features: list[Path]
    settings: dict

    def train_settings(self) -> TrainSettings:
        """Return the validated settings."""
        return TrainSettings(**{**self.settings, "seed": self.seed})

    def path(self, place: Path) -> Path:
        """Return the path of its result, whose name is a digest of everything that changes the result."""
        inputs = [Features(folder).fingerprint for folder in self.features]
        code, settings = source_digest(ENTRY), self.train_settings().identity()
        key = [code, settings, sorted(self.held_out), inputs]
        return place / "held_out" / f"{digest(key)}.json"


def plan(
    options: Namespace,
    place: Path,
    variants: Mapping[str, Sequence[str]],
) -> list[Run]:
    """List every run, seed by seed, and build the features that the runs need.

    Args:
        options: The command line of ``models.py``.
        place: Folder of features and results.
        variants: Settings that each variant changes, by name, as for ``--set``.
    """
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
                    runs.append(Run(variant, seed, fold, tuple(sorted(families)), features, settings))
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
        sources = [HeldOut(folder, families) for folder in run.features]
        training = Training(settings, make_dataset(settings, sources))
        checkpoints = path.with_suffix("")
        training.run(checkpoints, path.stem)
        if training.validation.recent:
            training.network.load_state_dict(training.validation.recent_average())
        seconds = time.process_time() - began
        taus = {}
        for slug, labels in training.validation.labels.items():
            own = _predict_held_out(training, slug)
            taus[get_collection(slug).name] = {g: ranking_tau(labels[g], own[g]) for g in own}
        facts = {"seed": run.seed, "seconds": seconds, "commit": commit()}
        write_json(path, facts | {"settings": settings.identity(), "per_graph": taus})
        shutil.rmtree(checkpoints)
    return {**read_json(path), "variant": run.variant, "fold": run.fold}


def _predict_held_out(training: Training, slug: str) -> dict[str, np.ndarray]:
    """Predict each held-out graph of one of the collections that were trained on together."""
    together = training.settings.configs_together
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
            f"{c} {np.mean(list(graphs.values())):.3f}" for c, graphs in result["per_graph"].items()
        )
        what = f"seed {result['seed']} fold {result['fold']} {result['variant']}"
        print(f"{what}: {taus}, {result['seconds']:.0f} s", file=sys.stderr, flush=True)
        yield result
