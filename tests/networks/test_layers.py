import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.networks.model.layers import (
    ChannelAttention,
    CrossConfigAttention,
    WeightedInstanceNorm,
)
from fastslow.networks.states.sparse import SparseOperator
from helpers.dense_reference import dense_channel, dense_cross, dense_norm
from helpers.level_case import WIDTH, Case, close, double, random_parameters
from helpers.random_graphs import structures

torch.set_num_threads(1)

cases = st.builds(Case, structures(min_nodes=2), st.integers(0, 1000))


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=40)
def test_sparse_operator_is_a_matrix_product_with_its_gradient(rows, columns, seed):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.4)
    operator = SparseOperator(sparse.csr_matrix(dense))
    assert operator.shape == (rows, columns)
    x = torch.from_numpy(rng.normal(size=(columns, 3)).astype(np.float32)).requires_grad_()
    weight = torch.from_numpy(rng.normal(size=(rows, 3)))
    product = operator @ x
    close(product, torch.from_numpy(dense) @ x.double())
    (gradient,) = torch.autograd.grad((product.double() * weight).sum(), x)
    close(gradient, torch.from_numpy(dense).T @ weight)


def test_sparse_operator_takes_columns_in_any_order_and_stays_float32_under_autocast():
    operator = SparseOperator(sparse.csr_matrix(([2.0, 3.0], [1, 0], [0, 2, 2]), shape=(2, 2)))
    x = torch.tensor([[1.0], [10.0]], dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        product = operator.to(torch.device("cpu")) @ x
    assert product.dtype == torch.float32
    assert product.tolist() == [[23.0], [0.0]]
    product.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [[3.0], [2.0]]


@given(cases, st.integers(0, 99))
@settings(max_examples=40)
def test_norm_is_that_over_all_pairs(case, seed):
    # the usual 1e-5 would blow rounding up where the pairs hardly differ
    norm = random_parameters(WeightedInstanceNorm(WIDTH, eps=0.05), seed)
    assert case.below.share.sum().item() == pytest.approx(1)
    case.agree(
        norm,
        lambda x: norm(x, case.below),
        lambda x: dense_norm(x, norm.weight.double(), norm.bias.double(), norm.eps),
        below=True,
    )


@given(cases, st.integers(0, 99))
@settings(max_examples=20)
def test_channel_attention_gates_each_channel(case, seed):
    channel = random_parameters(ChannelAttention(WIDTH, reduction=2), seed)
    case.agree(channel, channel, lambda x: dense_channel(x, double(channel)), below=True)


@given(cases, st.integers(0, 99))
@settings(max_examples=40)
def test_cross_config_attention_is_a_softmax_over_the_configurations(case, seed):
    cross = CrossConfigAttention()
    torch.nn.init.uniform_(cross.temperature, 0.3, 1.5, generator=torch.Generator().manual_seed(seed))
    case.agree(
        cross,
        lambda x: cross(x, case.below),
        lambda x: dense_cross(x, cross.temperature.double()),
        below=True,
    )


def configured(num_configs):
    """Two nodes without edges; the second has another state in each configuration."""
    codes = np.zeros((num_configs, 1, 3), np.uint8)
    codes[:, 0, 0] = np.arange(num_configs) % 3
    return Case((np.zeros((0, 2), np.int64), 2, np.array([1]), codes), 0)


def test_cross_config_attention_does_not_overflow():
    cross, case = CrossConfigAttention(), configured(3)
    x = (case.x.detach() * 1e4).requires_grad_()
    value = cross(x, case.below)
    value.sum().backward()
    assert value.isfinite().all() and x.grad.isfinite().all() and cross.temperature.grad.isfinite()
