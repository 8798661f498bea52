"""Settings of the ranker notebook."""

from dataclasses import dataclass

from fastslow.core.artifacts import Artifact
from fastslow.core.settings import elsewhere
from fastslow.rankers.boosting_config import BoostingConfig
from fastslow.rankers.objectives import OBJECTIVES

FORMAT = 2  # raise it with every change of code that changes what a run gives


@dataclass(frozen=True)
class RankerConfig(BoostingConfig):
    """Settings of the ranker notebook; for those not described here see :class:`BoostingConfig`.

    LightGBM's ranking objectives take queries of 10,000 rows: with more ``configs_per_graph``, a larger graph
    is dealt at random into several.

    Args:
        machines: ``host:port,host:port,...`` of machines that train together, each started with the same
            settings but its own ``machine``; empty for one. With ``bagging_fraction`` 1, ``regression`` and
            ``quantile`` give the model of one machine; the others draw or round by machine and come close.
        machine: Position of this machine in the list; the first one writes the run.
        objective: ``regression`` (z-scored log runtime of each graph), ``quantile`` (rank in the graph),
            ``lambdarank``, ``rank_xendcg``, ``pairwise`` (which of two is slower, from the difference of
            their features), or ``best``: all are trained and the best on valid is kept.
        largest_nodes: Configurable nodes whose layouts are columns of their own, the largest first. Raise it
            where the graphs to score are among those trained on; across programs it rather hurts.
        pairs_per_config: Others that a train configuration is compared with (``pairwise``).
        opponents: Others that a scored configuration is compared with (``pairwise``).
        relevance_levels: Most levels of relevance in a graph (``lambdarank``, ``rank_xendcg``), at most 31.
        lambdarank_truncation_level: Places from the top whose pairs count (``lambdarank``).
    """

    machines: str = elsewhere("")
    machine: int = elsewhere(0)
    objective: str = "best"
    largest_nodes: int = 0
    pairs_per_config: int = 16
    opponents: int = 16
    relevance_levels: int = 31
    lambdarank_truncation_level: int = 30

    def check(self) -> None:
        """Check ranges."""
        super().check()
        wanted = f"one of {', '.join(OBJECTIVES)}, best"
        self.require(self.objective in (*OBJECTIVES, "best"), "objective", wanted)
        for field in ("pairs_per_config", "opponents", "lambdarank_truncation_level"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        self.require(self.largest_nodes >= 0, "largest_nodes", "0 or more")
        self.require(2 <= self.relevance_levels <= 31, "relevance_levels", "from 2 to 31")
        machines = self.machines.split(",")
        named = all(machine.rpartition(":")[2].isdigit() for machine in machines)
        self.require(not self.machines or named, "machines", "a list host:port,host:port")
        self.require(0 <= self.machine < len(machines), "machine", f"from 0 to {len(machines) - 1}")

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        return self.run_artifact("ranker", FORMAT)

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
        return {**super().trees(), "lambdarank_truncation_level": self.lambdarank_truncation_level}
