"""Scores of a ranker on programs that it has not learned from: folds of the train programs, and valid."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from fastslow.competition.catalog import TRAIN
from fastslow.competition.metrics import collection_score
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import GraphSet
from fastslow.rankers.fit import RankerTables, fit, read_training
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.table import Table, read_table


class CrossValidation:
    """Tables of the folds of train programs, read once and fitted with any number of options.

    Args:
        sources: The graphs of each collection of a kind, by its slug.
        folds: Number of folds, 2 or more; copies of a program are in one.
        sampled: Which configurations of a program are sampled; the other options are not read.

    Attributes:
        trainings: For each fold, the tables without its programs.
        left_out: For each fold, the table of its programs, of at most ``HELD_OUT_CONFIGS`` configurations
            each.

    Raises:
        DataError: There are fewer different programs than folds.
    """

    def __init__(self, sources: Mapping[str, GraphSet], folds: int, sampled: RankerOptions = RankerOptions()):
        self._sources = sources
        self._sampled = replace(sampled, folds=0)
        options = [replace(sampled, folds=folds, seed=fold) for fold in range(folds)]
        self.trainings = [read_training(sources, each) for each in options]
        self.left_out = [
            read_table(sources, TRAIN, training.held_out, HELD_OUT_CONFIGS) for training in self.trainings
        ]

    def score(self, options: RankerOptions) -> dict[str, float]:
        """Return the score of every train program by rankers that did not learn from it.

        Args:
            options: What the trees learn; which configurations are sampled is not read.

        Returns:
            By program, Kendall's tau (layout), or 1 - slowdown of the first five (tile).
        """
        scores: dict[str, float] = {}
        for training, left_out in zip(self.trainings, self.left_out, strict=True):
            scores |= _scores(training, left_out, options)
        return scores

    def score_valid(self, options: RankerOptions) -> dict[str, float]:
        """Return as :meth:`score` the scores of valid programs, by a ranker of all train programs."""
        return _scores(self._whole, self._whole.valid, options)

    @cached_property
    def _whole(self) -> RankerTables:
        """The tables of all train programs."""
        return read_training(self._sources, self._sampled)


def _scores(training: RankerTables, table: Table, options: RankerOptions) -> dict[str, float]:
    predictions = fit(training, options).predict(table)
    return collection_score(training.kind, table.labels(), predictions)["per_graph"]
