"""Zero-shot scores match the applied run."""

import json

import numpy as np
import pytest

import zero_shot
from fastslow.competition.catalog import get_collection
from fastslow.competition.metrics import ranking_tau, tile_score
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.features.unseen import read_unseen
from fastslow_programs.ranking.inference import FinishedRun
from helpers.competition_files import layout_arrays, tile_arrays, write_npz


@pytest.fixture
def real(tmp_path):
    """Published files, made up: three labelled ones, one whose configurations are all alike, one of test."""
    alike = layout_arrays(3, configs=4)
    alike["node_config_feat"][:] = alike["node_config_feat"][0]
    files = {
        "layout/xla/default/train/measured": layout_arrays(1, dots=4, configs=90),
        "layout/nlp/random/valid/small": layout_arrays(2, configs=20),
        "layout/nlp/random/valid/alike": alike,
        "tile/xla/train/kernel": tile_arrays(4, configs=9),
        "layout/xla/default/test/hidden": layout_arrays(5, labelled=False),
    }
    for name, arrays in files.items():
        write_npz(tmp_path / "real" / "npz_all" / "npz" / f"{name}.npz", arrays)
    return tmp_path / "real"


def test_every_labelled_file_is_scored(home, real, capsys):
    assert zero_shot.main(["--quick", "--runs", "runs/smoke", "--real", str(real), "--threads", "1"]) == 0
    page = capsys.readouterr().out
    result = json.loads(page.splitlines()[-1])
    programs = result["programs"]
    ids = ["tile:xla:kernel", "layout:xla:default:measured", "layout:nlp:random:small"]
    assert list(programs) == ids and result["left_out"] == ["layout:nlp:random:alike"]
    assert "Run `smoke` of commit" in page
    for program in programs.values():
        name = program["program"]
        assert f"| {name} " in page
        collection = get_collection(program["collection"])
        (path,) = real.rglob(f"{name}.npz")
        unseen = read_unseen(resolve(f"features/smoke/{collection.slug}"), [path])
        found = program["zero_shot"]["scores"]
        if name == "measured":
            assert program["configs"] == zero_shot.QUICK_CONFIGS
            continue
        prediction = FinishedRun(resolve(f"runs/smoke/ensemble-{collection.slug}")).predict(unseen)[name]
        with np.load(path) as npz:
            runtime = npz["config_runtime"]
        assert found["ensemble"]["tau"] == pytest.approx(ranking_tau(runtime, prediction), abs=1e-4)
        if collection.kind == "tile":
            for k in (1, 5):
                wanted = tile_score(runtime, prediction, k)
                assert found["ensemble"][f"top {k}"] == pytest.approx(wanted, abs=1e-4)
            assert {"gnn", "ranker", "product of bounds"} <= set(found)
        assert found["in hindsight"]["tau"] >= found["best single feature"]["tau"] - 1e-4


def test_a_folder_without_labelled_files_is_refused(home, tmp_path):
    with pytest.raises(DataError, match="no labelled competition file"):
        zero_shot.main(["--quick", "--real", str(tmp_path), "--runs", str(resolve("runs/smoke"))])
