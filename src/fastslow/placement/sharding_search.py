"""Search for sharding problems: exact moves of whole forests of nodes, memory priced by Lagrange multipliers.

A move frees a random set of nodes that induces a forest, keeps all others, and finds the best strategies of
the
freed ones together by dynamic programming. Memory enters as a price per byte at each time, raised where the
limit is exceeded (subgradient method, Held and Karp 1971), so that a move sees the memory of all nodes at
once.
Decisions to start from, and the lower bound, come from message passing.
"""

import time
from collections.abc import Callable

import numpy as np

from fastslow.placement.message_passing import MessagePassing
from fastslow.placement.sharding import FORBIDDEN, Sharding

_PRICED_SHARE = 0.6  # of the budget goes to finding prices, the rest to improving valid decisions


class ForestSearch:
    """State of a search: a decision, the prices, and the best valid decision so far.

    ``best`` and ``best_cost`` are the best valid decision and its cost, ``bound`` a lower bound of every
    valid
    decision's cost.

    Args:
        problem: The problem.
        seed: Seed of the random sets.
        start: (N,) first decision; by default each node's strategy of least memory.
    """

    def __init__(self, problem: Sharding, seed: int = 0, start: np.ndarray | None = None):
        self.problem, self.rng = problem, np.random.default_rng(seed)
        first = problem.first
        self._own = [problem.costs[a:b] for a, b in zip(first, first[1:], strict=False)]
        self._use = [problem.usages[a:b] for a, b in zip(first, first[1:], strict=False)]
        self._links = _neighbour_matrices(problem)
        least = np.array([use.argmin() for use in self._use])
        self.decision = least if start is None else np.asarray(start).copy()
        self.price = np.zeros(len(problem.times))  # per byte, from each time on
        self.bound, self._step, self._since = -np.inf, 1.0, 0
        self._best_price = self.price
        self._messages = MessagePassing(problem, self._links)
        self.best, self.best_cost = None, np.inf
        self.record(self.decision)

    def record(self, decision: np.ndarray) -> tuple[float, float]:
        """Return cost and excess of a decision, and keep it if it is the best valid one."""
        cost = float(self.problem.cost(decision[None])[0])
        excess = float(self.problem.excess(decision[None])[0])
        if excess <= 0 and cost < min(self.best_cost, FORBIDDEN):
            self.best, self.best_cost = decision.copy(), cost
        return cost, excess

    def forest(self, size: int) -> tuple[list[int], dict[int, int]]:
        """Return up to ``size`` random nodes that induce a forest, parents first, and their parents.

        The set grows from random roots along edges, so that it is connected where possible.
        """
        count, links = len(self.problem), self._links
        order, parent = [], {}
        blocked = np.zeros(count, np.int64)  # neighbours inside: two make a cycle (or join two trees)
        for root in self.rng.permutation(count).tolist():
            if len(order) >= size:
                break
            if root in parent or blocked[root]:
                continue
            stack = [(root, -1)]
            while stack and len(order) < size:
                node, above = stack.pop(int(self.rng.random() * len(stack)))
                if node in parent or blocked[node] > (above >= 0):
                    continue
                parent[node] = above
                order.append(node)
                for other in links[node]:
                    blocked[other] += 1
                    if other not in parent and blocked[other] == 1:
                        stack.append((other, node))
        return order, parent

    def move(self, decision: np.ndarray, size: int, toll: np.ndarray) -> np.ndarray:
        """Return the decision with a random forest of nodes chosen best under prices.

        Args:
            decision: (N,) the decision to start from; not changed.
            size: Maximum number of nodes to free.
            toll: (N,) price of a byte over each node's lifetime, see :meth:`tolls`.
        """
        order, parent = self.forest(size)
        total = {}
        for node in order:
            cost = self._own[node] + self._use[node] * toll[node]
            for other, matrix in self._links[node].items():
                if other not in parent:
                    cost = cost + matrix[decision[other]]
            total[node] = cost
        chosen = {}
        for node in reversed(order):
            above = parent[node]
            if above >= 0:
                table = self._links[above][node] + total[node][:, None]  # (own, parent's)
                chosen[node] = table.argmin(0)
                total[above] = total[above] + table.min(0)
        result = decision.copy()
        for node in order:
            above = parent[node]
            result[node] = total[node].argmin() if above < 0 else chosen[node][result[above]]
        return result

    def tolls(self, price: np.ndarray) -> np.ndarray:
        """Return the price of a byte over each node's lifetime: (N,)."""
        total = np.concatenate([[0.0], np.cumsum(price)])
        return total[self.problem.spans[:, 1]] - total[self.problem.spans[:, 0]]

    def find_prices(self, more: Callable[[], bool]) -> None:
        """Alternate message passing, forest moves and changes of the prices until ``more()`` is false."""
        limit = self.problem.limit if np.isfinite(self.problem.limit) else 0.0
        while more():
            toll = self.tolls(self.price)
            found, bound = self._messages.sweep(toll)
            self.record(found)
            for _ in range(2):
                found = self.move(found, len(self.problem), toll)
                self.record(found)
            self.decision = found
            self._reprice(bound - float(self.price.sum()) * limit)

    def _reprice(self, bound: float) -> None:
        """Raise prices where the limit is exceeded, lower them elsewhere.

        Without progress of the bound for 15 rounds, return to the prices of the best bound with half the
        step.
        """
        self._since += 1
        if bound > self.bound:
            self.bound, self._best_price, self._since = bound, self.price, 0
        if not len(self.price) or not np.isfinite(self.problem.limit):
            return
        if self._since >= 15:
            self.price, self._since, self._step = self._best_price, 0, self._step / 2
        over = np.clip(self.problem.usage(self.decision[None])[0] / self.problem.limit - 1, -0.1, 1)
        scale = 2 * max(self.bound, 1.0) / self.problem.limit
        self.price = np.maximum(self.price + self._step * scale * over, 0)

    def improve(self, more: Callable[[], bool], temperature: float = 2e-3) -> None:
        """Improve the best valid decision until ``more()`` is false: moves under perturbed prices,
        in turn the same factor for all nodes and one for each.

        A move is kept where it is valid and not much worse (simulated annealing).
        """
        if self.best is None:
            return
        current, cost = self.best.copy(), self.best_cost
        rounds, count = 0, len(self.problem)
        toll = np.broadcast_to(self.tolls(self._best_price), count) + 1e-3 * cost / max(
            self.problem.usages.sum(), 1
        )
        while more():
            noise = self.rng.normal(0.1, 0.5, 1 if rounds % 2 else count)
            size = int(count * self.rng.random() ** 3) + 2
            candidate = self.move(current, size, toll * np.exp(noise))
            found, excess = self.record(candidate)
            slack = cost * temperature * self.rng.exponential() / (1 + rounds / 100)
            if excess <= 0 and found <= cost + slack:
                current, cost = candidate, found
            elif rounds % 50 == 49:
                current, cost = self.best.copy(), self.best_cost
            rounds += 1


def _neighbour_matrices(problem: Sharding) -> list[dict[int, np.ndarray]]:
    """Return for each node and neighbour the (neighbour's strategies, own strategies) costs of their
    edges.
    """
    links: list[dict[int, np.ndarray]] = [{} for _ in range(len(problem))]
    for (u, v), matrix in zip(problem.edges.tolist(), problem.matrices, strict=True):
        for one, other, table in ((u, v, matrix.T), (v, u, matrix)):
            own = links[one].get(other)
            links[one][other] = np.ascontiguousarray(table) if own is None else own + table
    return links


def search(problem: Sharding, seconds: float, seed: int = 0, start: np.ndarray | None = None) -> ForestSearch:
    """Search for a time and return the state, which holds the best valid decision and a lower bound.

    Args:
        problem: The problem.
        seconds: Budget of this process's CPU time.
        seed: Seed.
        start: (N,) decision to start from; if it is valid, the result is no worse.
    """
    begin = time.process_time()

    def until(share: float) -> Callable[[], bool]:
        return lambda: time.process_time() - begin < seconds * share

    state = ForestSearch(problem, seed, start)
    state.find_prices(until(_PRICED_SHARE))
    while state.best is None and until(1)():
        state._step = 1.0
        state.find_prices(until(min(1.0, (time.process_time() - begin) / seconds + 0.1)))
    state.improve(until(1))
    return state


def greedy(problem: Sharding, rounds: int = 3) -> np.ndarray:
    """Return a first decision: forest moves from least memory under no price, then a few priced rounds.

    Where none is valid, the last one.
    """
    state = ForestSearch(problem)
    for _ in range(rounds):
        start = state.decision if state.best is None else state.best
        state.record(state.move(start, len(problem), state.tolls(state.price)))
    left = iter(range(200))
    if state.best is None:
        state.find_prices(lambda: state.best is None and next(left, None) is not None)
    return state.decision if state.best is None else state.best


def local_costs(problem: Sharding, probabilities: np.ndarray) -> np.ndarray:
    """Return each strategy's cost if the neighbours choose with these probabilities: (S,)."""
    total, first = problem.costs.copy(), problem.first
    for (u, v), matrix in zip(problem.edges.tolist(), problem.matrices, strict=True):
        a, b = slice(first[u], first[u + 1]), slice(first[v], first[v + 1])
        total[a] += matrix @ probabilities[b]
        total[b] += probabilities[a] @ matrix
    return total
