"""Packed columns are the matrix that was packed, bit by bit, however they are indexed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.stored_rows import PackedColumns
from helpers.cases import cases


def draw_matrix(seed, rows, columns):
    rng = np.random.default_rng(seed)
    kinds = rng.choice([1, 2, 256, 257, 10**9], columns)
    matrix = (rng.integers(0, 10**9, (rows, columns)) % kinds).astype(np.float32)
    special = rng.random(matrix.shape) < 0.01 * rng.integers(0, 2)
    return np.where(special, rng.choice([-0.0, np.nan, np.inf, 1e-40], matrix.shape), matrix).astype(
        np.float32
    )


def assert_bits(read, wanted):
    assert read.dtype == wanted.dtype == np.float32 and read.shape == wanted.shape
    np.testing.assert_array_equal(
        np.ascontiguousarray(read).view(np.uint32), np.ascontiguousarray(wanted).view(np.uint32)
    )


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 700), columns=st.integers(0, 6))
@settings(max_examples=50)
def test_every_index_reads_what_numpy_reads(seed, rows, columns):
    matrix = draw_matrix(seed, rows, columns)
    packed, rng = PackedColumns.pack(matrix), np.random.default_rng(seed)
    assert (packed.shape, len(packed), packed.ndim) == (matrix.shape, rows, 2)
    assert_bits(np.asarray(packed), matrix)
    keys = [slice(None), slice(1, -1, 2), rng.integers(0, rows, 5), rng.random(rows) < 0.5, 0, slice(0)]
    for key in keys:
        assert_bits(packed[key], matrix[key])
        if columns:
            column = int(rng.integers(columns))
            for part in (column, -1, slice(1, None), [column, 0]):
                assert_bits(np.asarray(packed[key][..., part]), np.asarray(matrix[key][..., part]))
                if not isinstance(part, list):
                    assert_bits(np.asarray(packed[key, part]), np.asarray(matrix[key, part]))


@cases("distinct, num_bytes", [(1, 0), (2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_a_column_takes_the_bytes_that_its_values_need(distinct, num_bytes):
    column = (np.arange(70_000) % distinct)[:, None].astype(np.float32)
    packed = PackedColumns.pack(column)
    assert packed.packed.shape == (70_000, num_bytes)
    assert_bits(packed[60_000:], column[60_000:])
