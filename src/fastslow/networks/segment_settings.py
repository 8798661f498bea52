"""Graph Segment Training (GST, arXiv 2305.12322) as settings: its variants, and which of them reads what."""

from importlib.util import find_spec
from typing import Any, NamedTuple

from fastslow.core.errors import ConfigError
from fastslow.core.settings import Unread
from fastslow.networks.terms import parse_readout

NOTHING, EDGES, FRESH, TABLE = "nothing", "edges", "fresh", "table"


class Variant(NamedTuple):
    """What a variant does with the segments that a step does not learn from.

    Args:
        others: Nothing of them is seen (:data:`NOTHING`), their nodes without edges (:data:`EDGES`), their
            sums without gradient (:data:`FRESH`), or their sums when they were last learned from
            (:data:`TABLE`: "+E").
        drops: Whether some of them are left out (stale embedding dropout: "+D").
        head: Whether the head alone learns at the end, from whole graphs ("+F").
    """

    others: str
    drops: bool = False
    head: bool = False


VARIANTS = {
    "none": None,
    "edges": Variant(EDGES),
    "one": Variant(NOTHING),
    "gst": Variant(FRESH),
    "gst+e": Variant(TABLE),
    "gst+ed": Variant(TABLE, drops=True),
    "gst+ef": Variant(TABLE, head=True),
    "gst+efd": Variant(TABLE, drops=True, head=True),
}
PARTITIONS = ("contiguous", "computations", "metis", "random", "configurable")
CUT, HALO, CUT_LIVE = "cut", "halo", "cut_live"
BORDERS = (HALO, CUT, CUT_LIVE)
SETTINGS = (
    "segment_training",
    "segment_nodes",
    "segment_partition",
    "segment_border",
    "segments_per_step",
    "segment_keep",
    "head_epochs",
)


def unread(config: Any) -> Unread:
    """Return the settings of segments that the variant of a :class:`TrainConfig` does not read."""
    name, variant = config.segment_training, VARIANTS.get(config.segment_training)
    read = variant and {
        "segment_border": variant.others != EDGES,
        "segment_keep": variant.drops,
        "head_epochs": variant.head,
    }
    names = [field for field, used in read.items() if not used] if read else SETTINGS[1:]
    return dict.fromkeys(names, (f"with segment_training {name!r}", "choose another segment_training"))


def check(config: Any) -> None:
    """Check the settings of segments of a :class:`TrainConfig`.

    Raises:
        ConfigError: One does not fit together with another one; it is named.
    """
    name, variant = config.segment_training, VARIANTS[config.segment_training]
    if variant is None:
        return
    why = f" for segment_training {name!r}"
    config.require(config.node_attention == "none", "node_attention", f"'none'{why}: it sees the whole graph")
    alone = variant.others == NOTHING and config.segment_border == CUT
    attends = "it sees the whole graph; it may with 'one' and segment_border='cut'"
    config.require(alone or not config.input_attention, "input_attention", f"False{why}: {attends}")
    config.require(config.edge_dropout == 0, "edge_dropout", f"0{why}: segments leave out edges themselves")
    pools = {part.pool for part in parse_readout(config.readout)}
    adds_up = variant.others == EDGES or pools <= {"sum", "mean", "unit_sum"}
    config.require(adds_up, "readout", f"of sum, mean and unit_sum{why}: these add up over segments")
    stored, border = variant.others == TABLE, config.segment_border
    config.require(config.processes == 1 or not stored, "processes", f"1{why}: its table is of one process")
    fits = border != CUT_LIVE or variant.others == FRESH
    config.require(fits, "segment_border", f"'halo' or 'cut'{why}; 'cut_live' needs the others fresh: 'gst'")
    if variant.head:
        config.require(config.head_epochs < config.epochs, "head_epochs", f"below epochs ({config.epochs})")
    if config.segment_partition == "metis" and find_spec("pymetis") is None:
        remedy = "pip install 'fastslow[segments]', or choose another"
        raise ConfigError(f"segment_partition: 'metis' needs the package pymetis: {remedy}")


def head_epochs(config: Any) -> range:
    """Return the epochs of a :class:`TrainConfig` in which the head alone learns: the last ones, or none."""
    variant = VARIANTS[config.segment_training]
    last = config.head_epochs if variant and variant.head else 0
    return range(config.epochs - last, config.epochs)
