"""The comparisons with the reference network run, and their figures are consistent."""

import json
from importlib.util import find_spec

import pytest

import inference
import train_step
from common import graph_files
from fastslow.core.errors import DataError

pytestmark = pytest.mark.skipif(not find_spec("torch_geometric"), reason="torch_geometric is not installed")
QUICK = ["--quick", "--threads", "1"]
NARROW = ["--set", "gnn.hidden_channels=16"]


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_inference(capsys):
    assert inference.main([*QUICK, *NARROW]) == 0
    result = last_line(capsys)
    file = result["files"][0]
    contenders = {"ours whole", "dense whole", "ours pruned", "dense pruned", "winner"}
    assert set(file["memory"]) == contenders < set(file["seconds"])
    assert 0 < result["largest difference"] < 1e-5
    assert 0 <= file["difference"]["in chunks"] < 1e-5
    assert file["nodes"]["whole"] > file["nodes"]["pruned"] > file["nodes"]["winner"]
    ratio = file["seconds"]["dense whole"] / file["seconds"]["ours whole"]
    found = result["total"]["ratios"]["dense whole / ours whole"]["all files"]
    assert found == pytest.approx(ratio, rel=1e-3)


def test_train_step(capsys):
    assert train_step.main([*QUICK, *NARROW]) == 0
    result = last_line(capsys)
    assert set(result["files"][0]["memory"]) == {"ours", "dense", "winner"}
    assert 0 < result["largest difference"]["prediction"] < 1e-5
    assert 0 < result["largest difference"]["gradient"] < 1e-4


def test_a_path_must_name_its_collection(tmp_path):
    with pytest.raises(DataError, match="layout/SOURCE/SEARCH"):
        graph_files.program_of(tmp_path / "graph.npz")
