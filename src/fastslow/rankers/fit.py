"""Boosting of a ranker: one loop for all objectives, in one process or on several machines."""

from dataclasses import dataclass

import lightgbm
import numpy as np

from fastslow.competition.metrics import collection_score
from fastslow.core.errors import DataError
from fastslow.core.progress import Report
from fastslow.core.settings import resolve
from fastslow.features.store import Features
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.objectives import OBJECTIVES, make_dataset, score_table
from fastslow.rankers.table import Table, read_table
from fastslow.rankers.table_features import ABOVE_LEAST
from fastslow.rankers.train_graphs import trainable

BIN_ROWS = 50_000  # rows that the bins are made from, of all graphs together


@dataclass(frozen=True)
class Training:
    """What a ranker is fitted on.

    Args:
        kind: ``layout`` or ``tile``.
        train: Rows to fit: of several machines this one's graphs.
        bins: Rows of all train graphs that the bins of the columns are made from, the same on every machine.
        valid: Rows to stop on.
    """

    kind: str
    train: Table
    bins: Table
    valid: Table


def read_training(config: RankerConfig) -> Training:
    """The rows that the settings name; of several machines, the graphs are dealt in turn.

    Raises:
        DataError: No train graph has two configurations of different runtime.
    """
    features, also = Features(resolve(config.features)), config.also()
    names = trainable(features, also)
    machines = config.machines.count(",") + 1
    if len(names) < machines:
        problem = f"{len(names)} train graphs with different runtimes for {machines} machines"
        raise DataError(features.folder, problem, "Train on other programs, or on fewer machines")
    options = {"also": also, "seed": config.seed, "largest_nodes": config.largest_nodes}
    bin_rows = min(config.configs_per_graph, max(2, BIN_ROWS // len(names)))
    return Training(
        kind=features.collection.kind,
        train=read_table(
            features, "train", names[config.machine :: machines], most=config.configs_per_graph, **options
        ),
        bins=read_table(features, "train", names, most=bin_rows, **options),
        valid=read_table(features, "valid", most=config.valid_configs, largest_nodes=config.largest_nodes),
    )


@dataclass(frozen=True)
class Fitted:
    """A trained ranker.

    Args:
        objective: One of ``OBJECTIVES``.
        booster: The trees, those beyond the best round included.
        rounds: The best round.
        history: (round, valid score) of every evaluation.
        opponents: Configurations that each is compared with (``pairwise``).
    """

    objective: str
    booster: lightgbm.Booster
    rounds: int
    history: list[tuple[int, float]]
    opponents: int

    def scores(self, table: Table) -> dict[str, np.ndarray]:
        """Scores by graph, ``(C,)`` float64 each, lower = predicted faster."""
        return booster_predictions(self.objective, self.booster, table, self.opponents, 0, self.rounds)

    def contributions(self, table: Table) -> dict[str, np.ndarray]:
        """SHAP values by graph, ``(C, F)`` of each column of the booster; they add up to score + constant."""

        def predict(rows: np.ndarray) -> np.ndarray:
            return self.booster.predict(rows, pred_contrib=True, num_iteration=self.rounds)[:, :-1]

        table = table.select(self.booster.feature_name())
        return score_table(self.objective, table, predict, self.opponents)


def booster_predictions(
    objective: str, booster: lightgbm.Booster, table: Table, opponents: int, start: int, rounds: int
) -> dict[str, np.ndarray]:
    """Scores by graph from the trees of some rounds; those of consecutive rounds add up."""

    def predict(rows: np.ndarray) -> np.ndarray:
        return booster.predict(rows, raw_score=True, start_iteration=start, num_iteration=rounds)

    return score_table(objective, table.select(booster.feature_name()), predict, opponents)


def columns_for(objective: str, columns: list[str]) -> list[str]:
    """The columns that an objective uses: in a difference, what is less the graph's least is said twice."""
    if OBJECTIVES[objective].label is not None:
        return columns
    return [column for column in columns if not column.endswith(ABOVE_LEAST)]


def fit(config: RankerConfig, objective: str, training: Training, report: Report | None = None) -> Fitted:
    """Boost trees until the valid score stops improving.

    Args:
        config: Settings.
        objective: One of ``OBJECTIVES``.
        training: Rows to fit and to stop on.
        report: Told the round and the latest valid score after every round.
    """
    columns = columns_for(objective, training.train.columns)
    train, bins, valid = (t.select(columns) for t in (training.train, training.bins, training.valid))
    drawn = {
        "seed": config.seed,
        "pairs_per_config": config.pairs_per_config,
        "levels": config.relevance_levels,
    }
    parameters = {
        **config.trees(),
        **config.network(),
        "objective": OBJECTIVES[objective].lightgbm,
        "metric": "None",
    }
    reference = make_dataset(bins, objective, **drawn).construct()
    data = make_dataset(train, objective, **drawn, reference=reference)
    booster = lightgbm.Booster(parameters, data)
    scores = {name: np.zeros(size) for name, size in zip(valid.names, valid.sizes, strict=True)}
    history: list[tuple[int, float]] = []
    best = done = 0
    for round_ in range(1, config.num_iterations + 1):
        stuck = booster.update()
        if round_ % config.evaluate_every == 0 or round_ == config.num_iterations or stuck:
            new = booster_predictions(objective, booster, valid, config.opponents, done, round_ - done)
            scores = {name: scores[name] + new[name] for name in scores}
            done = round_
            history.append((round_, collection_score(training.kind, valid.labels(), scores)["mean"]))
            best = max(history, key=lambda entry: entry[1])[0]
        if report:
            report(round_, history[-1][1] if history else np.nan)
        if stuck or done - best >= config.early_stopping_rounds:
            break
    return Fitted(objective, booster, best, history, config.opponents)
