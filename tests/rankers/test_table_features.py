"""The ranker's table: against plain pandas, blind to order and frequency of configurations, and sampled."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE
from fastslow.core.settings import PROJECT
from fastslow.features.build import build_graph
from fastslow.rankers import table
from fastslow.rankers.table import physical_sums, read_table, read_tables, tabulate
from fastslow.steps.features import FeatureSettings
from helpers import ranker_pandas
from helpers.cases import cases
from helpers.random_graphs import make_graph, structures
from helpers.runs import make_features

SAMPLE = sorted((PROJECT / "data" / "sample").glob("npz_all/npz/layout/*/random/train/*.npz"))[::40]


def sample_graph(path):
    collection = get_collection(f"layout:{path.parts[-4]}:{path.parts[-3]}")
    return build_graph(ProgramFile(collection, "train", path), FeatureSettings(collection=collection.name))


def assert_as_pandas(graph):
    values, names = physical_sums(graph)
    wanted = ranker_pandas.physical_sums(graph)
    assert set(wanted) <= set(names) and len(set(names)) == len(names)
    wanted = wanted.reindex(columns=names, fill_value=0.0)
    np.testing.assert_allclose(values, wanted.to_numpy(), rtol=2e-6, atol=1e-5)


@cases("path", SAMPLE)
def test_sums_are_those_of_pandas_on_sample_programs(path):
    graph, _ = sample_graph(path)
    assert_as_pandas(graph.take(slice(0, 6)))


def random_layout_graph(structure, seed):
    """A random graph whose configurable nodes are of configurable kinds with axes that exist."""
    graph = make_graph(structure, seed)
    rng = np.random.default_rng(seed)
    opcodes, feat = graph.node_opcode.copy(), graph.node_feat.copy()
    opcodes[graph.config_index] = rng.choice([CONVOLUTION, DOT, RESHAPE], len(graph.config_index))
    feat[:, node_columns.INPUT_BATCH : node_columns.OUTPUT_FEATURE + 1] = rng.integers(
        0, 6, (len(feat), node_columns.OUTPUT_FEATURE + 1 - node_columns.INPUT_BATCH)
    )
    # every tensor has six dimensions, so that all axes exist, or none; a reshape keeps its elements
    kind, sizes = opcodes[graph.config_index], 1 + graph.tensor_sizes % 5
    sizes *= graph.tensor_sizes[..., :1] > 0
    sizes[kind == RESHAPE, 1] = sizes[kind == RESHAPE, 0][:, rng.permutation(6)]
    sizes[kind == RESHAPE, 2] = 0
    known = (sizes[graph.pairs[:, 1], graph.pairs[:, 2], 0] > 0) & (sizes[graph.pairs[:, 0], 0, 0] > 0)
    return dataclasses.replace(
        graph,
        node_feat=feat,
        node_opcode=opcodes,
        tensor_sizes=sizes,
        pairs=graph.pairs[known],
        pair_axes=graph.pair_axes[known],
    )


@given(structures(), st.integers(0, 10**6))
@settings(max_examples=20)
def test_sums_are_those_of_pandas_on_random_graphs(structure, seed):
    assert_as_pandas(random_layout_graph(structure, seed))


def test_the_table_against_its_definition():
    graph, config_columns = sample_graph(SAMPLE[0])
    table, names = tabulate(graph, "layout", config_columns)
    assert table.shape == (graph.num_configs, len(names)) and table.dtype == np.float32
    assert len(set(names)) == len(names)
    place = {name: i for i, name in enumerate(names)}
    sums, sum_names = physical_sums(graph)
    varying = np.concatenate([graph.config_feat, sums], 1)
    for i, name in enumerate([*config_columns, *sum_names]):
        np.testing.assert_array_equal(table[:, place[name]], varying[:, i])
        above = varying[:, i] - varying[:, i].min()
        np.testing.assert_array_equal(table[:, place[f"{name}_above_least"]], above)
    row = {name: table[2, i] for name, i in place.items()}
    assert row["graph_nodes_log"] == pytest.approx(math.log1p(graph.num_nodes))
    assert row["graph_edges_log"] == pytest.approx(math.log1p(len(graph.edge_index)))
    for name, opcode in OPCODES.items():
        count = sum(graph.node_opcode == opcode)
        assert row[f"graph_count_{name}_log"] == pytest.approx(math.log1p(count))
    assert row["graph_pairs_log"] == pytest.approx(math.log1p(len(graph.pairs)))
    nodes = sum(graph.node_opcode[graph.config_index] == CONVOLUTION)
    assert row["graph_configurable_convolution_log"] == pytest.approx(math.log1p(nodes))


def test_the_root_gives_the_sizes_of_the_output():
    graph, _ = sample_graph(SAMPLE[0])
    node_feat = graph.node_feat.copy()
    node_feat[:, node_columns.IS_ROOT] = 0
    node_feat[[1, 3], node_columns.IS_ROOT] = 1  # a called computation's root, then the program's
    node_feat[3, node_columns.SHAPE] = [7, 3, -1, -1, -1, -1]  # padded
    values, names = table.context_features(dataclasses.replace(graph, node_feat=node_feat), "layout")
    row = dict(zip(names, values, strict=True))
    sizes = [row[f"graph_output_size_{d}_log"] for d in range(6)]
    np.testing.assert_allclose(sizes, [math.log(8), math.log(4), 0, 0, 0, 0], rtol=1e-6)


@given(data=st.data())
@settings(max_examples=5)
def test_a_row_knows_neither_order_nor_frequency_of_the_others(data):
    graph, config_columns = sample_graph(SAMPLE[0])
    table, _ = tabulate(graph, "layout", config_columns)
    rows = st.lists(st.integers(0, graph.num_configs - 1), max_size=12)
    drawn = np.array(data.draw(st.permutations([*range(graph.num_configs), *data.draw(rows)])))
    again, _ = tabulate(graph.take(drawn), "layout", config_columns)
    np.testing.assert_array_equal(again, table[drawn])


COLLECTIONS = {"layout": "layout:xla:random", "tile": "tile:xla"}


@pytest.fixture(scope="module", params=COLLECTIONS)
def features(request, tmp_path_factory):
    names = {"train": ("a", "b", "c")}
    place = tmp_path_factory.mktemp("table")
    return make_features(place, COLLECTIONS[request.param], names, merge_duplicates=False)


def test_rows_of_a_sample_are_those_of_the_whole_table(features):
    kind = features.collection.kind
    graph = features.graph("train", "b")
    whole, names = tabulate(graph, kind, features.config_columns)
    rows = np.array([3, 0, 3])
    part, part_names = tabulate(graph, kind, features.config_columns, rows)
    np.testing.assert_array_equal(part, whole[rows])
    assert part_names == names


def test_samples_of_one_pass_are_those_of_one_pass_each(features, monkeypatch):
    read = []
    graph = features.graph
    monkeypatch.setattr(features, "graph", lambda split, name: read.append(name) or graph(split, name))
    together = read_tables({"": features}, "train", ["c", "a"], [3, 2, None], seed=7)
    assert read == ["c", "a"]
    for most, sampled_table in zip((3, 2, None), together, strict=True):
        alone = read_table(features, "train", ["c", "a"], max_configs=most, seed=7)
        assert (sampled_table.names, sampled_table.columns) == (["c", "a"], alone.columns)
        for part, wanted in zip(
            (*sampled_table.rows, *sampled_table.runtimes), (*alone.rows, *alone.runtimes), strict=True
        ):
            np.testing.assert_array_equal(part, wanted)
