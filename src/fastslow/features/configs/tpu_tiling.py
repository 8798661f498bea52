"""Padding of tensors to the TPU's 8 x 128 tiles under a layout.

Source: XLA's tiled layout of TPUs (https://openxla.org/xla/tiled_layout).
"""

from typing import NamedTuple

import numpy as np

from fastslow.competition.layouts import MAX_DIMENSION, minor_dimension, num_elements
from fastslow.features.configs.default_layouts import is_off_default

LANES = 128  # the minor-most dimension is padded to a multiple of this
SUBLANES = 8  # and the second-minor one to a multiple of this


class Tiling(NamedTuple):
    """Tensors under layouts; each array has the broadcast leading shape of sizes and layouts."""

    is_left: np.ndarray  # the layout is left to the compiler
    fits: np.ndarray  # the tensor has every axis that the layout names, and its two minor-most axes differ
    minor_size: np.ndarray  # size of the minor-most dimension, 1 or more
    second_size: np.ndarray  # size of the second-minor dimension; 1 for a tensor of one dimension
    minor_unaligned: np.ndarray  # minor_size is no multiple of 128
    second_unaligned: np.ndarray  # second_size is no multiple of 8; False for a tensor of one dimension
    volume: np.ndarray  # number of elements
    padded_volume: np.ndarray  # number of elements after padding to whole tiles
    violates: np.ndarray  # the largest dimension is larger than the minor-most one
    minor_axis: np.ndarray  # the minor-most axis, from 0; the last one where left to the compiler


def tile(dims: np.ndarray, layouts: np.ndarray) -> Tiling:
    """Compute the tiling of tensors under layouts; their leading shapes are broadcast.

    Args:
        dims: (..., 6) integer sizes, 0-padded.
        layouts: (..., 6) minor-to-major, -1 padded; all -1 counts as row-major. A layout that names fewer
            axes than the tensor has is completed by the others in row-major order.
    """
    dims = np.asarray(dims, np.int64)
    layouts = np.asarray(layouts, np.int64)
    shape = np.broadcast_shapes(dims.shape[:-1], layouts.shape[:-1])
    dims = np.broadcast_to(dims, (*shape, dims.shape[-1]))
    rank = (dims > 0).sum(-1)
    is_left = np.broadcast_to(layouts[..., 0] < 0, shape)
    minor = minor_dimension(dims, layouts)
    # a layout of one axis continues with the highest other axis; a single dimension has no second one
    second = np.where(layouts[..., 1] < 0, rank - 1 - (minor == rank - 1), layouts[..., 1])
    fits = (layouts.max(-1) < rank) & (minor != second)
    minor_size = _size(dims, minor)
    second_size = np.where(second < 0, 1, _size(dims, second))
    second_padded = np.where(second < 0, 1, _round_up(second_size, SUBLANES))
    volume = num_elements(dims)
    padded_volume = volume // (minor_size * second_size) * _round_up(minor_size, LANES) * second_padded
    return Tiling(
        is_left=is_left,
        fits=fits,
        minor_size=minor_size,
        second_size=second_size,
        minor_unaligned=minor_size % LANES != 0,
        second_unaligned=second_padded != second_size,
        volume=volume,
        padded_volume=padded_volume,
        violates=minor_size < dims.max(-1),
        minor_axis=minor,
    )


TILING_FEATURES = 9
"""Width of :func:`tiling_features`."""


def tiling_features(dims: np.ndarray, layouts: np.ndarray, defaults: np.ndarray) -> np.ndarray:
    """Compute a network's input features of each configured tensor, all of order 1.

    Args:
        dims: (..., 6) sizes, 0-padded; all 0 where there is no tensor.
        layouts: (..., 6) minor-to-major, -1 padded.
        defaults: (..., 6) the compiler's own layouts, -1 where they are not known.

    Returns:
        (..., 9) float32: left to the compiler, given, violating, off default (0 or 1 each); log of padded
        volume over volume, of volume, of padded volume and of the two minor-most sizes, scaled. All 0
        without a tensor.
    """
    tiling = tile(dims, layouts)
    there = tiling.fits & (np.asarray(dims)[..., 0] > 0)
    volume, padded_volume = (np.where(there, v, 1) for v in (tiling.volume, tiling.padded_volume))
    values = [
        tiling.is_left,
        ~tiling.is_left,
        tiling.violates,
        np.broadcast_to(is_off_default(layouts, defaults), tiling.volume.shape),
        np.log(padded_volume / volume) / 3,
        np.log1p(volume) / 10,
        np.log1p(padded_volume) / 10,
        np.log(tiling.minor_size) / 5,
        np.log(tiling.second_size) / 5,
    ]
    return (np.stack(values, -1) * there[..., None]).astype(np.float32)


def _size(dims: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Size of one axis of each tensor, 1 or more."""
    return np.take_along_axis(dims, axis.clip(0, MAX_DIMENSION)[..., None], -1)[..., 0].clip(1)


def _round_up(size: np.ndarray, multiple: int) -> np.ndarray:
    return -(-size // multiple) * multiple
