"""`fastslow data-quality`: the table of all graphs, resumed, with the doubtful ones named."""

import re

import numpy as np
import pandas as pd
import pytest

from fastslow import cli
from fastslow.core.errors import SettingsError
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.submission import doubtful_labels
from fastslow.workflow import data_quality
from helpers.competition_files import layout_arrays, write_data_root, write_npz

COLLECTION = "layout:xla:random"


@pytest.fixture
def root(tmp_path, monkeypatch, rng):
    """A competition with one graph whose two runs of equal configurations have nothing in common."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))
    root = write_data_root(tmp_path / "data", COLLECTION, train=("a", "b"))
    arrays = layout_arrays(3, dots=4, configs=300)
    rows = np.repeat(np.arange(300), 2)
    arrays |= {"node_config_feat": arrays["node_config_feat"][rows]}
    arrays |= {"config_runtime": rng.integers(1_000, 1_100, len(rows))}
    write_npz(next(root.rglob("train")) / "noisy.npz", arrays)
    return root


def test_the_doubtful_graph_is_named(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    command = ["data-quality", f"data={root}", f"collections={COLLECTION}"]
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert "Doubtful labels" in said and "noisy" in said and "a perfect predictor would reach 0." in said
    path = tmp_path / "home" / "features" / "data-quality-data.csv"
    table = pd.read_csv(path)
    assert {*table["name"]} >= {"a", "b", "noisy"} and table["doubts"].notna().sum() == 1
    noisy = table.set_index("name").loc["noisy"]
    assert (
        noisy["repeated"] == noisy["distinct"] and abs(noisy["repeat_tau"]) < 0.2 and noisy["ceiling"] < 0.5
    )

    monkeypatch.setattr(data_quality, "measure_quality", lambda file: 1 / 0)
    before = path.read_bytes()
    assert cli.main(command) == 0, "nothing is measured twice"
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["data-quality", str(root), f"collections={COLLECTION}"]) == 0
    said = capsys.readouterr().out
    assert "| xla:random " in said and all(len(row) <= 80 for row in said.splitlines() if row[:1] == "|")
    assert path.read_bytes() == before


def test_the_table_keeps_what_is_not_asked_for(root, tmp_path, monkeypatch):
    """A second collection is measured; then the first one is not measured again."""
    write_data_root(tmp_path / "data", "layout:xla:default")
    settings = data_quality.QualitySettings(data=str(root), collections=[COLLECTION])
    first = data_quality.measure_labels(settings)
    second = data_quality.measure_labels(settings.replace(collections=["layout:xla:default"]))
    assert {*second["collection"]} == {"layout:xla:default"}
    assert len(pd.read_csv(settings.table)) == len(first) + len(second)
    monkeypatch.setattr(data_quality, "measure_quality", lambda file: 1 / 0)
    pd.testing.assert_frame_equal(data_quality.measure_labels(settings), first)


def test_a_submission_names_the_doubtful_graph(root, tmp_path):
    where = {"collection": COLLECTION, "data_root": str(root), "folder": str(tmp_path / "features")}
    build_features(FeatureSettings(workers=1, **where))
    found = doubtful_labels(Features(tmp_path / "features"))
    assert list(found) == [f"{COLLECTION}:noisy (train)"]
    assert "a perfect predictor would reach 0." in found[f"{COLLECTION}:noisy (train)"]


@pytest.mark.parametrize(
    ("change", "said"),
    [("splits=test", "splits: .*test.* is not of train, valid"), ("collections=layout:x", "layout:x")]
    + [("splits=valid,valid", "splits: .* once")],
)
def test_what_cannot_be_measured_is_refused(root, capsys, change, said):
    assert cli.main(["data-quality", f"data={root}", f"collections={COLLECTION}", change]) == 1
    assert re.search(said, capsys.readouterr().err)
    with pytest.raises(SettingsError, match="collections: .* is not a name or more"):
        data_quality.QualitySettings(collections=[])
    (root.parent / "empty").mkdir()
    for folder, said in (
        ("nowhere", "data: 'nowhere' is neither sample nor"),
        (root.parent / "empty", "no npz"),
    ):
        assert cli.main(["data-quality", f"data={folder}"]) == 1
        assert said in capsys.readouterr().err


def test_another_table_is_not_overwritten(root, tmp_path, capsys):
    path = tmp_path / "home" / "features" / "data-quality-data.csv"
    path.parent.mkdir(parents=True)
    path.write_text("a,b\n1,2\n")
    assert cli.main(["data-quality", f"data={root}", f"collections={COLLECTION}"]) == 1
    assert "data-quality-data.csv: is no table of data-quality. Delete it" in capsys.readouterr().err
    assert path.read_text() == "a,b\n1,2\n"
