"""Settings of the ranker notebook."""

from typing import Annotated, Literal

from annotated_types import Ge, Le

from fastslow.core.artifacts import Artifact
from fastslow.core.settings import NonNegative, Positive, unkeyed
from fastslow.rankers.boosting_config import BoostingConfig
from fastslow.rankers.objectives import OBJECTIVES

ENTRY = "fastslow.rankers.train:train_ranker"


class RankerConfig(BoostingConfig):
    """Settings of the ranker notebook; for those not described here see :class:`BoostingConfig`.

    LightGBM's ranking objectives take queries of 10,000 rows: with more ``configs_per_graph``, a larger graph
    is dealt at random into several.
    """

    machines: str = unkeyed("")
    """``host:port,host:port,...`` of machines that train together, each started with the same settings but
    its own ``machine``; empty for one. With ``bagging_fraction`` 1, ``regression`` and ``quantile`` give the
    model of one machine; the others draw or round by machine and come close."""
    machine: NonNegative = unkeyed(0)
    """Position of this machine in the list; the first one writes the run."""
    objective: Literal[*OBJECTIVES, "best"] = "best"
    """``regression`` (z-scored log runtime of each graph), ``quantile`` (rank in the graph), ``lambdarank``,
    ``rank_xendcg``, ``pairwise`` (which of two is slower, from the difference of their features), or
    ``best``: all are trained and the best on valid is kept."""
    largest_nodes: NonNegative = 0
    """Configurable nodes whose layouts are columns of their own, the largest first. Raise it where the graphs
    to score are among those trained on; across programs it rather hurts."""
    pairs_per_config: Positive = 16
    """Others that a train configuration is compared with (``pairwise``)."""
    opponents: Positive = 16
    """Others that a scored configuration is compared with (``pairwise``)."""
    relevance_levels: Annotated[int, Ge(2), Le(31)] = 31
    """Most levels of relevance in a graph (``lambdarank``, ``rank_xendcg``), at most 31."""
    lambdarank_truncation_level: Positive = 30
    """Places from the top whose pairs count (``lambdarank``)."""

    def check(self) -> None:
        """Check ranges."""
        machines = self.machines.split(",")
        named = all(machine.rpartition(":")[2].isdigit() for machine in machines)
        self.require(not self.machines or named, "machines", "a list host:port,host:port")
        self.require(0 <= self.machine < len(machines), "machine", f"from 0 to {len(machines) - 1}")

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        return self.run_artifact("ranker", ENTRY)

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
