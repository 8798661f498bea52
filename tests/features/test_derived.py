"""Values that models share while a graph is in memory."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.features.graph import derived
from fastslow.networks.model.graph_batch import PreparedGraph
from helpers.random_graphs import make_graph, make_scalers, structures


def test_a_value_is_made_once_per_graph_and_key():
    graph, made = make_graph((np.zeros((0, 2), int), 1, np.zeros(0, int), np.zeros((1, 0, 3), int))), []

    def make():
        made.append(len(made))
        return made[-1]

    assert [derived(graph, key, make) for key in ("a", "b", "a")] == [0, 1, 0]
    assert derived(replace(graph), "a", make) == 2, "a copy of a graph is another graph"


@given(structures(), st.integers(0, 100))
@settings(max_examples=12)
def test_networks_of_other_settings_do_not_take_each_others_reach(structure, seed):
    shared = make_graph(structure, seed)
    scalers = make_scalers(shared)
    for options in ({}, {"pair_edges": False}, {"whole_graph": True}, {"joins_nodes": True}):
        for layers in (1, 2):
            graphs = shared, make_graph(structure, seed)
            reused, fresh = (
                PreparedGraph(graph, *scalers, **options).states(np.arange(shared.num_configs), layers)
                for graph in graphs
            )
            for one, other in zip(reused, fresh, strict=True):
                np.testing.assert_array_equal(one.set_index, other.set_index)
                np.testing.assert_array_equal(one.itself, other.itself)
