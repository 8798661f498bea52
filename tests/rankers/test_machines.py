"""Two processes on this machine run the ranker's notebook together over LightGBM's sockets."""

import contextlib
import functools
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import lightgbm
import numpy as np
import pandas as pd
import papermill
import pytest

from fastslow.core.errors import SettingsError
from fastslow.core.settings import PROJECT
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureSettings, build_features
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.train import train_ranker
from helpers.competition_files import write_data_root

NOTEBOOK = PROJECT / "notebooks" / "22_train_ranker.ipynb"


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def test_two_notebooks_end_well_and_give_the_model_of_one(tmp_path):
    root = write_data_root(tmp_path / "data", "layout:xla:random", train=("a", "b", "c", "d", "e"))
    folder = tmp_path / "features"
    build_features(FeatureSettings(data_root=str(root), folder=str(folder), workers=1))
    settings = {
        "features": str(folder),
        "objective": "regression",
        "train_on": "collection",
        "num_threads": 1,
        "num_iterations": 4,
        "num_leaves": 4,
        "min_data_in_leaf": 2,
        "bagging_fraction": 1.0,
    }
    one = train_ranker(RankerSettings(**settings, folder=str(tmp_path / "one")))
    machines = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    own = [
        {**settings, "folder": str(tmp_path / f"machine_{n}"), "machines": machines, "machine": n}
        for n in (0, 1)
    ]
    with ThreadPoolExecutor(2) as pool:
        outputs = [str(tmp_path / f"{n}.ipynb") for n in (0, 1)]
        options = {"kernel_name": "python3", "progress_bar": False}
        run = functools.partial(papermill.execute_notebook, str(NOTEBOOK), **options)
        [*pool.map(run, outputs, own)]
    runs = [tmp_path / name for name in ("one", "machine_0", "machine_1")]
    trees = [lightgbm.Booster(model_file=str(run / "model.txt")).trees_to_dataframe() for run in runs]
    predictions = [read_predictions(run)["test"]["t"] for run in runs]
    shape = ["tree_index", "node_index", "split_feature", "threshold"]
    assert len(trees[0]) > 4
    for other in (1, 2):
        manifest = json.loads((runs[other] / "manifest.json").read_text())
        assert manifest["valid"]["weights"] == one["valid"]["weights"]
        pd.testing.assert_frame_equal(trees[0][shape], trees[other][shape])
        np.testing.assert_allclose(predictions[other], predictions[0], rtol=1e-6, atol=1e-9)
    pd.testing.assert_frame_equal(trees[1], trees[2])


def test_several_machines_need_a_single_objective():
    with pytest.raises(
        SettingsError, match="objective: 'best' is not a single objective, as several machines"
    ):
        RankerSettings(machines="a:1,b:2", objective="best")
