"""Models of a measured sample: every model is scored beside the noise of the labels."""

import json

import pandas as pd
import pytest

import device_models
from fastslow.core.errors import DataError
from fastslow.evaluation.solution import read_solution
from helpers.workspace import cut_sample
from make_sample.measured_sample import REPLICATES


def test_every_model_is_scored_beside_the_noise(tmp_path, capsys):
    cut_sample(tmp_path / "sample")
    ids = {k: v for k, v in read_solution(tmp_path / "sample" / "solution.csv").items() if "xla:random" in k}
    halves = [
        pd.DataFrame({"ID": name, "config_index": range(len(own)), "first": own, "second": own[:: 1 - 2 * n]})
        for n, (name, own) in enumerate(sorted(ids.items())[:2])
    ]
    pd.concat(halves).to_csv(tmp_path / "sample" / REPLICATES, index=False)
    assert device_models.main(["--quick", "--data-root", str(tmp_path / "sample")]) == 0
    page = capsys.readouterr().out
    found = json.loads(page.splitlines()[-1])
    assert found["noise"].keys() == ids.keys()
    assert found["noise"][min(ids)]["replicate tau"] == 1.0
    assert {"best single feature", "gnn", "ranker", "ensemble"} <= {*found["taus"]["test"]}
    assert all(len(own) == len(ids) for own in found["taus"]["test"].values())
    for line in ("| replicate tau", "| ceiling", "| gnn", "| ranker"):
        assert line in page


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="make sample LABELS=device"):
        device_models.main(["--quick", "--data-root", str(tmp_path)])
