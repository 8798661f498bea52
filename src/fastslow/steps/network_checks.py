"""Which settings of a network fit together, and which of them a choice does not read."""

from typing import Any

from fastslow.core.settings import Unread
from fastslow.networks.settings.segments import (
    CUT,
    CUT_LIVE,
    EDGES,
    FRESH,
    NOTHING,
    SEGMENT_FIELDS,
    TABLE,
    VARIANTS,
)


def unread_layers(settings: Any) -> Unread:
    """Return the settings of blocks and edges that a ``TrainSettings`` without blocks does not read."""
    if settings.num_layers:
        return {}
    names = ["cross_config"] * (settings.block != "unit")  # which must switch it off for layout
    names += ["edge_dropout", "pair_edges"] * (not settings.input_attention)  # it reads the edges, too
    activates = settings.block == "residual" and settings.convolution == "mlp_gcn"  # the perceptron
    names += ["convolution"] * (not activates)
    return dict.fromkeys(names, ("with num_layers=0", "choose 1 layer or more"))


def check_layers(settings: Any) -> None:
    """Check what a ``TrainSettings`` sets beside ``block`` and ``kind``.

    Raises:
        SettingsError: The chosen structure or kind does not read a setting; it is named.
    """
    ours = settings.block == "attention"
    unit = settings.block == "unit"
    tile = settings.kind == "tile"
    other = f"with block={settings.block!r}"
    settings.require(not unit or tile or not settings.cross_config, "cross_config", f"False {other}")
    attends = settings.input_attention and settings.block != "residual"
    settings.require(not attends, "input_attention", f"False {other}")
    late = "False for layout, and with block='attention'"
    settings.require(not settings.joins_nodes or (tile and not ours), "joins_nodes", late)
    columns = "violation" if tile else "published"  # of the other kind
    settings.require(settings.config_inputs != columns, "config_inputs", f"for {settings.kind}")


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
    settings.require(settings.processes == 1 or not stored, "processes", f"1{why}: one process has its table")
    fits = border != CUT_LIVE or variant.others == FRESH
    settings.require(
        fits, "segment_border", f"'halo' or 'cut'{why}; 'cut_live' needs the others fresh: 'gst'"
    )
    if variant.head:
        settings.require(
            settings.head_epochs < settings.epochs, "head_epochs", f"below epochs ({settings.epochs})"
        )
