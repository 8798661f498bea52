"""Baselines without a program's graph: what a trained model has to beat.

``best single feature``
    One column of ``config_feat``, ascending or descending, that has the best mean Kendall's tau over the
    train graphs.
``ridge on config features``
    Ridge regression of the standardised log runtime of a graph on all columns of ``config_feat``,
    standardised over its configurations. Its penalty is chosen by cross-validation over the train graphs.
``product of bounds``
    Tile only. The product of all bounds of a tile, ascending or descending as on train.

Valid chooses nothing, so a rule's valid score is as honest as its test score.
They are no members of an ensemble.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.data_quality import quality_of
from fastslow.competition.metrics import collection_score, ranking_tau, ranking_taus
from fastslow.competition.schema import TILE_ROLES
from fastslow.features.graph import Graph, GraphSet, draw_graphs, trainable, with_signal
from fastslow.features.scaling import log_labels, standardise

SINGLE, RIDGE, PRODUCT = BASELINES = ("best single feature", "ridge on config features", "product of bounds")
MAX_CONFIGS = 128  # of a graph: a mean tau over many graphs needs no more
MAX_ROWS = 200_000  # of all graphs together, 115 MB for tile
BOUND_PRODUCTS = tuple(f"{role}_bound_product_log" for role in TILE_ROLES)
_ALPHAS = np.logspace(-4, 2, 13)  # the weights of a graph's configurations sum to 1
_FOLDS = 5


class Baseline(Protocol):
    """A rule that predicts from ``config_feat``."""

    def predict(self, config_feat: np.ndarray) -> np.ndarray:
        """Return predictions ``(C,)`` from the features ``(C, V)`` of a graph's distinct configurations."""

    def describe(self, columns: Sequence[str]) -> str:
        """Return the chosen rule in words; ``columns`` are the names of the V columns of ``config_feat``."""

    def record(self, columns: Sequence[str]) -> dict:
        """Return its parameters for JSON; none where the rule is not applied to new programs."""


@dataclass(frozen=True)
class Columns:
    """The sum of some columns."""

    positions: tuple[int, ...]
    sign: int  # 1 where low values are predicted faster, -1 where high ones are

    def predict(self, config_feat: np.ndarray) -> np.ndarray:
        """Return the sum ``(C,)`` of its columns of ``config_feat`` ``(C, V)``, times the sign."""
        return self.sign * np.asarray(config_feat[:, self.positions], np.float64).sum(1)

    def describe(self, columns: Sequence[str]) -> str:
        """Return the columns and their order, such as ``left_share, descending``."""
        names = " + ".join(columns[i] for i in self.positions)
        return f"{names}, {'ascending' if self.sign > 0 else 'descending'}"

    def record(self, columns: Sequence[str]) -> dict:
        """Return ``columns``, their names, and ``sign``."""
        return {"columns": [columns[i] for i in self.positions], "sign": self.sign}


@dataclass(frozen=True)
class Linear:
    """A linear function of the columns, standardised over the configurations of a graph."""

    coefficients: np.ndarray  # (V,)
    alpha: float  # the penalty with which they were fitted

    def predict(self, config_feat: np.ndarray) -> np.ndarray:
        """Return the linear function ``(C,)`` of ``config_feat`` ``(C, V)``, standardised."""
        return standardise(config_feat) @ self.coefficients

    def describe(self, columns: Sequence[str]) -> str:
        """Return the penalty and the number of columns."""
        return f"alpha {self.alpha:.3g}, {np.count_nonzero(self.coefficients)} of {len(columns)} columns"

    def record(self, columns: Sequence[str]) -> dict:
        """See :class:`Baseline`: its coefficients fit the configurations of this collection."""
        return {}


class GraphRows(NamedTuple):
    """Some configurations of one labelled graph."""

    values: np.ndarray  # (n, V) float64, config_feat standardised over all configurations of the graph
    runtime: np.ndarray  # (n,)


def read_examples(features: GraphSet) -> list[GraphRows]:
    """Read the graphs that the baselines are chosen on: train graphs that carry a ranking signal.

    Returns:
        One example per graph, of at most ``MAX_CONFIGS`` configurations.

    Raises:
        DataError: No train graph carries a ranking signal.
    """
    names = trainable({"": features})
    most = min(MAX_CONFIGS, max(2, MAX_ROWS // len(names)))
    return [
        GraphRows(standardise(np.asarray(graph.config_feat))[rows], runtime)
        for graph, rows, runtime in draw_graphs({"": features}, TRAIN, names, most, seed=0)
    ]


def choose_column(examples: Sequence[GraphRows]) -> Columns:
    """Return the column, and its direction, that has the best mean Kendall's tau over train graphs."""
    return best_column(np.mean([ranking_taus(runtime, values) for values, runtime in examples], 0))


def best_column(taus: np.ndarray) -> Columns:
    """Return the column of Kendall's ``taus`` ``(V,)``, -1 to 1, that is furthest from 0, with its sign."""
    best = int(np.abs(taus).argmax())
    return Columns((best,), 1 if taus[best] >= 0 else -1)


def fit_ridge(
    examples: Sequence[GraphRows], labels: Callable[[np.ndarray], np.ndarray] = log_labels
) -> Linear:
    """Fit a ridge regression; its penalty is chosen by cross-validation over graphs, or within a single one.

    Every graph has the same total weight.

    Args:
        examples: One or more graphs.
        labels: Computes the labels of a graph, of mean 0, from its runtimes.
    """
    from sklearn.linear_model import RidgeCV  # takes most of a second; needed for fitting alone
    from sklearn.model_selection import GroupKFold

    sizes = [len(example.runtime) for example in examples]
    values = np.concatenate([example.values for example in examples])
    target = np.concatenate([labels(example.runtime) for example in examples])
    folds = None  # of a single graph: every configuration is left out once
    if len(examples) > 1:
        groups = np.repeat(np.arange(len(examples)), sizes)
        folds = list(GroupKFold(min(_FOLDS, len(examples))).split(values, groups=groups))
    ridge = RidgeCV(_ALPHAS, fit_intercept=False, cv=folds)
    ridge.fit(values, target, sample_weight=np.repeat(1 / np.array(sizes), sizes))
    return Linear(ridge.coef_, float(ridge.alpha_))


def choose_bounds(features: GraphSet) -> Columns:
    """Return the product of bounds of tiles, with the sign of the better mean Kendall's tau on train."""
    positions = tuple(features.config_columns.index(name) for name in BOUND_PRODUCTS)
    ascending = Columns(positions, 1)
    source = {"": features}
    drawn = draw_graphs(source, TRAIN, trainable(source), MAX_CONFIGS, seed=0)
    taus = [
        ranking_tau(runtime, ascending.predict(graph.config_feat[rows])) for graph, rows, runtime in drawn
    ]
    return ascending if np.mean(taus) >= 0 else Columns(positions, -1)


def fit_baselines(features: GraphSet) -> dict[str, Baseline]:
    """Choose every baseline of a collection on its train graphs.

    Returns:
        The rules by name, in the order of ``BASELINES``; the product of bounds for tile only.

    Raises:
        DataError: No train graph carries a ranking signal.
    """
    examples = read_examples(features)
    baselines: dict[str, Baseline] = {SINGLE: choose_column(examples), RIDGE: fit_ridge(examples)}
    return baselines | ({PRODUCT: choose_bounds(features)} if features.collection.kind == "tile" else {})


def predict_configs(baseline: Baseline, graph: Graph) -> np.ndarray:
    """Predict every configuration of a graph's file.

    Args:
        baseline: A fitted rule.
        graph: The graph, of the same collection as the rule's graphs.

    Returns:
        ``(C_file,)`` float64, lower = predicted faster.
    """
    return graph.expand(baseline.predict(np.asarray(graph.config_feat)))


def score_references(features: GraphSet) -> dict[str, float]:
    """Return the scores that the valid score of a model is compared with, by name.

    Returns:
        ``rule``, the score of the best single feature, where a train graph carries a ranking signal. And
        ``ceiling``, the mean Kendall's tau that the noise of measured labels leaves possible, where all valid
        graphs of a layout collection have repeated measurements that differ.
    """
    kind = features.collection.kind
    graphs = {name: features.graph(VALID, name) for name in features.names(VALID)}
    references = {}
    if with_signal({"": features}):
        rule = choose_column(read_examples(features))
        runtimes = {name: graph.file_runtime for name, graph in graphs.items()}
        predictions = {name: predict_configs(rule, graph) for name, graph in graphs.items()}
        references["rule"] = collection_score(kind, runtimes, predictions)["mean"]
    if kind == "layout":
        ceilings = [quality_of(graph.file_runtime, graph.config_row).ceiling for graph in graphs.values()]
        if np.all(np.less(ceilings, 1)):
            references["ceiling"] = float(np.mean(ceilings))
    return references
