"""Quality of Graph Segment Training on the sample: tau and OPA of every variant, and the age of its table."""

import json
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

from common import report
from fastslow.competition.catalog import TRAIN, VALID, get_collection
from fastslow.competition.metrics import ordered_pair_accuracy, ranking_tau
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.progress import progress
from fastslow.core.source import source_digest
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import Features
from fastslow.networks.predict.dataset import make_dataset, predict
from fastslow.networks.settings.segment_settings import PARTITIONS, VARIANTS
from fastslow.networks.settings.train_settings import ENTRY, TrainSettings
from fastslow.networks.training.train import Training

COLLECTION = "layout:xla:random"
WHOLE = "none"


def quality_settings(options: Namespace) -> list[dict]:
    """Return the settings of every training: variants, borders, partitions, live segments, sizes."""
    base = {"segment_nodes": options.small_segment}
    rows: list[dict] = [{}, {"segment_training": "edges", **base}]
    rows += [{"segment_training": name, **base} for name in VARIANTS if name not in (WHOLE, "edges")]
    rows += [{"segment_training": name, "segment_border": "cut", **base} for name in ("gst", "gst+efd")]
    rows += [{"segment_training": "gst+efd", "segment_partition": how, **base} for how in PARTITIONS[1:]]
    rows += [{"segment_training": "gst+e", "segments_per_step": live, **base} for live in (2, 4)]
    rows += [{"segment_training": "gst+e", "segment_nodes": options.small_segment // 2}]
    for row in rows:
        variant = VARIANTS[row.get("segment_training", WHOLE)]
        if variant and variant.head:
            row["head_epochs"] = max(1, options.epochs // 5)
    return rows[:3] if options.quick else rows


class SomeGraphs(Features):
    """A features folder of which the first train and valid graphs are read."""

    def __init__(self, folder: Path, train: int, valid: int):
        super().__init__(folder)
        place = self.index.groupby("split").cumcount()
        self.index = self.index[place < self.index["split"].map({TRAIN: train, VALID: valid}).fillna(0)]


def train_quality(changes: dict, seed: int, folder: Path, options: Namespace) -> dict:
    """Train once; return tau and OPA on valid and the ages of the last epoch that read the table."""
    source = SomeGraphs(folder, options.train_graphs, options.valid_graphs)
    settings = TrainSettings(
        features=[str(folder)],
        runs=["runs/unused"],
        device="cpu",
        num_layers=2,
        hidden_channels=32,
        configs_per_step=64,
        epochs=options.epochs,
        seed=seed,
        **changes,
    )
    dataset = make_dataset(settings, [source])
    training, began, losses = Training(settings, dataset), time.process_time(), []
    for _ in range(settings.epochs):
        losses.append(training.run_epoch())
    seconds = time.process_time() - began
    slug = source.collection.slug
    predictions = predict(training.network, dataset, slug, VALID, settings.configs_together)
    labels = source.labels(VALID)
    scores = {"tau": ranking_tau, "OPA": ordered_pair_accuracy}
    found = {
        name: float(np.mean([score(labels[graph], predictions[graph]) for graph in predictions]))
        for name, score in scores.items()
    }
    found |= {"loss": losses[-1], "CPU s a step": seconds / (settings.epochs * len(training.names))}
    segments = training.segments
    if segments:
        found["segments a graph"] = float(np.mean([segments.graph(n).num_segments for n in training.names]))
    return found | ({"age": segments.log[-1]} if segments and segments.log else {})


def measure_quality(options: Namespace, place: Path) -> list[dict]:
    """Return a row for each setting: means over seeds."""
    folder = place / "features" / get_collection(COLLECTION).slug
    build_features(FeatureSettings(collection=COLLECTION, folder=str(folder), hops=-1, workers=1))
    jobs = [(row, seed) for seed in range(options.seeds) for row in quality_settings(options)]
    code, found = source_digest(ENTRY), {}
    for row, seed in progress(jobs, desc="trainings", unit="training"):
        size = options.epochs, options.train_graphs, options.valid_graphs
        kept = place / f"{digest([code, row, seed, *size])}.json"
        if not kept.is_file():
            write_json(kept, train_quality(row, seed, folder, options))
        found.setdefault(json.dumps(row), []).append(read_json(kept))
    return [{"settings": json.loads(row), "seeds": results} for row, results in found.items()]


def named(settings: dict) -> str:
    """Return the settings of a training in words."""
    text = settings.get("segment_training", "whole graph")
    extra = [f"{name.removeprefix('segment_')}={value}" for name, value in settings.items()]
    hidden = ("training=", "nodes=", "head_epochs=")
    return " ".join([text, *(part for part in extra if not part.startswith(hidden))])


def print_quality(rows: list[dict]) -> None:
    """Print a table of the quality of every setting."""
    table = []
    for row in rows:
        seeds = row["seeds"]
        age = [own["age"] for own in seeds if own.get("age", {}).get("age_median") is not None]
        table.append(
            {
                "variant": named(row["settings"]),
                "nodes": row["settings"].get("segment_nodes", "all"),
                "tau": report.spread([own["tau"] for own in seeds]),
                "OPA": f"{np.mean([own['OPA'] for own in seeds]):.3f}",
                "age": f"{np.mean([own['age_median'] for own in age]):.0f}" if age else "",
                "missing": f"{np.mean([own['missing'] for own in age]):.2f}" if age else "",
                "CPU s a step": f"{np.mean([own['CPU s a step'] for own in seeds]):.3f}",
            }
        )
    print(report.table(table))
