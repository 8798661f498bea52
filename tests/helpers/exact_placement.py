"""Exact optima and bounds of small problems by mixed-integer programming (HiGHS through SciPy)."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from fastslow_placement.programs.problems import PlacementProblem


@dataclass(frozen=True)
class Solution:
    """Result of a solver.

    Args:
        decision: (U,) the best decision found, or None.
        cost: Its value in the programme.
        bound: Proven lower bound.
    """

    decision: np.ndarray | None
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """Relative distance of cost and bound."""
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300)


class _Programme:
    """A mixed-integer programme under construction: variables by number, rows as dictionaries."""

    def __init__(self):
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variables(self, count: int, upper: float = 1.0, whole: bool = False) -> np.ndarray:
        """Return the numbers of new variables between 0 and ``upper``."""
        first = len(self.lower)
        self.lower += [0.0] * count
        self.upper += [upper] * count
        self.whole += [int(whole)] * count
        return np.arange(first, first + count)

    def add(self, row: dict[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        """Require low <= row <= high."""
        self.rows.append((row, low, high))

    def solve(self, goal: dict[int, float], seconds: float):
        """Return SciPy's result for the minimum."""
        costs = np.zeros(len(self.lower))
        for variable, cost in goal.items():
            costs[variable] += cost
        where = [(r, v, c) for r, (row, _, _) in enumerate(self.rows) for v, c in row.items()]
        rows, columns, values = zip(*where, strict=True)
        table = coo_array((values, (rows, columns)), shape=(len(self.rows), len(costs))).tocsr()
        low, high = ([row[side] for row in self.rows] for side in (1, 2))
        limits = LinearConstraint(table, low, high)
        options = {"time_limit": seconds}
        return milp(
            costs,
            integrality=self.whole,
            bounds=Bounds(self.lower, self.upper),
            constraints=limits,
            options=options,
        )


def _solution(result, choose: np.ndarray | list, problem_cost) -> Solution:
    bound = result.mip_dual_bound if result.mip_dual_bound is not None else -np.inf
    if result.x is None:
        return Solution(None, np.inf, bound)
    decision = np.array([int(result.x[options].argmax()) for options in choose], np.int64)
    return Solution(decision, float(problem_cost(decision)), bound)


def placement_bound(problem: PlacementProblem, seconds: float = 60.0) -> Solution:
    """Return the best placement where links are never busy; its bound holds for the real runtime too.

    Disjunctive programme: an order for every two operators that can be on one device. The decision's cost is
    that of the environment, with serial links and the list schedule, so the gap includes that difference.
    """
    programme, graph, k = _Programme(), problem.graph, problem.devices
    nodes, units = len(graph), problem.units
    chosen = programme.variables(len(problem.choices) * k, whole=True).reshape(-1, k)
    start = programme.variables(nodes, np.inf)
    (end,) = programme.variables(1, np.inf)
    transfer = problem.device.transfer_seconds(graph.output_bytes)
    horizon = float(graph.seconds.sum() + transfer.sum())
    for unit in chosen:
        programme.add(dict.fromkeys(unit.tolist(), 1.0), 1, 1)
    for node in range(nodes):
        programme.add({int(end): 1.0, int(start[node]): -1.0}, low=float(graph.seconds[node]))
    for u, v in graph.edges.tolist():
        wait = {int(start[v]): 1.0, int(start[u]): -1.0}
        programme.add(wait, low=float(graph.seconds[u]))
        for device in range(k):
            if units[u] != units[v]:
                row = {
                    **wait,
                    int(chosen[units[u], device]): -transfer[u],
                    int(chosen[units[v], device]): transfer[u],
                }
                programme.add(row, low=float(graph.seconds[u]))
    for u in range(nodes):
        for v in range(u + 1, nodes):
            (before,) = programme.variables(1, whole=True)
            for a, b, sign, base in ((u, v, -1.0, 0.0), (v, u, 1.0, 1.0)):
                # start[b] >= start[a] + seconds[a] if both are on the device and a comes first
                for device in range(k):
                    together = {int(chosen[units[u], device]): -horizon}
                    other = int(chosen[units[v], device])
                    together[other] = together.get(other, 0.0) - horizon
                    row = {int(start[b]): 1.0, int(start[a]): -1.0, int(before): sign * horizon, **together}
                    programme.add(row, low=float(graph.seconds[a]) - horizon * (3 - base))
    result = programme.solve({int(end): 1.0}, seconds)
    return _solution(result, chosen, lambda decision: problem.evaluate(decision[None]).order[0])
