"""Scaling, held against loops and against moments computed in one go."""

import math

import numpy as np
import pytest

from fastslow.competition import node_columns
from fastslow.core.errors import DataError
from fastslow.features.nodes.node_encodings import EXTRA_COLUMNS
from fastslow.features.scaling import (
    CLIP,
    EXPANDED_NODE_FEATURES,
    NODE_BLOCKS,
    Scaler,
    expand_node_features,
    log_labels,
    standardise,
    unit_ranks,
)
from fastslow.runs.scalers import read_scaler, write_scalers
from helpers.scalers import fit_scaler


def test_expanded_features_match_a_loop(rng):
    node_feat = rng.choice([-2, -1, 0, 1, 5, 127, 128, 129, 1000, 2.6e7], (20, 140)).astype(np.float32)
    node_feat[:, node_columns.SHAPE] = rng.choice([-1, 0, 1, 127, 128, 300, 51200], (20, 6))
    extra = rng.choice([-1, 0, 0.25, 3, 700], (20, len(EXTRA_COLUMNS))).astype(np.float32)
    expanded = expand_node_features(node_feat, extra)
    assert expanded.shape == (20, 146 + extra.shape[1]) and expanded.dtype == np.float32
    assert expanded.shape[1] == EXPANDED_NODE_FEATURES
    for row, more_columns, out in zip(node_feat.tolist(), extra.tolist(), expanded.tolist(), strict=True):
        sizes = row[node_columns.SHAPE]
        expected = [math.copysign(math.log1p(abs(x)), x) for x in row[:134]]
        expected += [-1 if size < 0 else size % 128 / 128 for size in sizes]
        expected += [-1 if size < 0 else math.log1p(size // 128) for size in sizes]
        expected += [math.copysign(math.log1p(abs(x)), x) for x in more_columns]
        np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_the_scaler_of_nodes_is_that_of_each_block_of_columns(rng):
    matrices = [rng.normal(3, 2, (rows, 200)).astype(np.float32) for rows in (5, 30)]
    scaler, first = fit_scaler(matrices, *NODE_BLOCKS), fit_scaler(m[:, :146].copy() for m in matrices)
    np.testing.assert_array_equal(scaler.mean[:146], first.mean)
    np.testing.assert_array_equal(scaler.std[:146], first.std)
    np.testing.assert_allclose(scaler.mean, fit_scaler(matrices).mean)
    some = scaler.select([3, 150])
    assert some.kept.tolist() == [3, 150]
    np.testing.assert_array_equal(some.transform(matrices[0]), scaler.transform(matrices[0])[:, [3, 150]])


def test_every_matrix_weighs_the_same(rng):
    small, large = rng.normal(5, 2, (4, 3)), rng.normal(-1, 7, (400, 3))
    scaler = fit_scaler([small, large])
    together = np.concatenate([np.repeat(small, 100, 0), large])
    np.testing.assert_allclose(scaler.mean, together.mean(0))
    np.testing.assert_allclose(scaler.std, together.std(0))
    scaled = np.concatenate([np.repeat(scaler.transform(small), 100, 0), scaler.transform(large)])
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-5)


@pytest.mark.parametrize("constant", [0, -1, -0.013835835, 17.077, 2.6e7])
def test_a_constant_column_is_dropped(rng, constant):
    sizes = (2320, 1680, 870, 1716, 304, 2404, 672)  # their rounding leaves the third a variance
    matrices = [np.column_stack([np.full(n, constant, np.float32), rng.normal(size=n)]) for n in sizes]
    scaler = fit_scaler(matrices)
    assert scaler.kept.tolist() == [1]
    assert scaler.transform(matrices[0]).shape == (2320, 1)
    assert np.isfinite(scaler.transform(matrices[0])).all()


def test_a_small_variation_about_a_large_mean_is_kept(rng):
    matrices = [1e6 + rng.normal(scale=1e-3, size=(n, 1)) for n in (50, 70)]
    expected = math.sqrt(np.mean([m.var() for m in matrices]) + np.var([m.mean() for m in matrices]))
    assert fit_scaler(matrices).std.tolist() == pytest.approx([expected], rel=1e-3)


def test_pooled_scalers_equal_one_fitted_on_all(rng):
    splits = [[rng.normal(loc, 2, (n, 3)) for n in (4, 9)] for loc in (0, 5, -3)]
    for split in splits:
        for matrix in split:
            matrix[:, 1] = 0.3
    pooled = Scaler.pool([fit_scaler(split) for split in splits])
    together = fit_scaler([matrix for split in splits for matrix in split])
    np.testing.assert_allclose(pooled.mean, together.mean)
    np.testing.assert_allclose(pooled.std, together.std)
    assert pooled.kept.tolist() == [0, 2]
    alone = fit_scaler(splits[0])
    assert Scaler.pool([alone]) is alone


def test_a_column_that_differs_between_graphs_only_is_kept():
    assert fit_scaler([np.zeros((5, 1)), np.ones((2, 1))]).kept.tolist() == [0]


def test_an_unseen_extreme_is_clipped(rng):
    scaler = fit_scaler([rng.normal(size=(50, 1))])
    scaled = scaler.transform(np.array([[1e9], [-1e9], [0.0]]))
    assert scaled[:2, 0].tolist() == [CLIP, -CLIP]
    assert abs(scaled[2, 0]) < 1
    assert scaled.dtype == np.float32


def test_standardised_columns_have_mean_0_and_deviation_1_or_are_0(rng):
    columns = rng.normal(5, [1e-3, 1, 1e6], (9, 3)).astype(np.float32)
    scaled = standardise(np.column_stack([columns, np.full(9, 7.1, np.float32)]))
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(scaled.std(0), [1, 1, 1, 0], atol=1e-9)
    assert (np.argsort(scaled[:, :3], 0) == np.argsort(columns, 0)).all()
    np.testing.assert_array_equal(standardise(np.array([3.0])), [0])


def test_labels_are_standardised_however_near_the_runtimes_are():
    labels = log_labels(10**12 + np.arange(4) * 100_000)
    assert labels.mean() == pytest.approx(0, abs=1e-6) and labels.std() == pytest.approx(1)
    assert not log_labels(np.full(4, 10**12)).any()


def test_unit_ranks_go_from_0_to_1_and_ties_share_their_mean():
    np.testing.assert_allclose(unit_ranks(np.array([3.0, 1.0, 1.0, 7.0])), [2 / 3, 1 / 6, 1 / 6, 1])
    assert unit_ranks(np.array([5.0])).tolist() == [0]


def test_a_written_scaler_is_read_by_its_name_and_refused_with_other_columns(tmp_path, rng):
    one, other = fit_scaler([rng.normal(size=(9, 3))]), fit_scaler([rng.normal(size=(9, 5))])
    path = tmp_path / "scalers.npz"
    write_scalers(path, node=one, config=other)
    for length in (None, 5):
        read = read_scaler(path, "config", length)
        np.testing.assert_array_equal([read.mean, read.std], [other.mean, other.std])
    with pytest.raises(DataError, match="node has 3 columns, 5 wanted"):
        read_scaler(path, "node", 5)
