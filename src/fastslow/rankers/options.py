"""What a ranker of boosted trees learns; the names are LightGBM's where it has one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fastslow.core.errors import check_options
from fastslow.features.scaling import log_labels

OBJECTIVES: dict[str, Callable[[np.ndarray], np.ndarray] | None] = {
    "regression": log_labels,
    "pairwise": None,
}
"""Ways to fit a table, by name: the function that computes the labels of a graph from its runtimes, or None
where pairs have labels. The output of the trees is lower where a configuration is faster."""


@dataclass(frozen=True)
class RankerOptions:
    """Options of boosted trees; a value of another type or out of its range is a SettingsError."""

    seed: Annotated[int, Ge(0), Le(2**31 - 1)] = 0
    """Seed of the sampled rows, columns, configurations and pairs."""
    folds: Annotated[int, Ge(0), Le(100)] = 0
    """Split the train programs into so many parts; the training of seed s leaves out part s modulo ``folds``
    and predicts it, for the ensemble's weights. 0 leaves none out."""
    num_iterations: Annotated[int, Ge(1), Le(100_000)] = 150
    """Maximum number of boosting iterations."""
    early_stopping_rounds: Annotated[int, Ge(0)] = 0
    """Stop after this many iterations without a better valid score, and keep the trees up to the best one; 0
    keeps all. A few valid programs, as the sample has, choose worse than no choice."""
    evaluate_every: Annotated[int, Ge(1)] = 10
    """Iterations between two evaluations on valid, to be changed with ``early_stopping_rounds`` only."""
    learning_rate: Annotated[float, Gt(0)] = 0.1
    """Shrinkage of each tree."""
    num_leaves: Annotated[int, Ge(2), Le(131_072)] = 15
    """Maximum leaves of a tree; more fit finer and overfit sooner."""
    min_data_in_leaf: Annotated[int, Ge(1)] = 20
    """Minimum rows in a leaf."""
    feature_fraction: Annotated[float, Gt(0), Le(1)] = 0.3
    """Fraction of the columns sampled for each tree."""
    configs_per_graph: Annotated[int, Ge(2), Le(1_000_000)] = 10_000
    """Maximum configurations of a train graph; a larger graph is sampled down to this number."""
    valid_configs: Annotated[int, Ge(2), Le(1_000_000)] = 2000
    """Maximum configurations of a valid graph in evaluations during training, to be changed with
    ``early_stopping_rounds`` only; the final score takes all."""
    library: str = "lightgbm"
    """Library that grows the trees, one of ``rankers.libraries.LIBRARIES``."""
    objective: Literal[*OBJECTIVES] = "pairwise"
    """``regression`` (z-scored log runtime per graph), or ``pairwise`` (which of two configurations is
    slower, from the difference of their features: the best on the sample and the 11th place's)."""
    pairs_per_config: Annotated[int, Ge(1), Le(1000)] = 16
    """Configurations that each train configuration is compared with (``pairwise``)."""

    def __post_init__(self) -> None:
        check_options(self)
