"""The real training loop holds its memory over 240 steps of changing sizes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fastslow.competition.catalog import get_collection
from fastslow.networks.hardware.memory import resident_bytes
from fastslow.steps.features import FeatureSettings, build_features
from helpers.competition_files import layout_arrays, write_npz

COLLECTION, STEPS, LEAKING, SLACK = "layout:xla:random", 240, 60, 24
SCRIPT = """
import gc, json, sys
gc.set_threshold(700, 10, 10)  # Python's own, which the tests' sitecustomize changes
import torch
from fastslow.networks.hardware import memory
from fastslow.steps.network_settings import TrainSettings
from fastslow.networks.training.train import Training
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.steps.network import read_graphs

MB = 1 << 20
torch.set_num_threads(1)
settings = json.loads(sys.argv[1])
training = Training(TrainSettings(**settings), read_graphs(TrainSettings(**settings)))
slack = int(sys.argv[2]) * MB
training._freed = memory.FreedMemory(slack, slack)
sizes, held, kept = set(), [], []
step, steps, leaking = training.step, int(sys.argv[3]), int(sys.argv[4])

def watched(*arguments):
    losses = step(*arguments)
    held.append(memory.resident_bytes() / MB)
    kept.append(bytearray(4 * MB if len(held) > steps else 0))
    return losses

make = training.example
def noted(drawn):
    batch = make(drawn)
    sizes.add((len(batch.runtime), len(batch.levels[-1].node_ids)))
    return batch

training.step, training.example = watched, noted
while len(held) < steps + leaking:
    training.run_epoch()

def quarters(own):
    quarter = len(own) // 4
    return [max(own[n * quarter : (n + 1) * quarter]) for n in range(4)]

found = {"flat": quarters(held[:steps]), "leaking": quarters(held[steps : steps + leaking])}
print(json.dumps({"sizes": len(sizes), **found}))
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A training on eight graphs of 8 to 64 configurations and 3 to 17 dots."""
    root = tmp_path_factory.mktemp("data")
    for number in range(8):
        arrays = layout_arrays(number, dots=3 + 2 * number, configs=8 * (1 + number))
        write_npz(get_collection(COLLECTION).folder(root, "train") / f"{number}.npz", arrays)
    for split in ("valid", "test"):
        arrays = layout_arrays(labelled=split == "valid")
        write_npz(get_collection(COLLECTION).folder(root, split) / f"{split}.npz", arrays)
    features = str(root / "features")
    build_features(FeatureSettings(collection=COLLECTION, data_root=str(root), folder=features, workers=1))
    small = {"device": "cpu", "hidden_channels": 8, "configs_per_step": 24, "edge_dropout": 0.1}
    return {"features": [features], "runs": ["runs/x"], "folder": "runs/x", "epochs": 1000, **small}


@pytest.mark.skipif(not resident_bytes(), reason="the system does not say what a process holds")
def test_memory_is_flat_over_240_steps_of_changing_sizes(settings):
    """Then 60 steps keep 4 MB each, which is seen. It takes that many steps to tell growth from noise."""
    words = [json.dumps(settings), str(SLACK), str(STEPS), str(LEAKING)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sizes"] > 100
    first, *later = found["flat"]
    assert max(later) <= first + SLACK, "what glibc may keep, and nothing that grows with the steps"
    first, *later = found["leaking"]
    assert np.diff([first, *later]).min() > 40 and later[-1] > first + SLACK
