"""What the dense network of ``test_model.py`` does not show of layers: sparse products, large values."""

from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.model.layers import CrossConfigAttention, Dropout
from fastslow.networks.states.set_statistics import SoftmaxMean
from fastslow.networks.states.sparse import SparseOperator, take_rows
from helpers.networks import all_configs, close, program
from helpers.random_graphs import make_scalers


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
    torch.testing.assert_close(product.double(), torch.from_numpy(dense) @ x.double(), rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad((product.double() * weight).sum(), x)
    close(gradient, torch.from_numpy(dense).T @ weight, 2e-5)


def test_sparse_operator_takes_columns_in_any_order_and_stays_float32_under_autocast():
    operator = SparseOperator(sparse.csr_matrix(([2.0, 3.0], [1, 0], [0, 2, 2]), shape=(2, 2)))
    x = torch.tensor([[1.0], [10.0]], dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        product = operator.to(torch.device("cpu")) @ x
    assert product.dtype == torch.float32
    assert product.tolist() == [[23.0], [0.0]]
    product.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [[3.0], [2.0]]


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=3), st.booleans(), st.integers(0, 99))
@settings(max_examples=30)
def test_taken_rows_are_those_of_an_index_with_their_gradient(rows, shape, autocast, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((rows, 3), generator=generator, requires_grad=True)
    index = torch.randint(rows, shape, generator=generator)
    weight = torch.randn((*shape, 3), generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        taken = take_rows(x, index)
    assert torch.equal(taken, x[index])
    gradients = [torch.autograd.grad((each * weight).sum(), x)[0] for each in (taken, x[index])]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_drops_its_share_and_keeps_the_mean(dtype):
    dropout = Dropout(0.3)
    x = torch.ones((999, 101), dtype=dtype, requires_grad=True)
    assert dropout.eval()(x) is x and Dropout(0.0).train()(x) is x
    torch.manual_seed(0)
    y = dropout.train()(x)
    assert y.dtype == dtype
    dropped = (y == 0).double()
    assert abs(dropped.mean() - 0.3) < 0.01
    places = dropped.flatten()[: 4 * (dropped.numel() // 4)].view(-1, 4)  # the four values of a drawn word
    correlation = torch.corrcoef(places.T) - torch.eye(4)
    assert (abs(places.mean(0) - 0.3) < 0.01).all() and (abs(correlation) < 0.03).all()
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.7), rtol=1e-2, atol=0)
    y.double().sum().backward()
    assert torch.equal(x.grad, y.detach())
    torch.manual_seed(0)
    assert torch.equal(dropout(x), y)


def test_cross_config_attention_does_not_overflow():
    cross, graph = CrossConfigAttention(), program()
    level = PreparedGraph(graph, *make_scalers(graph)).batch(all_configs(graph), 1).levels[1]
    x = (1e4 * torch.randn(len(level.node_ids), 5)).requires_grad_()
    value = cross(x, level)
    value.sum().backward()
    assert value.isfinite().all() and x.grad.isfinite().all() and cross.temperature.grad.isfinite()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99), st.sampled_from([1.0, 1e4]))
@settings(max_examples=30)
def test_softmax_means_merge_to_that_of_all_configurations_and_do_not_overflow(sizes, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn((size, 2, 3), generator=generator) * scale for size in sizes]

    def softmax_mean(logits):
        top = logits.amax(0)
        return SoftmaxMean(len(logits), top, (logits - top).exp().mean(0))

    merged, whole = reduce(SoftmaxMean.merge, map(softmax_mean, values)), softmax_mean(torch.cat(values))
    assert torch.equal(merged.top, whole.top)
    torch.testing.assert_close(merged.mean, whole.mean)
