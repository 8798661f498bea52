"""Settings of the ranker notebook."""

from dataclasses import dataclass, replace

from fastslow.artifacts import Artifact
from fastslow.collections import TRAIN_ON, get_collection, trained_together
from fastslow.config import Config, elsewhere, resolve
from fastslow.graphs import Features
from fastslow.ranker_objectives import OBJECTIVES
from fastslow.scores import run_artifact

FORMAT = 2  # raise it with every change of code that changes what a run gives


@dataclass(frozen=True)
class RankerConfig(Config):
    """Settings of the ranker notebook.

    Args:
        features: Features folder of the collection to train on.
        folder: Run folder to write.
        threads: Threads of LightGBM; 0 takes OMP_NUM_THREADS or every core.
        machines: ``host:port,host:port,...`` of machines that train together, each started with the same
            settings but its own ``machine``; empty for one. With ``row_share`` 1, ``regression`` and
            ``quantile`` give the model of one machine; the others draw or round by machine and come close.
        machine: Position of this machine in the list; the first one writes the run.
        seed: Seed of sampling rows, columns, configurations and pairs.
        objective: ``regression`` (z-scored log runtime of each graph), ``quantile`` (rank in the graph),
            ``lambdarank``, ``rank_xendcg``, ``pairwise`` (which of two is slower, from the difference of
            their features), or ``best``: all are trained and the best on valid is kept.
        train_on: Whose train graphs are trained on: of the ``collection`` alone, of both searches of its
            ``source`` (xla or nlp), or of every ``layout`` collection. The others' features are looked for
            beside its own.
        largest_nodes: Configurable nodes whose layouts are columns of their own, the largest first. Raise it
            where the graphs to score are among those trained on; across programs it rather hurts.
        rounds: Most boosting rounds.
        patience: Stop after so many rounds without a better valid score.
        evaluate_every: Rounds between two evaluations on valid.
        learning_rate: Shrinkage of each tree.
        leaves: Most leaves of a tree; more fits finer and overfits sooner.
        min_rows: Fewest rows in a leaf.
        column_share: Share of the columns tried for a tree.
        row_share: Share of the rows drawn for a tree.
        configs_per_graph: Most configurations used of a train graph. LightGBM's ranking objectives take
            queries of 10,000 rows: a larger graph is dealt at random into several.
        valid_configs: Most configurations of a valid graph that are scored while training; the final score is
            that of all.
        pairs_per_config: Others that a train configuration is compared with (``pairwise``).
        opponents: Others that a scored configuration is compared with (``pairwise``).
        relevance_levels: Most levels of relevance in a graph (``lambdarank``, ``rank_xendcg``), at most 31.
        truncation: Places from the top whose pairs count (``lambdarank``).
    """

    features: str = elsewhere("features/sample/layout-xla-random")
    folder: str = elsewhere("runs/sample/ranker-layout-xla-random-s0")
    threads: int = elsewhere(0)
    machines: str = elsewhere("")
    machine: int = elsewhere(0)
    seed: int = 0
    objective: str = "best"
    train_on: str = "source"
    largest_nodes: int = 0
    rounds: int = 500
    patience: int = 100
    evaluate_every: int = 5
    learning_rate: float = 0.03
    leaves: int = 15
    min_rows: int = 20
    column_share: float = 0.15
    row_share: float = 0.8
    configs_per_graph: int = 10_000
    valid_configs: int = 2000
    pairs_per_config: int = 16
    opponents: int = 16
    relevance_levels: int = 31
    truncation: int = 30

    def check(self) -> None:
        """Check ranges."""
        self.require(
            self.objective in (*OBJECTIVES, "best"), "objective", f"one of {', '.join(OBJECTIVES)}, best"
        )
        self.require(self.train_on in TRAIN_ON, "train_on", f"one of {', '.join(TRAIN_ON)}")
        positive = "rounds patience evaluate_every min_rows pairs_per_config opponents truncation"
        for field in positive.split():
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("threads", "seed", "largest_nodes"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        for field in ("leaves", "configs_per_graph", "valid_configs"):
            self.require(getattr(self, field) >= 2, field, "2 or more")
        self.require(2 <= self.relevance_levels <= 31, "relevance_levels", "from 2 to 31")
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        for field in ("column_share", "row_share"):
            self.require(0 < getattr(self, field) <= 1, field, "above 0, at most 1")
        machines = self.machines.split(",")
        named = all(machine.rpartition(":")[2].isdigit() for machine in machines)
        self.require(not self.machines or named, "machines", "a list host:port,host:port")
        self.require(0 <= self.machine < len(machines), "machine", f"from 0 to {len(machines) - 1}")

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        artifact = run_artifact("ranker", FORMAT, self)
        also = {name: features.fingerprint for name, features in self.also().items()}
        return replace(artifact, inputs={**artifact.inputs, **also})

    def also(self) -> dict[str, Features]:
        """Features of the other collections to train on, by folder name."""
        folder = resolve(self.features)
        own = get_collection(Features(folder).manifest["settings"]["collection"])
        others = trained_together(own, self.train_on)
        return {other.slug: Features(folder.parent / other.slug) for other in others}

    def network(self) -> dict:
        """LightGBM's settings of the machines that train together; none for one."""
        if not self.machines:
            return {}
        return {
            "tree_learner": "data",
            "pre_partition": True,
            "machines": self.machines,
            "num_machines": self.machines.count(",") + 1,
            "local_listen_port": int(self.machines.split(",")[self.machine].rpartition(":")[2]),
            "time_out": 10,  # minutes
        }

    def trees(self) -> dict:
        """LightGBM's settings of the trees."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_rows,
            "min_sum_hessian_in_leaf": 1e-12,  # a graph's rows weigh 1 together
            "feature_fraction": self.column_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "lambdarank_truncation_level": self.truncation,
            "seed": self.seed,
        }
