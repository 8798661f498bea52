"""Feature building: from competition files to graphs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Ge, Le

from fastslow.competition.catalog import LABELLED_SPLITS, ProgramFile
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.tied_choices import distinct_rows, no_choices
from fastslow.core.errors import DataError, check_options
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.configs.copies import COPIES_THROUGH, copy_features, copy_pairs
from fastslow.features.configs.default_layouts import find_default_layouts
from fastslow.features.configs.tile_bounds import tile_features
from fastslow.features.configs.violation import violation_features
from fastslow.features.graph import Graph, GraphSet
from fastslow.features.nodes.node_encodings import WHOLE_GRAPH, hop_distance, node_extras, pad
from fastslow.features.nodes.protobuf import read_exact_graph


@dataclass(frozen=True)
class GraphOptions:
    """How the graph of a program is built."""

    padding: Literal[-1, 0] = -1
    """Value after the end of a list feature: -1 distinguishes padding from a true 0, 0 is as published."""
    merge_duplicates: bool = True
    """Merge a graph's equal configurations, in every split; their train label is the mean of the runtimes."""
    hops: Annotated[int, Ge(WHOLE_GRAPH), Le(1000)] = 2
    """Layout only. Keep nodes within this many hops of a configurable node; -1 keeps the whole graph. More
    hops show the model more of the program and cost time."""
    compiler_defaults: bool = True
    """Layout only. Compare each layout with the compiler's own. The commonest layout of the ``default`` file
    is taken for it, also in the program's ``random`` file; False leaves these columns 0."""

    def __post_init__(self) -> None:
        check_options(self)


def prune(
    edge_index: np.ndarray, num_nodes: int, node_config_ids: np.ndarray, hops: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prune a graph to the configurable nodes ``(K,)`` and every node within ``hops`` of one.

    The 1st place of the competition used one hop (13,502 nodes became 2,143 on average), the 16th three, the
    6th five. A hop goes along an edge in either direction; ``hops`` may be ``WHOLE_GRAPH``.

    Returns:
        ``(N',)`` nodes that are kept, increasing. ``(E', 2)`` edges between them and ``(K,)`` configurable
        nodes, in the order given, by positions among these nodes. All are int64.
    """
    both_ways = np.concatenate([edge_index, edge_index[:, ::-1]])
    distance = hop_distance(both_ways, num_nodes, node_config_ids, hops)
    kept = np.ones(num_nodes, bool) if hops == WHOLE_GRAPH else distance >= 0
    number = np.cumsum(kept) - 1
    inside = kept[edge_index].all(1)
    return np.flatnonzero(kept), number[edge_index[inside]], number[node_config_ids]


def merge_duplicates(graph: Graph) -> Graph:
    """Merge identical configurations: keep the first of each, with the mean runtime, in order of occurrence.

    Identical means equal choices (layout) or equal features (tile). How often a configuration occurs in a
    file is a trace of the search that made the data. Statistics over a graph's configurations (normalisation,
    cross-config attention) would weigh by it.
    """
    if len(graph.config_index):
        _, kind = distinct_rows(graph.choices.values.T, graph.num_configs)
    else:
        kind = np.array([row.tobytes() for row in graph.config_feat + 0], object)  # + 0 turns -0.0 into 0.0
    group, _ = pd.factorize(kind)
    _, kept, count = np.unique(group, return_index=True, return_counts=True)
    return replace(
        graph,
        choices=graph.choices.take(kept),
        config_feat=graph.config_feat[kept],
        runtime=np.bincount(group, graph.runtime) / count,
        config_row=group.astype(np.int32),
    )


def build_graph(file: ProgramFile, options: GraphOptions) -> tuple[Graph, list[str]]:
    """Read a program from its npz file and build its graph; result as of :func:`graph_of`.

    Raises:
        DataError: The file is broken; the message names the key.
    """
    return graph_of(read_npz(file, file.split in LABELLED_SPLITS), options)


def build_graphs(files: Iterable[ProgramFile], options: GraphOptions = GraphOptions()) -> GraphSet:
    """Build the graphs of one collection's files, of any splits, in memory.

    Raises:
        DataError: A file is broken, of another collection than the first, or has another's name; or there
            is none.
    """
    graphs: dict[str, list[Graph]] = {}
    paths: dict[tuple[str, str], Path] = {}
    columns: list[str] = []
    collection = None
    for file in files:
        collection = collection or file.collection
        if file.collection != collection:
            problem = f"belongs to {file.collection.name}, the files before it to {collection.name}"
            raise DataError(file.path, problem, "Build the graphs of each collection with its own call")
        if (other := paths.setdefault((file.split, file.name), file.path)) != file.path:
            raise DataError(file.path, f"has the same name as {other} of this split", "Rename one of them")
        graph, columns = build_graph(file, options)
        graphs.setdefault(file.split, []).append(graph)
    if collection is None:
        raise DataError("build_graphs", "files is empty", "Pass the list that list_programs returns")
    return GraphSet(collection, graphs, columns)


def graph_of(
    program: Program, options: GraphOptions = GraphOptions(), protobuf: Path | None = None
) -> tuple[Graph, list[str]]:
    """Build the features of one program.

    A tile kernel is built as a layout program without configurable nodes that is kept whole.

    Args:
        program: The program with its configurations.
        options: How its graph is built.
        protobuf: TpuGraphs' protobuf of the program, for exact padding and the exact order of operands.

    Returns:
        The graph and the V names of its ``config_feat`` columns.

    Raises:
        DataError: Its protobuf belongs to another program, or the file with its default layouts is broken.
    """
    exact = read_exact_graph(protobuf, program) if protobuf else None
    operands = exact.operands if exact else program.operands
    is_layout = program.collection.kind == "layout"
    configurable = program.node_config_ids if is_layout else np.zeros(0, np.int64)
    arrays = (program.node_feat, program.node_opcode, program.edge_index)
    tensors = config_tensors(*arrays, configurable, operands)
    pairs, pair_axes = copy_pairs(*arrays, configurable, tensors, COPIES_THROUGH)
    defaults = np.full(tensors.dims.shape, -1, np.int8)
    if is_layout:
        layouts, choices, runtime = program.layouts, program.choices, program.runtime
        columns = np.zeros((len(runtime), 0), np.float32)  # computed below, from the graph
        if options.compiler_defaults:
            defaults = find_default_layouts(program)
    else:
        layouts = np.full((1, LAYOUT_WIDTH), -1, np.int8)
        choices = no_choices(len(program.runtime))
        runtime = program.runtime / program.normalizers
        columns, names = tile_features(*arrays, program.config_feat, operands)
    runtime = runtime.astype(np.float64)
    node_feat = program.node_feat
    if options.padding:
        node_feat = exact.node_feat if exact else pad(*arrays)
    num_nodes = len(program.node_opcode)
    node_extra = node_extras(program.edge_index, num_nodes, exact.node_extra if exact else None)
    hops = options.hops if is_layout else WHOLE_GRAPH
    kept, edge_index, config_index = prune(program.edge_index, num_nodes, configurable, hops)
    graph = Graph(
        name=program.name,
        node_feat=node_feat[kept],
        node_extra=node_extra[kept],
        node_opcode=program.node_opcode[kept],
        edge_index=edge_index.astype(np.int32),
        config_index=config_index.astype(np.int32),
        tensor_sizes=tensors.dims.astype(np.int32),
        tensor_bytes=tensors.element_bytes.astype(np.uint8),
        pairs=pairs,
        pair_axes=pair_axes,
        layouts=layouts,
        default_layouts=defaults,
        choices=choices,
        config_feat=columns,
        runtime=runtime,
        config_row=np.arange(len(runtime), dtype=np.int32),
        file_runtime=runtime,
    )
    if is_layout:
        violation, names = violation_features(graph)
        copies, copy_names = copy_features(graph)
        graph = replace(graph, config_feat=np.concatenate([violation, copies], 1))
        names += copy_names
    return merge_duplicates(graph) if options.merge_duplicates else graph, names
