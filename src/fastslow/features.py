"""Feature building: from competition npz files to a compact store, one folder a collection."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import joblib
import numpy as np
import pandas as pd

from fastslow.artifacts import Artifact, atomic_path, digest
from fastslow.collections import SPLITS, Program, get_collection, list_programs
from fastslow.config import Config, elsewhere, resolve
from fastslow.copies import copy_features, copy_pairs
from fastslow.graphs import INDEX, SCALERS, Features, Graph, is_written, read_graph, write_graph
from fastslow.npz import CompetitionFile, file_fingerprint, read_competition_file
from fastslow.padding import pad
from fastslow.progress import progress
from fastslow.prune import DIRECTIONS, WHOLE_GRAPH, prune
from fastslow.scaling import Scaler, expand_node_features, write_scalers
from fastslow.tensors import config_tensors
from fastslow.tiles import tile_features
from fastslow.violation import DEFAULT_LAYOUTS, violation_features

FORMAT = 3  # raise it with every change of code that changes the bytes written


@dataclass(frozen=True)
class FeatureConfig(Config):
    """Settings that both feature notebooks share.

    Args:
        collection: Which of the five collections.
        data_root: Folder that holds ``npz_all/``.
        folder: Where the features go.
        workers: Processes that build graphs side by side; raise it to the number of cores for real data.
        padding: Value after the end of a list feature: -1 tells padding from a true 0, 0 is as published.
        merge_duplicates: Merge identical configurations of a train graph; the label is their mean.
    """

    kind: ClassVar[str]

    collection: str = "layout:xla:random"
    data_root: str = elsewhere("data/sample")
    folder: str = elsewhere("features/sample/layout-xla-random")
    workers: int = elsewhere(2)
    padding: int = -1
    merge_duplicates: bool = True

    def check(self) -> None:
        """Check ranges."""
        collection = get_collection(self.collection)
        self.require(collection.kind == self.kind, "collection", f"a {self.kind} collection")
        self.require(self.padding in (0, -1), "padding", "0 or -1")
        self.require(self.workers >= 1, "workers", "1 or more")

    def programs(self) -> list[Program]:
        """The programs of all splits."""
        collection = get_collection(self.collection)
        return [p for split in SPLITS for p in list_programs(resolve(self.data_root), collection, split)]

    def artifact(self) -> Artifact:
        """The features folder; it depends on the content of every data file."""
        sources = {f"{p.split}/{p.name}": file_fingerprint(p.path) for p in self.programs()}
        settings = {"format": FORMAT, **self.identity()}
        return Artifact(resolve(self.folder), settings, {"data": digest(sources)})


@dataclass(frozen=True)
class LayoutFeatureConfig(FeatureConfig):
    """Settings of the layout feature notebook; for those not described here see :class:`FeatureConfig`.

    Args:
        hops: Keep nodes within this many hops of a configurable node; -1 keeps the whole graph. More hops
            show the model more of the program and cost time.
        direction: Walk those hops to ``operands``, to ``users`` or ``both`` ways.
        default_layout: A tensor left to the compiler counts as ``row_major`` in the violation ratio, or is
            ``leave_out``.
        copies_through: How many shape-keeping nodes may lie between two configurable nodes whose layouts
            are compared.
    """

    kind: ClassVar[str] = "layout"

    hops: int = 2
    direction: str = "both"
    default_layout: str = "row_major"
    copies_through: int = 8

    def check(self) -> None:
        """Check ranges."""
        super().check()
        self.require(self.hops >= WHOLE_GRAPH, "hops", "-1 or more")
        self.require(self.direction in DIRECTIONS, "direction", f"one of {', '.join(DIRECTIONS)}")
        self.require(
            self.default_layout in DEFAULT_LAYOUTS, "default_layout", f"one of {', '.join(DEFAULT_LAYOUTS)}"
        )
        self.require(self.copies_through >= 0, "copies_through", "0 or more")


@dataclass(frozen=True)
class TileFeatureConfig(FeatureConfig):
    """Settings of the tile feature notebook, see :class:`FeatureConfig`."""

    kind: ClassVar[str] = "tile"

    collection: str = "tile:xla"
    folder: str = elsewhere("features/sample/tile-xla")


def merge_duplicates(graph: Graph) -> Graph:
    """Merge identical configurations: the first of each is kept, with the mean runtime and the count.

    Identical means equal layout codes (layout) and equal features (tile).
    """
    rows = graph.codes if len(graph.config_index) else graph.config_feat
    # a digest stands for a row, whose bytes (3 K) are too many to sort in a large graph
    digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
    group, _ = pd.factorize(np.array(digests, object))
    _, kept, count = np.unique(group, return_index=True, return_counts=True)
    return replace(
        graph,
        codes=graph.codes[kept],
        config_feat=graph.config_feat[kept],
        config_ids=graph.config_ids[kept],
        runtime=np.bincount(group, graph.runtime) / count,
        count=count.astype(np.int32),
    )


def _layout_graph(
    program: Program, file: CompetitionFile, config: LayoutFeatureConfig
) -> tuple[Graph, list[str]]:
    ids = file.node_config_ids
    tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, ids)
    kinds = file.node_opcode[ids]
    violation, names = violation_features(tensors, kinds, file.layouts, file.codes, config.default_layout)
    pairs = copy_pairs(file.node_feat, file.node_opcode, file.edge_index, ids, tensors, config.copies_through)
    copies, copy_names = copy_features(pairs, file.layouts, file.codes)
    kept = prune(file.edge_index, len(file.node_opcode), ids, config.hops, config.direction)
    graph = Graph(
        name=program.name,
        node_feat=_padded(file, config)[kept.node_ids],
        node_opcode=file.node_opcode[kept.node_ids],
        edge_index=kept.edge_index.astype(np.int32),
        config_index=kept.config_index.astype(np.int32),
        tensor_sizes=tensors.dims.astype(np.int32),
        layouts=file.layouts,
        codes=file.codes,
        config_feat=np.concatenate([violation, copies], 1),
        runtime=file.runtime.astype(np.float64),
        count=np.ones(len(file.runtime), np.int32),
        config_ids=np.arange(len(file.runtime), dtype=np.int32),
    )
    return graph, names + copy_names


def _tile_graph(
    program: Program, file: CompetitionFile, config: TileFeatureConfig
) -> tuple[Graph, list[str]]:
    values, names = tile_features(file.node_feat, file.node_opcode, file.edge_index, file.config_feat)
    num_configs = len(file.runtime)
    graph = Graph(
        name=program.name,
        node_feat=_padded(file, config),
        node_opcode=file.node_opcode,
        edge_index=file.edge_index.astype(np.int32),
        config_index=np.zeros(0, np.int32),
        tensor_sizes=np.zeros((0, 3, 6), np.int32),
        layouts=np.full((1, 6), -1, np.int8),
        codes=np.zeros((num_configs, 0, 3), np.uint8),
        config_feat=values,
        runtime=file.runtime / file.normalizers,
        count=np.ones(num_configs, np.int32),
        config_ids=np.arange(num_configs, dtype=np.int32),
    )
    return graph, names


def _padded(file: CompetitionFile, config: FeatureConfig) -> np.ndarray:
    return pad(file.node_feat, file.node_opcode, file.edge_index) if config.padding else file.node_feat


def build_graph(program: Program, config: FeatureConfig) -> tuple[Graph, list[str]]:
    """Features of one program.

    Returns:
        The graph and the names of its ``config_feat`` columns.

    Raises:
        DataError: The file is broken; the message names the key.
    """
    labelled = program.split != "test"
    file = read_competition_file(program.path, program.collection.kind, labelled)
    build = _layout_graph if program.collection.kind == "layout" else _tile_graph
    graph, names = build(program, file, config)
    if config.merge_duplicates and program.split == "train":
        graph = merge_duplicates(graph)
    return graph, names


def _build_one(program: Program, config: FeatureConfig) -> list[str] | None:
    """Build and write one graph unless it is there already; its column names if it was built."""
    folder = resolve(config.folder)
    mark = digest([FORMAT, config.identity(), file_fingerprint(program.path)])
    if is_written(folder, program.split, program.name, mark):
        return None
    graph, names = build_graph(program, config)
    write_graph(folder, program.split, graph, mark)
    return names


def build_features(config: FeatureConfig) -> pd.DataFrame:
    """Build the features of one collection, or only what is missing or out of date.

    Args:
        config: Settings.

    Returns:
        One row a graph: split, name, nodes, edges, configurable nodes, configurations (rows after
        merging), merged (configurations merged away), runtime spread (largest over smallest).

    Raises:
        DataError: A file is missing or broken.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            programs = config.programs()
            _drop_foreign_graphs(artifact.folder, programs)
            names = _build_all(programs, config)
            _fit_scalers(artifact.folder, _write_index(artifact.folder, programs))
            artifact.finish(config_columns=names, graphs=len(programs))
    return Features(artifact.folder).index


def _build_all(programs: list[Program], config: FeatureConfig) -> list[str]:
    """Build every graph that is missing or out of date; the names of the config_feat columns."""
    jobs = [joblib.delayed(_build_one)(program, config) for program in programs]
    results = joblib.Parallel(n_jobs=config.workers, return_as="generator")(jobs)
    built = [
        names for names in progress(results, total=len(jobs), desc=config.collection, unit="graph") if names
    ]
    return built[0] if built else build_graph(programs[0], config)[1]


def _drop_foreign_graphs(folder: Path, programs: list[Program]) -> None:
    """Remove graphs of programs that are no longer in the data, so nothing stale is ever read."""
    known = {(p.split, p.name) for p in programs}
    for split in SPLITS:
        for path in (folder / split).glob("*.np[yz]"):
            name = path.name.removesuffix(".npz").removesuffix(".codes.npy").removesuffix(".config_feat.npy")
            if (split, name) not in known:
                path.unlink()


def _write_index(folder: Path, programs: list[Program]) -> pd.DataFrame:
    rows = []
    for program in programs:
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
                "merged": int(graph.count.sum()) - graph.num_configs,
                "spread": graph.runtime.max() / graph.runtime.min() if known else np.nan,
            }
        )
    index = pd.DataFrame(rows)
    with atomic_path(folder / INDEX) as temporary:
        index.to_csv(temporary, index=False)
    return index


def _fit_scalers(folder: Path, index: pd.DataFrame) -> None:
    train = index.loc[index["split"] == "train", "name"]
    write_scalers(
        folder / SCALERS,
        node=Scaler.fit(expand_node_features(read_graph(folder, "train", name).node_feat) for name in train),
        config=Scaler.fit(read_graph(folder, "train", name).config_feat for name in train),
    )
