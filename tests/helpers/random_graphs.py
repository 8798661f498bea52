"""Small random graphs: edges in any pattern without parallels and self-loops, configurations with repeats."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, MAX_DIMENSION, ROLES
from fastslow.competition.schema import NODE_FEATURES
from fastslow.competition.tied_choices import Choices
from fastslow.features.graph import Graph
from fastslow.features.nodes.node_encodings import EXTRA_COLUMNS
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from helpers.factorised import factorise

NUM_LAYOUTS = 3


@st.composite
def structures(draw, min_nodes=1, max_nodes=7, max_configs=6):
    """(edge_index, N, config_index, codes): cycles, isolated nodes, K = 0 and C = 1 among them.

    ``config_index`` is in any order, and few codes on few nodes make equal configurations likely. In some all
    tensors are free, in others most follow a few, under other codes.
    """
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    pairs = [(u, v) for u in range(num_nodes) for v in range(num_nodes) if u != v]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    num_configurable = draw(st.integers(0, num_nodes))
    config_index = draw(st.permutations(range(num_nodes)))[:num_configurable]
    num_configs = draw(st.integers(1, max_configs))
    code = st.integers(0, NUM_LAYOUTS - 1)
    size = num_configs * num_configurable * len(ROLES)
    codes = np.array(draw(st.lists(code, min_size=size, max_size=size)), np.uint8)
    codes = codes.reshape(num_configs, size // num_configs)
    if size and draw(st.booleans()):
        columns = np.arange(codes.shape[1])
        codes = (codes[:, columns % draw(st.integers(1, 3))] + columns // 3) % NUM_LAYOUTS
    return (
        np.array(edges, np.int64).reshape(-1, 2),
        num_nodes,
        np.array(config_index, np.int64),
        codes.astype(np.uint8).reshape(num_configs, num_configurable, len(ROLES)),
    )


def make_graph(structure, seed: int = 0) -> Graph:
    """A graph of that structure with random features."""
    edge_index, num_nodes, config_index, codes = structure
    rng = np.random.default_rng(seed)
    node_feat = rng.normal(size=(num_nodes, NODE_FEATURES)).astype(np.float32)
    node_feat[:, node_columns.LAYOUT] = rng.integers(-1, MAX_DIMENSION + 1, (num_nodes, LAYOUT_WIDTH))
    # each names some axes once, the first none, as in the files
    layouts = rng.permuted(np.tile(np.arange(LAYOUT_WIDTH, dtype=np.int8), (NUM_LAYOUTS, 1)), axis=1)
    layouts[np.arange(LAYOUT_WIDTH) >= np.array([0, 2, LAYOUT_WIDTH])[:, None]] = -1
    num_configs = len(codes)
    pairs, pair_axes = _pairs(rng, len(config_index))
    return Graph(
        name="random",
        node_feat=node_feat,
        node_extra=np.full((num_nodes, len(EXTRA_COLUMNS)), 0.5, np.float32),
        node_opcode=rng.integers(1, 121, num_nodes).astype(np.uint8),
        edge_index=edge_index.astype(np.int32),
        config_index=config_index.astype(np.int32),
        layouts=layouts,
        default_layouts=layouts[rng.integers(0, NUM_LAYOUTS, (len(config_index), len(ROLES)))],
        tensor_sizes=_tensor_sizes(rng, len(config_index)),
        tensor_bytes=rng.integers(1, 9, (len(config_index), len(ROLES))).astype(np.uint8),
        pairs=pairs,
        pair_axes=pair_axes,
        choices=factorise(codes),
        config_feat=rng.normal(size=(num_configs, 3)).astype(np.float32),
        runtime=(runtime := rng.integers(1, 9, num_configs).astype(np.float64)),
        config_row=np.arange(num_configs, dtype=np.int32),
        file_runtime=runtime,
    )


def graph_of_tensors(
    sizes: np.ndarray, element_bytes: np.ndarray, layouts: np.ndarray, choices: Choices
) -> Graph:
    """A graph of configurable nodes, without edges, whose tensors ``(K, 3)`` these are."""
    num_nodes, num_configs = len(sizes), len(choices)
    config_index = np.arange(num_nodes)
    codes = np.zeros((num_configs, num_nodes, len(ROLES)), np.uint8)
    return replace(
        make_graph((np.zeros((0, 2)), num_nodes, config_index, codes)),
        tensor_sizes=np.asarray(sizes, np.int32),
        tensor_bytes=np.asarray(element_bytes, np.uint8),
        layouts=layouts,
        default_layouts=np.full((num_nodes, len(ROLES), LAYOUT_WIDTH), -1, np.int8),
        choices=choices,
    )


def _tensor_sizes(rng: np.random.Generator, num_rows: int) -> np.ndarray:
    """(K, 3, 6) sizes of tensors of rank 0 to 6; one of rank 0 is none."""
    sizes = rng.integers(1, 300, (num_rows, len(ROLES), LAYOUT_WIDTH))
    rank = rng.integers(0, LAYOUT_WIDTH + 1, (num_rows, len(ROLES), 1))
    return np.where(np.arange(LAYOUT_WIDTH) < rank, sizes, 0).astype(np.int32)


def _pairs(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to four pairs of a node's output and another one's input or kernel, axes in any order."""
    count = int(rng.integers(0, 5)) if num_rows else 0
    pairs = np.column_stack([rng.integers(0, max(1, num_rows), (count, 2)), rng.integers(1, 3, count)])
    axes = rng.permuted(np.tile(np.arange(LAYOUT_WIDTH, dtype=np.int8), (count, 1)), axis=1)
    return pairs.astype(np.int32), axes


def make_scalers(graph: Graph) -> tuple[Scaler, Scaler]:
    """A node scaler that keeps four columns, and a scaler of all configuration features."""
    node = np.zeros(EXPANDED_NODE_FEATURES)
    node[[2, 21, 28, 140]] = 1.0, 0.7, 2.0, 1.0
    width = graph.config_feat.shape[1]
    return Scaler(node / 3, node), Scaler(np.full(width, 0.1), np.full(width, 1.5))
