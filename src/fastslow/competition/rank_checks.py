"""Axes of a competition file against the ranks of its tensors."""

from pathlib import Path

import numpy as np

from fastslow.choices.layouts import LAYOUT_WIDTH
from fastslow.choices.tied_choices import Choices
from fastslow.competition.node_columns import DIMENSIONS, SHAPE, SHAPE_PRODUCT
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import DEFAULTS, REMEDY
from fastslow.core.errors import DataError


def _ranks(node_feat: np.ndarray) -> np.ndarray:
    """Return the number of dimensions of nodes' outputs ``(K,)``, six where it is not known."""
    return np.where(node_feat[:, SHAPE_PRODUCT] > 0, (node_feat[:, SHAPE] > 0).sum(1), LAYOUT_WIDTH)


def check_transposes(path: Path, node_feat: np.ndarray, opcodes: np.ndarray) -> None:
    """Refuse a transpose that names an axis which its output does not have.

    Args:
        path: The file, for the message.
        node_feat: ``(N, 140)`` features of all nodes.
        opcodes: ``(N,)`` opcodes.
    """
    nodes = np.flatnonzero(opcodes == OPCODES["transpose"])
    rank, axes = _ranks(node_feat[nodes]), node_feat[nodes, DIMENSIONS]
    _refuse_beyond(path, "node_feat", axes, rank, nodes, DIMENSIONS.start)


def check_default_ranks(path: Path, node_feat: np.ndarray, defaults: np.ndarray) -> None:
    """Refuse one of the compiler's own layouts of an output that names an axis beyond the rank.

    Args:
        path: The file, for the message.
        node_feat: ``(K, 140)`` features of the configurable nodes.
        defaults: ``(K, 3, 6)`` the compiler's own layouts.
    """
    _refuse_beyond(path, DEFAULTS, defaults[:, 0], _ranks(node_feat), np.arange(len(defaults)), 0)


def _refuse_beyond(
    path: Path, key: str, axes: np.ndarray, rank: np.ndarray, nodes: np.ndarray, column: int
) -> None:
    """Name the first axis ``(n, 6)`` that is not below the rank ``(n,)``; six or more columns may be cut."""
    beyond = (axes >= rank[:, None]) & ((axes >= LAYOUT_WIDTH) | (rank[:, None] < LAYOUT_WIDTH))
    if beyond.any():
        row, entry = np.argwhere(beyond)[0].tolist()
        problem = f"{key}[{nodes[row]}, {column + entry}] is {axes[row, entry]:g}"
        raise DataError(path, f"{problem}, but the node's output has {rank[row]} dimensions", REMEDY)


def check_ranks(path: Path, node_feat: np.ndarray, layouts: np.ndarray, choices: Choices) -> None:
    """Refuse an output layout that names an axis which the tensor does not have.

    Published layouts leave axes out, so that a layout may be shorter than the rank, and its axes have gaps.
    Ranks of inputs and kernels are inferred, and those of tuples and empty tensors unknown: not checked.

    Args:
        path: The file, for the message.
        node_feat: ``(K, 140)`` features of the configurable nodes.
        layouts: ``(L, 6)`` distinct layouts.
        choices: The configurations.
    """
    rank = _ranks(node_feat)
    option = np.arange(choices.codes.shape[2])
    used = option < choices.options[choices.group[:, 0], None]  # (K, O)
    axis = layouts[choices.codes[:, 0]].max(2)
    beyond = used & (axis >= rank[:, None])
    if beyond.any():
        node, chosen = np.argwhere(beyond)[0].tolist()
        row = int(np.argmax(choices.values[:, choices.group[node, 0]] == chosen))
        layout, names = layouts[choices.codes[node, 0, chosen]].tolist(), axis[node, chosen]
        position = [row, node, layout.index(names)]
        problem = f"node_config_feat{position} is {names}, but the node's output has {rank[node]} dimensions"
        raise DataError(path, problem, REMEDY)
