"""Features and run folders, weights, trees, checkpoints that were damaged: refused by name, or set aside."""

import shutil

import numpy as np
import pytest
import torch

from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError
from fastslow.evaluation.ensemble import EnsembleSettings, read_member
from fastslow.evaluation.predictions import PREDICTIONS
from fastslow.features.store import Features, read_graph
from fastslow.features.store_checks import _SPECIFICATION
from fastslow.networks.machine.stored_weights import SET_ASIDE, load_weights
from fastslow.networks.predict.dataset import make_dataset
from fastslow.networks.training.run_folder import CHECKPOINT, WEIGHTS, load_checkpoint
from fastslow.networks.training.train import Training
from fastslow.networks.training.trained import TrainedNetwork
from fastslow.rankers.train import MODEL, read_ranker
from helpers.bad_files import BINARY, DOOR, MARK, absurd_members, replace
from helpers.cases import cases
from helpers.good_artifacts import change_arrays, change_json, change_tensors, network_config, reseal


def workplace(tmp_path, monkeypatch):
    """An empty working directory; afterwards, no code that a file hid was run."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / MARK).exists()


def refused(read, name, said=None):
    """Check that something is refused: the error names the file, says what is wrong and what to do."""
    with pytest.raises(DataError, match=said) as caught:
        read()
    named, problem, remedy = caught.value.args
    assert name in str(named) and problem and remedy
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


def read_features(folder):
    """Read everything that is in a features folder."""
    features = Features(folder)
    graphs = [
        features.graph(split, name) for split in ("train", "valid", "test") for name in features.names(split)
    ]
    return features.collection, features.data, features.scaler("node"), features.scaler("config"), graphs


def spoil(name, what):
    """A mutation of a stored graph's arrays: another type, a row less, or a value out of range."""
    kinds, shape, low, high = _SPECIFICATION[name]

    def change(arrays):
        array = arrays[name]
        if what == "another type":
            arrays[name] = array.astype("U3")
        elif what == "complex numbers":
            arrays[name] = array.astype(complex)
        elif what == "one axis more":
            arrays[name] = array[None]
        else:
            value = {
                "too small": -7 if low != -np.iinfo(np.int64).max else -np.inf,
                "too large": 999,
                "NaN": np.nan,
            }
            arrays[name] = array.astype(np.float64 if kinds == "f" else np.int64)
            arrays[name].flat[-1] = value[what]

    return change


def _set(line, column, value):
    """A line of a CSV with another value of a column; the first line as it is."""
    cells = line.split(",")
    return line if cells[0] == "split" else ",".join([*cells[:column], value, *cells[column + 1 :]])


def _first_column_twice(record):
    record["config_columns"] = [record["config_columns"][0], *record["config_columns"][:-1]]


NAN, INF = float("nan"), float("inf")
INSIDE = [name for name in _SPECIFICATION if name not in ("choices", "config_feat")]
SOME = INSIDE[:3]  # what one loop checks for all is shown on these
UNBOUNDED = ("tensor_sizes", "node_feat", "node_extra", "config_feat_values", "runtime", "file_runtime")
GRAPHS = {f"{name}: {what}": spoil(name, what) for name in INSIDE for what in ("another type", "too small")}
GRAPHS |= {f"{n}: {what}": spoil(n, what) for n in SOME for what in ("complex numbers", "one axis more")}
GRAPHS |= {f"{name}: too large": spoil(name, "too large") for name in INSIDE if name not in UNBOUNDED}
GRAPHS |= {
    f"{n}: NaN": spoil(n, "NaN") for n in ("node_feat", "config_feat_values", "runtime", "file_runtime")
}
GRAPHS |= {f"{name}: lost": lambda a, n=name: a.__delitem__(n) for name in SOME}
GRAPHS |= {
    "a configurable node twice": lambda a: a["config_index"].__setitem__(1, a["config_index"][0]),
    "a layout that names an axis twice": lambda a: a["layouts"].__setitem__((1, slice(0, 2)), 0),
    "zeroed codes": lambda a: a["choices_codes"].fill(0),
    "zeroed runtimes": lambda a: a["runtime"].fill(0),
    "zeroed runtimes of the file": lambda a: a["file_runtime"].fill(0),
    "a configuration that is in no row": lambda a: a["config_row"].fill(0),
    "a group without options": lambda a: a["choices_options"].fill(0),
    "a pair of a role that is none": lambda a: a.update(
        pairs=np.array([[0, 0, 3]]), pair_axes=np.zeros((1, 6), int)
    ),
    "a layout of axis 9 in node_feat": lambda a: a["node_feat"][:, 134:].fill(99),
}


@cases("name", GRAPHS, workplace=workplace)
def test_a_stored_graph_with_wrong_arrays_is_refused(good, workplace, name):
    shutil.copytree(good.root / "features" / "train", workplace / "train")
    change_arrays(workplace / "train" / "a.npz", GRAPHS[name])
    refused(lambda: read_graph(workplace, "train", "a"), "a.npz")


def rows(change):
    """A mutation of a plain npy file."""

    def write(path):
        np.save(path, change(np.load(path)))

    return write


ROWS = {
    **DOOR,
    "a row less": rows(lambda a: a[1:]),
    "a column less": rows(lambda a: a[:, 1:]),
    "an option that is none": rows(lambda a: a * 0 + 250),
    "negative options": rows(lambda a: a.astype(int) - 9),
    "floats": rows(lambda a: a.astype(float) + 0.5),
    "text in an array": rows(lambda a: a.astype("U3")),
    "a header larger than the file": lambda p: p.write_bytes(
        p.read_bytes().replace(b"'shape': (", b"'shape': (9")
    ),
}


@cases("array", ["choices", "config_feat"])
@cases("name", ROWS, workplace=workplace)
def test_broken_rows_of_a_stored_graph_are_refused(good, workplace, name, array):
    shutil.copytree(good.root / "features" / "train", workplace / "train")
    ROWS[name](workplace / "train" / f"a.{array}.npy")
    refused(lambda: read_graph(workplace, "train", "a"), "a.")


@cases("name", DOOR, workplace=workplace)
def test_a_broken_file_of_a_stored_graph_is_refused(good, workplace, name):
    shutil.copytree(good.root / "features" / "train", workplace / "train")
    DOOR[name](workplace / "train" / "a.npz")
    refused(lambda: read_graph(workplace, "train", "a"), "a.npz")


def csv(change):
    """A mutation of the lines of a CSV."""
    return lambda path: path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def scalers(name, values):
    return lambda path: change_arrays(path, lambda arrays: arrays.update({name: values(arrays[name])}))


def manifest(*keys, value=None):
    """A mutation of a manifest: an entry of another value, or lost where none is given."""

    def change(record):
        *parents, last = keys
        for key in parents:
            record = record[key]
        if value is None:
            del record[last]
        else:
            record[last] = value

    return lambda path: change_json(path, change)


NOT_RECORDS = {
    f"manifest {text[:20]}": replace(text.encode())
    for text in ("[]", "null", "{}", "3", '"text"', "", "{", "NaN", "[" * 50_000, "[{}]", "\x00", "é" * 3)
}
OF_EVERY_MANIFEST = {
    **{f"manifest without {key}": manifest(key) for key in ("fingerprint", "settings", "inputs")},
    "settings as a list": manifest("settings", value=[]),
    "a fingerprint as a number": manifest("fingerprint", value=3),
    "an unknown collection": manifest("settings", "collection", value="layout:xla:other"),
    "a collection as a number": manifest("settings", "collection", value=7),
    "no data": manifest("inputs", "data"),
}
FOLDER = {
    **{f"{MANIFEST}: {name}": (MANIFEST, change) for name, change in OF_EVERY_MANIFEST.items()},
    **{name: (MANIFEST, change) for name, change in NOT_RECORDS.items()},
    "no columns": (MANIFEST, manifest("config_columns")),
    "columns as text": (MANIFEST, manifest("config_columns", value="abc")),
    "columns fewer than the features": (MANIFEST, manifest("config_columns", value=["a"])),
    **{
        f"graphs.csv: {name}": ("graphs.csv", change) for name, change in BINARY.items() if "half" not in name
    },
    "a column twice": (MANIFEST, lambda p: change_json(p, _first_column_twice)),
    **{
        f"a count of {c}": ("graphs.csv", csv(lambda lines, c=c: [_set(line, 5, c) for line in lines]))
        for c in ("1e30", str(10**30), "3", "-1", "nan")
    },
    "surplus cells": ("graphs.csv", csv(lambda lines: [lines[0], *(f"{line},1,2" for line in lines[1:])])),
    "a name with NUL": ("graphs.csv", csv(lambda lines: [line.replace(",a,", ",a\0,") for line in lines])),
    "a column less": ("graphs.csv", csv(lambda lines: [line.partition(",")[2] for line in lines])),
    "an unknown split": ("graphs.csv", csv(lambda lines: [line.replace("train,", "tr,") for line in lines])),
    "a name with a path": (
        "graphs.csv",
        csv(lambda lines: [line.replace(",a,", ",../a,") for line in lines]),
    ),
    "a graph twice": ("graphs.csv", csv(lambda lines: [*lines, lines[1]])),
    "no graph": ("graphs.csv", csv(lambda lines: lines[:1])),
    "a graph that is not there": (
        "graphs.csv",
        csv(lambda lines: [line.replace(",b,", ",x,") for line in lines]),
    ),
    **{f"scalers.npz: {name}": ("scalers.npz", change) for name, change in DOOR.items()},
    "a shorter scaler": ("scalers.npz", scalers("node_mean", lambda v: v[1:])),
    "a longer scaler": ("scalers.npz", scalers("config_std", lambda v: np.append(v, 1))),
    "a scaler of NaN": ("scalers.npz", scalers("config_mean", lambda v: v * np.nan)),
    "a negative deviation": ("scalers.npz", scalers("node_std", lambda v: -v - 1)),
    "a scaler of text": ("scalers.npz", scalers("node_std", lambda v: v.astype("U9"))),
    "a scaler lost": ("scalers.npz", lambda p: change_arrays(p, lambda a: a.__delitem__("config_mean"))),
}


@cases("name", FOLDER, workplace=workplace)
def test_a_damaged_features_folder_is_refused(good, workplace, name):
    shutil.copytree(good.root / "features", workplace / "features")
    file, change = FOLDER[name]
    change(workplace / "features" / file)
    reseal(workplace / "features", *({file} - {MANIFEST}))
    refused(lambda: read_features(workplace / "features"), "features")


def predictions(change):
    return lambda path: change_arrays(path, change)


def cast(dtype):
    return predictions(lambda arrays: {key: values.astype(dtype) for key, values in arrays.items()})


def member(**facts):
    return manifest("members", value={"x": {"weight": 1.0, "folder": "runs/x", "model": "x", **facts}})


RUN = {
    **{f"{MANIFEST}: {name}": (MANIFEST, change) for name, change in OF_EVERY_MANIFEST.items()},
    **{f"without valid.{key}": (MANIFEST, manifest("valid", key)) for key in ("mean", "per_graph")},
    "without valid": (MANIFEST, manifest("valid")),
    "a mean of NaN": (MANIFEST, manifest("valid", "mean", value=NAN)),
    "a mean of infinity": (MANIFEST, manifest("valid", "mean", value=INF)),
    "a mean as text": (MANIFEST, manifest("valid", "mean", value="0.5")),
    "no graph scored": (MANIFEST, manifest("valid", "per_graph", value={})),
    "a graph's score of NaN": (MANIFEST, manifest("valid", "per_graph", "v", value=NAN)),
    **{
        f"a weight of {weight}": (
            MANIFEST,
            member(weight=weight),
        )
        for weight in (NAN, INF, -0.5, 2, "1", None, [1])
    },
    "members as a list": (MANIFEST, manifest("members", value=["x"])),
    "no members": (MANIFEST, manifest("members", value={})),
    "a member without a folder": (
        MANIFEST,
        manifest("members", value={"x": {"weight": 1.0}}),
    ),
    "an unknown normalisation": (MANIFEST, manifest("normalisation", value="softmax")),
    "other data": (MANIFEST, manifest("inputs", "data", value="other")),
    "another collection": (MANIFEST, manifest("settings", "collection", value="tile:xla")),
    **{f"predictions as {dtype}": (PREDICTIONS, cast(dtype)) for dtype in ("U9", "complex", "M8[s]", "bool")},
    "predictions of NaN": (PREDICTIONS, predictions(lambda a: {k: v * np.nan for k, v in a.items()})),
    "predictions of infinity": (PREDICTIONS, predictions(lambda a: {k: v / 0 for k, v in a.items()})),
    "a prediction less": (PREDICTIONS, predictions(lambda a: {k: v[1:] for k, v in a.items()})),
    "predictions in a table": (PREDICTIONS, predictions(lambda a: {k: v[None] for k, v in a.items()})),
    "a graph less": (PREDICTIONS, predictions(lambda a: {"valid/v": a["valid/v"]})),
    "a graph more": (PREDICTIONS, predictions(lambda a: a.update({"test/x": a["test/t"]}))),
    "an unknown split": (PREDICTIONS, predictions(lambda a: a.update({"train/a": a["test/t"]}))),
    "no split": (PREDICTIONS, predictions(lambda a: a.update({"t": a["test/t"]}))),
    **{f"predictions.npz: {name}": (PREDICTIONS, change) for name, change in DOOR.items()},
    "predictions by a header with code": (PREDICTIONS, absurd_members("valid/v")["a header with code"]),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@cases("name", RUN, workplace=workplace)
def test_a_damaged_run_folder_is_refused(good, workplace, name):
    features = good.features()
    shutil.copytree(good.root / "run", workplace / "run")
    file, change = RUN[name]
    change(workplace / "run" / file)
    reseal(workplace / "run", PREDICTIONS)

    def read():
        settings = EnsembleSettings(features=str(features.folder), runs=[str(workplace / "run")])
        (manifest,) = settings.read_inputs().manifests.values()
        read_member(workplace / "run", manifest, features)

    refused(read, "run")


def tensors(change):
    return lambda path: change_tensors(path, change)


def _first(weights):
    return next(name for name, tensor in weights.items() if tensor.is_floating_point())


WEIGHT_KINDS = {
    **BINARY,
    "a list": tensors(lambda w: [1, 2]),
    "a number": tensors(lambda w: 3),
    "nothing": tensors(lambda w: {}),
    "a tensor less": tensors(lambda w: w.__delitem__(_first(w))),
    "a tensor more": tensors(lambda w: w.update(more=torch.ones(3))),
    "another shape": tensors(lambda w: w.update({_first(w): torch.ones(3, 3, 3)})),
    "another type": tensors(lambda w: w.update({_first(w): w[_first(w)].to(torch.int64)})),
    "a text": tensors(lambda w: w.update({_first(w): "text"})),
    "NaN": tensors(lambda w: w.update({_first(w): w[_first(w)] * NAN})),
    "infinity": tensors(lambda w: w.update({_first(w): w[_first(w)] + INF})),
}


@cases("name", WEIGHT_KINDS, workplace=workplace)
def test_damaged_weights_are_refused(good, workplace, name):
    path = workplace / WEIGHTS
    shutil.copy(good.root / "network" / WEIGHTS, path)
    WEIGHT_KINDS[name](path)
    refused(lambda: load_weights(good.training.network, path, "Train again"), WEIGHTS)


def flip(part):
    """A mutation: one bit flipped at a part of the file's length, which the zip and the pickle survive."""

    def change(path):
        data = bytearray(path.read_bytes())
        data[int(part * (len(data) - 1))] ^= 1
        path.write_bytes(data)

    return change


STATES = {
    **DOOR,
    **{f"a bit at {part}": flip(part) for part in (0, 0.2, 0.4, 0.6, 0.8, 1)},
    "written by torch alone": tensors(lambda state: None),
    "weights changed": tensors(lambda state: state["network"][_first(state["network"])].add_(1)),
}


@cases("name", [name for name in STATES if name != "lost"], workplace=workplace)
def test_a_damaged_checkpoint_is_set_aside_and_the_training_starts_anew(good, workplace, capsys, name):
    path = workplace / CHECKPOINT
    shutil.copy(good.root / CHECKPOINT, path)
    STATES[name](path)
    there = path.exists()
    before = {key: value.clone() for key, value in good.training.network.state_dict().items()}
    assert not load_checkpoint(good.training, workplace, "mark")
    assert good.training.epoch == 0
    for key, value in good.training.network.state_dict().items():
        assert torch.equal(value, before[key])
    if there:  # a link to nowhere is none
        assert "damaged, " in capsys.readouterr().out and path.name + SET_ASIDE in {
            p.name for p in workplace.iterdir()
        }


def test_a_good_checkpoint_is_resumed_and_that_of_another_training_is_left_alone(good, tmp_path):
    path = tmp_path / CHECKPOINT
    shutil.copy(good.root / CHECKPOINT, path)
    assert not load_checkpoint(good.training, tmp_path, "another mark") and path.exists()
    settings = network_config(good.root)
    training = Training(settings, make_dataset(settings))
    assert load_checkpoint(training, tmp_path, "mark") and training.epoch == 1


TREES = {
    **DOOR,
    "fewer leaves": lambda p: p.write_text(p.read_text().replace("num_leaves=", "num_leaves=9")),
    "no tree": lambda p: p.write_text(p.read_text().partition("Tree=0")[0]),
    "a threshold of NaN": lambda p: p.write_text(p.read_text().replace("threshold=", "threshold=nan ")),
    "a child that is none": lambda p: p.write_text(p.read_text().replace("left_child=", "left_child=999 ")),
    "one more line": lambda p: p.write_text(p.read_text() + "x"),
    "one digit": lambda p: p.write_text(p.read_text().replace("1", "2", 1)),
}
RANKER = {
    **{f"{MODEL}: {name}": (MODEL, change) for name, change in TREES.items()},
    f"{MANIFEST}: a list": (MANIFEST, replace(b"[]")),
    **{f"without {key}": (MANIFEST, manifest(key)) for key in ("objective", "trees", "outputs", "settings")},
    "an unknown objective": (MANIFEST, manifest("objective", value="x")),
    "trees below 0": (MANIFEST, manifest("trees", value=-1)),
    "trees as text": (MANIFEST, manifest("trees", value="5")),
    "another model": (MANIFEST, manifest("settings", "model", value="gnn")),
    "outputs as a list": (MANIFEST, manifest("outputs", value=[])),
    "no checksum": (MANIFEST, manifest("outputs", MODEL, value={})),
}


@cases("name", RANKER, workplace=workplace)
def test_changed_trees_are_refused_before_lightgbm_reads_them(good, workplace, name):
    shutil.copytree(good.root / "ranker", workplace / "ranker")
    file, change = RANKER[name]
    change(workplace / "ranker" / file)
    refused(lambda: read_ranker(workplace / "ranker"), "ranker")


NETWORK = {
    f"{MANIFEST}: a list": (MANIFEST, replace(b"[]")),
    "a width of 0": (MANIFEST, manifest("settings", "hidden_channels", value=0)),
    "a width of text": (MANIFEST, manifest("settings", "hidden_channels", value="4")),
    "no checksums": (MANIFEST, manifest("outputs")),
    "weights of another training": (WEIGHTS, lambda p: torch.save({}, p)),
    "no weights": (WEIGHTS, lambda p: p.unlink()),
    "no scalers": ("scalers.npz", lambda p: p.unlink()),
    "other scalers": ("scalers.npz", scalers("node_mean", lambda v: v + 1)),
}


@cases("name", NETWORK, workplace=workplace)
def test_a_changed_network_is_refused(good, workplace, name):
    shutil.copytree(good.root / "network", workplace / "network")
    file, change = NETWORK[name]
    change(workplace / "network" / file)
    reseal(workplace / "network")
    refused(lambda: TrainedNetwork(workplace / "network"), "network")
