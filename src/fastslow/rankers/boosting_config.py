"""Settings that the rankers of boosted trees share."""

from dataclasses import dataclass

from fastslow.competition.catalog import TRAIN_ON, trained_together
from fastslow.core.artifacts import Artifact
from fastslow.core.settings import Config, elsewhere, resolve
from fastslow.evaluation.predictions import run_artifact
from fastslow.features.store import Features


@dataclass(frozen=True)
class BoostingConfig(Config):
    """Settings of boosting.

    Args:
        features: Features folder of the collection to train on.
        folder: Run folder to write.
        num_threads: Threads of LightGBM; 0 takes OMP_NUM_THREADS or every core.
        seed: Seed of sampling rows, columns, configurations and pairs.
        train_on: Whose train graphs are trained on: of the ``collection`` alone, of both searches of its
            ``source`` (xla or nlp), or of every ``layout`` collection. The others' features are looked for
            beside its own.
        num_iterations: Most boosting rounds.
        early_stopping_rounds: Stop after so many rounds without a better valid score.
        evaluate_every: Rounds between two evaluations on valid.
        learning_rate: Shrinkage of each tree.
        num_leaves: Most leaves of a tree; more fits finer and overfits sooner.
        min_data_in_leaf: Fewest rows in a leaf.
        feature_fraction: Share of the columns tried for a tree.
        bagging_fraction: Share of the rows drawn for a tree.
        configs_per_graph: Most configurations used of a train graph.
        valid_configs: Most configurations of a valid graph that are scored while training; the final score is
            that of all.
    """

    features: str = elsewhere("features/sample/layout-xla-random")
    folder: str = elsewhere("runs/sample/ranker-layout-xla-random-s0")
    num_threads: int = elsewhere(0)
    seed: int = 0
    train_on: str = "source"
    num_iterations: int = 500
    early_stopping_rounds: int = 100
    evaluate_every: int = 5
    learning_rate: float = 0.03
    num_leaves: int = 15
    min_data_in_leaf: int = 20
    feature_fraction: float = 0.15
    bagging_fraction: float = 0.8
    configs_per_graph: int = 10_000
    valid_configs: int = 2000

    def check(self) -> None:
        """Check ranges."""
        self.require(self.train_on in TRAIN_ON, "train_on", f"one of {', '.join(TRAIN_ON)}")
        for field in ("num_iterations", "early_stopping_rounds", "evaluate_every", "min_data_in_leaf"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("num_threads", "seed"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        for field in ("num_leaves", "configs_per_graph", "valid_configs"):
            self.require(getattr(self, field) >= 2, field, "2 or more")
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        for field in ("feature_fraction", "bagging_fraction"):
            self.require(0 < getattr(self, field) <= 1, field, "above 0, at most 1")

    def run_artifact(self, model: str, version: int) -> Artifact:
        """The run folder of a model; it depends on the features of every collection trained on."""
        own = Features(resolve(self.features))
        return run_artifact(model, version, self, self.folder, own, self.also().values())

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
