from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastslow.competition.tied_choices import factorise
from fastslow.networks.config_states import build_states
from fastslow.networks.graph_batch import PreparedGraph, message_edges
from fastslow.networks.layers import ChannelAttention, CrossConfigAttention, SageConv, WeightedInstanceNorm
from fastslow.networks.set_statistics import Moments, SoftmaxMean
from fastslow.networks.sparse import SparseOperator
from helpers.dense_reference import dense_channel, dense_cross, dense_norm, dense_sage, state_table
from helpers.random_graphs import make_graph, make_scalers, structures

torch.set_num_threads(1)
WIDTH = 5


def close(value, reference, tolerance=2e-5):
    """Equal to float32 rounding, relative to the largest magnitude of the reference."""
    scale = max(1.0, float(reference.detach().abs().max()) if reference.numel() else 1.0)
    torch.testing.assert_close(value.double(), reference, rtol=0, atol=tolerance * scale)


def random_parameters(module, seed):
    """Fill a module with random parameters, so that none is at a value that hides it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


class Case:
    """Random features of the states of level 1, and the tensors of levels 1 and 2."""

    def __init__(self, structure, seed):
        graph = make_graph(structure)
        if not len(structure[0]):
            graph = replace(graph, pairs=graph.pairs[:0])  # a graph without edges stays one
        self.structure = structure = (message_edges(graph), *structure[1:])
        batch = PreparedGraph(graph, *make_scalers(graph)).batch(np.arange(len(structure[3])), 2)
        self.below, self.level = batch.levels[1], batch.levels[2]
        edge_index, num_nodes, config_index, codes = structure
        # PreparedGraph lets one configuration stand for all where nothing is configurable
        codes = codes if codes.shape[1] else codes[:1]
        known = edge_index, num_nodes, config_index, factorise(codes)
        tables = [state_table(build_states(*known, depth)) for depth in (1, 2)]
        self.below_table, self.table = (torch.from_numpy(table) for table in tables)
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn((len(self.below.node_ids), WIDTH), generator=generator, requires_grad=True)

    def agree(self, module, sparse_form, dense_form, below=False):
        """Values and gradients (of the input and of every parameter) of both forms agree on all pairs."""
        table = self.below_table if below else self.table
        value, reference = sparse_form(self.x)[table], dense_form(self.x.double()[self.below_table])
        close(value, reference)
        weight = torch.sin(torch.arange(reference.numel(), dtype=torch.float64)).reshape(reference.shape)
        wanted = [self.x, *module.parameters()]
        gradients = torch.autograd.grad((value.double() * weight).sum(), wanted, allow_unused=True)
        references = torch.autograd.grad((reference * weight).sum(), wanted, allow_unused=True)
        for gradient, expected in zip(gradients, references, strict=True):
            assert (gradient is None) == (expected is None)
            if gradient is not None:
                close(gradient, expected.double(), tolerance=1e-4)


cases = st.builds(Case, structures(min_nodes=2), st.integers(0, 1000))


def double(module):
    return {name: parameter.double() for name, parameter in module.named_parameters()}


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=40, deadline=None)
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


def test_norm_keeps_a_channel_of_small_variance_finite():
    norm = WeightedInstanceNorm(2)
    # one node; three of four configurations give it its second state
    codes = np.zeros((4, 1, 3), np.uint8)
    codes[1:] = 1
    level = Case((np.zeros((0, 2), np.int64), 1, np.array([0]), codes), 0).level
    assert sorted(level.share.flatten().tolist()) == [0.25, 0.75]
    rare = level.share == 0.25
    y = norm(torch.where(rare, torch.tensor([[3.0, 1.0]]), torch.tensor([[3.0, 2.0]])), level)
    y = y if rare[0] else y.flip(0)
    # second channel: mean 1.75, variance 3 / 16
    wanted = torch.tensor([[0.0, -0.75], [0.0, 0.25]]) / (3 / 16 + 1e-5) ** 0.5
    torch.testing.assert_close(y, wanted)


@given(cases, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_sage_is_the_mean_over_operands_and_users_of_each_pair(case, seed):
    sage = random_parameters(SageConv(WIDTH, 4), seed)
    case.agree(sage, lambda x: sage(x, case.level), lambda x: dense_sage(x, case.structure[0], double(sage)))


def test_sage_gives_a_node_without_neighbours_its_own_part_alone():
    structure = np.zeros((0, 2), np.int64), 2, np.array([1]), np.array([[[0, 0, 0]], [[1, 0, 0]]], np.uint8)
    case, sage = Case(structure, 0), SageConv(WIDTH, 4)
    assert not len(case.structure[0])
    torch.testing.assert_close(sage(case.x, case.level), sage.own(case.x)[case.level.own])


@given(cases, st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_channel_attention_gates_each_channel(case, seed):
    channel = random_parameters(ChannelAttention(WIDTH, reduction=2), seed)
    case.agree(channel, channel, lambda x: dense_channel(x, double(channel)), below=True)


@given(cases, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=40, deadline=None)
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
        return cross(sage(norm(x, below), level), level)

    expected = run(case.x, case.below, case.level).detach()
    value = run(case.x.to(device), case.below.to(device), case.level.to(device))
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-4)
