"""Write a sample competition with the files, names and keys of the real one, from labelled programs."""

import base64
import hashlib
import io
import json
import os
import random
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, get_collection, list_programs
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.metrics import TOP_K
from fastslow.core.errors import DataError
from fastslow.core.files import read_json
from fastslow.core.npz_io import read_arrays
from fastslow.evaluation.scores import read_solution
from fastslow.hlo.graph_arrays import graph_arrays, tile_config_feat
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.layout_choices import Configuration, default_configuration, layouts_of
from fastslow_programs.compiler.layout_space import encode
from fastslow_programs.compiler.tile_log import kernel_module
from make_sample.layout_search import Search

MIN_SPREAD = 1.05  # largest label over smallest
MIN_DISTINCT = 1 / 6  # distinct labels over labels
MIN_CANDIDATES = 4  # tile candidates of a fused kernel
MAX_CANDIDATES = 300
KERNELS = 5  # of a program, at most

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the bytes of a file must not depend on the time


@dataclass(frozen=True)
class SampleGraph:
    """One npz file of a sample competition.

    Args:
        collection: Name of the collection, ``layout:xla:random``.
        split: ``train``, ``valid`` or ``test``.
        name: File name without ``.npz``.
        program: The zoo's program.
        arrays: The competition's arrays, with true labels in ``config_runtime``.
        chosen: Label of the compiler's own choice; None if no configuration is its default.
    """

    collection: str
    split: str
    name: str
    program: str
    arrays: dict[str, np.ndarray]
    chosen: int | None

    @property
    def labels(self) -> np.ndarray:
        """Estimated cycles of each configuration, (C,) int64."""
        return self.arrays["config_runtime"]

    @property
    def spread(self) -> float:
        """Ratio of the largest to the smallest label."""
        return float(self.labels.max() / self.labels.min())

    @property
    def distinct(self) -> int:
        """Number of distinct labels."""
        return len(np.unique(self.labels))

    def published(self) -> dict[str, np.ndarray]:
        """Return the arrays to publish; a test file has no labels."""
        if self.split != TEST:
            return self.arrays
        hidden = {"config_runtime": np.zeros_like(self.labels)}
        if "config_runtime_normalizers" in self.arrays:
            hidden["config_runtime_normalizers"] = np.ones_like(self.labels)
        return self.arrays | hidden


def why_left_out(graphs: list[SampleGraph], wanted: int) -> str:
    """Return the reason to leave a program out of the layout collections; empty to keep it.

    Args:
        graphs: Its graphs, one per search.
        wanted: Number of labels wanted of each.
    """
    if len(graphs) < 2:
        return "no configurable node, or no label"
    for graph in graphs:
        search = graph.collection.rsplit(":", 1)[1]
        if len(graph.labels) < 2 * wanted / 3:
            return f"{search}: {len(graph.labels)} of {wanted} labels"
        if graph.spread < MIN_SPREAD:
            return f"{search}: the slowest is only {graph.spread:.3f} times the fastest"
        if graph.distinct < MIN_DISTINCT * len(graph.labels):
            return f"{search}: {graph.distinct} distinct among {len(graph.labels)} labels"
    return ""


def shuffled_rows(search: Search, seed: str) -> list[tuple[Configuration, int]]:
    """Return the configurations with a label in the order of the file's rows, which is random."""
    rows = search.succeeded()
    random.Random(seed).shuffle(rows)
    return rows


def layout_graphs(labelled, seed: int) -> list[SampleGraph]:
    """Return the layout graphs of a program, one per search that has labels.

    Configurations are shuffled, so that the index carries no information on the label.

    Args:
        labelled: A :class:`make_sample.sample.LabelledProgram`.
        seed: Seed of the shuffling.
    """
    program, nodes, graph = labelled.program, labelled.nodes, graph_arrays(labelled.module)
    graphs = []
    for kind, search in labelled.searches.items():
        rows = shuffled_rows(search, f"{seed}/{program.name}/{kind}/order")
        if not rows:
            continue
        arrays = graph | {
            "node_config_feat": np.stack(
                [encode(layouts_of(configuration, search.choices), nodes) for configuration, _ in rows]
            ),
            "node_config_ids": np.array([node.node for node in nodes], np.int64),
            "config_runtime": np.array([cycles for _, cycles in rows], np.int64),
        }
        chosen = dict(rows).get(default_configuration(search.choices))
        name = _digest(program.name) if labelled.split == TEST else program.name
        collection = f"layout:{program.source}:{kind}"
        graphs.append(SampleGraph(collection, labelled.split, name, program.name, arrays, chosen))
    return graphs


def tile_graphs(labelled, kernels: int, seed: int, seen: dict[str, str]) -> Iterator[SampleGraph]:
    """Yield the graphs of fused kernels: convolutions and dots first, then by number of candidates.

    Args:
        labelled: A :class:`make_sample.sample.LabelledProgram`.
        kernels: Maximum number of kernels.
        seed: Seed of the sample of :data:`MAX_CANDIDATES` candidates and of their order.
        seen: Split of every candidate table and of every :func:`structure` so far, by digest, extended in
            place. A kernel is skipped if its table is known, or its structure from another split.
    """
    program, record = labelled.program, labelled.tiles
    optimized = Module.FromString(base64.b64decode(record["module"]))
    fusions = {i.name for c in optimized.computations for i in c.instructions if i.opcode == "fusion"}
    usable = [
        (name, kernel)
        for name, kernel in record["kernels"].items()
        if name in fusions
        and len(kernel["candidates"]) >= MIN_CANDIDATES
        and len({cycles for *_, cycles in kernel["candidates"]}) > 1
        and max(len(bounds) for *tile, _ in kernel["candidates"] for bounds in tile) <= LAYOUT_WIDTH
    ]
    usable.sort(key=lambda item: (not item[1]["candidates"][0][0], -len(item[1]["candidates"]), item[0]))
    taken = 0
    for name, kernel in usable:
        table = _digest(json.dumps(kernel["candidates"]))
        if taken == kernels or table in seen:
            continue
        arrays = graph_arrays(kernel_module(optimized, name))
        if seen.setdefault(structure(arrays), labelled.split) == labelled.split:
            seen[table] = labelled.split
            taken += 1
            identity = _digest(f"{program.name}/{name}")
            stem = identity if labelled.split == TEST else f"{program.name}_{identity[:16]}"
            arrays |= _tile_arrays(kernel, f"{seed}/{identity}")
            del arrays["node_splits"]
            yield SampleGraph("tile:xla", labelled.split, stem, program.name, arrays, kernel["chosen"])


def read_kernels(folder: Path, index: Path) -> dict[str, list[SampleGraph]]:
    """Return the tile graphs of a competition folder by program, with their labels.

    Args:
        folder: The folder.
        index: JSON file with the names of each program's graphs; without it there are none.

    Raises:
        DataError: The folder has no file of one of these names, or a file is not readable.
    """
    if not index.is_file():
        return {}
    collection, truth = get_collection("tile:xla"), read_solution(folder / "solution.csv")
    files = {file.name: file for split in SPLITS for file in list_programs(folder, collection, split)}
    found: dict[str, list[SampleGraph]] = {}
    for program, names in read_json(index).items():
        if missing := [name for name in names if name not in files]:
            problem = f"{folder} has no tile file {missing[0]} of {program}"
            raise DataError(index, problem, "Delete it: the tile candidates are then compiled again")
        found[program] = []
        for file in map(files.__getitem__, names):
            arrays = read_arrays(file.path)
            if file.split == TEST:
                labels = truth[f"{collection.name}:{file.name}"]
                arrays["config_runtime"] = labels
                arrays["config_runtime_normalizers"] = np.full_like(labels, labels.min())
            chosen = int(arrays["config_runtime_normalizers"][0])
            graph = SampleGraph(collection.name, file.split, file.name, program, arrays, chosen)
            found[program].append(graph)
    return found


def structure(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of opcodes and directed edges that isomorphic graphs share.

    It is the multiset of the nodes' colours, refined by their operands' and users' (Weisfeiler and Leman).
    """
    colours, edges = list(map(str, arrays["node_opcode"])), arrays["edge_index"].tolist()
    for _ in range(len(colours)):
        around = [[colour] for colour in colours]
        for user, operand in edges:
            around[user].append(f"uses {colours[operand]}")
            around[operand].append(f"used by {colours[user]}")
        colours = [_digest(str(sorted(own))) for own in around]
    return _digest(str(sorted(colours)))


def _tile_arrays(kernel: Mapping, draw: str) -> dict[str, np.ndarray]:
    rng = random.Random(draw)
    rows = list(kernel["candidates"])
    if len(rows) > MAX_CANDIDATES:
        chosen = next(row for row in rows if row[2] == kernel["chosen"])
        rows = [chosen, *rng.sample([row for row in rows if row is not chosen], MAX_CANDIDATES - 1)]
    rng.shuffle(rows)
    labels = np.array([cycles for *_, cycles in rows], np.int64)
    return {
        "config_feat": np.array([tile_config_feat(*tile, []) for *tile, _ in rows], np.float32),
        "config_runtime": labels,
        "config_runtime_normalizers": np.full_like(labels, kernel["chosen"]),
    }


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a compressed npz file whose bytes depend only on the arrays."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE)
            archive.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return packed.getvalue()


def write_competition(graphs: list[SampleGraph], readme: str, out: Path) -> None:
    """Write ``npz_all/``, ``solution.csv``, ``sample_submission.csv`` and ``README.md``.

    Args:
        graphs: All graphs, in the order of the submission.
        readme: Text of ``README.md``.
        out: The folder, replaced as a whole once the new one is complete.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as beside:
        new = Path(beside, "new")
        for graph in graphs:
            folder = get_collection(graph.collection).folder(new, graph.split)
            path = folder / f"{graph.name}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(npz_bytes(graph.published()))
        test = [graph for graph in graphs if graph.split == TEST]
        plain = {"index": False, "lineterminator": "\n"}
        solution = pd.DataFrame(_solution(test), columns=["ID", "config_index", "runtime"])
        solution.to_csv(new / "solution.csv", **plain)
        submission = pd.DataFrame(_submission(test), columns=["ID", "TopConfigs"])
        submission.to_csv(new / "sample_submission.csv", **plain)
        (new / "README.md").write_text(readme)
        if out.exists():
            os.rename(out, Path(beside, "old"))
        os.rename(new, out)


def _solution(test: list[SampleGraph]) -> Iterator[tuple]:
    for graph in test:
        for index, label in enumerate(graph.labels.tolist()):
            yield f"{graph.collection}:{graph.name}", index, label


def _submission(test: list[SampleGraph]) -> Iterator[tuple]:
    for graph in test:
        count = min(len(graph.labels), TOP_K if graph.collection == "tile:xla" else len(graph.labels))
        yield f"{graph.collection}:{graph.name}", ";".join(map(str, range(count)))


def ordered(graphs: list[SampleGraph]) -> list[SampleGraph]:
    """Sort graphs in the order of the competition's collections and splits, then by name."""
    rank = [collection.name for collection in COLLECTIONS]
    return sorted(graphs, key=lambda g: (rank.index(g.collection), SPLITS.index(g.split), g.name))
