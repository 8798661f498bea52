r"""Boosted trees whose sum over a configuration's states is its score.

With the rows x of all distinct states, and P the 0/1 matrix of which states each configuration c has,

.. math:: s_c = \sum_j P_{cj} f(x_j), \quad
          L = \sum_g \frac{1}{2 |C_g|} \sum_{c \in g} (s_c - \bar s_g - z_c)^2

where f are the trees, g the graphs and z the z-scored log runtime of a graph; only differences within a graph
count, so its mean score is taken off. LightGBM grows a tree from the gradient by f,
:math:`-P^\top (z - s + \bar s) / |C_g|`, and the diagonal of the Hessian before centring,
:math:`P^\top 1 / |C_g|`. The states of a leaf move together, and with those of other leaves, so the diagonal
is no bound: the values of a tree's leaves are then the joint Gauss-Newton step, a ridge regression of what is
left of z on the numbers of states that a configuration has in each leaf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import lightgbm
import numpy as np
from scipy import sparse

from fastslow.competition.metrics import collection_score
from fastslow.core.progress import Report
from fastslow.rankers.additive_states import AdditiveRows
from fastslow.rankers.objectives import regression_labels
from fastslow.rankers.table import PerGraph

_LEAST = 1e-9


@dataclass(frozen=True)
class Problem(PerGraph):
    """Graphs with their states and runtimes.

    Args:
        names: Name of each graph.
        parts: States of each graph.
        runtimes: ``(C,)`` of each graph; 0 where unknown.
    """

    names: Sequence[str]
    parts: Sequence[AdditiveRows]
    runtimes: Sequence[np.ndarray]

    @cached_property
    def rows(self) -> np.ndarray:
        """``(S, F)`` of all graphs."""
        return np.concatenate([part.rows for part in self.parts])

    @cached_property
    def picks(self) -> sparse.csr_array:
        """``(C, S)`` of all graphs."""
        return sparse.csr_array(sparse.block_diag([part.picks for part in self.parts], format="csr"))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Configurations of each graph."""
        return np.array([part.picks.shape[0] for part in self.parts])

    @cached_property
    def weights(self) -> np.ndarray:
        """``(C,)``; those of a graph add up to 1."""
        return np.repeat(1 / self.sizes, self.sizes)

    @property
    def columns(self) -> list[str]:
        """Names of the F columns."""
        return self.parts[0].columns

    def centred(self, values: np.ndarray) -> np.ndarray:
        """``(C, ...)`` values less their mean in each graph."""
        starts = np.cumsum(self.sizes) - self.sizes
        means = (np.add.reduceat(values, starts, axis=0).T / self.sizes).T
        return values - np.repeat(means, self.sizes, axis=0)


def targets(problem: Problem) -> np.ndarray:
    """``(C,)`` z-scored log runtimes of every graph."""
    return np.concatenate([regression_labels(runtime) for runtime in problem.runtimes])


def loss(problem: Problem, target: np.ndarray, costs: np.ndarray) -> float:
    """L for costs ``(S,)`` of the states."""
    residual = target - problem.centred(problem.picks @ costs)
    return float((problem.weights * residual**2).sum() / 2)


def gradient(problem: Problem, residual: np.ndarray) -> np.ndarray:
    """``(S,)`` derivative of the loss by the costs, from ``(C,)`` centred residuals target - score."""
    return -(problem.picks.T @ (problem.weights * residual))


def leaf_values(problem: Problem, counts: np.ndarray, residual: np.ndarray, ridge: float) -> np.ndarray:
    """The best step of all leaves of a tree together.

    Args:
        problem: The graphs.
        counts: ``(C, leaves)`` centred numbers of states in each leaf.
        residual: ``(C,)`` centred target - score.
        ridge: Penalty on a leaf's squared value, in units of that leaf's own curvature.
    """
    weighted = counts * problem.weights[:, None]
    hessian = weighted.T @ counts
    penalty = ridge * np.diag(hessian) + _LEAST * len(problem.sizes)  # a leaf that all configurations share
    return np.linalg.solve(hessian + np.diag(penalty), weighted.T @ residual)


def count_leaves(problem: Problem, leaves: np.ndarray, num_leaves: int) -> np.ndarray:
    """``(C, num_leaves)`` number of states of a configuration in each leaf, less the graph's mean."""
    each = np.arange(len(leaves) + 1)
    member = sparse.csr_array((np.ones(len(leaves)), leaves, each), shape=(len(leaves), num_leaves))
    return problem.centred((problem.picks @ member).toarray())


@dataclass(frozen=True)
class Fitted:
    """A trained additive ranker.

    Args:
        booster: The trees, those beyond the best round included.
        rounds: The best round.
        history: (round, valid score) of every evaluation.
    """

    booster: lightgbm.Booster
    rounds: int
    history: list[tuple[int, float]]

    def scores(self, part: AdditiveRows) -> np.ndarray:
        """``(C,)`` float64, lower = predicted faster; those of a graph's configurations compare."""
        return part.picks @ state_costs(self.booster, part.rows, 0, self.rounds)


def state_costs(booster: lightgbm.Booster, rows: np.ndarray, start: int, rounds: int) -> np.ndarray:
    """``(S,)`` costs of states by the trees of some rounds; those of consecutive rounds add up."""
    if not len(rows) or not rounds:
        return np.zeros(len(rows))
    return booster.predict(rows, raw_score=True, start_iteration=start, num_iteration=rounds)


def fit(
    trees: dict,
    train: Problem,
    valid: Problem,
    rounds: int,
    ridge: float = 1.0,
    evaluate_every: int = 5,
    patience: int = 100,
    report: Report | None = None,
) -> Fitted:
    """Boost trees until the valid score stops improving.

    Args:
        trees: LightGBM's settings; its ``learning_rate`` is the share of a leaf's step that is taken.
        train: Graphs to fit.
        valid: Graphs to stop on.
        rounds: Most rounds.
        ridge: As for :func:`leaf_values`.
        evaluate_every: Rounds between two evaluations.
        patience: Stop after so many rounds without a better score.
        report: Told the round and the latest valid score after every round.
    """
    shrinkage, target = trees["learning_rate"], targets(train)
    data = lightgbm.Dataset(
        train.rows, feature_name=train.columns, params={"feature_pre_filter": False, "verbosity": -1}
    )
    data.set_label(np.zeros(len(train.rows)))
    booster = lightgbm.Booster({**trees, "objective": "none", "metric": "None"}, data)
    curvature = train.picks.T @ train.weights
    score, valid_score = np.zeros(len(target)), np.zeros(sum(valid.sizes))
    history: list[tuple[int, float]] = []
    best = done = 0
    for round_ in range(1, rounds + 1):
        residual = target - score
        stuck = booster.update(fobj=lambda *_, r=residual: (gradient(train, r), curvature))
        if not stuck:
            score += _replace_leaves(booster, train, residual, shrinkage, ridge)
        if stuck or round_ % evaluate_every == 0 or round_ == rounds:
            grown = round_ - stuck
            valid_score += valid.picks @ state_costs(booster, valid.rows, done, grown - done)
            done = grown
            tau = collection_score("layout", valid.labels(), valid.per_graph(valid_score))["mean"]
            history.append((done, tau))
            best = max(history, key=lambda entry: entry[1])[0]
        if report:
            report(round_, history[-1][1] if history else np.nan)
        if stuck or done - best >= patience:
            break
    return Fitted(booster, best, history)


def _replace_leaves(
    booster: lightgbm.Booster, train: Problem, residual: np.ndarray, shrinkage: float, ridge: float
) -> np.ndarray:
    """Give the leaves of the newest tree their values; ``(C,)`` what it adds to the centred scores."""
    newest = booster.num_trees() - 1
    leaves = booster.predict(train.rows, pred_leaf=True, start_iteration=newest, num_iteration=1)
    leaves = leaves.ravel().astype(np.int64)
    counts = count_leaves(train, leaves, leaves.max() + 1)
    values = shrinkage * leaf_values(train, counts, residual, ridge)
    for leaf, value in enumerate(values):
        booster.set_leaf_output(newest, leaf, value)
    return counts @ values
