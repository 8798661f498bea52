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
    "gcn": (GcnConv, dense_gcn),
    "mlp_gcn": (MlpGcnConv, partial(dense_mlp_gcn, slope=0.01)),
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
def test_the_entries_of_an_operator_are_named_by_row_and_column(rows, columns, seed):
    matrix = sparse.random_array((rows, columns), density=0.5, rng=np.random.default_rng(seed)).tocsr()
    entries = torch.stack(SparseOperator(matrix).entries())
    assert torch.equal(entries, torch.from_numpy(np.stack(matrix.tocoo().coords)).long())
