"""Tiling of tensors under layouts, against a plain reading of the definition."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.configs.tpu_tiling import LANES, SUBLANES, TILING_FEATURES, tile, tiling_features


def padded(values, width=6, fill=-1):
    return [*values, *[fill] * (width - len(values))]


@st.composite
def tensors(draw):
    sizes = draw(st.lists(st.integers(1, 300), min_size=1, max_size=5))
    order = draw(st.permutations(range(len(sizes))))
    return sizes, order[: draw(st.integers(0, len(order)))]


@given(tensors())
@settings(max_examples=60)
def test_padding_is_that_of_whole_tiles(tensor):
    sizes, given_axes = tensor
    rest = [axis for axis in reversed(range(len(sizes))) if axis not in given_axes]
    minor_to_major = [*given_axes, *rest]
    result = tile(np.array(padded(sizes, fill=0)), np.array(padded(given_axes)))
    units = [LANES, SUBLANES, *[1] * 4]
    tiles = [math.ceil(sizes[axis] / unit) * unit for axis, unit in zip(minor_to_major, units, strict=False)]
    assert result.fits
    assert result.is_left == (not given_axes)
    assert result.volume == math.prod(sizes)
    assert result.padded_volume == math.prod(tiles)
    assert result.violates == (sizes[minor_to_major[0]] < max(sizes))
    unaligned = [sizes[axis] % unit > 0 for axis, unit in zip(minor_to_major, units, strict=False)]
    assert [result.minor_unaligned, result.second_unaligned] == [*unaligned, False][:2]


def test_features_are_finite_and_zero_without_a_tensor():
    dims = np.array([padded(p, fill=0) for p in ((), (5,), (2, 300), (1, 1, 1), (7, 9, 11))])
    layouts = np.array([padded(p) for p in ((), (0,), (1, 0), (1, 1, 5), (5, 4, 3, 2, 1, 0))])
    with np.errstate(all="raise"):
        features = tiling_features(dims[:, None], layouts[None], layouts[2])
    assert features.shape == (5, 5, TILING_FEATURES)
    assert np.isfinite(features).all() and np.abs(features).max() < 5
    assert not features[0].any()  # no tensor
    assert not features[2, [3, 4]].any()  # a layout that cannot be this tensor's
    assert features[2, 2, :4].tolist() == [0, 1, 0, 0] and features[2, 0, :4].tolist() == [1, 0, 0, 0]
    assert features[2, 1, :4].tolist() == [0, 1, 1, 1]  # not along the largest dimension, nor the default
