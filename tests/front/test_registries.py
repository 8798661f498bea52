"""Registries: one line adds a split; everything from features to the score table follows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fastslow
from fastslow.competition.catalog import get_collection
from helpers.competition_files import write_data_root

COLLECTION = "layout:xla:random"
LINE = '    Split("holdout", labelled=True, predicted=True, optional=True),\n'
SCRIPT = """
import sys
from pathlib import Path

from fastslow.steps.ensemble import EnsembleSettings, build_ensemble
from fastslow.runs.predictions import read_predictions
from fastslow.evaluation.scores import score_table
from fastslow.features.build import FeatureSettings, build_features
from fastslow.runs.features_folder import Features
from fastslow.features.train_graphs import trainable
from fastslow.steps.network_settings import TrainSettings
from fastslow.networks.training.train import train
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.ranker import train_ranker

root = Path(sys.argv[1])
build_features(FeatureSettings(data_root=str(root), folder=str(root / "features"), workers=1))
features = Features(root / "features")
assert features.names("holdout") == ["h", "shared"] and trainable({"": features}) == ["a", "b"]
common = {"features": str(features.folder), "num_threads": 1}
train_ranker(RankerSettings(**common, folder=str(root / "ranker"), num_iterations=2, train_on="collection"))
small = {"epochs": 1, "hidden_channels": 8, "device": "cpu"}
where = {"features": [str(features.folder)], "runs": [str(root / "gnn")], "folder": str(root / "t")}
train(TrainSettings(**where, **small))
for run in ("ranker", "gnn"):
    assert read_predictions(root / run).keys() == {"valid", "test", "holdout"}, run
runs = [str(root / "ranker"), str(root / "gnn")]
build_ensemble(EnsembleSettings(features=str(features.folder), runs=runs, folder=str(root / "ensemble")))
table = score_table([(features, root / "ensemble")], None)
assert {"ranker", "gnn", "ensemble"} <= {*table["model"]} and table["holdout"].between(-1, 1).all()
"""


def test_a_fourth_split_is_one_line(tmp_path):
    """``holdout``: built into features, never trained on, predicted by every model, a column of scores.

    A process imports a changed copy of the package and trains, which takes seconds.
    """
    shutil.copytree(
        Path(fastslow.__file__).parent,
        tmp_path / "src" / "fastslow",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    catalog = tmp_path / "src" / "fastslow" / "competition" / "catalog.py"
    text = catalog.read_text()
    start = text.index("    Split(TEST")
    catalog.write_text(text[:start] + LINE + text[start:])
    root = write_data_root(tmp_path / "data", COLLECTION, train=("a", "b", "shared"))
    held_out = get_collection(COLLECTION).folder(root, "holdout")
    held_out.mkdir()
    train = get_collection(COLLECTION).folder(root, "train")
    shutil.copy(train / "shared.npz", held_out / "shared.npz")
    shutil.copy(get_collection(COLLECTION).folder(root, "valid") / "v.npz", held_out / "h.npz")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, root],
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), os.environ["PYTHONPATH"]])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
