from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.networks.model.layers import (
    ChannelAttention,
    CrossConfigAttention,
    SageConv,
    WeightedInstanceNorm,
)
from fastslow.networks.states.set_statistics import Moments, SoftmaxMean
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


def test_cross_config_attention_starts_at_one_half_and_leaves_a_constant_node_alone():
    cross, case = CrossConfigAttention(), configured(3)
    assert cross.temperature.item() == 0.5
    constant = case.below_table[0, 0]
    assert torch.equal(cross(case.x, case.below)[constant], case.x[constant])
    assert not torch.allclose(cross(case.x, case.below), case.x)


def test_cross_config_attention_does_not_overflow():
    cross, case = CrossConfigAttention(), configured(3)
    x = (case.x.detach() * 1e4).requires_grad_()
    value = cross(x, case.below)
    value.sum().backward()
    assert value.isfinite().all() and x.grad.isfinite().all() and cross.temperature.grad.isfinite()


parts = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(parts, st.integers(0, 99), st.floats(-100, 100))
@settings(max_examples=40)
def test_moments_merge_to_those_of_all_configurations(sizes, seed, offset):
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn((size, 3), generator=generator) * size + offset for size in sizes]

    def moments(x):
        return Moments(len(x), x.mean(0), x.var(0, unbiased=False))

    merged, whole = reduce(Moments.merge, map(moments, values)), moments(torch.cat(values).double())
    assert merged.num_configs == whole.num_configs
    close(merged.mean, whole.mean)
    close(merged.variance, whole.variance, 1e-4)


@given(parts, st.integers(0, 99), st.sampled_from([0.1, 1.0, 1e4]))
@settings(max_examples=40)
def test_softmax_means_merge_to_that_of_all_configurations(sizes, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn((size, 2, 3), generator=generator) * scale for size in sizes]

    def softmax_mean(logits):
        top = logits.amax(0)
        return SoftmaxMean(len(logits), top, (logits - top).exp().mean(0))

    merged, whole = reduce(SoftmaxMean.merge, map(softmax_mean, values)), softmax_mean(torch.cat(values))
    assert merged.num_configs == whole.num_configs
    assert torch.equal(merged.top, whole.top)
    torch.testing.assert_close(merged.mean, whole.mean)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_layers_on_a_gpu_agree_with_those_on_the_cpu():
    case, device = configured(5), torch.device("cuda")
    layers = SageConv(WIDTH, WIDTH), WeightedInstanceNorm(WIDTH), CrossConfigAttention()

    def run(x, below, level):
        sage, norm, cross = (layer.to(x.device) for layer in layers)
        return cross(sage(norm(x, below), level, below), level)

    expected = run(case.x, case.below, case.level).detach()
    value = run(case.x.to(device), case.below.to(device), case.level.to(device))
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-4)
