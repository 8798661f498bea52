"""The ranker's benchmark runs in all its parts and reports the promised rows."""

import json

import numpy as np
import pytest

import ranker
from common import graph_files, ranker_scale
from helpers.competition_files import needs_real
from helpers.workspace import cut_sample
from reference import ranker_pandas

QUICK = ["--quick", "--threads", "1", "--parts"]


def result_of(capsys, *parts):
    assert ranker.main([*QUICK, *parts]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_quality_of_every_objective(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(ranker, "COLLECTIONS", ranker.COLLECTIONS[1:3])  # both searches of xla
    quality = result_of(capsys, "quality", "--data-root", str(cut_sample(tmp_path)))["quality"]
    models = [*ranker.OBJECTIVES, ranker.CHOSEN]
    scopes = [*(c.name for c in ranker.COLLECTIONS), "mean of layouts", "mean of five"]
    rows = {(row["collection"], row["model"]): row for row in quality["table"]}
    assert {(scope, model) for scope in scopes for model in models} <= set(rows)
    for scope in scopes:
        assert all(len(rows[scope, model][split]) == 1 for model in models for split in ranker.EVALUATED)
        if ":" in scope:
            best = max(rows[scope, objective]["valid"][0] for objective in ranker.OBJECTIVES)
            assert rows[scope, ranker.CHOSEN]["valid"][0] == best


def test_features_against_pandas_and_with_many_configurations(capsys):
    features = result_of(capsys, "features")["features"]
    pandas, many = features["pandas"], features["many configurations"]
    assert pandas["largest relative difference"] < 1e-5
    assert pandas["ratio"] > 0  # a ratio of times: its size is no matter for a test
    assert 0 < pandas["columns of pandas"] <= pandas["columns"]
    assert many["configs"] == 2000 and many["columns"] == pandas["columns"]


def test_pandas_has_the_whole_table():
    graph = graph_files.load_graph(graph_files.program_of(graph_files.default_files(quick=True)[0]), 2)
    values, names = ranker_scale.table_of(graph)
    wanted = ranker_pandas.tabulate(graph, ranker_scale.config_columns(graph))
    assert set(wanted) <= set(names) and not wanted.columns.duplicated().any()
    wanted = wanted.reindex(columns=names, fill_value=0.0).to_numpy()
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-5)


def test_halves_are_left_out_without_the_published_files(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(graph_files, "REAL", tmp_path)
    assert result_of(capsys, "halves")["halves"] == {}


@needs_real
def test_halves_of_a_published_program(capsys):
    halves = result_of(capsys, "halves")["halves"]
    assert set(halves) == {"regression", "quantile", "pairwise"}
    for tau in halves.values():
        assert len(tau["test_half"]) == len(tau["unseen"]) == 1
        assert -1 < tau["test_half"][0] < 1


def test_training_on_many_rows(capsys):
    (row,) = result_of(capsys, "scale")["scale"]["training"]
    assert row["rows"] == 2000 and row["objective"] == "regression" and row["seconds"] > 0


def test_an_unknown_part_is_refused():
    with pytest.raises(SystemExit):
        ranker.parse_arguments(["--parts", "speed"])


def test_settings_reach_features_and_ranker(tmp_path, monkeypatch):
    given = ["ranker.num_leaves=7", "ranker.train_on=collection", "features.layout.hops=0"]
    options = ranker.parse_arguments(["--quick", "--set", *given])
    collection, trained = ranker.COLLECTIONS[2], []
    quality = ranker.Quality(options, tmp_path, [collection])
    assert quality.features[collection].manifest["settings"]["hops"] == 0

    def train(_, settings):
        trained.append(settings)
        return [{"model": "regression", "valid": {"mean": 0.0}}]

    monkeypatch.setattr(quality, "_train", train)
    quality.objectives(collection, 0)
    assert [settings.num_leaves for settings in trained] == [7]
