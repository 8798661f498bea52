"""Baselines: the best column, a ridge regression, the product of bounds, and the runs that they write."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.data_quality import quality_of
from fastslow.competition.metrics import kendall_tau, ranking_tau
from fastslow.core.artifacts import read_manifest
from fastslow.ensemble import baselines
from fastslow.ensemble.baselines import (
    PRODUCT,
    RIDGE,
    SINGLE,
    GraphRows,
    choose_bounds,
    fit_baselines,
    fit_ridge,
    read_examples,
    score_references,
)
from fastslow.features.graph import GraphSet
from fastslow.features.scaling import standardise
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.steps.ensemble import write_baselines
from helpers.cases import cases
from helpers.runs import make_features


class Relabelled(Features):
    """Features whose runtimes are a function of ``config_feat``."""

    def __init__(self, folder, runtime_of):
        super().__init__(folder)
        self.runtime_of = runtime_of

    def graph(self, split, name):
        graph = super().graph(split, name)
        runtime = self.runtime_of(np.asarray(graph.config_feat, np.float64))
        return replace(graph, runtime=runtime, file_runtime=graph.expand(runtime))

    def read_labels(self, split, name, array):
        return getattr(self.graph(split, name), array)


def varying(features):
    """A column that differs within every graph."""
    names = [(split, name) for split in ("train", "valid") for name in features.names(split)]
    spans = [np.ptp(features.graph(*name).config_feat, 0) for name in names]
    return int(np.argmax(np.min(spans, 0)))


@cases("sign", [1, -1])
def test_the_column_that_orders_every_graph_is_chosen(features, sign):
    column = varying(features)
    known = Relabelled(features.folder, lambda feat: 2 + sign * standardise(feat[:, column]) / 99)
    chosen = fit_baselines(known)[SINGLE]
    for split in ("train", "valid", "test"):
        for name in features.names(split):
            graph = known.graph(split, name)
            assert kendall_tau(graph.runtime, chosen.predict(graph.config_feat)) == pytest.approx(1)
    assert chosen.describe(features.config_columns).endswith("ascending" if sign > 0 else "descending")


def test_train_graphs_alone_choose_them(features, monkeypatch):
    def of_train(read):
        def call(self, split, *rest):
            assert split == "train"
            return read(self, split, *rest)

        return call

    for name in ("labels", "graph"):
        monkeypatch.setattr(Features, name, of_train(getattr(Features, name)))
    assert {SINGLE, RIDGE} <= set(fit_baselines(features))


@pytest.mark.parametrize("graphs", [1, 4])
def test_ridge_finds_a_linear_law_whatever_the_scale_of_a_graph(rng, graphs):
    weights = np.array([1.0, -2, 0.5, 0])
    feats = [rng.normal(rng.normal(), rng.uniform(1, 9), (40, 4)) for _ in range(graphs)]
    examples = [GraphRows(standardise(f), np.exp(rng.normal() + standardise(f) @ weights)) for f in feats]
    ridge = fit_ridge(examples)
    for feat, example in zip(feats, examples, strict=True):
        assert ranking_tau(example.runtime, ridge.predict(feat)) > 0.97
    found = ridge.coefficients / np.linalg.norm(ridge.coefficients)
    np.testing.assert_allclose(found, weights / np.linalg.norm(weights), atol=0.03)


@cases("sign", [1, -1])
def test_the_bounds_are_taken_as_train_says(tmp_path, sign):
    features = make_features(tmp_path, "tile:xla")
    columns = [features.config_columns.index(name) for name in baselines.BOUND_PRODUCTS]
    known = Relabelled(features.folder, lambda feat: np.exp(sign * feat[:, columns].sum(1)))
    chosen = choose_bounds(known)
    assert chosen.sign == sign and sorted(chosen.positions) == sorted(columns)
    bounds = np.load(tmp_path / "data/npz_all/npz/tile/xla/test/t.npz")["config_feat"].reshape(-1, 3, 8)
    product = np.where(bounds[..., :6] > 0, bounds[..., :6], 1).prod((1, 2))
    graph = features.graph("test", "t")
    predicted = baselines.predict_configs(chosen, graph)
    np.testing.assert_allclose(predicted, sign * np.log(product), rtol=1e-6, atol=1e-6)


@cases("collection", ["layout:xla:random", "tile:xla"])
def test_they_are_written_as_runs(tmp_path, collection):
    features = make_features(tmp_path, collection)
    written = write_baselines(features, str(tmp_path / "out"))
    assert {SINGLE, RIDGE} <= set(written) and (PRODUCT in written) == (collection == "tile:xla")
    fitted = fit_baselines(features)
    for name, facts in written.items():
        manifest, predictions = read_manifest(facts["folder"]), read_predictions(facts["folder"])
        check_predictions(facts["folder"], predictions, features)
        assert manifest["valid"]["mean"] == facts["valid"] and manifest["settings"]["model"] == name
        graph = features.graph("test", "t")
        wanted = fitted[name].predict(graph.config_feat)[graph.config_row]
        np.testing.assert_array_equal(predictions["test"]["t"], wanted)
        recorded = {key: facts[key] for key in ("columns", "sign") if key in facts}
        assert recorded == fitted[name].record(features.config_columns) and (name == RIDGE) != bool(recorded)


def test_many_graphs_share_the_rows(features, monkeypatch):
    monkeypatch.setattr(baselines, "MAX_ROWS", 3 * len(features.names("train")))
    assert {len(example.runtime) for example in read_examples(features)} == {3}


@cases("repeats", [1, 4])
def test_a_score_is_compared_with_the_rule_and_with_the_ceiling_of_measured_labels(repeats, rng):
    """The only column is the runtime, so the rule is perfect; what is measured twice differs by its noise."""
    values = np.linspace(1, 2, 60)
    row = np.repeat(np.arange(60, dtype=np.int32), repeats)
    measured = values[row] * np.exp(0.05 * rng.normal(size=len(row)))
    runtime = np.bincount(row, measured) / repeats

    def graph(name):
        columns = {"num_configs": 60, "config_feat": runtime[:, None], "config_row": row}
        return SimpleNamespace(
            **columns,
            name=name,
            content=name,
            runtime=runtime,
            file_runtime=measured,
            expand=lambda values: values[row],
        )

    features = GraphSet(COLLECTIONS[1], {"train": [graph("a")], "valid": [graph("b")]}, ["runtime"])
    references = score_references(features)
    assert references["rule"] == ranking_tau(measured, runtime[row])
    assert ("ceiling" in references) == (repeats > 1)
    if repeats > 1:
        assert references["ceiling"] == quality_of(measured, row).ceiling < 1
    unlearnable = GraphSet(COLLECTIONS[1], {"valid": [graph("b")]}, ["runtime"])
    assert score_references(unlearnable).keys() == references.keys() - {"rule"}
