"""Graph Segment Training (GST, arXiv 2305.12322) as settings: its variants, and which of them reads what."""

from typing import Any, NamedTuple

from fastslow.core.settings import Unread

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


def unread_segments(settings: Any) -> Unread:
    """Return the segment settings that the variant does not read, each with the reason and a remedy.

    Args:
        settings: A ``TrainSettings``; only its ``segment_training`` is read.
    """
    name = settings.segment_training
    variant = VARIANTS.get(name)
    read = variant and {"segment_border": variant.others != EDGES, "head_epochs": variant.head}
    names = [field for field, used in read.items() if not used] if read else SEGMENT_FIELDS[1:]
    return dict.fromkeys(names, (f"with segment_training {name!r}", "choose another segment_training"))


def check_segments(settings: Any) -> None:
    """Check the settings of segments of a ``TrainSettings``.

    Raises:
        SettingsError: One does not fit together with another one; it is named.
    """
    name = settings.segment_training
    variant = VARIANTS[name]
    if variant is None:
        return
    why = f" for segment_training {name!r}"
    alone = variant.others == NOTHING and settings.segment_border == CUT
    attends = "it sees the whole graph; it may with 'one' and segment_border='cut'"
    settings.require(alone or not settings.input_attention, "input_attention", f"False{why}: {attends}")
    settings.require(
        settings.edge_dropout == 0, "edge_dropout", f"0{why}: segments leave out edges themselves"
    )
    stored = variant.others == TABLE
    border = settings.segment_border
    settings.require(
        settings.processes == 1 or not stored, "processes", f"1{why}: its table is of one process"
    )
    fits = border != CUT_LIVE or variant.others == FRESH
    settings.require(
        fits, "segment_border", f"'halo' or 'cut'{why}; 'cut_live' needs the others fresh: 'gst'"
    )
    if variant.head:
        settings.require(
            settings.head_epochs < settings.epochs, "head_epochs", f"below epochs ({settings.epochs})"
        )


def head_epochs(settings: Any) -> range:
    """Return the number of last epochs of a ``TrainSettings`` in which only the head learns."""
    variant = VARIANTS[settings.segment_training]
    last = settings.head_epochs if variant and variant.head else 0
    return range(settings.epochs - last, settings.epochs)
