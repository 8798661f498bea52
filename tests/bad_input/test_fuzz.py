"""Byte flips and random values in every kind of file that is read: refused by name, or read; nothing else."""

import shutil
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastslow.competition.submission_checks import read_submission
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError, FastslowError
from fastslow.evaluation.scores import read_solution
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.hlo.reader import read_hlo_modules
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.runs.tensors import load_weights, read_checkpoint
from fastslow.runs.trained_ranker import read_ranker
from helpers.competition_files import npz_program
from helpers.good_artifacts import COUNTS

FLIPS = 25
MOST_BYTES = 100 << 20
"""Upper end of what reading any damaged file may take; the good ones have less than 100 kB."""


def _resume(path):
    if read_checkpoint(path, "mark") is None:
        raise DataError(path, "was set aside", "The training restarts")


# file below the root: what reads it, given the good artifacts and the folder of the copy
LOADERS = {
    "layout.npz": lambda good, root: npz_program(root / "layout.npz", "layout", True),
    "tile.npz": lambda good, root: npz_program(root / "tile.npz", "tile", True),
    "program.pb": lambda good, root: read_hlo_modules(root / "program.pb"),
    "features/manifest.json": lambda good, root: Features(root / "features").collection,
    "features/graphs.csv": lambda good, root: Features(root / "features").num_configs("train"),
    "features/scalers.npz": lambda good, root: Features(root / "features").scaler("node"),
    "features/train/a.npz": lambda good, root: Features(root / "features").graph("train", "a"),
    "features/train/a.choices.npy": lambda good, root: Features(root / "features").graph("train", "a"),
    "features/train/a.config_feat.npy": lambda good, root: Features(root / "features").graph("train", "a"),
    "run/manifest.json": lambda good, root: read_run_manifest(root / "run"),
    "run/predictions.npz": lambda good, root: read_predictions(root / "run"),
    "training/manifest.json": lambda good, root: read_manifest(root / "training"),
    "network/model.pt": lambda good, root: load_weights(
        good.training.network, root / "network/model.pt", "x"
    ),
    "checkpoint.pt": lambda good, root: _resume(root / "checkpoint.pt"),
    "ranker/model.txt": lambda good, root: read_ranker(root / "ranker"),
    "ranker/manifest.json": lambda good, root: read_ranker(root / "ranker"),
    "mine.csv": lambda good, root: read_submission(root / "mine.csv", COUNTS),
    "mine.json": lambda good, root: read_submission_record(root / "mine.csv"),
    "solution.csv": lambda good, root: read_solution(root / "solution.csv"),
}


@pytest.fixture
def copy(good, tmp_path, request):
    """The folder of one good artifact, copied, to be damaged."""
    name = request.param
    if "/" in name:
        folder = name.partition("/")[0]
        shutil.copytree(good.root / folder, tmp_path / folder)
    else:
        for path in good.root.glob(f"{name.partition('.')[0]}.*"):
            shutil.copy(path, tmp_path)
    return name, tmp_path


def outcome(good, name, root):
    """Read a file that may be damaged: whether an error of this project refused it, in few words."""
    try:
        LOADERS[name](good, root)
    except FastslowError as error:
        assert str(error).strip() and len(str(error)) < 1000
        return True
    return False


@pytest.mark.parametrize("copy", LOADERS, indirect=True)
def test_flipped_bytes_and_cuts_are_refused_or_read(good, copy):
    name, root = copy
    path = root / name
    data = path.read_bytes()
    assert not outcome(good, name, root)
    rng = np.random.default_rng(len(data))
    tracemalloc.start()
    refused = []
    for number in range(FLIPS):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 1 + number % 3):
            changed[place] ^= int(rng.integers(1, 256))
        path.unlink(missing_ok=True)  # a damaged checkpoint was set aside
        path.write_bytes(changed if number % 5 else data[: int(rng.integers(len(data)))])
        refused.append(outcome(good, name, root))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES
    # what has a checksum of its own or in a manifest: every change is found
    assert all(refused) if name == "checkpoint.pt" or name.startswith("features/") else any(refused)


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_a_random_value_in_a_competition_file_is_refused_or_kept(good, tmp_path_factory, kind, data):
    path = shutil.copy(good.root / f"{kind}.npz", tmp_path_factory.mktemp("fuzz") / "x.npz")
    with np.load(path) as npz:
        arrays = dict(npz)
    key = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[key]
    place = data.draw(st.integers(0, array.size - 1))
    if array.dtype.kind == "f":
        value = data.draw(st.floats(width=32) | st.integers(-8, 70).map(float))
    else:
        info = np.iinfo(array.dtype)
        value = data.draw(st.integers(int(info.min), int(info.max)) | st.integers(0, 12))
    array.flat[place] = value
    np.savez(path, **arrays)
    try:
        file = npz_program(path, kind, labelled=True)
    except FastslowError as error:
        # an opcode, an edge or the start of a computation may make a node wrong: the message names its column
        nodes = ("edge_index", "node_config_ids", "node_feat", "node ")
        wrong = nodes if key in ("node_opcode", "edge_index", "node_splits", "node_feat") else ()
        assert any(name in str(error) for name in (key, *wrong))
        return
    kept = {"config_runtime": "runtime", "config_runtime_normalizers": "normalizers"}.get(key, key)
    if hasattr(file, kept):
        np.testing.assert_array_equal(getattr(file, kept), array)
