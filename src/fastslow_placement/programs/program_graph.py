"""Cost graphs from the competition's npz files, and from any file that holds a program."""

import zipfile
from pathlib import Path

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.node_columns import ELEMENT_BYTES
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import read_checked
from fastslow.competition.rules.program_rules import check_graph
from fastslow.competition.schema import GRAPH, check_values
from fastslow.core.errors import DataError
from fastslow.core.input_files import unpacked_name
from fastslow.hlo.reader import read_hlo
from fastslow_placement.programs.cost_graph import CostGraph, topological_order
from fastslow_placement.programs.hlo_graph import graph_of_module
from fastslow_placement.programs.recorder import LEAVES, OF_LEAVES, PASS, Recorder
from fastslow_placement.programs.roofline import Device, operator_flops

_LARGEST = 1e15  # of a feature


def graph_of_arrays(
    arrays: dict[str, np.ndarray], source: str | Path, name: str, device: Device
) -> CostGraph:
    """Return the cost graph of a competition file: shapes and opcodes suffice for FLOPs and bytes.

    Operators of called computations count once: the file does not hold trip counts.

    Args:
        arrays: ``node_feat`` (N, 140), ``node_opcode`` (N,) and ``edge_index`` (E, 2), rows (consumer,
            operand).
        source: Its origin, for messages.
        name: Name of the graph.
        device: Whose roofline gives the times.

    Raises:
        DataError: As for :func:`graph_of_module`.
    """
    features = arrays["node_feat"]
    opcodes = [opcode_name(int(code)) for code in arrays["node_opcode"]]
    rank = (features[:, node_columns.SHAPE] > 0).sum(1)
    shapes = [
        row[:r].astype(int).tolist() for row, r in zip(features[:, node_columns.SHAPE], rank, strict=True)
    ]
    element = features[:, node_columns.ELEMENT_TYPE] @ np.array([*ELEMENT_BYTES.values()], float)
    sizes = features[:, node_columns.SHAPE_PRODUCT] * element
    edges = np.unique(arrays["edge_index"][:, ::-1], axis=0)
    order = topological_order(edges, len(opcodes), source, opcodes)
    operands: list[list[int]] = [[] for _ in opcodes]
    for producer, consumer in edges.tolist():
        operands[consumer].append(producer)
    recorder = Recorder(source, device)
    values = {}
    for node in order.tolist():
        producers = [values[o] for o in operands[node]]
        opcode = opcodes[node]
        if opcode == "parameter" or opcode in LEAVES:
            values[node] = recorder.leaf(sizes[node] if opcode in ("parameter", "constant") else 0.0)
        elif opcode in ("tuple", "get-tuple-element") or opcode in PASS:
            values[node] = producers
        elif opcode in OF_LEAVES and all(isinstance(v, frozenset) for v in producers):
            values[node] = frozenset().union(*producers)
        else:
            inputs = sorted((shapes[o] for o in operands[node]), key=lambda s: _is_kernel(features[node], s))
            flops = operator_flops(opcode, shapes[node], inputs)
            size = float(sizes[node])
            label = f"{opcode} {node}"
            if opcode == "while":
                recorder.uncounted.add(node)
            values[node] = recorder.add(opcode, label, shapes[node], size, producers, flops)
    return recorder.graph(name)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a competition file's program; sizes beyond any device's memory give no costs."""
    arrays = read_checked(path, "layout", GRAPH)  # of a tile file they are the same
    check_values(path, arrays, labelled=False)
    check_graph(path, *(arrays[key] for key in GRAPH))
    features = arrays["node_feat"]
    bad = np.abs(features) > _LARGEST
    if bad.any():
        node, column = np.argwhere(bad)[0].tolist()
        problem = f"node_feat[{node}, {column}] is {features[node, column]:g}, at most {_LARGEST:g} wanted"
        raise DataError(path, problem, "Give a competition file")
    return arrays


def _is_kernel(row: np.ndarray, shape: list[int]) -> bool:
    """Return whether a shape fits the window of a convolution; edges do not tell input and kernel apart."""
    window = row[node_columns.WINDOW_SIZE]
    spatial = row[node_columns.KERNEL_SPATIAL].astype(int)[: int((window > 0).sum())]
    return bool(len(spatial)) and all(
        axis < len(shape) and shape[axis] == size for axis, size in zip(spatial, window, strict=False)
    )


def read_cost_graph(path: Path, device: Device) -> CostGraph:
    """Read the cost graph of an HLO file (any kind of :mod:`fastslow.hlo.reader`) or a competition npz.

    Raises:
        DataError: The file is missing or of neither kind, or as for :func:`graph_of_module`.
    """
    path = Path(path)
    if path.suffix == ".npz" or (path.is_file() and zipfile.is_zipfile(path)):  # as rank and tune tell it
        return graph_of_arrays(_read_arrays(path), path, path.stem, device)
    return graph_of_module(read_hlo(path).module, path, Path(unpacked_name(path)).stem, device)
