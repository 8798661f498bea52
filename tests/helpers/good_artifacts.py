"""One good artifact of every kind that is read, small and made once a session: bad input starts there."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fastslow.competition.catalog import PREDICTED_SPLITS
from fastslow.core.artifacts import CHECKSUM, MANIFEST, write_manifest
from fastslow.core.files import file_digest
from fastslow.evaluation.submission_record import write_record
from fastslow.networks.training.train import Training
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import write_run
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import read_graphs, save_checkpoint, train_gnn
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from helpers.competition_files import layout_arrays, tile_arrays, write_data_root, write_npz, write_submission
from helpers.hlo_message import Program

COLLECTION = "layout:xla:random"
COUNTS = {"tile:xla:k": 7, f"{COLLECTION}:t": 4}
"""Configurations of the graphs of the submission, by ID."""


@dataclass(frozen=True)
class Good:
    """Folders and files, not to be changed: tests copy what they damage."""

    root: Path
    training: Training

    def features(self) -> Features:
        """Open the features folder."""
        return Features(self.root / "features")


def network_config(root: Path) -> TrainSettings:
    """Settings of the smallest network."""
    places = {"features": [str(root / "features")], "runs": [str(root / "network")]}
    size = {"epochs": 2, "hidden_channels": 4, "evaluate_every": 1, "average_last": 1, "configs_per_step": 4}
    return TrainSettings(**places, folder=str(root / "training"), device="cpu", **size)


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Good:
    """Data, features, runs, weights, a checkpoint, trees, records, CSVs and an HLO file."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("good")
    write_npz(root / "layout.npz", layout_arrays())
    write_npz(root / "tile.npz", tile_arrays())
    write_data_root(root / "data", COLLECTION)
    folder = {"data_root": str(root / "data"), "folder": str(root / "features"), "workers": 1}
    build_features(FeatureSettings(collection=COLLECTION, **folder))
    features = Features(root / "features")
    ranks = {s: {n: np.arange(c) for n, c in features.num_configs(s).items()} for s in PREDICTED_SPLITS}
    write_run(root / "run", features, ranks, model="mine", seed=0)
    settings = network_config(root)
    train_gnn(settings)
    training = Training(settings, read_graphs(settings))
    training.validation.evaluate(1, training.run_epoch())
    save_checkpoint(training, root, "mark")
    small = {"num_iterations": 5, "objective": "regression", "train_on": "collection"}
    train_ranker(RankerSettings(features=str(root / "features"), folder=str(root / "ranker"), **small))
    predictions = {row_id: np.arange(count) for row_id, count in COUNTS.items()}
    write_submission(root / "mine.csv", predictions)
    facts = {"table": [score_row()], "valid_mean": 0.5, "test_mean": None, "distances": [distance_row()]}
    write_record(root / "mine.csv", ["run"], {}, {COLLECTION: 0.5}, **facts)
    rows = [f"{row_id},{place},{100 + place}" for row_id, n in COUNTS.items() for place in range(n)]
    (root / "solution.csv").write_text("\n".join(["ID,config_index,runtime", *rows]) + "\n")
    (root / "program.pb").write_bytes(_program())
    return Good(root, Training(settings, read_graphs(settings)))


def score_row() -> dict:
    """A row of the table of scores."""
    return {"collection": COLLECTION, "model": "mine", "run": "mine s0", "weight": 1.0} | {
        f"{split}{end}": 0.5 for split in PREDICTED_SPLITS for end in ("", "_min", "_max")
    }


def distance_row() -> dict:
    """A row of the scores by distance to the nearest train graph."""
    scored_part = {"split": "test", "collection": COLLECTION, "part": "nearest third"}
    return scored_part | {"graphs": 1, "smallest": 0.1, "largest": 0.2, "score": 0.5}


def _program() -> bytes:
    program = Program()
    tensor = program.add("parameter", (2, 3), name="p")
    program.computation.root_id = program.add("negate", (2, 3), [tensor], name="n")
    program.module.name = program.module.entry_computation_name = program.computation.name = "main"
    program.module.entry_computation_id = program.computation.id
    return program.module.SerializeToString()


def change_arrays(path: Path, change) -> None:
    """Rewrite an npz after ``change`` was made to the dict of its arrays."""
    with np.load(path, allow_pickle=False) as npz:
        arrays = dict(npz)
    arrays = change(arrays) or arrays
    np.savez(path, **arrays)


def change_json(path: Path, change) -> None:
    """Rewrite a JSON file after ``change`` was made to what it holds, or by what ``change`` returns."""
    value = json.loads(path.read_text())
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed))


def reseal(folder: Path, *names: str) -> None:
    """Make the checksums of a folder fit again: that of its manifest, and those of the files that are named.

    What is refused afterwards is refused for what it holds.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (ValueError, RecursionError, OSError):
        return
    if isinstance(manifest, dict):
        manifest.pop(CHECKSUM, None)
        for path in (folder / name for name in names):
            if path.is_file() and "outputs" in manifest:  # no pipe, no folder
                facts = {"sha256": file_digest(path), "bytes": path.stat().st_size, "changed_ns": 0}
                manifest["outputs"][path.relative_to(folder).as_posix()] = facts
        write_manifest(folder, manifest)


def change_tensors(path: Path, change) -> None:
    """Rewrite a file of ``torch.save`` after a change."""
    value = torch.load(path, weights_only=True)
    changed = change(value)
    torch.save(value if changed is None else changed, path)
