"""The survey of a data root, from headers alone."""

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import DataError
from fastslow.views.data_report import DataReportSettings, summarise, survey
from helpers.competition_files import write_data_root


@pytest.fixture
def root(tmp_path):
    for c in COLLECTIONS:
        write_data_root(tmp_path, c.name)
    return tmp_path


def test_one_row_a_file_with_its_sizes(root, monkeypatch):
    wanted = []
    for c in COLLECTIONS:
        for split, names in (("train", "ab"), ("valid", "v"), ("test", "t")):
            for name in names:
                with np.load(c.folder(root, split) / f"{name}.npz") as file:
                    feat = file["node_config_feat" if c.kind == "layout" else "config_feat"]
                    wanted.append(
                        {
                            "collection": c.name,
                            "split": split,
                            "name": name,
                            "nodes": len(file["node_opcode"]),
                            "edges": len(file["edge_index"]),
                            "configurable": len(file["node_config_ids"]) if c.kind == "layout" else 0,
                            "configs": len(file["config_runtime"]),
                            "config_mb": feat.nbytes / 1e6,
                        }
                    )
    monkeypatch.setattr(np, "load", None)  # headers alone
    pd.testing.assert_frame_equal(survey(DataReportSettings(data_root=str(root))), pd.DataFrame(wanted))


def test_a_summary_by_collection_and_split():
    rows = [("b", "train", 10, 1.0), ("b", "train", 30, 3.0), ("a", "valid", 7, 0.26)]
    files = pd.DataFrame(
        {
            "collection": collection,
            "split": split,
            "name": "x",
            "nodes": nodes,
            "edges": 1,
            "configurable": nodes // 10,
            "configs": nodes * 100,
            "config_mb": megabytes,
        }
        for collection, split, nodes, megabytes in rows
    )
    summary = summarise(files)
    assert list(summary.index) == [("b", "train"), ("a", "valid")]
    assert summary.loc[("b", "train")].to_dict() == {
        "files": 2,
        "median_nodes": 20,
        "max_nodes": 30,
        "median_configs": 2000,
        "max_configs": 3000,
        "max_configurable": 3,
        "max_config_mb": 3.0,
    }
    assert summary.loc[("a", "valid"), "max_config_mb"] == 0.3


def test_a_missing_split_and_a_broken_file_are_named(root):
    folder = COLLECTIONS[1].folder(root, "valid")
    content = (folder / "v.npz").read_bytes()
    (folder / "v.npz").write_bytes(content[:100])
    with pytest.raises(DataError, match=str(folder / "v.npz")):
        survey(DataReportSettings(data_root=str(root)))
    (folder / "v.npz").unlink()
    with pytest.raises(DataError, match=f"{folder}: no npz files"):
        survey(DataReportSettings(data_root=str(root)))
