"""Search for sharding problems: exact moves of forests of groups, memory priced by Lagrange multipliers.

A move frees groups of tied nodes that induce a forest, keeps all others, and finds the best options of the
freed ones together by dynamic programming. Memory enters as a price per byte at each time, raised where the
limit is exceeded (subgradient method, Held and Karp 1971), so that a move sees the memory of all nodes at
once. Decisions to start from, and the lower bound, come from message passing. What does not fit is repaired,
and of every decision the parts that are cheaper than those of the best one go into it, so that a large graph
is improved in many places at once. Its loops are in :mod:`fastslow_placement.sharding.compiled`.
"""

import time
from collections.abc import Callable
from itertools import count

import numpy as np

from fastslow_placement.base.search import Budget, unlimited
from fastslow_placement.sharding.compiled import Workspace, grow, move, save_memory, solve, take_parts
from fastslow_placement.sharding.message_passing import MessagePassing
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding
from fastslow_placement.sharding.tied_strategies import TiedStrategies

_PRICED_SHARE = 0.3  # of the budget goes to finding prices, the rest to improving valid decisions
_PATIENCE = 200  # rounds of pricing after which a start may be without valid decision
_LAST = 1.0  # seconds that are not divided further
_LARGEST = 300  # groups that a move frees while it improves
_MOVES = 100  # between two looks at the time, more in a large graph
_HOT = 0.1  # temperature of the moves over the mean cost of a group
_CHANGES = 256  # of a repair, between two looks at the time
_RARE = 1e-9  # of the mean cost of a group: the least that a change of a repair counts as


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
        self.messages = MessagePassing(self.groups)
        self._work = Workspace.of(len(self.groups), len(problem.times))
        self.price = self.best_price = np.zeros(len(problem.times))  # per byte, from each time on
        self.bound, self._step, self._since, self.rounds = -np.inf, 1.0, 0, 0
        self.best, self.best_cost, self._best = None, np.inf, None
        if start is None:
            life = problem.spans[:, 1] - problem.spans[:, 0]
            parts = zip(self.groups.nodes, self.groups.memory, strict=True)
            start = self.groups.expand(np.array([(life[nodes] @ memory).argmin() for nodes, memory in parts]))
        self._moved: tuple = (np.inf,)  # best cost after the last moves, where they ended, its bytes in use
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
            merged = self.best_of(self._best, decision)
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

    def forest(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return up to ``size`` random groups that induce a forest, and the links to their parents."""
        return grow(self.groups.arrays, self._work, min(size, len(self.groups)), self.rng)

    def solve(self, decision: np.ndarray, forest: tuple, toll: np.ndarray) -> np.ndarray:
        """Return the decision with the groups of a forest chosen best under prices.

        Args:
            decision: (G,) the decision to start from; not changed.
            forest: Its groups, parents first, and the position of the link to each one's parent, -1: none.
            toll: (N,) price of a byte over each node's lifetime.
        """
        order, up = forest
        result = decision.copy()
        result[order] = solve(self.groups.arrays, self._work, decision, order, up, toll, np.ones(len(order)))
        return result

    def best_of(self, base: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return a valid decision (G,) that costs no more than the valid one it starts from.

        Where two decisions differ, the groups fall into parts that no link joins, so that the difference of
        their costs is a sum over parts (partition crossover, Whitley et al. 2009). Each part takes the
        cheaper options while memory allows, the part that saves most first.

        Args:
            base: (G,) a valid decision; not changed.
            other: (G,) options to take where that is cheaper and fits; this decision need not be valid.
        """
        if np.array_equal(base, other):
            return base
        made, usage = base.copy(), self.problem.usage(self.groups.expand(base)[None])[0]
        taken = take_parts(self.groups.arrays, self._work, made, usage, self.problem.limit, other)
        return made if taken else base

    def repaired(self, chosen: np.ndarray, more: Callable[[], bool] = unlimited) -> np.ndarray:
        """Return a decision (G,) changed until it fits, no change lowers the excess or time is over.

        The excess is the sum over times of the bytes over the limit; every change lowers it. The cheapest
        change per byte saved is made first, from a heap whose prices are brought up to date when they come to
        the top (lazy greedy, Minoux 1978), for prices mostly rise while fewer bytes are left to save.

        Args:
            chosen: (G,) options; not changed.
            more: Whether there is time to go on; there are at most four changes for each group.
        """
        chosen, full = chosen.copy(), self.groups.expand(chosen)[None]
        usage, limit = self.problem.usage(full)[0], self.problem.limit
        least = max(float(self.problem.cost(full)[0]) / len(self.groups), 1e-300) * _RARE
        left, made = 4 * len(self.groups), 1
        while left > 0 and made and more():
            most = min(left, _CHANGES)
            made = save_memory(self.groups.arrays, self._work, chosen, usage, limit, least, most)
            left -= made
        return chosen

    def find_prices(self, more: Callable[[], bool]) -> None:
        """Alternate message passing, forest moves and changes of the prices until ``more()`` is false."""
        while more():
            found, bound = self._round(self.price, more)
            self.decision, self.rounds = found, self.rounds + 1
            limit = self.problem.limit if np.isfinite(self.problem.limit) else 0.0
            self._reprice(bound - float(self.price.sum()) * limit)

    def _round(self, price: np.ndarray, more: Callable[[], bool]) -> tuple[np.ndarray, float]:
        """Return a decision under prices and a bound; the best one takes the parts that are cheaper."""
        toll = self.problem.tolls(price)
        found, bound = self.messages.sweep(self.groups.priced(toll))
        excess = self.record(found)[1]
        for _ in range(2):
            if more():
                found = self.solve(found, self.forest(len(self.groups)), toll)
                excess = self.record(found)[1]
        if excess > 0:
            self.record(self.repaired(found, more))
        return found, bound

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
        """Improve the best valid decision until ``more()`` is false, by moves and by rounds of other prices.

        What has lowered the cost more a second is done next, and every eighth time the other one.
        """
        if self.best is None:
            return
        gains = {self._move: np.inf, self._vary_prices: np.inf}
        for turn in count():
            if not more():
                return
            act = (max if turn % 8 else min)(gains, key=gains.get)
            begin, before = time.process_time(), self.best_cost
            act(more)
            gain = (before - self.best_cost) / max(time.process_time() - begin, 1e-6)
            gains[act] = gain if gains[act] == np.inf else 0.8 * gains[act] + 0.2 * gain

    def _move(self, _: Callable[[], bool]) -> None:
        """Make random moves from where the last ones ended; from the best decision if it is better since."""
        problem, arrays = self.problem, self.groups.arrays
        if self.best_cost < self._moved[0]:
            start = np.array(self._best)
            self._moved = self.best_cost, start, problem.usage(self.groups.expand(start)[None])[0]
        _, start, usage = self._moved
        toll = problem.tolls(self.best_price) + 1e-3 * self.best_cost / max(problem.usages.sum(), 1)
        hot, moves = _HOT * self.best_cost / len(self.groups), max(_MOVES, len(self.groups) // 20)
        limits = problem.limit, toll, moves, _LARGEST, hot
        best = move(arrays, self._work, start, usage, *limits, self.rng)
        self.evaluations += moves - 1
        self.record(best)
        self._moved = self.best_cost, start, usage

    def _vary_prices(self, more: Callable[[], bool]) -> None:
        """Make a round with prices times random factors that are alike at times near each other."""
        knots = self.rng.integers(1, 2 + len(self.price) // 10)
        rough = self.rng.normal(0.1, 1.0, knots + 1)
        smooth = np.interp(np.linspace(0, knots, len(self.price)), np.arange(knots + 1), rough)
        self._round(self.best_price * np.exp(smooth), more)


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
