"""Which settings of a network a choice does not read, and which processes it can have."""

from typing import Any

from fastslow.core.settings import Unread
from fastslow.networks.settings.segments import EDGES, SEGMENT_FIELDS, TABLE, VARIANTS


def unread_layers(settings: Any) -> Unread:
    """Return the settings of blocks and edges that a ``TrainSettings`` without blocks does not read."""
    if settings.num_layers:
        return {}
    names = ["cross_config"] * (settings.block != "unit")  # which must switch it off for layout
    names += ["edge_dropout", "pair_edges"] * (not settings.input_attention)  # it reads the edges, too
    activates = settings.block == "residual" and settings.convolution == "mlp_gcn"  # the perceptron
    names += ["convolution"] * (not activates)
    return dict.fromkeys(names, ("with num_layers=0", "choose 1 layer or more"))


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


def check_processes(settings: Any) -> None:
    """Refuse several processes of a ``TrainSettings`` whose table of segments one process has.

    Raises:
        SettingsError: There are several.
    """
    variant = VARIANTS[settings.segment_training]
    alone = variant is None or variant.others != TABLE or settings.processes == 1
    why = f"1 for segment_training {settings.segment_training!r}: one process has its table"
    settings.require(alone, "processes", why)
