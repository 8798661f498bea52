"""Graphs of operators with time, memory and transfer sizes, nodes in topological order."""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fastslow.core.errors import DataError

_RANK = 6  # dimensions of a shape that are kept, as in the competition's node features


@dataclass(frozen=True)
class CostGraph:
    """Operators and the tensors between them; every edge goes from a lower to a higher node number.

    Args:
        name: Name, for messages and tables.
        opcodes: HLO opcode of each node, length N.
        shapes: (N, 6) int64 output shapes, filled up with 0.
        edges: (E, 2) int64 distinct rows (producer, consumer), sorted.
        seconds: (N,) float64 time of each operator on one device.
        flops: (N,) float64 floating-point operations.
        output_bytes: (N,) float64 size of the output.
        parameter_bytes: (N,) float64 weights and inputs of the program that are read first by this node; they
            are resident on its device.
        read_bytes: (N,) float64 size of the weights and inputs of the program that this node reads.
        groups: (N,) int64; nodes of one number must be on one device.
        names: Name of each node in the program, for tables.
        uncounted_loops: Number of loops whose trip count is not known; each counts as one round.
    """

    name: str
    opcodes: tuple[str, ...]
    shapes: np.ndarray
    edges: np.ndarray
    seconds: np.ndarray
    flops: np.ndarray
    output_bytes: np.ndarray
    parameter_bytes: np.ndarray
    read_bytes: np.ndarray
    groups: np.ndarray
    names: tuple[str, ...]
    uncounted_loops: int = 0

    def __len__(self) -> int:
        return len(self.opcodes)

    @cached_property
    def producers(self) -> list[list[int]]:
        """Node numbers of the producers of each node, ascending."""
        return neighbours(self.edges[:, ::-1], len(self))

    @cached_property
    def consumers(self) -> list[list[int]]:
        """Node numbers of the consumers of each node, ascending."""
        return neighbours(self.edges, len(self))

    @cached_property
    def upward_rank(self) -> np.ndarray:
        """(N,) seconds of the longest path from a node's start to the end, without transfers."""
        rank = self.seconds.astype(float).copy()
        for node in range(len(self) - 1, -1, -1):
            after = self.consumers[node]
            if after:
                rank[node] += max(rank[c] for c in after)
        return rank

    @cached_property
    def earliest_start(self) -> np.ndarray:
        """(N,) seconds of the longest path from the start of the program to a node, without transfers."""
        begin = np.zeros(len(self))
        for producer, consumer in self.edges.tolist():  # sorted by producer, so each producer is final
            begin[consumer] = max(begin[consumer], begin[producer] + self.seconds[producer])
        return begin

    @property
    def critical_path(self) -> float:
        """Seconds of the longest path."""
        return float(self.upward_rank.max())


def neighbours(edges: np.ndarray, count: int) -> list[list[int]]:
    """Return for each node the second entries of its edges, ascending.

    Args:
        edges: (E, 2) integers.
        count: Number of nodes.
    """
    lists: list[list[int]] = [[] for _ in range(count)]
    for first, second in edges.tolist():
        lists[first].append(second)
    for each in lists:
        each.sort()
    return lists


def topological_order(edges: np.ndarray, count: int, source: str | Path, names: Sequence[str]) -> np.ndarray:
    """Return the node numbers in topological order, the lowest free number first: (N,) int64.

    Args:
        edges: (E, 2) distinct rows (producer, consumer).
        count: Number of nodes N.
        source: Origin of the graph, for the message.
        names: Name of each node, for the message.

    Raises:
        DataError: The graph has a cycle; the message names a node on it.
    """
    consumers = neighbours(edges, count)
    waiting = np.bincount(edges[:, 1], minlength=count).tolist()
    ready = [node for node, inputs in enumerate(waiting) if not inputs]  # sorted, so a heap
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in consumers[node]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < count:
        node = _on_a_cycle(neighbours(edges[:, ::-1], count), {*range(count)} - {*order})
        raise DataError(source, f"its edges form a cycle through {names[node]!r}", "A program is acyclic")
    return np.array(order, np.int64)


def _on_a_cycle(producers: list[list[int]], left: set[int]) -> int:
    """Return a node on a cycle: every node that is left has a producer that is left."""
    node = min(left)
    seen = set()
    while node not in seen:
        seen.add(node)
        node = next(p for p in producers[node] if p in left)
    return node


def components(pairs: np.ndarray, count: int) -> np.ndarray:
    """Return the connected component of each node, numbered by lowest node: (N,) int64.

    Args:
        pairs: (P, 2) integers, nodes that belong together.
        count: Number of nodes N.
    """
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return connected_components(joined, directed=False)[1].astype(np.int64)


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the finest labels under which nodes are alike that are alike under either of two: (N,) int64."""
    count = len(first)
    second = np.unique(second, return_inverse=True)[1] + int(first.max()) + 1
    pairs = np.stack([first, second], 1)
    return components(pairs, int(max(count, second.max() + 1)))[first]


def build(
    source: str | Path,
    name: str,
    opcodes: Sequence[str],
    shapes: Sequence,
    edges,
    uncounted_loops: int = 0,
    **columns,
) -> CostGraph:
    """Return a checked graph with its nodes renumbered in topological order.

    Args:
        source: Origin of the graph, for messages.
        name: Name of the graph.
        opcodes: Opcode of each node.
        shapes: Output dimensions of each node; more than six are cut.
        edges: Pairs (producer, consumer); repeated ones count once.
        uncounted_loops: As in :class:`CostGraph`.
        **columns: The columns of :class:`CostGraph`; ``groups`` and ``names`` (by default opcode and number)
            may be left out. Names that come again, as in each round of a loop, have a number.

    Raises:
        DataError: The graph is empty or has a cycle, an edge names no node, or a size is negative.
    """
    count = len(opcodes)
    if not count:
        raise DataError(source, "holds no operator that takes time", "Give a program that computes something")
    edges = np.unique(np.array(list(edges), np.int64).reshape(-1, 2), axis=0)
    if len(edges) and not (edges.min() >= 0 and edges.max() < count):
        bad = edges[((edges < 0) | (edges >= count)).any(1)][0]
        raise DataError(source, f"edge {bad.tolist()} names no node", f"Nodes are 0 to {count - 1}")
    groups = np.asarray(columns.pop("groups", np.arange(count)), np.int64)
    labels = columns.pop("names", None) or [f"{opcode} {node}" for node, opcode in enumerate(opcodes)]
    seen: Counter[str] = Counter()
    for node, label in enumerate(labels := [*labels]):
        seen[label] += 1
        labels[node] = f"{label} #{seen[label]}" if seen[label] > 1 else label
    values = {key: np.asarray(value, float) for key, value in columns.items()}
    for what, column in values.items():
        if (wrong := ~(np.isfinite(column) & (column >= 0))).any():
            problem = f"{what} of {labels[wrong.argmax()]!r} is {column[wrong][0]}"
            raise DataError(source, problem, "Times and sizes are finite and 0 or more")
    order = topological_order(edges, count, source, labels)
    number = np.empty(count, np.int64)
    number[order] = np.arange(count)
    dimensions = np.zeros((count, _RANK), np.int64)
    for node, shape in enumerate(shapes):
        kept = list(shape)[:_RANK]
        dimensions[node, : len(kept)] = kept
    return CostGraph(
        name,
        tuple(opcodes[node] for node in order),
        dimensions[order],
        np.unique(number[edges], axis=0).reshape(-1, 2),
        groups=np.unique(groups[order], return_inverse=True)[1],
        names=tuple(labels[node] for node in order),
        uncounted_loops=uncounted_loops,
        **{key: value[order] for key, value in values.items()},
    )
