"""Fit the LightGBM ranker with one objective."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.features.store import Features
from fastslow.features.train_graphs import trainable
from fastslow.rankers.boosting import History, Report, boost, kept_trees
from fastslow.rankers.objectives import OBJECTIVES, predict_table, table_dataset
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.table import Table, read_table, read_tables
from fastslow.rankers.table_features import ABOVE_LEAST

if TYPE_CHECKING:
    import lightgbm

BIN_ROWS = 50_000  # rows of all graphs together from which LightGBM's feature bins are made


@dataclass(frozen=True)
class RankerTables:
    """The tables that a ranker is fitted on.

    Args:
        kind: ``layout`` or ``tile``.
        train: Rows to fit.
        bins: Rows of all train graphs from which the feature bins are made.
        valid: Rows to evaluate on.
    """

    kind: str
    train: Table
    bins: Table
    valid: Table


def read_training(settings: RankerSettings, sources: Mapping[str, Features] | None = None) -> RankerTables:
    """Read the tables that the settings name, or tables of the given features by slug.

    The tables, and so the trees, are the same whichever of the collections that ``train_on`` joins is named.

    Raises:
        DataError: No train graph can be learned from.
    """
    sources = settings.sources() if sources is None else sources
    names = trainable(sources)
    bin_rows = min(settings.configs_per_graph, max(2, BIN_ROWS // len(names)))
    samples = [(names, settings.configs_per_graph), (names, bin_rows)]
    train, bins = read_tables(sources, TRAIN, samples, settings.seed)
    valid = read_table(sources, VALID, max_configs=settings.valid_configs)
    return RankerTables(next(iter(sources.values())).collection.kind, train, bins, valid)


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

    def predict_split(self, features: Features, split: str) -> dict[str, np.ndarray]:
        """Predict every configuration of a split, holding the table of one graph at a time.

        Returns:
            ``(C_file,)`` float64 per graph, lower = predicted faster.
        """
        predictions: dict[str, np.ndarray] = {}
        for name in features.names(split):
            predictions |= self.predict(read_table(features, split, [name]))
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
    settings: RankerSettings, objective: str, training: RankerTables, report: Report | None = None
) -> Fitted:
    """Boost trees; with ``early_stopping_rounds``, until the valid score stops improving.

    Args:
        settings: Settings.
        objective: One of ``OBJECTIVES``.
        training: Rows to fit, and rows to evaluate on.
        report: Called with the iteration and the latest valid score after every iteration.
    """
    import lightgbm  # with scikit-learn a second

    columns = training.train.columns
    if OBJECTIVES[objective].label is None:  # differences make the min-subtracted columns redundant
        columns = [column for column in columns if not column.endswith(ABOVE_LEAST)]
    train, bins, valid = (t.select(columns) for t in (training.train, training.bins, training.valid))
    options = {"seed": settings.seed, "pairs_per_config": settings.pairs_per_config}
    own = {"objective": OBJECTIVES[objective].lightgbm, "metric": "None"}
    parameters = {**settings.tree_parameters(), **own}
    reference = table_dataset(bins, objective, **options).construct()
    booster = lightgbm.Booster(parameters, table_dataset(train, objective, **options, reference=reference))

    def predict_valid(start_iteration: int, num_iteration: int) -> dict[str, np.ndarray]:
        return booster_predictions(objective, booster, valid, start_iteration, num_iteration)

    history = boost(settings, booster.update, predict_valid, training.kind, valid.labels(), report)
    return Fitted(objective, booster, kept_trees(settings, history), history)
