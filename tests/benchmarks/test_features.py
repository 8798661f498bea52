"""The benchmark of feature building runs, and its former path gives the same features."""

import json
import subprocess
import sys

import numpy as np
import pytest

from common.made_graphs import write_repeated
from fastslow.competition.reader import read_choices, read_competition_file
from fastslow.core.settings import PROJECT
from fastslow.features.build import build_graph
from fastslow.features.settings import FeatureSettings
from helpers.competition_files import layout_arrays, write_data_root, write_npz
from reference import untied_features


def test_the_benchmark_compares_before_and_after(tmp_path):
    script = str(PROJECT / "benchmarks" / "features.py")
    run = subprocess.run(
        [sys.executable, script, "--quick"], capture_output=True, text=True, cwd=tmp_path, timeout=3600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["benchmark"] == "features" and len(result["files"]) == 2
    for row in result["files"]:
        assert row["bytes ratio"] == pytest.approx(row["bytes before"] / row["bytes"], rel=1e-3)
        assert row["read / decompression"] > 0 < row["build ratio"]
        assert row["distinct"] <= row["configs"]
    assert (result["files"][1]["nodes"], result["files"][1]["configurable"]) == (600, 40)


def test_the_former_path_gives_the_same_features(tmp_path):
    root = write_data_root(tmp_path, "layout:xla:random")
    settings = FeatureSettings(data_root=str(root), folder=str(tmp_path / "f"))
    for program in settings.programs():
        graph, _ = build_graph(program, settings)
        file = read_competition_file(program.path, "layout")
        layouts, codes = untied_features.read_codes(program.path, 10**6)
        parts = untied_features.graph_part(file, settings)
        codes, config_feat = untied_features.config_part(file, *parts, layouts, codes, settings)
        np.testing.assert_array_equal(graph.config_feat, config_feat)
        np.testing.assert_array_equal(graph.layouts[graph.choices.layout_codes()], layouts[codes])


def test_a_repeated_program_ties_its_copies(tmp_path):
    source = read_competition_file(write_npz(tmp_path / "x.npz", layout_arrays()), "layout")
    write_repeated(tmp_path / "y.npz", source, 27, 7, 150)
    made = read_competition_file(tmp_path / "y.npz", "layout", labelled=True)
    assert (len(made.node_opcode), len(made.node_config_ids), len(made.choices)) == (27, 7, 150)
    kept = len(source.node_config_ids)
    np.testing.assert_array_equal(made.node_config_ids[kept : 2 * kept] - 10, source.node_config_ids)
    group = made.choices.group
    np.testing.assert_array_equal(group[:kept], group[kept : 2 * kept])
    layouts, choices = read_choices(tmp_path / "y.npz", 500)
    np.testing.assert_array_equal(choices.values, made.choices.values)
    with pytest.raises(ValueError, match="configurable nodes, not 70"):
        write_repeated(tmp_path / "z.npz", source, 27, 70, 5)
