"""Feature building: from competition npz files to the store, one folder per collection."""

import os
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

from fastslow.competition.catalog import LABELLED_SPLITS, TEST, TRAIN, ProgramFile, get_collection
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.row_order import row_order
from fastslow.competition.tied_choices import distinct_rows, factorise
from fastslow.core.files import atomic_path, digest
from fastslow.core.isolated import end_with_parent
from fastslow.core.memory import step_cores, step_memory
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.core.source import source_digest
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.configs.copies import COPIES_THROUGH, copy_features, copy_pairs
from fastslow.features.configs.default_layouts import find_default_layouts
from fastslow.features.configs.tile_bounds import tile_features
from fastslow.features.configs.violation import violation_features
from fastslow.features.nodes.list_padding import pad
from fastslow.features.nodes.node_encodings import node_extras
from fastslow.features.nodes.protobuf import read_exact_graph
from fastslow.features.nodes.pruning import WHOLE_GRAPH, prune
from fastslow.features.scaling import NODE_BLOCKS, ScalerFit, write_scalers
from fastslow.features.settings import FEATURES_ENTRY, FeatureSettings
from fastslow.features.store import (
    INDEX,
    SCALERS,
    Features,
    Graph,
    expand_nodes,
    files_of,
    graph_files,
    is_written,
    read_graph,
    write_graph,
)

WORKER_BYTES = 1 << 29  # of a process that builds graphs, at its peak


def merge_duplicates(graph: Graph) -> Graph:
    """Merge identical configurations: keep the first of each, with the mean runtime.

    How often a configuration occurs in a file is a trace of the search that made the data. Statistics over a
    graph's configurations (normalisation, cross-config attention) would weigh by it.

    Args:
        graph: A graph whose rows are the configurations of the file.

    Returns:
        The graph with one row for each distinct configuration, in order of first occurrence. Identical means
        equal choices (layout) or equal features (tile).
    """
    columns = graph.choices.values.T
    if not len(graph.config_index):
        columns = [pd.factorize(column)[0] for column in graph.config_feat.T]
    group, _ = pd.factorize(distinct_rows(columns, graph.num_configs)[1])
    _, kept, count = np.unique(group, return_index=True, return_counts=True)
    return replace(
        graph,
        choices=graph.choices.take(kept),
        config_feat=graph.config_feat[kept],
        runtime=np.bincount(group, graph.runtime) / count,
        config_row=group.astype(np.int32),
    )


def build_graph(file: ProgramFile, settings: FeatureSettings) -> tuple[Graph, list[str]]:
    """Read a program from its file and build its graph, see :func:`graph_of`.

    Raises:
        DataError: The file is broken (the message names the key), or its protobuf belongs to another program.
    """
    return graph_of(read_npz(file, file.split in LABELLED_SPLITS), settings)


def graph_of(program: Program, settings: FeatureSettings) -> tuple[Graph, list[str]]:
    """Build the features of one program.

    A tile kernel is built as a layout program without configurable nodes that is kept whole.

    Returns:
        The graph and the V names of its ``config_feat`` columns.

    Raises:
        DataError: Its protobuf belongs to another program, or the file with its default layouts is broken.
    """
    is_layout, protobuf = program.collection.kind == "layout", settings.protobuf(program.file)
    exact = read_exact_graph(protobuf, program) if protobuf else None
    operands, arrays = exact and exact.operands, (program.node_feat, program.node_opcode, program.edge_index)
    ids = program.node_config_ids if is_layout else np.zeros(0, np.int64)
    choices = program.choices or factorise(np.zeros((len(program.runtime), 0, len(ROLES)), np.uint8))
    layouts = program.layouts if is_layout else np.full((1, LAYOUT_WIDTH), -1, np.int8)
    runtime = (program.runtime if is_layout else program.runtime / program.normalizers).astype(np.float64)
    tensors = config_tensors(*arrays, ids, operands)
    pairs = copy_pairs(*arrays, ids, tensors, COPIES_THROUGH)
    defaults = np.full(tensors.dims.shape, -1, np.int8)
    if is_layout:
        if settings.compiler_defaults:
            defaults = find_default_layouts(program)
        violation, names = violation_features(tensors, program.node_opcode[ids], layouts, choices, defaults)
        copies, copy_names = copy_features(pairs, layouts, choices)
        values, names = np.concatenate([violation, copies], 1), names + copy_names
    else:
        values, names = tile_features(*arrays, program.config_feat, operands)
    num_nodes, node_feat = len(program.node_opcode), program.node_feat
    if settings.padding:
        node_feat = exact.node_feat if exact else pad(*arrays)
    hops = settings.hops if is_layout else WHOLE_GRAPH
    kept = prune(program.edge_index, num_nodes, ids, hops)
    graph = Graph(
        name=program.name,
        node_feat=node_feat[kept.node_ids],
        node_extra=node_extras(program.edge_index, num_nodes, exact and exact.node_extra)[kept.node_ids],
        node_opcode=program.node_opcode[kept.node_ids],
        edge_index=kept.edge_index.astype(np.int32),
        config_index=kept.config_index.astype(np.int32),
        tensor_sizes=tensors.dims.astype(np.int32),
        tensor_bytes=tensors.element_bytes.astype(np.uint8),
        pairs=np.stack([pairs.producer_index, pairs.consumer_index, pairs.consumer_role], 1).astype(np.int32),
        pair_axes=pairs.axes.astype(np.int8),
        layouts=layouts,
        default_layouts=defaults,
        choices=choices,
        config_feat=values,
        runtime=runtime,
        config_row=np.arange(len(runtime), dtype=np.int32),
        file_runtime=runtime,
    )
    return merge_duplicates(graph) if settings.merge_duplicates else graph, names


def _build_one(program: ProgramFile, settings: FeatureSettings) -> list[str] | None:
    """Build and write one graph unless it is up to date; return its column names if it was built."""
    folder = resolve(settings.folder)
    mark = digest([source_digest(FEATURES_ENTRY), settings.identity(), *settings.sources(program)])
    if is_written(folder, program.split, program.name, mark):
        return None
    graph, names = build_graph(program, settings)
    write_graph(folder, program.split, graph, mark)
    return names


def build_features(settings: FeatureSettings) -> pd.DataFrame:
    """Build the features of one collection: those that are missing or out of date.

    Returns:
        One row per graph: ``split``, ``name``, ``nodes`` and ``edges`` after pruning, ``configurable``
        (nodes), ``configs`` (distinct configurations), ``merged`` (configurations of the file minus
        distinct ones), ``spread`` (maximum over minimum runtime, NaN in test) and ``exact`` (whether its
        protobuf was used).

    Raises:
        DataError: A file is missing or broken.
    """
    artifact = settings.artifact()
    with artifact.building() as needed:
        if needed:
            programs = settings.programs()
            _drop_foreign_graphs(artifact.folder, programs)
            names = _build_all(programs, settings)
            _summarise(programs, settings)
            files = [INDEX, SCALERS, *graph_files(artifact.folder)]
            layout = get_collection(settings.collection).kind == "layout"
            ranked = [program for program in programs if layout and program.split == TEST]
            orders = {program.name: row_order(program.path).order for program in ranked}
            artifact.finish(files, config_columns=names, graphs=len(programs), row_order=orders)
    return Features(artifact.folder).index


def _build_all(programs: list[ProgramFile], settings: FeatureSettings) -> list[str]:
    """Build every graph that is missing or out of date; return the names of the config_feat columns."""
    jobs = [joblib.delayed(_build_one)(program, settings) for program in programs]
    leash = {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    workers = settings.workers or max(1, min(step_cores(), step_memory() // WORKER_BYTES))
    results = joblib.Parallel(n_jobs=workers, return_as="generator", **leash)(jobs)
    bar = progress(results, total=len(programs), desc=settings.collection, unit="graph")
    built = [names for names in bar if names]
    return built[0] if built else build_graph(programs[0], settings)[1]


def _drop_foreign_graphs(folder: Path, programs: list[ProgramFile]) -> None:
    """Remove graphs of programs that are no longer in the data."""
    known = {path for p in programs for path in files_of(folder, p.split, p.name)}
    for path in {*graph_files(folder)} - known:
        path.unlink()


def _summarise(programs: list[ProgramFile], settings: FeatureSettings) -> None:
    """Write the index and the scalers; every graph is read once for both."""
    folder, rows = resolve(settings.folder), []
    nodes, configs = ScalerFit(*NODE_BLOCKS), ScalerFit()
    for program in progress(programs, desc="index and scalers", unit="graph"):
        graph = read_graph(folder, program.split, program.name)
        known = graph.runtime.min() > 0
        rows.append(
            {
                "split": program.split,
                "name": program.name,
                "nodes": graph.num_nodes,
                "edges": len(graph.edge_index),
                "configurable": len(graph.config_index),
                "configs": graph.num_configs,
                "merged": len(graph.config_row) - graph.num_configs,
                "spread": graph.runtime.max() / graph.runtime.min() if known else np.nan,
                "exact": settings.protobuf(program) is not None,
            }
        )
        if program.split == TRAIN:
            nodes.add(expand_nodes(graph))
            configs.add(graph.config_feat)
    with atomic_path(folder / INDEX) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)
    write_scalers(folder / SCALERS, node=nodes.scaler(), config=configs.scaler())
