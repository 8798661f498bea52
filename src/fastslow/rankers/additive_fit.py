r"""Boosted trees whose sum over a configuration's states is its prediction.

With the rows x of all distinct states, and P the 0/1 matrix of the states of each configuration c,

.. math:: s_c = \sum_j P_{cj} f(x_j), \quad
          L = \sum_g \frac{1}{2 |C_g|} \sum_{c \in g} (s_c - \bar s_g - z_c)^2

where f are the trees, g the graphs and z the z-scored log runtime of a graph. Only differences within a graph
count, so its mean prediction is subtracted. LightGBM grows a tree from the gradient with respect to f,
:math:`-P^\top (z - s + \bar s) / |C_g|`, and the diagonal of the Hessian before centring,
:math:`P^\top 1 / |C_g|` (gradient boosting with second-order steps, as XGBoost's, arXiv 1603.02754). The
states of a leaf move together, and with those of other leaves, so the diagonal is no upper bound of the
curvature: the values of a tree's leaves are then set to the joint Gauss-Newton step, a ridge regression of
the residual of z on the number of states that a configuration has in each leaf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import lightgbm
import numpy as np
from scipy import sparse

from fastslow.core.progress import Report
from fastslow.features.scaling import log_labels
from fastslow.rankers.additive_states import AdditiveRows
from fastslow.rankers.boosting import History, boost, kept_trees, predict_trees
from fastslow.rankers.config import AdditiveRankerConfig
from fastslow.rankers.table import PerGraph

_MIN_PENALTY = 1e-9


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
        """Features ``(S, F)`` of the states of all graphs."""
        return np.concatenate([part.rows for part in self.parts])

    @cached_property
    def class_index(self) -> np.ndarray:
        """Class ``(S,)`` of each state, 0 to T - 1 over all graphs."""
        sizes = np.array([len(part.classes) for part in self.parts])
        starts = np.repeat(np.cumsum(sizes) - sizes, [len(part.rows) for part in self.parts])
        return starts + np.concatenate([part.class_index for part in self.parts])

    @cached_property
    def picks(self) -> sparse.csr_array:
        """Matrix ``(C, T)`` of all graphs, 1 where a configuration is in a class.

        P adds up the states of each class before; few classes make a configuration where many states do.
        """
        parts = [part.classes.picks() for part in self.parts]
        return sparse.csr_array(sparse.block_diag(parts, format="csr"))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of configurations of each graph."""
        return np.array([part.classes.index.shape[1] for part in self.parts])

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights ``(C,)`` that sum to 1 per graph."""
        return np.repeat(1 / self.sizes, self.sizes)

    @property
    def columns(self) -> list[str]:
        """Names of the F columns."""
        return self.parts[0].columns

    def sum(self, costs: np.ndarray) -> np.ndarray:
        """Return P costs, ``(C,)``, of costs ``(S,)``."""
        return self.picks @ np.bincount(self.class_index, costs, minlength=self.picks.shape[1])

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Return the transposed P times values ``(C,)``: ``(S,)``."""
        return (self.picks.T @ values)[self.class_index]

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Subtract from values ``(C, ...)`` their mean over each graph."""
        starts = np.cumsum(self.sizes) - self.sizes
        means = (np.add.reduceat(values, starts, axis=0).T / self.sizes).T
        return values - np.repeat(means, self.sizes, axis=0)


def targets(problem: Problem) -> np.ndarray:
    """Return the z-scored log runtimes ``(C,)`` of every graph."""
    return np.concatenate([log_labels(runtime) for runtime in problem.runtimes])


def loss(problem: Problem, target: np.ndarray, costs: np.ndarray) -> float:
    """Compute L for targets ``(C,)`` and costs ``(S,)`` of the states."""
    residual = target - problem.centred(problem.sum(costs))
    return float((problem.weights * residual**2).sum() / 2)


def gradient(problem: Problem, residual: np.ndarray) -> np.ndarray:
    """Compute the derivative ``(S,)`` of L with respect to the costs.

    Args:
        problem: The graphs.
        residual: ``(C,)`` centred target - prediction.
    """
    return -problem.gather(problem.weights * residual)


def leaf_values(problem: Problem, counts: np.ndarray, residual: np.ndarray, ridge: float) -> np.ndarray:
    """Solve for the best joint step ``(num_leaves,)`` of a tree's leaves.

    Args:
        problem: The graphs.
        counts: ``(C, num_leaves)`` centred numbers of states in each leaf.
        residual: ``(C,)`` centred target - prediction.
        ridge: Penalty on a leaf's squared value, in units of that leaf's own curvature.
    """
    weighted = counts * problem.weights[:, None]
    hessian = weighted.T @ counts
    # a leaf that all configurations share alike has no curvature of its own
    penalty = ridge * np.diag(hessian) + _MIN_PENALTY * len(problem.sizes)
    return np.linalg.solve(hessian + np.diag(penalty), weighted.T @ residual)


def count_leaves(problem: Problem, leaves: np.ndarray, num_leaves: int) -> np.ndarray:
    """Count the states of a configuration in each leaf, minus the mean over its graph.

    Args:
        problem: The graphs.
        leaves: ``(S,)`` leaf of each state.
        num_leaves: Number of leaves.

    Returns:
        ``(C, num_leaves)`` float64.
    """
    num_classes = problem.picks.shape[1]
    per_class = np.bincount(problem.class_index * num_leaves + leaves, minlength=num_classes * num_leaves)
    return problem.centred(problem.picks @ per_class.reshape(num_classes, num_leaves).astype(np.float64))


@dataclass(frozen=True)
class Fitted:
    """A trained additive ranker.

    Args:
        booster: The trees, those that are not used included.
        num_trees: Number of trees that are used.
        history: (iteration, valid score) of every evaluation.
    """

    booster: lightgbm.Booster
    num_trees: int
    history: History

    def predict(self, part: AdditiveRows) -> np.ndarray:
        """Return predictions ``(C,)`` float64 of a graph, lower = predicted faster; comparable within it."""
        return part.sum(predict_trees(self.booster, part.rows, 0, self.num_trees))


def fit(config: AdditiveRankerConfig, train: Problem, valid: Problem, report: Report | None = None) -> Fitted:
    """Boost trees; with ``early_stopping_rounds``, until the valid score stops improving.

    Args:
        config: Settings.
        train: Graphs to fit.
        valid: Graphs to evaluate on.
        report: Called with the iteration and the latest valid score after every iteration.
    """
    target = targets(train)
    data = lightgbm.Dataset(
        train.rows, feature_name=train.columns, params={"feature_pre_filter": False, "verbosity": -1}
    )
    data.set_label(np.zeros(len(train.rows)))
    booster = lightgbm.Booster({**config.tree_parameters(), "objective": "none", "metric": "None"}, data)
    curvature = train.gather(train.weights)
    prediction = np.zeros(len(target))

    def update() -> bool:
        residual = target - prediction
        stuck = booster.update(fobj=lambda *_: (gradient(train, residual), curvature))
        if not stuck:
            prediction[:] += _replace_leaves(config, booster, train, residual)
        return stuck

    def predict_valid(start_iteration: int, num_iteration: int) -> dict[str, np.ndarray]:
        costs = predict_trees(booster, valid.rows, start_iteration, num_iteration)
        return valid.per_graph(valid.sum(costs))

    history = boost(config, update, predict_valid, "layout", valid.labels(), report)
    return Fitted(booster, kept_trees(config, history), history)


def _replace_leaves(
    config: AdditiveRankerConfig, booster: lightgbm.Booster, train: Problem, residual: np.ndarray
) -> np.ndarray:
    """Set the leaf values of the newest tree; return what it adds ``(C,)`` to the centred predictions."""
    newest = booster.num_trees() - 1
    leaves = booster.predict(train.rows, pred_leaf=True, start_iteration=newest, num_iteration=1)
    leaves = leaves.ravel().astype(np.int64)
    counts = count_leaves(train, leaves, leaves.max() + 1)
    values = config.learning_rate * leaf_values(train, counts, residual, config.ridge)
    for leaf, value in enumerate(values):
        booster.set_leaf_output(newest, leaf, value)
    return counts @ values
