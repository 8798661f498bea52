"""Sharding as the policy decides it: the groups where cycles meet; the trees between them follow exactly.

Nodes tied by forbidden pairs choose together (:mod:`fastslow.placement.tied_strategies`), so that no draw is
forbidden. Of these groups all but a tenth induce a forest. The policy chooses for the others, the *hubs* (a
feedback vertex set), whose choices shape all the rest; given them, the best options of the forest are found
by dynamic programming, under prices of memory, at the lowest level of prices where the decision fits. Where
it does not fit at any level, groups change to options of less memory, the cheapest per byte first. Prices and
messages come from the rule, some rounds of message passing; the first pass sees its decision as the previous
one.
"""

import numpy as np

from fastslow.placement.problem import OPTION_FEATURES, Outcome, Problem, scaled, unit_columns
from fastslow.placement.public_problems import ShardingProblem
from fastslow.placement.sharding_search import priced_start
from fastslow.placement.tied_strategies import TiedStrategies

_CERTAIN = 0.9  # probability of the first decision's options
_LEVELS = (0.0, 0.2, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0)  # of the prices, tried until the decision fits
_RARE = 1e-9
_ROUNDS = 60  # of pricing before the policy decides


class HubSharding(Problem):
    """Which option each hub takes.

    Attributes:
        rule: (N,) the rule's decision, to compare with.

    Args:
        problem: The problem of all nodes.
    """

    task = "sharding"

    def __init__(self, problem: ShardingProblem):
        self.problem, self.name = problem, problem.name
        self._state = priced_start(problem.sharding, _ROUNDS)
        self.groups = groups = self._state.groups
        self.hubs, self._order, self._parent = hubs_and_forest(groups)
        self.choices, count = groups.choices[self.hubs], len(self.hubs)
        self.kinds = np.zeros(count, np.int64)
        self.first = np.concatenate([[0], np.cumsum(self.choices)]).astype(np.int64)
        self._number = {hub: number for number, hub in enumerate(self.hubs.tolist())}
        self.edges = self._pairs()
        self._toll = self._state.tolls(self._state.best_price)
        self.rule = problem.default if self._state.best is None else self._state.best
        self._given = groups.compress(self.rule)
        self.default = self._given[self.hubs]
        self._scale = max(float(problem.sharding.cost(self.rule[None])[0]) / len(groups), 1e-300)
        self.features = self._columns()

    def _pairs(self) -> np.ndarray:
        """Return the pairs of hubs that are neighbours or border on one tree: (M, 2)."""
        root = {}
        for group in self._order:  # parents first
            above = self._parent[group]
            root[group] = group if above < 0 else root[above]
        around: dict[int, set[int]] = {}
        pairs = set()
        for hub, number in self._number.items():
            for other in self.groups.links[hub]:
                if other in self._number:
                    pairs.add((min(number, self._number[other]), max(number, self._number[other])))
                else:
                    around.setdefault(root[other], set()).add(number)
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

    def uniform(self) -> np.ndarray:
        """Return what the first pass takes for the previous decision: the rule's, not quite certain."""
        chances = np.repeat((1 - _CERTAIN) / self.choices, self.choices)
        chances[self.first[:-1] + self.default] += _CERTAIN
        return chances

    def decode(self, decision: np.ndarray) -> np.ndarray:
        """Return the strategies of all nodes, (N,), for options of the hubs."""
        groups, sharding = self.groups, self.problem.sharding
        chosen = self._given.copy()
        chosen[self.hubs] = decision
        forest = self._state.freed(chosen, self._order, self._parent)
        for level in _LEVELS:
            full = groups.expand(self._state.solve(chosen, forest, self._toll * level))
            if sharding.excess(full[None])[0] <= 0:
                return full
        return groups.expand(self._repaired(self._state.solve(chosen, forest, self._toll * level)))

    def _repaired(self, chosen: np.ndarray) -> np.ndarray:
        """Return a decision (G,) changed until it fits in memory, or until nothing helps."""
        groups, sharding = self.groups, self.problem.sharding
        for _ in range(4 * len(groups)):
            over = np.maximum(sharding.usage(groups.expand(chosen)[None])[0] - sharding.limit, 0)
            if not over.any() or not self._relieve(chosen, over):
                break
        return chosen

    def _relieve(self, chosen: np.ndarray, over: np.ndarray) -> bool:
        """Change, in place, the option of the group that saves memory where it is exceeded at the least cost.

        Args:
            chosen: (G,) options.
            over: (T,) bytes over the limit at each time.

        Returns:
            Whether there was one.
        """
        groups, sharding = self.groups, self.problem.sharding
        sums = np.concatenate([[0.0], np.cumsum(over)])
        toll = sums[sharding.spans[:, 1]] - sums[sharding.spans[:, 0]]
        best = np.inf, -1, -1
        for group in np.unique(groups.group_of[toll > 0]).tolist():
            memory = toll[groups.nodes[group]] @ groups.memory[group]
            own = int(chosen[group])
            saved = memory[own] - memory
            if saved.max() <= 0:
                continue
            cost = groups.costs[group]
            for other, table in groups.links[group].items():
                cost = cost + table[:, chosen[other]]
            more = np.maximum(cost - cost[own], self._scale * _RARE)
            price = np.divide(more, saved, out=np.full(len(saved), np.inf), where=saved > 0)
            option = int(price.argmin())
            best = min(best, (float(price[option]), group, option))
        if best[1] >= 0:
            chosen[best[1]] = best[2]
        return best[1] >= 0

    def evaluate(self, decisions: np.ndarray) -> Outcome:
        """Return cost and excess of the decoded decisions; equal ones are decoded once."""
        distinct, which = np.unique(np.asarray(decisions), axis=0, return_inverse=True)
        outcome = self.problem.evaluate(np.stack([self.decode(decision) for decision in distinct]))
        return Outcome(*(column[which.ravel()] for column in outcome))

    def options(self, probabilities: np.ndarray) -> np.ndarray:
        """Return features of every option.

        What message passing says that the whole graph costs with it, memory priced; its cost with what
        neighbouring hubs did before; both over the cheapest of the hub, relative to the rule's mean cost of a
        group; its memory; its previous probability.
        """
        groups, chances = self.groups, np.split(probabilities, self.first[1:-1])
        whole, local = [], []
        for hub in self.hubs.tolist():
            nodes = groups.nodes[hub]
            cost = groups.costs[hub] + self._toll[nodes] @ groups.memory[hub]
            whole.append(cost + self._state.messages_to(hub))
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


def hubs_and_forest(groups: TiedStrategies) -> tuple[np.ndarray, list[int], dict[int, int]]:
    """Return hubs, and the other groups, which induce a forest, parents first, with their parents (-1: none).

    Groups of few neighbours are taken into the forest first. There is at least one hub.
    """
    above = list(range(len(groups)))

    def tree(group: int) -> int:
        while above[group] != group:
            above[group] = above[above[group]]
            group = above[group]
        return group

    inside: set[int] = set()
    ranked = sorted(range(len(groups)), key=lambda group: (len(groups.links[group]), group))
    for group in ranked[:-1]:
        trees = [tree(other) for other in groups.links[group] if other in inside]
        if len({*trees}) == len(trees):
            inside.add(group)
            for other in trees:
                above[other] = group
    order, parent = [], {}
    for root in sorted(inside):
        stack = [] if root in parent else [(root, -1)]
        while stack:
            group, before = stack.pop()
            parent[group] = before
            order.append(group)
            stack += [(other, group) for other in groups.links[group] if other in inside and other != before]
    return np.array(sorted({*range(len(groups))} - inside), np.int64), order, parent
