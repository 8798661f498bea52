"""Fit the LightGBM ranker with one objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.features.folds import HELD_OUT_CONFIGS, learned_from
from fastslow.features.graph import GraphSet, trainable
from fastslow.rankers.objectives import predict_table, table_dataset
from fastslow.rankers.options import OBJECTIVES, RankerOptions
from fastslow.rankers.table import ABOVE_LEAST, Table, read_table, read_tables

if TYPE_CHECKING:
    import lightgbm
import time
from collections.abc import Callable

from fastslow.competition.metrics import collection_score

History = list[tuple[int, float]]
"""(iteration, valid score) of every evaluation."""
Report = Callable[[int, float], None]
"""Called after every boosting iteration with its number and the latest valid score."""
BIN_ROWS = 50_000  # rows of all graphs together from which LightGBM's feature bins are made


@dataclass(frozen=True)
class RankerTables:
    """The tables that a ranker is fitted on.

    Args:
        kind: ``layout`` or ``tile``.
        train: Rows to fit.
        bins: Rows of all train graphs from which the feature bins are made.
        valid: Rows to evaluate on.
        held_out: Names of the train graphs that ``folds`` leaves out.
    """

    kind: str
    train: Table
    bins: Table
    valid: Table
    held_out: tuple[str, ...] = ()


def read_training(sources: Mapping[str, GraphSet], options: RankerOptions = RankerOptions()) -> RankerTables:
    """Compute the tables of the graphs of one or more collections of a kind.

    Args:
        sources: The graphs of each collection, by its slug.
        options: Which configurations are sampled.

    Raises:
        DataError: No train graph can be learned from.
    """
    names, held_out = learned_from(sources, trainable(sources), options.folds, options.seed)
    bin_rows = min(options.configs_per_graph, max(2, BIN_ROWS // len(names)))
    samples = [(names, options.configs_per_graph), (names, bin_rows)]
    train, bins = read_tables(sources, TRAIN, samples, options.seed)
    valid = read_table(sources, VALID, max_configs=options.valid_configs)
    kind = next(iter(sources.values())).collection.kind
    return RankerTables(kind, train, bins, valid, tuple(held_out))


@dataclass(frozen=True)
class Fitted:
    """A trained ranker.

    Args:
        objective: One of ``OBJECTIVES``.
        booster: The trees, those that are not used included.
        num_trees: Number of trees that are used.
        history: (iteration, valid score) of every evaluation.
    """

    objective: str
    booster: "lightgbm.Booster"
    num_trees: int
    history: History

    def predict(self, table: Table) -> dict[str, np.ndarray]:
        """Return predictions ``(C,)`` float64 per graph of a table, lower = predicted faster."""
        return booster_predictions(self.objective, self.booster, table, 0, self.num_trees)

    def predict_split(self, features: GraphSet, split: str) -> dict[str, np.ndarray]:
        """Predict every configuration of a split, holding the table of one graph at a time.

        Returns:
            ``(C_file,)`` float64 per graph, lower = predicted faster.
        """
        predictions: dict[str, np.ndarray] = {}
        for name in features.names(split):
            predictions |= self.predict(read_table(features, split, [name]))
        return predictions

    def predict_held_out(self, features: GraphSet, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Predict train graphs that the trees did not learn from.

        Returns:
            By graph, ``(n,)`` of its distinct configurations that ``features.graph.draw_configs`` draws.
        """
        predictions: dict[str, np.ndarray] = {}
        for name in names:
            table = read_table(features, TRAIN, [name], HELD_OUT_CONFIGS)
            predictions |= self.predict(table)
        return predictions

    @property
    def columns(self) -> list[str]:
        """Names of the F columns of the table that the trees read."""
        return self.booster.feature_name()

    def contributions(self, table: Table) -> dict[str, np.ndarray]:
        """Return the SHAP values ``(C, F)`` of ``columns`` per graph.

        They are TreeSHAP's (Lundberg et al., arXiv 1802.03888) and add up to the prediction minus a constant.
        """

        def shap_values(rows: np.ndarray) -> np.ndarray:
            values: np.ndarray = self.booster.predict(rows, pred_contrib=True, num_iteration=self.num_trees)
            return values[:, :-1]

        return predict_table(self.objective, table.select(self.columns), shap_values)


def booster_predictions(
    objective: str, booster: "lightgbm.Booster", table: Table, start_iteration: int, num_iteration: int
) -> dict[str, np.ndarray]:
    """Return predictions ``(C,)`` per graph of some of the trees; predictions of consecutive trees add up.

    Args:
        objective: One of ``OBJECTIVES``.
        booster: The trees.
        table: Rows of the graphs, with the columns that the trees read.
        start_iteration: The first tree, from 0.
        num_iteration: Number of trees.
    """

    def raw_output(rows: np.ndarray) -> np.ndarray:
        if not len(rows) or not num_iteration:  # LightGBM takes no trees for all of them
            return np.zeros(len(rows))
        trees = {"start_iteration": start_iteration, "num_iteration": num_iteration}
        margins: np.ndarray = booster.predict(rows, raw_score=True, **trees)
        return margins

    return predict_table(objective, table.select(booster.feature_name()), raw_output)


def fit(
    training: RankerTables,
    options: RankerOptions = RankerOptions(),
    num_threads: int = 0,
    seconds: float = math.inf,
    report: Report | None = None,
) -> Fitted:
    """Boost trees; with ``early_stopping_rounds``, until the valid score stops improving.

    Args:
        training: Rows to fit, and rows to evaluate on.
        options: What the trees learn.
        num_threads: Threads of LightGBM; 0 takes OMP_NUM_THREADS or, where that is not set, every core.
        seconds: Time after which no further tree is grown.
        report: Called with the iteration and the latest valid score after every iteration.
    """
    import lightgbm  # with scikit-learn a second

    objective = options.objective
    columns = training.train.columns
    if OBJECTIVES[objective].label is None:  # differences make the min-subtracted columns redundant
        columns = [column for column in columns if not column.endswith(ABOVE_LEAST)]
    train = training.train.select(columns)
    bins = training.bins.select(columns)
    valid = training.valid.select(columns)
    pairs = {"seed": options.seed, "pairs_per_config": options.pairs_per_config}
    reference = table_dataset(bins, objective, **pairs).construct()
    dataset = table_dataset(train, objective, **pairs, reference=reference)
    booster = lightgbm.Booster({**_tree_parameters(options), "num_threads": num_threads}, dataset)

    def predict_valid(start_iteration: int, num_iteration: int) -> dict[str, np.ndarray]:
        return booster_predictions(objective, booster, valid, start_iteration, num_iteration)

    history = boost(options, booster.update, predict_valid, training.kind, valid.labels(), seconds, report)
    return Fitted(objective, booster, kept_trees(options, history), history)


def _tree_parameters(options: RankerOptions) -> dict:
    """Return LightGBM's parameters of the trees."""
    return {
        "objective": OBJECTIVES[options.objective].lightgbm,
        "metric": "None",
        "learning_rate": options.learning_rate,
        "num_leaves": options.num_leaves,
        "min_data_in_leaf": options.min_data_in_leaf,
        "min_sum_hessian_in_leaf": 1e-12,  # the weights of a graph's configurations sum to 1
        "feature_fraction": options.feature_fraction,
        "bagging_fraction": 0.8,  # of the rows, drawn for each tree
        "bagging_freq": 1,
        "seed": options.seed,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }


def boost(
    options: RankerOptions,
    update: Callable[[], bool],
    predict: Callable[[int, int], Mapping[str, np.ndarray]],
    kind: str,
    labels: Mapping[str, np.ndarray],
    seconds: float = math.inf,
    report: Report | None = None,
) -> History:
    """Grow trees, until the time is over or, with ``early_stopping_rounds``, valid stops improving.

    Args:
        options: What the trees learn.
        update: Grows one tree; returns whether none could be grown, which ends the training.
        predict: Valid predictions ``(C,)`` per graph of ``num_iteration`` trees from ``start_iteration`` on,
            its two arguments. Predictions of consecutive trees add up, so each tree is evaluated once.
        kind: ``layout`` or ``tile``, which decides the metric.
        labels: Valid runtimes ``(C,)`` per graph.
        seconds: Time after which no further tree is grown.
        report: Called with the iteration and the latest valid score after every iteration.

    Returns:
        Every evaluation; the last tree is always evaluated.
    """
    predictions = {name: np.zeros(len(runtime)) for name, runtime in labels.items()}
    history: History = []
    evaluated = 0
    ends = time.monotonic() + seconds
    for iteration in range(1, options.num_iterations + 1):
        stuck = update()
        last = stuck or iteration == options.num_iterations or time.monotonic() > ends
        if last or iteration % options.evaluate_every == 0:
            grown = iteration - stuck
            for name, values in predict(evaluated, grown - evaluated).items():
                predictions[name] += values
            evaluated = grown
            history.append((grown, collection_score(kind, labels, predictions)["mean"]))
        if report:
            report(iteration, history[-1][1] if history else np.nan)
        patience = options.early_stopping_rounds
        if last or (patience and history and evaluated - kept_trees(options, history) >= patience):
            break
    return history


def kept_trees(options: RankerOptions, history: History) -> int:
    """Return the number of trees of a model: all, or with early stopping up to the first best valid score."""
    if not options.early_stopping_rounds:
        return history[-1][0]
    return max(history, key=lambda entry: entry[1])[0]
