"""Fit a ranker of boosted trees with one objective."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.metrics import collection_score
from fastslow.core.errors import registered
from fastslow.features.folds import leave_fold_out
from fastslow.features.graph import GraphSet, trainable
from fastslow.rankers.libraries import LIBRARIES, Trees
from fastslow.rankers.objectives import predict_table, sample_table
from fastslow.rankers.options import OBJECTIVES, RankerOptions
from fastslow.rankers.table import ABOVE_LEAST, Table, read_table, read_tables

Report = Callable[[int, float], None]
"""Called after every boosting iteration with its number and the latest valid score."""
OUT_OF_TIME, NO_SPLIT = "its time is over", "no draw of rows and columns holds a split"
BIN_ROWS = 50_000  # rows of all graphs together from which the bins of the columns are made


class Evaluation(NamedTuple):
    """The score of the first trees on the valid graphs: Kendall's tau (layout), 1 - slowdown (tile)."""

    trees: int
    score: float
    """Mean over the graphs."""
    per_graph: dict[str, float]


@dataclass(frozen=True)
class RankerTables:
    """The tables that a ranker is fitted on."""

    kind: str  # layout or tile
    train: Table  # rows to fit
    bins: Table  # rows of all train graphs from which the bins of the columns are made
    valid: Table  # rows to evaluate on
    held_out: tuple[str, ...] = ()  # names of the train graphs that options.folds leaves out


def read_training(sources: Mapping[str, GraphSet], options: RankerOptions = RankerOptions()) -> RankerTables:
    """Compute what :func:`fit` learns from: a row of columns for each sampled configuration.

    Args:
        sources: Graphs by slug of their collection (``layout-xla-random``), all of layout or all of tile.
        options: Which configurations are sampled; the other options are not read.

    Raises:
        DataError: No train graph can be learned from.
    """
    names = trainable(sources)
    held_out: list[str] = []
    if options.folds:
        names, held_out = leave_fold_out(sources, names, options.folds, options.seed)
    bin_rows = min(options.configs_per_graph, max(2, BIN_ROWS // len(names)))
    train, bins = read_tables(sources, TRAIN, names, [options.configs_per_graph, bin_rows], options.seed)
    valid = read_table(sources, VALID, max_configs=options.valid_configs)
    kind = next(iter(sources.values())).collection.kind
    return RankerTables(kind, train, bins, valid, tuple(held_out))


@dataclass(frozen=True)
class Fitted:
    """A trained ranker."""

    objective: str  # one of OBJECTIVES
    trees: Trees  # those that are not used included
    num_trees: int  # that are used
    history: list[Evaluation]
    ended: str = ""  # why fewer trees were grown than asked for: OUT_OF_TIME or NO_SPLIT

    def predict(self, table: Table) -> dict[str, np.ndarray]:
        """Return predictions ``(C,)`` float64 per graph of a table, lower = predicted faster."""
        return predict_trees(self.objective, self.trees, table, 0, self.num_trees)

    def predict_split(self, features: GraphSet, split: str) -> dict[str, np.ndarray]:
        """Predict ``(C_file,)`` of every graph of a split, holding the table of one graph at a time."""
        predictions: dict[str, np.ndarray] = {}
        for name in features.names(split):
            predictions |= self.predict(read_table(features, split, [name]))
        return predictions


def predict_trees(
    objective: str, trees: Trees, table: Table, start: int, count: int
) -> dict[str, np.ndarray]:
    """Return predictions ``(C,)`` per graph of ``count`` trees from ``start`` on; the parts add up."""

    def raw_output(rows: np.ndarray) -> np.ndarray:
        if not len(rows) or not count:  # libraries take no trees for all of them
            return np.zeros(len(rows))
        return trees.predict(rows, start, count)

    return predict_table(objective, table.select(trees.columns), raw_output)


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
        num_threads: Threads of the library; 0 takes OMP_NUM_THREADS or, where that is not set, every core.
        seconds: Time after which no further tree is grown.
        report: Called with the iteration and the latest valid score after every iteration.
    """
    columns = training.train.columns
    if OBJECTIVES[options.objective] is None:  # differences make the min-subtracted columns redundant
        columns = [column for column in columns if not column.endswith(ABOVE_LEAST)]
    train = training.train.select(columns)
    bins = training.bins.select(columns)
    valid = training.valid.select(columns)
    library = registered(LIBRARIES, "library", options.library)
    trees = library.begin(sample_table(train, options), sample_table(bins, options), options, num_threads)
    history, ended = boost(options, trees, training.kind, valid, seconds, report)
    return Fitted(options.objective, trees, kept_trees(options, history), history, ended)


def boost(
    options: RankerOptions,
    trees: Trees,
    kind: str,
    valid: Table,
    seconds: float = math.inf,
    report: Report | None = None,
) -> tuple[list[Evaluation], str]:
    """Grow trees, until the time is over or, with ``early_stopping_rounds``, valid stops improving.

    ``trees`` is an ensemble without trees, and ``valid`` has the columns that it reads. The kind, ``layout``
    or ``tile``, decides the metric. Other arguments are as for :func:`fit`.

    Returns:
        Every evaluation; the last tree is always evaluated. And ``ended`` of :class:`Fitted`.
    """
    labels = valid.labels()
    predictions = {name: np.zeros(len(runtime)) for name, runtime in labels.items()}
    history: list[Evaluation] = []
    evaluated = 0
    ends = time.monotonic() + seconds
    ended = ""
    for iteration in range(1, options.num_iterations + 1):
        stuck = trees.grow()
        last = stuck or iteration == options.num_iterations
        if stuck:
            ended = NO_SPLIT
        elif not last and time.monotonic() > ends:
            ended, last = OUT_OF_TIME, True
        grown = iteration - stuck
        is_due = last or iteration % options.evaluate_every == 0
        if is_due and (grown > evaluated or not history):
            added = predict_trees(options.objective, trees, valid, evaluated, grown - evaluated)
            for name, values in added.items():
                predictions[name] += values
            evaluated = grown
            score = collection_score(kind, labels, predictions)
            history.append(Evaluation(grown, score["mean"], score["per_graph"]))
        if report:
            report(iteration, history[-1].score if history else np.nan)
        patience = options.early_stopping_rounds
        if last or (patience and history and evaluated - kept_trees(options, history) >= patience):
            break
    return history, ended


def kept_trees(options: RankerOptions, history: Sequence[Evaluation]) -> int:
    """Return the number of trees of a model: all, or with early stopping up to the first best valid score."""
    if not options.early_stopping_rounds:
        return history[-1].trees
    return max(history, key=lambda evaluation: evaluation.score).trees
