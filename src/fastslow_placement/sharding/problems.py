"""Sharding as a decision problem, and as the policy decides it: hubs first, the trees between them exactly.

Nodes tied by forbidden pairs choose together (``tied_strategies``), so that no draw is forbidden. Of these
groups all but a tenth induce a forest. The policy chooses for the others, the *hubs* (a feedback vertex set).
Given these, dynamic programming finds the best options of the trees beside those that changed, under prices
of memory, at the lowest level of prices where the decision fits. Of the result, the parts that are cheaper
than the rule's and fit are kept, so that one bad choice does not hide a good one elsewhere in a large graph.
Prices and messages come from the rule, some rounds of message passing.
"""

from collections.abc import Callable

import numpy as np

from fastslow_placement.base.problem import OPTION_FEATURES, Outcome, Problem, scaled, unit_columns
from fastslow_placement.base.search import Budget, Found
from fastslow_placement.sharding.compiled import largest_forest, rooted
from fastslow_placement.sharding.forest_search import ForestSearch, search
from fastslow_placement.sharding.sharding import FORBIDDEN, Sharding
from fastslow_placement.sharding.tied_strategies import TiedStrategies, begins

_FEW_ROUNDS = 10  # of pricing, for the default
_ROUNDS = 60  # of pricing before the policy decides
_PRICED_SHARE = 0.35  # of a budget goes to them
_LEVELS = (0.0, 0.2, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0)  # of the prices, tried until the decision fits


class ShardingProblem(Problem):
    """Which strategy each node takes; by default as after a few rounds of pricing.

    Args:
        sharding: The instance.
        budget: What is left of it limits tying, pricing and repair; without it only their own ends do.

    Attributes:
        more: Whether there is time left of the budget.
    """

    task = "sharding"

    def __init__(self, sharding: Sharding, budget: Budget | None = None):
        self.sharding, self.name, self.choices = sharding, sharding.name, sharding.choices
        self.kinds = np.zeros(len(sharding), np.int64)
        self.edges = np.unique(sharding.edges, axis=0).reshape(-1, 2)
        self.features = unit_columns(self.edges, len(sharding), choices=np.log1p(self.choices) / 5)
        budget = budget or Budget(np.inf)
        self.more = budget.share()
        self._state = ForestSearch(sharding, more=self.more)
        self._more = budget.share(_PRICED_SHARE)
        self.default = self.priced(_FEW_ROUNDS).decided

    def priced(self, rounds: int = _ROUNDS) -> ForestSearch:
        """Return the search of this problem after some rounds of pricing in all, fewer where time ends."""
        self._state.begin(rounds, self._more)
        return self._state

    def space(self, more: Callable[[], bool] | None = None) -> "HubSharding":
        """Return the problem as the policy decides it; without time a decision that does not fit stays."""
        return HubSharding(self, more)

    def searched(self, start: np.ndarray, budget: Budget, seed: int) -> Found:
        """Return the best decision of a search (:func:`search`) from a start, in the time of a budget."""
        state = search(self.sharding, budget, seed, start, self._state)
        if state.best is None:
            return Found.of(self, start)
        return Found(state.best, state.best_cost, state.evaluations, state.history)

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return the contest's cost, and bytes over the limit; a forbidden pair makes the cost infinite."""
        cost = self.sharding.cost(decisions)
        return Outcome(np.where(cost >= FORBIDDEN, np.inf, cost), self.sharding.excess(decisions))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the previous probability as the only feature."""
        features = np.zeros((len(probabilities), OPTION_FEATURES), np.float32)
        features[:, 4] = probabilities
        return features

    def unit_names(self) -> list[str]:
        """Return the number of each node."""
        return [f"node {node}" for node in range(len(self.choices))]

    @property
    def bound(self) -> float:
        """Every node and every edge at its own cheapest, or that of message passing if it is higher."""
        problem = self.sharding
        cheapest = np.minimum.reduceat(problem.costs, problem.first[:-1]).sum()
        cheapest += sum(matrix.min() for matrix in problem.matrices)
        return max(float(cheapest), self._state.bound)


class HubSharding(Problem):
    """Which option each hub takes.

    Attributes:
        rule: (N,) the rule's decision, to compare with.

    Args:
        problem: The problem of all nodes.
        more: Whether there is time to repair a decision that does not fit; by default that of the problem.
    """

    task = "sharding"
    _kept: tuple[float, np.ndarray, np.ndarray] | None = None  # cheapest: cost, of hubs, of all nodes

    def __init__(self, problem: ShardingProblem, more: Callable[[], bool] | None = None):
        self.problem, self.name, self._more = problem, problem.name, more or problem.more
        self._state = problem.priced()
        self.groups = groups = self._state.groups
        self.hubs, self._forest = hubs_and_forest(groups)
        self._root = self._roots()
        self.choices, count = groups.choices[self.hubs], len(self.hubs)
        self.kinds = np.zeros(count, np.int64)
        self.first = begins(self.choices)
        self._number = {hub: number for number, hub in enumerate(self.hubs.tolist())}
        self.edges = self._pairs()
        self._toll = problem.sharding.tolls(self._state.best_price)
        self._valid = self._state.best is not None
        self.rule = self._state.best if self._valid else problem.default
        self._given = groups.compress(self.rule)
        if self._valid:
            self._given = self._completed(self._given, *self._forest)
        self.default = self._given[self.hubs]
        self._scale = max(float(problem.sharding.cost(self.rule[None])[0]) / len(groups), 1e-300)
        self.features = self._columns()

    def _roots(self) -> np.ndarray:
        """Return the root of the tree of each group, -1 for a hub: (G,)."""
        root, other = np.full(len(self.groups), -1), self.groups.arrays.other
        for group, link in zip(*(own.tolist() for own in self._forest), strict=True):  # parents first
            root[group] = group if link < 0 else root[other[link]]
        return root

    def _pairs(self) -> np.ndarray:
        """Return the pairs of hubs that are neighbours or border on one tree: (M, 2)."""
        around: dict[int, set[int]] = {}
        pairs = set()
        for hub, number in self._number.items():
            for other in self.groups.links[hub]:
                if other in self._number:
                    pairs.add((min(number, self._number[other]), max(number, self._number[other])))
                else:
                    around.setdefault(int(self._root[other]), set()).add(number)
        for numbers in around.values():
            ring = sorted(numbers)
            pairs |= {*zip(ring, ring[1:], strict=False)}
        return np.array(sorted(pairs), np.int64).reshape(-1, 2)

    def _columns(self) -> np.ndarray:
        groups, sharding = self.groups, self.problem.sharding
        life = (sharding.spans[:, 1] - sharding.spans[:, 0]) / max(len(sharding.times), 1)
        held = [life[groups.nodes[hub]] @ groups.memory[hub] for hub in self.hubs]
        self._held = np.concatenate([*held, np.zeros(0)])
        return unit_columns(
            self.edges,
            len(self.hubs),
            choices=np.log1p(self.choices) / 5,
            cost=scaled(np.array([np.median(groups.costs[hub]) for hub in self.hubs])),
            least=scaled(np.array([own.min() for own in held])),
            most=scaled(np.array([own.max() for own in held])),
            members=np.log1p([len(groups.nodes[hub]) for hub in self.hubs]) / 5,
            degree=np.log1p([len(groups.links[hub]) for hub in self.hubs]) / 5,
        )

    def decode(self, decision: np.ndarray) -> np.ndarray:
        """Return the strategies of all nodes, (N,), for options of the hubs; never worse than the rule's."""
        if self._kept is not None and np.array_equal(self._kept[1], decision):
            return self._kept[2].copy()  # a repair that time ended would not end at the same again
        groups, chosen = self.groups, self._given.copy()
        changed = self.hubs[chosen[self.hubs] != decision].tolist()
        chosen[self.hubs] = decision
        if not self._valid:
            return groups.expand(self._completed(chosen, *self._forest))
        beside = {root for hub in changed for o in groups.links[hub] if (root := self._root[o]) >= 0}
        order, up = self._forest
        trees = np.isin(self._root[order], [*beside])
        return groups.expand(self._completed(chosen, order[trees], up[trees]))

    def _completed(self, chosen: np.ndarray, order: np.ndarray, up: np.ndarray) -> np.ndarray:
        """Return the best decision (G,) for some trees at rising prices; the last, repaired, if none fits.

        Where the rule is valid, parts that fit replace those of the rule that are dearer.
        """
        state, best = self._state, self._given
        for level in _LEVELS:
            found = state.solve(chosen, (order, up), self._toll * level)
            fits = state.judge(found)[1] <= 0
            if self._valid:
                best = state.best_of(best, found)
            if fits:
                return best if self._valid else found
        return best if self._valid else state.repaired(found, self._more)

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return cost and excess of the decoded decisions; equal ones are decoded once."""
        distinct, which = np.unique(np.asarray(decisions), axis=0, return_inverse=True)
        full = np.stack([self.decode(decision) for decision in distinct])
        outcome = self.problem.evaluate(full)
        best = int(outcome.order.argmin())
        if self._kept is None or outcome.order[best] < self._kept[0]:
            self._kept = outcome.order[best], distinct[best], full[best]
        return Outcome(*(column[which.ravel()] for column in outcome))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every option.

        The cost of the whole graph with it by message passing, memory priced; its cost with the previous
        options of neighbouring hubs; both over the cheapest of the hub, relative to the rule's mean cost of a
        group; its memory; its previous probability.
        """
        groups, chances = self.groups, np.split(probabilities, self.first[1:-1])
        whole, local = [], []
        for hub in self.hubs.tolist():
            nodes = groups.nodes[hub]
            cost = groups.costs[hub] + self._toll[nodes] @ groups.memory[hub]
            whole.append(cost + self._state.messages.to(hub))
            for other, table in groups.links[hub].items():
                if other in self._number:
                    cost = cost + table @ chances[self._number[other]]
            local.append(cost)
        features = np.zeros((len(probabilities), OPTION_FEATURES), np.float32)
        starts, owners = self.first[:-1], self.owners
        for column, values in enumerate((whole, local)):
            over = np.concatenate(values) - np.repeat([v.min() for v in values], self.choices)
            features[:, column] = np.minimum(np.log1p(over / self._scale) / 8, 2)
        least, most = (f.reduceat(self._held, starts)[owners] for f in (np.minimum, np.maximum))
        features[:, 2] = (self._held - least) / np.maximum(most - least, 1e-300)
        features[:, 4] = probabilities
        return features

    @property
    def bound(self) -> float:
        """That of the problem."""
        return self.problem.bound


def hubs_and_forest(groups: TiedStrategies) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return hubs, and the other groups as a forest: the groups, parents first, and links to their parents.

    Groups of few neighbours are taken into the forest first. There is at least one hub.
    """
    ranked = np.argsort(np.diff(groups.arrays.begins), kind="stable")
    inside = largest_forest(groups.arrays, ranked[:-1])
    return np.flatnonzero(~inside), rooted(groups.arrays, inside)


def compile_search() -> None:
    """Run the search on a problem of two nodes, so that numba compiles it; from then on a cache serves."""
    costs, spans = np.array([1.0, 2.0, 1.0, 2.0]), np.array([[0, 1], [0, 1]])
    usages, free = np.array([2.0, 1.0, 2.0, 1.0]), [np.zeros((2, 2))]
    tiny = Sharding("two nodes", np.array([0, 2, 4]), costs, usages, spans, np.array([[0, 1]]), free, 3.0)
    problem, looks = ShardingProblem(tiny), iter((True, True, False))
    problem.space()
    state = problem.priced()
    state.repaired(np.zeros(len(state.groups), np.int64))
    state.best_of(np.ones(len(state.groups), np.int64), state.groups.compress(state.decided))
    state.improve(lambda: next(looks, False))
