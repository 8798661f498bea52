"""Intra-operator parallelism (XLA's auto-sharding): the ASPLOS / EuroSys 2025 contest's problems.

Format and cost: github.com/google/iopddl. Each node takes one of its strategies; the cost is the sum of the
strategies' costs and, for each edge, of the entry of its matrix. A strategy uses memory while its node is
alive, a half-open interval; at no time may the sum exceed the limit.
"""

import gzip
import json
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fastslow.core.errors import DataError
from fastslow.core.input_files import check_regular
from fastslow.core.records import Record, check_record

FORBIDDEN = 1e18  # the contest's mark of pairs and strategies that must not be used
_MAX_BYTES = 1 << 30
_FORMAT = "The format is that of github.com/google/iopddl"
_Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Cost = Annotated[float, Field(ge=0, le=1e30)]


class _Nodes(Record):
    intervals: list[Annotated[list[_Whole], Field(max_length=2)] | None]  # empty: never alive
    costs: Annotated[list[Annotated[list[_Cost], Field(min_length=1)]], Field(min_length=1)]
    usages: list[list[_Cost]]


class _Edges(Record):
    nodes: list[Annotated[list[_Whole], Field(min_length=2, max_length=2)]]
    costs: list[list[_Cost]]


class _Problem(Record):
    nodes: _Nodes
    edges: _Edges
    usage_limit: _Cost | None = None


class _File(Record):
    problem: _Problem


@dataclass(frozen=True)
class Sharding:
    """One problem; strategies of all nodes are numbered through.

    Args:
        name: Name.
        first: (N + 1,) int64; node n has the strategies first[n] to first[n + 1] - 1.
        costs: (S,) float64 cost of each strategy.
        usages: (S,) float64 memory of each strategy.
        intervals: (N, 2) int64 half-open lifetimes; a node that is never alive has an empty one.
        edges: (E, 2) int64 nodes.
        matrices: E arrays (strategies of the first node, strategies of the second).
        limit: Memory limit; infinite if there is none.
    """

    name: str
    first: np.ndarray
    costs: np.ndarray
    usages: np.ndarray
    intervals: np.ndarray
    edges: np.ndarray
    matrices: list[np.ndarray]
    limit: float

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def choices(self) -> np.ndarray:
        """(N,) number of strategies of each node."""
        return np.diff(self.first)

    @cached_property
    def _packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return packed(self.matrices)

    def cost(self, decisions: np.ndarray) -> np.ndarray:
        """Return the cost of each decision, 1e18 or more where a forbidden pair is used: (B,), for (B, N)."""
        flat, starts, width = self._packed
        own = self.costs[self.first[:-1] + decisions].sum(1)
        entry = starts + decisions[:, self.edges[:, 0]] * width + decisions[:, self.edges[:, 1]]
        return own + flat[entry].sum(1)

    @cached_property
    def times(self) -> np.ndarray:
        """Sorted ends of the lifetimes: between two of them the memory in use does not change."""
        alive = self.intervals[self.intervals[:, 0] < self.intervals[:, 1]]
        return np.unique(alive)

    @cached_property
    def spans(self) -> np.ndarray:
        """(N, 2) positions in :attr:`times` of each lifetime's ends; equal for nodes that are never alive."""
        return np.searchsorted(self.times, self.intervals)

    def usage(self, decisions: np.ndarray) -> np.ndarray:
        """Return the memory in use from each of :attr:`times` on: (B, T), for (B, N)."""
        used = self.usages[self.first[:-1] + decisions]
        change = np.zeros((len(decisions), len(self.times) + 1))
        rows = np.arange(len(decisions))[:, None]
        np.add.at(change, (rows, self.spans[:, 0]), used)
        np.add.at(change, (rows, self.spans[:, 1]), -used)
        return change.cumsum(1)[:, :-1]

    def tolls(self, price: np.ndarray) -> np.ndarray:
        """Return the sum of a price per byte, from each of :attr:`times` on, over each lifetime: (N,)."""
        total = np.concatenate([[0.0], np.cumsum(price)])
        return total[self.spans[:, 1]] - total[self.spans[:, 0]]

    def excess(self, decisions: np.ndarray) -> np.ndarray:
        """Return by how much the peak memory exceeds the limit: (B,), for (B, N)."""
        if not len(self.times):
            return np.zeros(len(decisions))
        return np.maximum(self.usage(decisions).max(1) - self.limit, 0)


def packed(tables: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tables in one array, and (count,) each where they start in it and how long their rows are."""
    sizes, widths = np.array([(table.size, table.shape[1]) for table in tables], np.int64).reshape(-1, 2).T
    flat, starts = np.empty(sizes.sum()), np.cumsum(sizes) - sizes
    for start, table in zip(starts.tolist(), tables, strict=True):  # one by one: a transposed one is copied
        flat[start : start + table.size] = table.ravel()
    return flat, starts, widths


def read_problem_file(path: Path) -> object:
    """Return what a JSON file holds, compressed with gzip or not.

    Raises:
        DataError: The file is missing, no regular file, too large or not JSON.
    """
    try:
        check_regular(path, _MAX_BYTES)
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as handle:
            data = handle.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise DataError(path, f"unpacks to more than {_MAX_BYTES:,} bytes", "Check where it comes from")
        return json.loads(data)
    except OSError as error:
        raise DataError(path, (error.strerror or "cannot be read").lower(), "Check the path") from None
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise DataError(path, f"is not JSON ({error})", "Download it again") from None


def read_sharding(path: Path, data: object = None) -> Sharding:
    """Read a problem, JSON or compressed with gzip.

    Args:
        path: The file.
        data: What it holds, where that was read before.

    Raises:
        DataError: The file is missing, not JSON or lacks a field; lists disagree in length, a cost or usage
            is negative, an edge names no node, a node has no strategy, or no decision keeps to the limit.
    """
    path = Path(path)
    data = read_problem_file(path) if data is None else data
    fields = check_record(path, data, _File, _FORMAT)["problem"]
    nodes, edges, limit = fields["nodes"], fields["edges"], fields.get("usage_limit")
    counts = [len(costs) for costs in nodes["costs"]]
    lengths = len(edges["nodes"]) == len(edges["costs"]) and len(nodes["intervals"]) == len(counts)
    if not lengths or counts != [len(own) for own in nodes["usages"]]:
        raise DataError(path, "its lists disagree in length", _FORMAT)
    for node, interval in enumerate(nodes["intervals"]):
        if interval and (len(interval) != 2 or interval[0] > interval[1]):
            problem = f"the interval of node {node} is {interval}"
            raise DataError(path, problem, "An interval is [begin, end], or empty")
    matrices = []
    for number, ((u, v), costs) in enumerate(zip(edges["nodes"], edges["costs"], strict=True)):
        if not (0 <= u < len(counts) and 0 <= v < len(counts)):
            raise DataError(path, f"edge {number} names no node", _FORMAT)
        if len(costs) != counts[u] * counts[v]:
            problem = f"edge {number} has {len(costs)} costs, {counts[u]} x {counts[v]} wanted"
            raise DataError(path, problem, _FORMAT)
        matrices.append(np.array(costs, float).reshape(counts[u], counts[v]))
    sharding = Sharding(
        path.name.removesuffix(".gz").removesuffix(".json").rpartition("-")[2],
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([cost for row in nodes["costs"] for cost in row], float),
        np.array([usage for row in nodes["usages"] for usage in row], float),
        np.array([interval or (0, 0) for interval in nodes["intervals"]], np.int64),
        np.array(edges["nodes"], np.int64).reshape(-1, 2),
        matrices,
        np.inf if limit is None else float(limit),
    )
    least = np.array([own.argmin() for own in np.split(sharding.usages, sharding.first[1:-1])])
    if (excess := float(sharding.excess(least[None])[0])) > 0:
        problem = f"has no valid decision: at least {sharding.limit + excess:g} is in use at some time,"
        raise DataError(path, f"{problem} usage_limit is {sharding.limit:g}", "Raise usage_limit in the file")
    return sharding
