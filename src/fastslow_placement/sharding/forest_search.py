"""Search for sharding problems: exact moves of forests of groups, memory priced by Lagrange multipliers.

A move frees a random set of groups of tied nodes that induces a forest, keeps all others, and finds the best
options of the freed ones together by dynamic programming. Memory enters as a price per byte at each time,
raised where the limit is exceeded (subgradient method, Held and Karp 1971), so that a move sees the memory of
all nodes at once. Decisions to start from, and the lower bound, come from message passing. What does not fit
is repaired, and of every decision the parts that are cheaper than those of the best one go into it, so that
a large graph is improved in many places at once.
"""

from collections.abc import Callable

import numpy as np

from fastslow_placement.base.search import Budget, unlimited
from fastslow_placement.sharding.memory_repair import MemoryRepair
from fastslow_placement.sharding.message_passing import MessagePassing
from fastslow_placement.sharding.recombination import Recombination
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding
from fastslow_placement.sharding.tied_strategies import TiedStrategies

_PRICED_SHARE = 0.3  # of the budget goes to finding prices, the rest to improving valid decisions
_PATIENCE = 200  # rounds of pricing after which a start may be without valid decision
_LAST = 1.0  # seconds that are not divided further
_LARGEST = 1000  # groups that a move frees while it improves
_LEVELS = (4.0, 2.0, 1.4)  # factors of the prices' level from try to try
_TEMPERATURE = 2e-3  # share of its cost by which a decision may be worse than the one before


class ForestSearch:
    """State of a search: a decision, the prices, and the best valid decision so far.

    Decisions are of the groups of :class:`TiedStrategies`, (G,). ``best`` and ``best_cost`` are the best
    valid decision of all nodes, (N,), and its cost, ``bound`` a lower bound of every valid decision's cost,
    ``evaluations`` and ``history`` as in :class:`fastslow_placement.base.search.Found`.

    Args:
        problem: The problem.
        seed: Seed of the random sets.
        start: (N,) first decision; by default each group's option of least memory.
        more: Whether there is time to go on joining tied nodes.
    """

    def __init__(
        self,
        problem: Sharding,
        seed: int = 0,
        start: np.ndarray | None = None,
        more: Callable[[], bool] = unlimited,
    ):
        self.problem = problem
        self.groups = TiedStrategies(problem, more)
        self.recombination, self.messages = Recombination(self.groups), MessagePassing(self.groups)
        self.repair = MemoryRepair(self.groups)
        self._links = self.groups.tables()
        self.price = self.best_price = np.zeros(len(problem.times))  # per byte, from each time on
        self.bound, self._step, self._since, self.rounds = -np.inf, 1.0, 0, 0
        self.best, self.best_cost, self._best = None, np.inf, None
        if start is None:
            life = problem.spans[:, 1] - problem.spans[:, 0]
            parts = zip(self.groups.nodes, self.groups.memory, strict=True)
            start = self.groups.expand(np.array([(life[nodes] @ memory).argmin() for nodes, memory in parts]))
        self.again(seed, start)

    def again(self, seed: int, start: np.ndarray) -> None:
        """Begin anew at a decision (N,), with other random sets; prices, messages and the best one stay."""
        self.rng, self.decision = np.random.default_rng(seed), self.groups.compress(np.asarray(start))
        self.evaluations, self.history = 0, [] if self.best is None else [(0, self.best_cost)]
        self.record(self.decision)

    @property
    def decided(self) -> np.ndarray:
        """The best valid decision, (N,), or the last one where none was valid."""
        return self.groups.expand(self.decision) if self.best is None else self.best

    def record(self, decision: np.ndarray) -> tuple[float, float]:
        """Return cost and excess of a decision, and keep what is better of it than of the best valid one."""
        self.evaluations += 1
        cost, excess = self.judge(decision)
        if excess <= 0 and cost < min(self.best_cost, FORBIDDEN):
            self._keep(decision.copy(), cost)
        elif self._best is not None:
            merged = self.recombination.best_of(self._best, decision)
            if merged is not self._best:
                self._keep(merged, self.judge(merged)[0])
        return cost, excess

    def judge(self, decision: np.ndarray) -> tuple[float, float]:
        """Return cost and excess of a decision (G,)."""
        full = self.groups.expand(decision)[None]
        return float(self.problem.cost(full)[0]), float(self.problem.excess(full)[0])

    def _keep(self, decision: np.ndarray, cost: float) -> None:
        if cost < self.best_cost:
            self.best, self.best_cost, self._best = self.groups.expand(decision), cost, decision
            self.history.append((self.evaluations, cost))

    def forest(self, size: int) -> tuple[list[int], dict[int, int]]:
        """Return up to ``size`` random groups that induce a forest, parents first, and their parents.

        The set grows from random roots along edges, so that it is connected where possible.
        """
        count, links = len(self.groups), self._links
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

    def freed(self, decision: np.ndarray, order: list[int], parent: dict[int, int]) -> tuple:
        """Return a forest, its parents, and the costs of its options without tolls, all others as decided."""
        costs = []
        for group in order:
            cost = self.groups.costs[group]
            for other, table in self._links[group].items():
                if other not in parent:
                    cost = cost + table[decision[other]]
            costs.append(cost)
        return order, parent, costs

    def solve(self, decision: np.ndarray, forest: tuple, toll: np.ndarray) -> np.ndarray:
        """Return the decision with the groups of a forest chosen best under prices.

        Args:
            decision: (G,) the decision to start from; not changed.
            forest: From :meth:`freed`.
            toll: (N,) price of a byte over each node's lifetime.
        """
        order, parent, costs = forest
        nodes, memory, chosen = self.groups.nodes, self.groups.memory, {}
        total = {g: cost + toll[nodes[g]] @ memory[g] for g, cost in zip(order, costs, strict=True)}
        for group in reversed(order):
            above = parent[group]
            if above >= 0:
                table = self._links[above][group] + total[group][:, None]  # (own, parent's)
                chosen[group] = table.argmin(0)
                total[above] = total[above] + table.min(0)
        result = decision.copy()
        for group in order:
            above = parent[group]
            result[group] = total[group].argmin() if above < 0 else chosen[group][result[above]]
        return result

    def find_prices(self, more: Callable[[], bool]) -> None:
        """Alternate message passing, forest moves and changes of the prices until ``more()`` is false."""
        while more():
            toll = self.problem.tolls(self.price)
            found, bound = self.messages.sweep(self.groups.priced(toll))
            excess = self.record(found)[1]
            for _ in range(2):
                if more():
                    forest = self.freed(found, *self.forest(len(self.groups)))
                    found = self.solve(found, forest, toll)
                    excess = self.record(found)[1]
            if excess > 0:
                self.record(self.repair.repaired(found, more))
            self.decision, self.rounds = found, self.rounds + 1
            limit = self.problem.limit if np.isfinite(self.problem.limit) else 0.0
            self._reprice(bound - float(self.price.sum()) * limit)

    def begin(self, rounds: int, more: Callable[[], bool]) -> None:
        """Go on to this many rounds of pricing in all, up to 200 while no decision is valid; at least one.

        Args:
            rounds: Number of rounds.
            more: Whether there is time for another one.
        """

        def another() -> bool:
            last = rounds if self.best is not None else _PATIENCE
            return self.rounds < last and (not self.rounds or more())

        self.find_prices(another)

    def _reprice(self, bound: float) -> None:
        """Raise prices where the limit is exceeded, lower them elsewhere.

        After 15 rounds without a better bound, return to the prices of the best bound with half the step.
        """
        self._since += 1
        if bound > self.bound:
            self.bound, self.best_price, self._since = bound, self.price, 0
        if not len(self.price) or not 0 < self.problem.limit < np.inf:
            return
        if self._since >= 15:
            self.price, self._since, self._step = self.best_price, 0, self._step / 2
        used = self.problem.usage(self.groups.expand(self.decision)[None])[0]
        over = np.clip(used / self.problem.limit - 1, -0.1, 1)
        scale = 2 * max(self.bound, 1.0) / self.problem.limit
        self.price = np.maximum(self.price + self._step * scale * over, 0)

    def improve(self, more: Callable[[], bool]) -> None:
        """Improve the best valid decision until ``more()`` is false, by moves under perturbed prices.

        For each forest the level of the prices is bisected: lower while the result fits in memory, higher
        while it does not. The cheapest that fits is kept if it is not much worse (simulated annealing). The
        prices are perturbed by one factor for all nodes and by one for each, in turn.
        """
        if self.best is None:
            return
        current, cost = self._best.copy(), self.best_cost
        rounds, count = 0, len(self.problem)
        toll = self.problem.tolls(self.best_price) + 1e-3 * cost / max(self.problem.usages.sum(), 1)
        while more():
            size = int(min(len(self.groups), _LARGEST) * self.rng.random() ** 3) + 2
            forest = self.freed(current, *self.forest(size))
            noisy = toll * np.exp(self.rng.normal(0.1, 0.5, 1 if rounds % 2 else count))
            candidate, found, merged = self._bisected(current, forest, noisy)
            slack = cost * _TEMPERATURE * self.rng.exponential() / (1 + rounds / 100)
            if found <= cost + slack:
                current, cost = candidate, found
            elif merged is not current:
                current, cost = merged, self.judge(merged)[0]
            elif rounds % 50 == 49:
                current, cost = self._best.copy(), self.best_cost
            rounds += 1

    def _bisected(self, decision: np.ndarray, forest: tuple, toll: np.ndarray) -> tuple:
        """Return the cheapest decision that fits over levels of the tolls, its cost, and the parts of all.

        The last one is the decision with all parts that are cheaper and fit, itself if there are none.
        """
        best, lowest, level, merged = decision, np.inf, 1.0, decision
        for step in _LEVELS:
            candidate = self.solve(decision, forest, toll * level)
            cost, excess = self.record(candidate)
            merged = self.recombination.best_of(merged, candidate)
            if excess <= 0 and cost < lowest:
                best, lowest = candidate, cost
            level *= step if excess > 0 else 1 / step
        return best, lowest, merged


def search(
    problem: Sharding,
    budget: Budget,
    seed: int = 0,
    start: np.ndarray | None = None,
    state: ForestSearch | None = None,
) -> ForestSearch:
    """Search for a time and return the state, which holds the best valid decision and a lower bound.

    Args:
        problem: The problem.
        budget: What is left of it is spent.
        seed: Seed.
        start: (N,) decision to start from; if it is valid, the result is no worse.
        state: A search to go on with, whose prices are known; needs a start.
    """
    if state is None:
        state = ForestSearch(problem, seed, start, budget.share())
    else:
        state.again(seed, start)
    state.find_prices(budget.share(_PRICED_SHARE))
    left = budget.share()
    while state.best is None and left():
        state._step = 1.0
        state.find_prices(budget.share(0.1) if budget.left > _LAST else left)
    state.improve(left)
    return state
