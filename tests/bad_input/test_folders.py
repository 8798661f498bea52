"""Features and run folders, weights, trees, checkpoints that were damaged: refused by name, or set aside."""

import shutil

import numpy as np
import pytest
import torch

from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError
from fastslow.networks.training.train import Training
from fastslow.runs.features_folder import Features, read_graph
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import PREDICTIONS, read_run_manifest
from fastslow.runs.scalers import read_scaler
from fastslow.runs.tensors import SET_ASIDE, load_weights
from fastslow.runs.trained_network import WEIGHTS, TrainedNetwork
from fastslow.runs.trained_ranker import MODEL, read_ranker
from fastslow.steps.ensemble import EnsembleSettings, read_member
from fastslow.steps.network import CHECKPOINT, load_checkpoint, read_graphs
from helpers.bad_files import BINARY, DOOR, refused, replace, workplace
from helpers.cases import cases
from helpers.good_artifacts import change_arrays, change_json, change_tensors, network_config, reseal


def read_features(folder):
    """Read everything that is in a features folder."""
    features = Features(folder)
    graphs = [
        features.graph(split, name) for split in ("train", "valid", "test") for name in features.names(split)
    ]
    return features.collection, features.data, features.scaler("node"), features.scaler("config"), graphs


NAN, INF = float("nan"), float("inf")
FILES = ("a.npz", "a.choices.npy", "a.config_feat.npy")


@cases("file, name", [(file, name) for file in FILES for name in BINARY], workplace=workplace)
def test_a_damaged_file_of_a_graph_is_refused(good, workplace, file, name):
    shutil.copytree(good.root / "features", workplace / "features")
    BINARY[name](workplace / "features" / "train" / file)
    refused(lambda: read_features(workplace / "features"), file)
    if not (
        workplace / "features" / "train" / file
    ).is_dir():  # also while a build reads it, without a checksum
        refused(lambda: read_graph(workplace / "features", "train", "a"), file)


def arrays(change):
    return lambda path: change_arrays(path, change)


def scalers(name, values):
    return arrays(lambda scaler_arrays: scaler_arrays.update({name: values(scaler_arrays[name])}))


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
FEATURES = {
    **{name: (MANIFEST, change) for name, change in (OF_EVERY_MANIFEST | NOT_RECORDS).items()},
    "no columns": (MANIFEST, manifest("config_columns")),
    "columns as text": (MANIFEST, manifest("config_columns", value="abc")),
}


def rewrite(old, new):
    return lambda path: path.write_text(path.read_text().replace(old, new))


UNSEALED = {
    **{
        f"{file}: {name}": (file, change)
        for file in ("graphs.csv", "scalers.npz")
        for name, change in BINARY.items()
    },
    "another name": ("graphs.csv", rewrite(",b,", ",x,")),
    "another split": ("graphs.csv", rewrite("train,", "valid,")),
    "another fingerprint": (MANIFEST, manifest("fingerprint", value="x")),
    "another scaler": ("scalers.npz", scalers("config_mean", lambda v: v + 1)),
}


RUN = {
    **{f"{MANIFEST}: {name}": (MANIFEST, change) for name, change in OF_EVERY_MANIFEST.items()},
    **{f"without valid.{key}": (MANIFEST, manifest("valid", key)) for key in ("mean", "per_graph")},
    "without valid": (MANIFEST, manifest("valid")),
    "a mean of NaN": (MANIFEST, manifest("valid", "mean", value=NAN)),
    "a mean as text": (MANIFEST, manifest("valid", "mean", value="0.5")),
    "no graph scored": (MANIFEST, manifest("valid", "per_graph", value={})),
    "a score beyond its range": (MANIFEST, manifest("valid", "per_graph", "v", value=7)),
    "a mean of other scores": (MANIFEST, manifest("valid", "mean", value=0.25)),
    "a model as a list": (MANIFEST, manifest("settings", "model", value=[])),
    "other data": (MANIFEST, manifest("inputs", "data", value="other")),
    "another collection": (MANIFEST, manifest("settings", "collection", value="tile:xla")),
    "predictions of NaN": (PREDICTIONS, arrays(lambda a: {k: v * np.nan for k, v in a.items()})),
    "predictions of infinity": (PREDICTIONS, arrays(lambda a: {k: v / 0 for k, v in a.items()})),
    "a prediction less": (PREDICTIONS, arrays(lambda a: {k: v[1:] for k, v in a.items()})),
    "a graph less": (PREDICTIONS, arrays(lambda a: {"valid/v": a["valid/v"]})),
    "a graph more": (PREDICTIONS, arrays(lambda a: a.update({"test/x": a["test/t"]}))),
    **{f"predictions.npz: {name}": (PREDICTIONS, change) for name, change in BINARY.items()},
}


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
    "a text": tensors(lambda w: w.update({_first(w): "text"})),
    "NaN": tensors(lambda w: w.update({_first(w): w[_first(w)] * NAN})),
    "infinity": tensors(lambda w: w.update({_first(w): w[_first(w)] + INF})),
    "complex": tensors(lambda w: w.update({_first(w): w[_first(w)].to(torch.complex64)})),
    "whole numbers": tensors(lambda w: w.update({_first(w): w[_first(w)].long()})),
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
    training = Training(settings, read_graphs(settings))
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
    "another model": (MANIFEST, manifest("settings", "model", value="gnn")),
    "outputs as a list": (MANIFEST, manifest("outputs", value=[])),
    "no checksum": (MANIFEST, manifest("outputs", MODEL, value={})),
}


NETWORK = {
    f"{MANIFEST}: a list": (MANIFEST, replace(b"[]")),
    "a width of 0": (MANIFEST, manifest("settings", "hidden_channels", value=0)),
    "a width as text": (MANIFEST, manifest("settings", "hidden_channels", value="64")),
    "another width": (MANIFEST, manifest("settings", "hidden_channels", value=65)),
    "an unknown setting": (MANIFEST, manifest("settings", "hidden_chanels", value=64)),
    "an unknown convolution": (MANIFEST, manifest("settings", "convolution", value="cage")),
    "an unknown readout": (MANIFEST, manifest("settings", "readout", value="some")),
    "unknown columns": (MANIFEST, manifest("settings", "node_inputs", value="some")),
    "what a former version had": (MANIFEST, manifest("settings", "node_attention", value="gat")),
    "no checksums": (MANIFEST, manifest("outputs")),
    "weights of another training": (WEIGHTS, lambda p: torch.save({}, p)),
    "no weights": (WEIGHTS, lambda p: p.unlink()),
    "no scalers": ("scalers.npz", lambda p: p.unlink()),
    "other scalers": ("scalers.npz", scalers("node_mean", lambda v: v + 1)),
}


SCALER = {
    "a deviation less": ("config_std", lambda v: v[1:]),
    "deviations below 0": ("config_std", lambda v: -1 - v),
    "means of NaN": ("config_mean", lambda v: v * NAN),
    "deviations without end": ("config_std", lambda v: v + INF),
    "complex means": ("config_mean", lambda v: v.astype("c16")),
    "a table of means": ("config_mean", lambda v: v[None]),
    "whole deviations": ("config_std", lambda v: v.astype(int)),
}


@cases("name", SCALER, workplace=workplace)
def test_what_scales_no_column_is_refused(good, workplace, name):
    path = workplace / "scalers.npz"
    shutil.copy(good.root / "network" / "scalers.npz", path)
    scalers(*SCALER[name])(path)
    refused(lambda: read_scaler(path, "config"), "scalers.npz", f"{SCALER[name][0]} (is|holds)")


def read_run(folder, features):
    """Read a run as a member of an ensemble."""
    settings = EnsembleSettings(features=str(features.folder), runs=[str(folder)])
    (manifest,) = settings.read_inputs()[1].values()
    return read_member(folder, manifest, features)


READERS = {
    "features": lambda folder, good: read_features(folder),
    "run": lambda folder, good: read_run(folder, good.features()),
    "ranker": lambda folder, good: read_ranker(folder),  # before LightGBM reads its trees
    "network": lambda folder, good: TrainedNetwork(folder),
}
FOLDERS = {
    **{("features", name): case for name, case in UNSEALED.items()},
    **{("features", f"sealed: {name}"): case for name, case in FEATURES.items()},
    **{("run", f"sealed: {name}"): case for name, case in RUN.items()},
    **{("ranker", name): case for name, case in RANKER.items()},
    **{("network", f"sealed: {name}"): case for name, case in NETWORK.items()},
}
"""Where a name begins with "sealed", checksums fit again: the content itself is refused."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@cases("kind, name", FOLDERS, workplace=workplace)
def test_a_damaged_folder_is_refused(good, workplace, kind, name):
    shutil.copytree(good.root / kind, workplace / kind)
    file, change = FOLDERS[kind, name]
    change(workplace / kind / file)
    if name.startswith("sealed"):
        reseal(workplace / kind, *([PREDICTIONS] if kind == "run" else []))
    refused(lambda: READERS[kind](workplace / kind, good), file if name in UNSEALED else kind)


@cases("kind", READERS)
def test_a_sound_folder_is_read(good, kind):
    READERS[kind](good.root / kind, good)


@cases(
    "read, there, what",
    [(Features, "network", "no features folder"), (Features, "ranker", "no features folder")]
    + [(read_run_manifest, "features", "no run of a collection")],
)
def test_a_folder_of_another_step_is_not_called_damaged(good, read, there, what):
    """The advice was to delete the features folder, where it was a trained run."""
    with pytest.raises(DataError, match=f"{there}: is {what}; another step has made it. Name a folder of"):
        read(good.root / there)


@cases(
    "read, folder, command",
    [
        (Features, "features/mine/tile-xla", "make features NAME=mine` and the run's DATA and settings, or"),
        (Features, "features/my run/tile-xla", "make features NAME='my run'` and the run's DATA"),
        (Features, "other/tile-xla", "make features`, or notebooks/10_features.ipynb"),
        (read_run_manifest, "runs/mine/ensemble-tile-xla", "make ensemble NAME=mine` and the run's DATA"),
        (read_ranker, "runs/mine/ranker-tile-xla-s0", "make ensemble NAME=mine` and the run's DATA"),
        (TrainedNetwork, "runs/mine/gnn-tile-xla-s0", "make ensemble NAME=mine` and the run's DATA"),
    ],
)
def test_the_command_for_a_missing_folder_has_its_name(tmp_path, read, folder, command):
    with pytest.raises(DataError, match=f"{folder}: no such folder. Make it with `{command}"):
        read(tmp_path / folder)


def test_the_run_of_another_model_is_refused(good):
    with pytest.raises(DataError, match="network: is a run of 'gnn', not of a ranker"):
        read_ranker(good.root / "network")
    said = "ranker: a run of 'ranker', not of a network. Name a network's run folder"
    with pytest.raises(DataError, match=said):
        TrainedNetwork(good.root / "ranker")


@cases(
    "key, values, said",
    [
        ("valid/v", lambda v: v * NAN, "valid graph v has a prediction that is not finite"),
        (
            "valid/v",
            lambda v: v.astype("c16"),
            "valid graph v has predictions of type complex128, float64 wanted",
        ),
        ("valid/v", lambda v: v > 0, "valid graph v has predictions of type bool"),
        ("valid/v", lambda v: v.astype("M8[s]"), r"valid graph v has predictions of type datetime64\[s\]"),
        ("valid/v", lambda v: v[:, None], r"valid graph v has predictions of shape \(\d+, 1\), one for each"),
        ("valid/v", lambda v: v[0], r"valid graph v has predictions of shape \(\), one for each"),
        ("valid/v", lambda v: v[:0], r"valid graph v has predictions of shape \(0,\), one for each"),
        *(
            (key, lambda v: v, f"holds the array {key}, valid/GRAPH or test/GRAPH wanted")
            for key in ("x", "foo/x", "train/x", "valid/")
        ),
    ],
)
def test_predictions_are_checked_where_they_are_read(good, tmp_path, key, values, said):
    """Also without features, as when two runs are compared."""
    shutil.copytree(good.root / "run", tmp_path / "run")
    change_arrays(tmp_path / "run" / PREDICTIONS, lambda a: a.update({key: values(a["valid/v"])}))
    reseal(tmp_path / "run", PREDICTIONS)
    with pytest.raises(DataError, match=said):
        read_predictions(tmp_path / "run")


ENSEMBLE = [
    (manifest("members", "a", "weight", value=-0.5), "members.a.weight is -0.5"),
    (manifest("members", "a", "weight", value=1.5), "members.a.weight is 1.5"),
    (manifest("members", "a", "weight", value=5e-324), "the weights sum to 0.25, not to 1"),
    (manifest("members", "a", "weight", value="0.75"), "members.a.weight is '0.75'"),
    (manifest("members", "a", "weight", value=True), "members.a.weight is True"),
    (manifest("members", "a", "folder"), "lacks the key members.a.folder"),
    (manifest("members", "a", "folder", value="a\0"), "members.a.folder is"),
    (manifest("members", value=[]), r"members is \[\]"),
    (manifest("normalisation", value="none"), "normalisation is 'none'"),
    (manifest("baselines", "rule", "sign", value=0), "baselines.rule.sign is 0"),
    (manifest("baselines", "rule", "columns", value=[]), r"baselines.rule.columns is \[\]"),
    (
        lambda path: change_json(path, lambda record: record["baselines"]["rule"].update(columns=None)),
        "baselines.rule.columns is None",
    ),
    (manifest("warnings", value="one"), "warnings is 'one'"),
    (
        manifest("members", "a", "valid", value=1e300),
        r"members.a.valid is 1e\+300, a score from -1 to 1 wanted",
    ),
    (manifest("baselines", "rule", "valid", value=-2), "baselines.rule.valid is -2, a score from -1 to 1"),
    (manifest("members", "b", "valid", value=1.25), "members.b.valid is 1.25, a score from -1 to 1"),
]
"""What was accepted, or ended in a traceback, where the checksum fits."""


@cases("change, said", [(None, ""), *ENSEMBLE], workplace=workplace)
def test_a_resealed_ensemble_is_refused(good, workplace, change, said):
    shutil.copytree(good.root / "run", workplace / "run")
    path = workplace / "run" / MANIFEST
    members = {
        name: {"weight": weight, "valid": 0.5, "folder": name, "model": "gnn"}
        for name, weight in (("a", 0.75), ("b", 0.25))
    }
    rule = {"valid": 0.5, "folder": "rule", "columns": ["violation_ratio"], "sign": 1}
    ensemble = {"members": members, "normalisation": "rank", "baselines": {"rule": rule}, "warnings": []}
    change_json(path, lambda record: {**record, **ensemble})
    if change:
        change(path)
    reseal(workplace / "run")
    if change:
        refused(lambda: read_run_manifest(workplace / "run"), MANIFEST, said)
    else:
        assert read_run_manifest(workplace / "run")["members"].keys() == members.keys()


def test_a_tile_score_is_at_most_1_and_has_no_lowest(good, tmp_path):
    """A slowdown has no end, so 1 - slowdown has none below."""
    shutil.copytree(good.root / "run", tmp_path / "run")
    path = tmp_path / "run" / MANIFEST

    def score(value):
        change_json(path, lambda record: record["settings"].update(collection="tile:xla"))
        change_json(path, lambda record: record["valid"].update(mean=value, per_graph={"v": value}))
        reseal(tmp_path / "run")

    score(-9.5)
    assert read_run_manifest(tmp_path / "run")["valid"]["mean"] == -9.5
    score(1.25)
    said = "valid.per_graph.v is 1.25, a score at most 1 wanted"
    refused(lambda: read_run_manifest(tmp_path / "run"), MANIFEST, said)
