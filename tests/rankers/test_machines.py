"""Two processes on this machine train one ranker together over LightGBM's sockets."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import lightgbm
import numpy as np
import pandas as pd

from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureConfig, build_features
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.train import train_ranker
from helpers.competition_files import write_data_root

TRAIN = (
    "import json, sys; from fastslow.rankers.train import RankerConfig, train_ranker;"
    "train_ranker(RankerConfig(**json.loads(sys.argv[1])))"
)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def test_two_processes_give_the_model_of_one(tmp_path):
    root = write_data_root(tmp_path / "data", "layout:xla:random", train=("a", "b", "c", "d", "e"))
    folder = tmp_path / "features"
    build_features(FeatureConfig(data_root=str(root), folder=str(folder), workers=1))
    settings = {
        "features": str(folder),
        "objective": "regression",
        "train_on": "collection",
        "num_threads": 1,
        "num_iterations": 4,
        "evaluate_every": 2,
        "num_leaves": 4,
        "min_data_in_leaf": 2,
        "bagging_fraction": 1.0,
    }
    one = train_ranker(RankerConfig(**settings, folder=str(tmp_path / "one")))
    machines = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    together = {**settings, "folder": str(tmp_path / "two"), "machines": machines}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, json.dumps({**together, "machine": machine})],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for machine in (0, 1)
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    two = json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert two["valid"]["weights"] == one["valid"]["weights"]
    trees = [
        lightgbm.Booster(model_file=str(tmp_path / run / "model.txt")).trees_to_dataframe()
        for run in ("one", "two")
    ]
    shape = ["tree_index", "node_index", "split_feature", "threshold"]
    pd.testing.assert_frame_equal(trees[0][shape], trees[1][shape])
    assert len(trees[0]) > 4
    scores = [read_predictions(tmp_path / run)["test"]["t"] for run in ("one", "two")]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6, atol=1e-9)
