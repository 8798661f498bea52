from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.networks.model.convolutions import (
    CONVOLUTIONS,
    GcnConv,
    MlpGcnConv,
    SageConv,
)
from fastslow.networks.states.sparse import SparseOperator
from helpers.dense_convolutions import (
    dense_gcn,
    dense_mlp_gcn,
    dense_sage,
)
from helpers.level_case import WIDTH, Case, double, random_parameters
from helpers.random_graphs import structures

torch.set_num_threads(1)

cases = st.builds(Case, structures(min_nodes=2), st.integers(0, 1000))
FORMS = {
    "sage": (SageConv, dense_sage),
    "sage_sum": (partial(SageConv, aggregation="sum"), partial(dense_sage, aggregation="sum")),
    "sage_max": (partial(SageConv, aggregation="max"), partial(dense_sage, aggregation="max")),
    "gcn": (GcnConv, dense_gcn),
    "mlp_gcn": (MlpGcnConv, partial(dense_mlp_gcn, slope=0.01)),
    "mlp_gcn_directed": (partial(MlpGcnConv, directed=True, slope=0.2), partial(dense_mlp_gcn, slope=0.2)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@given(cases, st.integers(0, 99))
@settings(max_examples=30)
def test_a_convolution_equals_its_dense_form_on_every_pair(name, case, seed):
    make, dense = FORMS[name]
    conv = random_parameters(make(WIDTH, 4), seed)
    case.agree(
        conv, lambda x: conv(x, case.level, case.below), lambda x: dense(x, case.structure[0], double(conv))
    )


def test_with_the_whole_graph_in_sight_every_node_has_a_state_for_every_distinct_configuration():
    codes = np.zeros((5, 1, 3), np.uint8)
    codes[:, 0, 0] = [0, 1, 2, 1, 0]
    structure = np.array([[1, 0]]), 4, np.array([0]), codes
    assert np.bincount(Case(structure, 0, whole_graph=True).below.node_ids).tolist() == [3, 3, 3, 3]
    assert np.bincount(Case(structure, 0).below.node_ids).tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_node_without_neighbours_depends_on_itself_alone(name):
    structure = np.zeros((0, 2), np.int64), 2, np.array([1]), np.array([[[0, 0, 0]], [[1, 0, 0]]], np.uint8)
    case, conv = Case(structure, 0), random_parameters(FORMS[name][0](WIDTH, 4), 0)
    assert not len(case.structure[0])
    value = conv(case.x, case.level, case.below)
    other = case.x.detach().clone()
    other[case.below.node_ids == 1] += 1.0
    changed = conv(other, case.level, case.below) - value
    assert not changed[case.level.node_ids == 0].any() and changed[case.level.node_ids == 1].any()


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=40)
def test_the_maximum_of_an_operator_is_that_of_the_rows_it_names(rows, columns, seed):
    rng = np.random.default_rng(seed)
    first = sparse.random_array((rows, columns), density=0.5, rng=rng).tocsr()
    second = sparse.csr_matrix(np.eye(columns))
    x = torch.from_numpy(rng.normal(size=(columns, 3)).astype(np.float32))
    expected = torch.zeros(rows, 3)
    for row in range(rows):
        named = first.indices[first.indptr[row] : first.indptr[row + 1]]
        if len(named):
            expected[row] = x[named].amax(0)
    assert torch.equal(SparseOperator(first, second).max(x), expected)
    row, column = SparseOperator(first).entries()
    assert torch.equal(torch.stack([row, column]), torch.from_numpy(np.stack(first.tocoo().coords)).long())
