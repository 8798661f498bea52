import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.networks.model.graph_batch import PreparedGraph, message_edges
from fastslow.networks.segments.training import KEEP, SegmentTraining
from fastslow.networks.settings.segments import BORDERS, CUT, HALO
from fastslow.steps.network_settings import TrainSettings
from helpers.cases import cases
from helpers.dense_reference import dense_head, dense_states
from helpers.networks import all_configs, close, make_network
from helpers.random_graphs import make_graph, make_scalers, structures

LOCAL = ("sage", "sage_sum", "gcn", "mlp_gcn")
graphs = st.builds(make_graph, structures(min_nodes=2, max_nodes=9), st.integers(0, 99))
networks = st.builds(
    make_network,
    st.integers(0, 3),
    st.booleans(),
    seed=st.integers(0, 99),
    convolution=st.sampled_from(LOCAL),
    readout=st.sampled_from(["sum", "mean", "sum+mean+sum@configurable"]),
)
with_maximum = st.builds(make_network, st.integers(0, 3), readout=st.just("max+mean"))
plain_networks = st.builds(make_network, st.integers(0, 3), st.booleans(), seed=st.integers(0, 99))
borders = st.sampled_from((HALO, CUT))


class OneGraph:
    """A dataset of one graph in train."""

    def __init__(self, graph, num_layers):
        self.device, self.num_layers, self.memory = torch.device("cpu"), num_layers, 1 << 30
        self.prepared = PreparedGraph(graph, *make_scalers(graph))

    def graph(self, split, name):
        return self.prepared

    def batch(self, split, name, configs, edges=None):
        return self.prepared.batch(configs, self.num_layers, edges)


def make_segments(network, graph, **given):
    """A training on segments of one graph."""
    settings = TrainSettings(num_layers=network.num_layers, **{"segment_nodes": 3, **given})
    return SegmentTraining(settings, OneGraph(graph, network.num_layers), network)


def gradients(network, prediction):
    """Gradients of a sum that weighs every configuration differently."""
    weights = torch.linspace(-1, 1, len(prediction), dtype=prediction.dtype)
    found = torch.autograd.grad(
        (weights * prediction).sum(), [*network.parameters()], allow_unused=True, retain_graph=True
    )
    zeros = [torch.zeros_like(p) for p in network.parameters()]
    return torch.cat([(z if g is None else g).flatten().double() for g, z in zip(found, zeros, strict=True)])


def live_nodes(segments, example):
    return torch.from_numpy(example.graph.part == example.live)


def dense(network, graph, segments, example, alone=False):
    """Predictions of the dense form, of the whole graph or of the live segments alone."""
    border = segments.options.segment_border
    live = live_nodes(segments, example)
    inside = example.graph.edges_inside() if border == CUT else np.ones(len(message_edges(graph)), bool)
    counted = live if alone else torch.ones_like(live)
    scaler, config_scaler = make_scalers(graph)
    x = dense_states(network, graph, scaler, example.configs, inside, live, counted)
    if alone:
        sums = x[:, live].sum(1) * example.graph.num_segments
    else:
        sums = torch.where(live[:, None], x, x.detach()).sum(1)
    return dense_head(network, graph, config_scaler, example.configs, sums)


def equal(network, value, reference):
    close(value, reference, 2e-5)
    close(gradients(network, value), gradients(network, reference), 2e-4)


@given(plain_networks, graphs, borders, st.integers(0, 9))
@settings(max_examples=8)
def test_gst_equals_the_dense_graph_with_all_but_the_live_nodes_detached(network, graph, border, seed):
    segments = make_segments(network, graph, segment_training="gst", segment_border=border)
    example = segments.example("graph", all_configs(graph)[::-1].copy(), seed)
    equal(network, segments(example), dense(network, graph, segments, example))


@given(plain_networks, graphs, borders, st.integers(0, 9))
@settings(max_examples=8)
def test_one_equals_the_dense_live_nodes_alone(network, graph, border, seed):
    segments = make_segments(network, graph, segment_training="one", segment_border=border)
    example = segments.example("graph", all_configs(graph), seed)
    equal(network, segments(example), dense(network, graph, segments, example, alone=True))


@given(networks, graphs, st.integers(0, 9))
@settings(max_examples=8)
def test_with_halo_the_predictions_are_those_of_the_whole_graph(network, graph, seed):
    segments = make_segments(network, graph, segment_training="gst")
    configs = all_configs(graph)
    whole = network(PreparedGraph(graph, *make_scalers(graph)).batch(configs, network.num_layers))
    close(segments(segments.example("graph", configs, seed)), whole.detach(), 2e-5)


@given(networks, graphs)
@settings(max_examples=8)
def test_of_a_single_segment_the_gradients_are_those_of_the_whole_graph(network, graph):
    segments = make_segments(network, graph, segment_training="gst", segment_nodes=99)
    configs = all_configs(graph)
    whole = network(PreparedGraph(graph, *make_scalers(graph)).batch(configs, network.num_layers))
    equal(network, segments(segments.example("graph", configs, 0)), whole)


@given(plain_networks | with_maximum, graphs, st.integers(0, 9))
@settings(max_examples=8)
def test_edges_are_those_within_the_live_segments(network, graph, seed):
    segments = make_segments(network, graph, segment_training="edges")
    part = segments.graph("graph").part
    live = np.random.default_rng(seed).choice(part.max() + 1, 1)
    kept = (part[message_edges(graph)] == live).all(1)
    batch = PreparedGraph(graph, *make_scalers(graph)).batch(all_configs(graph), network.num_layers, kept)
    value = segments(segments.example("graph", all_configs(graph), seed))
    close(value, network(batch).detach(), 1e-6)


def step(segments, graph, seed, configs=None):
    segments.begin(0)
    configs = all_configs(graph) if configs is None else configs
    return segments(segments.example("graph", configs, seed)).detach()


def sweep(segments, graph):
    """Learn from each segment, one after the other."""
    count, seen, seed = segments.graph("graph").num_segments, set(), 0
    while len(seen) < count:
        live = segments.example("graph", all_configs(graph), seed).live
        if live not in seen:
            seen.add(live)
            value = step(segments, graph, seed)
        seed += 1
    return value


@given(plain_networks, graphs)
@settings(max_examples=5)
def test_the_table_of_weights_that_rest_gives_the_whole_graph(network, graph):
    """A sweep for the moments of each layer, and one for the sums."""
    segments = make_segments(network, graph, segment_training="gst+e")
    for _ in range(network.num_layers + 2):
        value = sweep(segments, graph)
    whole = network(PreparedGraph(graph, *make_scalers(graph)).batch(all_configs(graph), network.num_layers))
    close(value, whole.detach(), 2e-5)


@pytest.mark.parametrize("variant", ["gst+e", "gst+ed"])
@given(network=plain_networks, graph=graphs, seed=st.integers(0, 9))
@settings(max_examples=6)
def test_segments_that_were_never_written_count_as_left_out(variant, network, graph, seed):
    """The first step sees its own segment alone."""
    one, table = (make_segments(network, graph, segment_training=name) for name in ("one", variant))
    value = step(table, graph, seed)
    close(value, step(one, graph, seed), 1e-5)


def ring(num_nodes=12, num_configs=6):
    """A layout graph on a ring; three configurable nodes, whose choices are free."""
    nodes = np.arange(num_nodes)
    codes = np.random.default_rng(3).integers(0, 3, (num_configs, 3, 3)).astype(np.uint8)
    return make_graph(
        (np.stack([nodes, (nodes + 1) % num_nodes], 1), num_nodes, nodes[:: num_nodes // 3], codes)
    )


def test_a_configuration_that_was_never_written_weighs_the_live_segment_more():
    network, graph = make_network(1), ring()
    segments = make_segments(network, graph, segment_training="gst+e", segment_border=CUT)
    divided = segments.graph("graph")
    for number in range(40):
        step(segments, graph, number, np.array([0, 1, 2]))
    example = segments.example("graph", np.array([1, 2, 3]), 0)
    table, rows = segments.tables["graph"], divided.rows(CUT, example.configs)
    others = np.setdiff1d(np.arange(4), example.live)
    written = table.written[rows[others]]
    assert written[:, :2].all() and not written.all()
    live_sums = torch.randn(3, network.head.readout.channels, dtype=torch.float64)
    stored = np.zeros(live_sums.shape)
    for segment, there in zip(others, written, strict=True):
        stored += np.where(there[:, None], table.sums[rows[segment]], 0)
    weight = torch.from_numpy(1 + 3 - written.sum(0))[:, None]
    wanted = weight * live_sums + torch.from_numpy(stored)
    found = segments._add_stored(example, live_sums, torch.zeros(1, 2, 8))
    torch.testing.assert_close(found, wanted)


def test_left_out_segments_weigh_the_live_one_as_published():
    """The mean over the draws of the weight is p + (1 - p) J; what is left out adds nothing."""
    network, graph = make_network(0), ring()
    segments = make_segments(network, graph, segment_training="gst+ed")
    for number in range(40):
        step(segments, graph, number)
    kept = KEEP
    count = segments.graph("graph").num_segments
    weights = []
    for seed in range(200):
        example = segments.example("graph", all_configs(graph), seed)
        left_out = ~example.kept
        left_out[example.live] = False
        weights.append(1 + left_out.sum())
    assert np.mean(weights) == pytest.approx(kept + (1 - kept) * count, abs=0.1)
    example = segments.example("graph", all_configs(graph), 1)
    table = segments.tables["graph"]
    used = example.kept.copy()
    used[example.live] = False
    live_sums = torch.randn(6, network.head.readout.channels, dtype=torch.float64)
    rows = segments.graph("graph").rows(HALO, all_configs(graph))
    stored = sum((table.sums[rows[j]] for j in np.flatnonzero(used)), 0)
    wanted = live_sums * (count - used.sum()) + torch.as_tensor(stored)
    torch.testing.assert_close(
        segments._add_stored(example, live_sums, torch.zeros(0, 2, 1)), wanted, rtol=1e-5, atol=1e-5
    )


def test_the_table_has_a_row_for_each_distinct_state_of_a_segment():
    """Configurations that agree on what a segment sees share its row, others do not."""
    network, graph = make_network(1), ring(num_configs=30)
    segments = make_segments(network, graph, segment_training="gst+e", segment_border=CUT)
    divided = segments.graph("graph")
    rows = divided.rows(CUT, all_configs(graph))
    assert {*rows.ravel().tolist()} == {*range(len(divided.states(CUT)))}
    codes = graph.choices.layout_codes()
    for segment in range(divided.num_segments):
        nodes = divided.part[graph.config_index] == segment
        distinct = np.unique(codes[:, nodes].reshape(len(codes), -1), axis=0, return_inverse=True)[1]
        pairs = {*zip(distinct.ravel().tolist(), rows[segment].tolist(), strict=True)}
        assert len(pairs) == distinct.max() + 1 == len(np.unique(rows[segment]))
    assert len(divided.states(CUT)) < 4 * 30


def test_a_step_holds_its_segment_and_halo_alone():
    network = make_network(2)
    small, large = (
        make_segments(network, ring(size), segment_training="gst+e", segment_nodes=4) for size in (24, 240)
    )
    sizes = [len(segments.example("graph", np.arange(6), 0).batch.numeric) for segments in (small, large)]
    assert sizes == [8, 8]  # two nodes of halo on each side


@cases("border", BORDERS)
def test_dropout_is_that_of_the_live_segments_alone(border):
    """Others are computed without: their sums are the same again, and the network is left in training."""
    network, graph = make_network(2, dropout=0.5).train(), ring()
    segments = make_segments(network, graph, segment_training="gst", segment_border=border)
    example = segments.example("graph", all_configs(graph), 0)
    torch.manual_seed(0)
    one = segments(example)
    torch.manual_seed(0)
    again = segments(example)
    assert torch.equal(one, again) and all(module.training for module in network.modules())
    assert not torch.equal(one, segments(example))
