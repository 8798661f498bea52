"""The extractor's benchmark compares every value of a published pair of files."""

import json

import numpy as np
import pytest

import extractor
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.messages import ModuleTuningData
from fastslow.xla.reader import read_program


def published_pair(folder, change=lambda arrays: None):
    """A synthetic pair of a TpuGraphs protobuf and its npz, changed."""
    module = extractor.synthetic_module(30)
    run = {"module_config": {"layout_config": {"nodes": [{}]}}, "profile": {"compute_time_ns": 5}}
    tuned = ModuleTuningData(module=module, fingerprint=1, runs=[run], config_index_to_node=[2])
    paths = folder / "synthetic.pb", folder / "synthetic.npz"
    paths[0].write_bytes(tuned.SerializeToString())
    arrays = graph_arrays(module) | read_program(paths[0]).runs
    change(arrays)
    np.savez(paths[1], **arrays)
    return ["--quick", "--pair", *map(str, paths)]


def test_equal_files(tmp_path, capsys):
    assert extractor.main(published_pair(tmp_path)) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(result["equality"]["equal"].values())
    assert result["equality"]["columns"]["equal"] == 140
    assert result["equality"]["runs"] == {"protobuf": 1, "equal": 1, "npz": 1}
    assert result["equality"]["padding"]["wrong"] == 0
    assert result["speed"]["synthetic"]["nodes"] == pytest.approx(extractor.NODES[True], rel=0.02)
    assert result["speed"]["synthetic"]["nodes per second"] > 0


def test_differences_are_reported(tmp_path, capsys):
    def change(arrays):
        arrays["node_feat"][3, 22] += 1
        arrays["config_runtime"] += 1

    assert extractor.main(published_pair(tmp_path, change)) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["equality"]["columns"]["unequal"] == ["shape_1"]
    assert result["equality"]["runs"]["equal"] == 0
    assert not result["equality"]["equal"].pop("node_feat") and all(result["equality"]["equal"].values())


def test_without_a_pair_only_speed_is_measured(capsys):
    assert extractor.main(["--quick", "--pair", "none.pb", "none.npz"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["equality"] is None
