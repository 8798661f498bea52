"""Rules that search nothing: one device, the split by hand, METIS, m-ETF, no fusion."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow_placement.base.problem import Problem
from fastslow_placement.base.search import best_of
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.list_placement import m_etf
from fastslow_placement.programs.problems import FusionProblem, PlacementProblem


def first_options(problem: Problem) -> np.ndarray:
    """Return the decision ``(U,)`` int64 that gives every unit its first option, 0: one device, no fusion."""
    return np.zeros(len(problem.choices), np.int64)


def by_hand(problem: Problem) -> np.ndarray:
    """Return the problem's default ``(U,)``: for placement runs of equal work, as by layers."""
    return problem.default


def metis(problem: Any) -> np.ndarray:
    """Return METIS' k-way partition: vertices weigh their work, edges their transfer time.

    Args:
        problem: A problem whose units choose devices, with attributes ``devices``, ``work`` and ``weight``.

    Returns:
        ``(U,)`` int64, the device of each unit, from 0.

    Raises:
        SettingsError: pymetis is not installed.
    """
    try:
        import pymetis
    except ImportError:
        raise SettingsError("pymetis is not installed: pip install -e '.[placement]'") from None
    count = len(problem.choices)
    parts = problem.devices
    weights: list[dict[int, float]] = [{} for _ in range(count)]
    for (u, v), weight in zip(problem.edges.tolist(), problem.weight, strict=True):
        for one, other in ((u, v), (v, u)):
            weights[one][other] = weights[one].get(other, 0.0) + weight
    starts = np.cumsum([0, *map(len, weights)]).tolist()
    neighbours = [other for row in weights for other in row]
    if parts == 1 or not neighbours:
        return np.arange(count) % parts
    scale = 1000 / max(max(problem.weight), 1e-300)
    edges = [1 + int(weight * scale) for row in weights for weight in row.values()]
    work = 1 + (problem.work * 1000 / max(problem.work.max(), 1e-300)).astype(int)
    options = pymetis.Options(seed=0)
    adjacency = pymetis.CSRAdjacency(starts, neighbours)
    with _silent():
        _, partition = pymetis.part_graph(
            parts, adjacency, vweights=work.tolist(), eweights=edges, options=options
        )
    return np.array(partition, np.int64)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drop what C code prints to stdout: METIS warns there, many times, of parts that it leaves empty."""
    flush = ctypes.CDLL(None).fflush  # C has a buffer of its own
    stdout = os.dup(1)
    sys.stdout.flush()
    flush(None)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


BEST_START = "best placement by rules"
PLACEMENT_RULES: dict[str, Callable[[PlacementProblem], np.ndarray]] = {
    "one device": first_options,
    "human": by_hand,
    "METIS": metis,
    "m-ETF": m_etf,
}


def best_placement(problem: JointProblem) -> np.ndarray:
    """Return the best of a joint problem's starts ``(3 N,)``: placements by rules, with greedy fusion."""
    return best_of(problem, problem.starts).decision


def rules_of(problem: Problem) -> dict[str, Callable[[Any], np.ndarray]]:
    """Return the rules that apply to a problem, by name; METIS where pymetis is installed.

    Each takes the problem and returns a decision (U,).
    """
    rules: dict[str, Callable] = {"default": by_hand}
    if isinstance(problem, PlacementProblem):
        rules = dict(PLACEMENT_RULES)
    if isinstance(problem, FusionProblem):
        rules["no fusion"] = first_options
    if isinstance(problem, JointProblem):
        rules[BEST_START] = best_placement
    if find_spec("pymetis") is None:
        rules.pop("METIS", None)
    return rules
