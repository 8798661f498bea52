"""Settings that the rankers of boosted trees share."""

from typing import ClassVar, Literal

from fastslow.competition.catalog import TRAIN_ON, trained_together
from fastslow.core.artifacts import Artifact
from fastslow.core.settings import (
    AtLeastTwo,
    Config,
    Fraction,
    NonNegative,
    Positive,
    PositiveFloat,
    resolve,
    unkeyed,
)
from fastslow.evaluation.predictions import run_artifact
from fastslow.features.store import Features


class BoostingConfig(Config):
    """Settings of boosting."""

    renamed: ClassVar[dict[str, str]] = {
        "rounds": "num_iterations",
        "patience": "early_stopping_rounds",
        "leaves": "num_leaves",
        "min_rows": "min_data_in_leaf",
        "column_share": "feature_fraction",
        "row_share": "bagging_fraction",
        "threads": "num_threads",
        "truncation": "lambdarank_truncation_level",
    }

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of the collection to train on."""
    folder: str = unkeyed("runs/sample/ranker-layout-xla-random-s0")
    """Run folder to write."""
    num_threads: NonNegative = unkeyed(0)
    """Threads of LightGBM; 0 takes OMP_NUM_THREADS or every core."""
    seed: NonNegative = 0
    """Seed of sampling rows, columns, configurations and pairs."""
    train_on: Literal[*TRAIN_ON] = "source"
    """Whose train graphs are trained on: of the ``collection`` alone, of both searches of its ``source`` (xla
    or nlp), or of every ``layout`` collection. The others' features are looked for beside its own."""
    num_iterations: Positive = 500
    """Most boosting rounds."""
    early_stopping_rounds: Positive = 100
    """Stop after so many rounds without a better valid score."""
    evaluate_every: Positive = 5
    """Rounds between two evaluations on valid."""
    learning_rate: PositiveFloat = 0.03
    """Shrinkage of each tree."""
    num_leaves: AtLeastTwo = 15
    """Most leaves of a tree; more fits finer and overfits sooner."""
    min_data_in_leaf: Positive = 20
    """Fewest rows in a leaf."""
    feature_fraction: Fraction = 0.15
    """Share of the columns tried for a tree."""
    bagging_fraction: Fraction = 0.8
    """Share of the rows drawn for a tree."""
    configs_per_graph: AtLeastTwo = 10_000
    """Most configurations used of a train graph."""
    valid_configs: AtLeastTwo = 2000
    """Most configurations of a valid graph that are scored while training; the final score is that of all."""

    def run_artifact(self, model: str, entry: str) -> Artifact:
        """The run folder of a model; it depends on the features of every collection trained on."""
        own = Features(resolve(self.features))
        return run_artifact(model, entry, self, self.folder, own, self.also().values())

    def also(self) -> dict[str, Features]:
        """Features of the other collections to train on, by folder name."""
        folder = resolve(self.features)
        others = trained_together(Features(folder).collection, self.train_on)
        return {other.slug: Features(folder.parent / other.slug) for other in others}

    def trees(self) -> dict:
        """LightGBM's settings of the trees."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_data_in_leaf,
            "min_sum_hessian_in_leaf": 1e-12,  # a graph's configurations weigh 1 together
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "bagging_freq": 1,
            "seed": self.seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": self.num_threads,
            "verbosity": -1,
        }
