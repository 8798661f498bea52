"""Options of Graph Segment Training (``networks/segments``), as plain values."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Ge

from fastslow.networks.settings.inputs import POOLS, parse_readout

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


@dataclass(frozen=True)
class SegmentOptions:
    """Graph Segment Training."""

    group_title: ClassVar[str] = "segments"

    segment_training: Literal[*VARIANTS] = "none"
    """Layout only. Graph Segment Training: learn from one segment of a graph at a step, so that memory does
    not grow with the graph. The rest of the graph adds nothing (``one``), its sums without gradient
    (``gst``), or its sums from the step that last learned from it (``gst+e``). ``+d`` leaves some of these
    out. ``+f``: at the end the head learns from whole graphs. ``edges``: all nodes of the graph, with only
    the edges inside the segment that is drawn (TpuGraphs' segment dropout)."""
    segment_nodes: Annotated[int, Ge(1)] = 1000
    """Layout only. Maximum number of nodes of a segment, a range of the node order; a smaller graph is
    trained whole."""
    segment_border: Literal[*BORDERS] = "halo"
    """Layout only. Edges between segments: a segment also computes the nodes that it depends on (``halo``:
    scores equal the whole graph's), none (``cut``, as published), or none in the segment that the step
    learns from (``cut_live``, TpuGraphs' backprop dropout)."""
    head_epochs: Annotated[int, Ge(1)] = 5
    """Layout only. Last epochs, of the ``epochs``, in which the head alone learns with ``+f``; they have a
    learning rate schedule of their own."""


def segment_rules(options: Any) -> list[tuple[str, bool, str]]:
    """Return rules of options with segments: name of an option, whether it fits, and its allowed values."""
    name, border = options.segment_training, options.segment_border
    variant = VARIANTS[name]
    why = f" for segment_training {name!r}"
    alone = variant.others == NOTHING and border == CUT
    attends = "it sees the whole graph; it may with 'one' and segment_border='cut'"
    live = border != CUT_LIVE or variant.others == FRESH
    fresh = f"'halo' or 'cut'{why}; 'cut_live' needs the others fresh: 'gst'"
    before = not variant.head or options.head_epochs < options.epochs
    summed = not any(POOLS[part.pool].largest for part in parse_readout(options.readout))
    sums = f"a readout of sums and means{why}, whose segments add up; 'edges' and 'none' may have a maximum"
    return [
        ("segment_training", options.kind == "layout", "'none' for tile"),
        ("input_attention", alone or not options.input_attention, f"False{why}: {attends}"),
        ("edge_dropout", options.edge_dropout == 0, f"0{why}: segments leave out edges themselves"),
        ("segment_border", live, fresh),
        ("readout", summed or variant.others == EDGES, sums),
        ("head_epochs", before, f"below epochs ({options.epochs})"),
    ]


def head_epochs(options: Any) -> range:
    """Return the last epochs, counted from 0, in which only the head learns; none in most variants."""
    variant = VARIANTS[options.segment_training]
    last = options.head_epochs if variant and variant.head else 0
    return range(options.epochs - last, options.epochs)


def same_schedule(options: Any, epoch: int) -> range:
    """Return the epochs, counted from 0, that share the learning rate schedule of ``epoch``.

    The last epochs, in which only the head learns, have a schedule of their own; the others start at 0.
    """
    last = head_epochs(options)
    return last if epoch in last else range(last.start)
