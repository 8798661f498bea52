"""Graph Segment Training (GST, arXiv 2305.12322) and its variants."""

from typing import Any, NamedTuple

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
CUT, HALO, CUT_LIVE = "cut", "halo", "cut_live"
BORDERS = (HALO, CUT, CUT_LIVE)
SEGMENT_FIELDS = ("segment_training", "segment_nodes", "segment_border", "head_epochs")


def head_epochs(settings: Any) -> range:
    """Return the number of last epochs of a ``TrainSettings`` in which only the head learns."""
    variant = VARIANTS[settings.segment_training]
    last = settings.head_epochs if variant and variant.head else 0
    return range(settings.epochs - last, settings.epochs)
