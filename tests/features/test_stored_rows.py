"""Rows on disk: numpy's indexing, and no descriptor kept however many files are at hand."""

import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastslow.features.store import read_graph, write_graph
from fastslow.features.stored_rows import StoredRows
from helpers.networks import program

LIMIT = 256


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "rows.npy"


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
