"""Rows on disk and packed columns: numpy's indexing bit by bit, and no descriptor kept."""

import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastslow.runs.features_folder import read_graph, write_graph
from fastslow.runs.stored_rows import PackedColumns, StoredRows
from helpers.cases import cases
from helpers.networks import program

LIMIT = 256


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "rows.npy"


@settings(max_examples=50)
@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(0, 4))),
    st.slices(6)
    | st.sampled_from([0, -1, [0, 0], (slice(None), slice(1, None)), (np.zeros((2, 1), int), [])]),
)
def test_indexing_is_that_of_the_array(place, matrix, key):
    np.save(place, matrix)
    rows = StoredRows(place)
    found = rows[key]
    np.testing.assert_array_equal(found, matrix[key])
    assert not isinstance(found, np.memmap) and found.dtype == matrix.dtype
    np.testing.assert_array_equal(rows, matrix)
    assert (len(rows), rows.shape, rows.ndim, rows.nbytes) == (len(matrix), matrix.shape, 2, matrix.nbytes)


def test_what_is_read_does_not_change_with_the_file(place):
    np.save(place, np.zeros((3, 2)))
    part = StoredRows(place)[:2]
    np.save(place, np.ones((3, 2)))
    assert part.tolist() == [[0, 0], [0, 0]]


@pytest.fixture
def few_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_graphs_are_held_than_files_may_be_open(tmp_path, few_descriptors):
    graph = program()
    write_graph(tmp_path, "train", graph, "mark")
    held = [read_graph(tmp_path, "train", graph.name) for _ in range(LIMIT + 50)]
    for other in held:
        np.testing.assert_array_equal(other.choices.values[[2, 0]], graph.choices.values[[2, 0]])
        np.testing.assert_array_equal(other.config_feat[1:3], graph.config_feat[1:3])


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
