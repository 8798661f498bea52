"""The benchmark of rankings ranks every file that it is given and ends with one JSON object."""

import json

import pytest

import rank
from fastslow.core.errors import DataError
from helpers.competition_files import layout_arrays, tile_arrays, write_npz


def test_every_file_is_timed(home, tmp_path, capsys):
    files = [
        write_npz(tmp_path / "layout/nlp/default/test/a.npz", layout_arrays(1, dots=4, configs=20)),
        write_npz(tmp_path / "b.npz", tile_arrays(2)),
    ]
    assert rank.main(["--files", *map(str, files), "--runs", "runs/smoke"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {own["file"]: own["collection"] for own in result["files"]} == {
        "a": "layout:nlp:default",
        "b": "tile:xla",
    }
    assert result["run"] == "smoke" and result["configs per second"] > 0


def test_a_broken_file_is_named(home, tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"a\.npz"):
        rank.main(["--files", str(tmp_path / "a.npz"), "--runs", "runs/smoke"])
