"""Exact list lengths and operand order, from the protobuf of a program; its npz does not contain them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import ProgramFile
from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.competition.reader import Program
from fastslow.core.errors import DataError
from fastslow.features.nodes.node_encodings import PADDING
from fastslow.hlo.graph_arrays import graph_arrays, operand_nodes
from fastslow.hlo.reader import read_protobuf

_REMEDY = "Take TpuGraphs' .pb of the same name and collection, or leave it out: then the npz alone is used"


@dataclass(frozen=True)
class ExactGraph:
    """A graph as its protobuf gives it."""

    node_feat: np.ndarray  # (N, 140) float32, -1 after the end of a list
    operands: list[list[int]]  # for each of the N nodes, its operands in order
    node_extra: np.ndarray  # (N, X) float32, columns graph_arrays.EXTRA_NAMES, -1 where a node has none


def find_protobuf(folder: Path, program: ProgramFile) -> Path | None:
    """Return the protobuf of a program, or None: ``layout/xla/random/train/<name>.pb`` or ``<name>.pb``."""
    name = f"{program.name}.pb"
    tree = folder / program.collection.name.replace(":", "/") / program.split / name
    return next((path for path in (tree, folder / name) if path.is_file()), None)


def require_protobufs(folder: Path) -> None:
    """Refuse a folder without any protobuf with a DataError."""
    if next(folder.rglob("*.pb"), None) is None:
        remedy = "Set hlo_folder to a folder of TpuGraphs' .pb files, or leave it empty"
        raise DataError(folder, "contains no .pb file", remedy)


def read_exact_graph(path: Path, program: Program) -> ExactGraph:
    """Read the exact graph of a program from its protobuf.

    Args:
        path: The protobuf.
        program: The program; every node feature, opcode and edge of the protobuf must equal its own.

    Returns:
        The exact graph, with the program's node numbers.

    Raises:
        DataError: The protobuf is broken or belongs to another program.
    """
    hlo = read_protobuf(path)
    arrays = graph_arrays(hlo.module)
    published_arrays = {
        "node_opcode": program.node_opcode,
        "edge_index": np.unique(program.edge_index, axis=0),
        "node_feat": program.node_feat,
    }
    if program.node_config_ids is not None and "node_config_ids" in hlo.runs:
        published_arrays["node_config_ids"] = program.node_config_ids
        arrays["node_config_ids"] = hlo.runs["node_config_ids"]
    for key, published in published_arrays.items():
        if not np.array_equal(arrays[key], published):
            problem = f"is not the program of {program.path}: {_difference(key, arrays[key], published)}"
            raise DataError(path, problem, _REMEDY)
    exact = graph_arrays(hlo.module, PADDING, extra=True)
    return ExactGraph(exact["node_feat"], operand_nodes(hlo.module), exact["node_extra_feat"])


def _difference(key: str, ours: np.ndarray, published: np.ndarray) -> str:
    """Describe the first difference of two arrays."""
    if ours.shape != published.shape:
        return f"its {key} has the shape {ours.shape}, the npz's {published.shape}"
    place = tuple(np.argwhere(ours != published)[0].tolist())
    column = f" ({COLUMN_NAMES[place[1]]})" if key == "node_feat" else ""
    return f"its {key}{list(place)}{column} is {ours[place]}, the npz's {published[place]}"
