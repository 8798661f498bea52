"""What notebook 00 shows: files and configurations in words, repeated ones, spreads of runtime."""

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import DataError, SettingsError
from fastslow.views import data_report
from fastslow.views.data_report import DataReportSettings, count_configurations, summarise, survey
from helpers.cases import cases
from helpers.competition_files import graph_arrays, npz_program, write_data_root, write_npz


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = write_data_root(tmp_path_factory.mktemp("data"), "layout:xla:random", train=("a", "b", "c"))
    return DataReportSettings(data_root=str(root))


@pytest.fixture
def program(tmp_path):
    """A dot f32[8,16] = f32[8,4] x f32[4,16] with two configurations."""
    arrays = graph_arrays(
        [("parameter", (8, 4)), ("parameter", (4, 16)), ("dot", (8, 16), None, True)], [(2, 0), (2, 1)]
    )
    choice = np.full((2, 1, 18), -1.0, np.float32)
    choice[1, 0, :2], choice[1, 0, 6:8] = (0, 1), (1, 0)
    arrays |= {
        "node_config_ids": np.array([2]),
        "node_config_feat": choice,
        "config_runtime": np.array([300, 200]),
        "node_splits": np.array([[0, 3]]),
    }
    return npz_program(write_npz(tmp_path / "one.npz", arrays), "layout")


def test_a_configuration_in_words(program):
    rows = data_report.describe_configuration(program, 1).to_dict("records")
    assert [row["node"] for row in rows] == ["dot #2"] * 3
    assert [(row["tensor"], row["shape"], row["layout"]) for row in rows] == [
        ("output", "f32[8,16]", "{0,1}"),
        ("input", "f32[8,4]", "{1,0}"),
        ("kernel", "f32[4,16]", "compiler"),
    ]
    assert rows[0]["in words"] == "dimension 0 (size 8) is contiguous in memory, then 1 (size 16)"
    assert rows[2]["in words"] == "left to the compiler"
    assert set(data_report.describe_configuration(program, 0)["in words"]) == {"left to the compiler"}


def test_the_program_shown_is_the_named_or_the_smallest(settings):
    sizes = {}
    for name in "abc":
        program = data_report.read_shown(settings.replace(program=name))
        assert program.path.stem == name
        sizes[name] = len(program.node_opcode)
    assert len(data_report.read_shown(settings).node_opcode) == min(sizes.values())


@cases(
    "options, said",
    [
        ({"program": "d"}, "program: 'd' is not one of a, b, c"),
        ({"configuration": 8}, "configuration: 8 is not below 8, the number of configurations of a"),
        ({"collection": "tile"}, "collection: 'tile' is not one of tile:xla, layout:xla:default"),
    ],
)
def test_wrong_settings_are_refused(settings, options, said):
    with pytest.raises(SettingsError, match=said):
        data_report.read_shown(settings.replace(**options))


def test_the_histogram_counts_every_configuration(settings):
    program = data_report.read_shown(settings)
    (axes,) = data_report.plot_runtimes(program).axes
    assert sum(bar.get_height() for bar in axes.patches) == len(program.runtime)
    assert f"{program.runtime.min():,} in the unit of the file" in axes.get_xlabel()


def test_a_dot_per_file():
    files = pd.DataFrame(
        {"collection": ["a", "b", "a"], "nodes": [10, 20, 30], "configs": [100, 200, 300], "split": "train"}
    )
    (axes,) = data_report.plot_survey(files).axes
    assert [dots.get_offsets().tolist() for dots in axes.collections] == [[[10, 100], [30, 300]], [[20, 200]]]
    assert axes.get_xscale() == axes.get_yscale() == "log"


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
    columns = {"collection": ["b", "b", "a"], "split": ["train", "train", "valid"], "nodes": [10, 30, 7]}
    columns |= {"configurable": [1, 3, 0], "configs": [1000, 3000, 700], "config_mb": [1.0, 3.0, 0.26]}
    files = pd.DataFrame({**columns, "name": "x", "edges": 1})
    summary = summarise(files)
    assert list(summary.index) == [("b", "train"), ("a", "valid")]
    assert summary.loc[("b", "train")].to_dict() == {
        "files": 2,
        "nodes, median": 20,
        "nodes, most": 30,
        "configurations, median": 2000,
        "configurations, most": 3000,
        "configurable, most": 3,
        "MB, most": 3.0,
    }
    assert summary.loc[("a", "valid"), "MB, most"] == 0.26


def test_layout_files_are_counted_by_their_configurations():
    rows = [("tile:xla", "train", 9), *(("layout:xla:random", "train", c) for c in (24, 24, 96))]
    rows += [("layout:nlp:random", "test", c) for c in (25, 101, 1000)]
    counts = count_configurations(pd.DataFrame(rows, columns=["collection", "split", "configs"]))
    assert counts.index.tolist() == ["train", "test"]
    assert counts.to_numpy().tolist() == [[2, 1, 0], [0, 1, 2]]


def test_a_missing_split_and_a_broken_file_are_named(root):
    folder = COLLECTIONS[1].folder(root, "valid")
    content = (folder / "v.npz").read_bytes()
    (folder / "v.npz").write_bytes(content[:100])
    with pytest.raises(DataError, match=str(folder / "v.npz")):
        survey(DataReportSettings(data_root=str(root)))
    (folder / "v.npz").unlink()
    with pytest.raises(DataError, match=f"{folder}: no npz files"):
        survey(DataReportSettings(data_root=str(root)))
