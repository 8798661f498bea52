"""Architecture of a network: the settings that its layers are built from, and the sets that fit together."""

from dataclasses import dataclass
from typing import Any

from fastslow.core.settings import Unread

BLOCKS = ("attention", "residual", "unit")
OPCODE_ROWS = 128
"""Rows of an embedding of opcodes."""


@dataclass(frozen=True)
class Architecture:
    """Settings of the layers.

    Args:
        hidden_channels: Channels D of every layer.
        num_layers: Number of message-passing blocks.
        cross_config: Whether each block has cross-config attention.
        dropout: Share of channels dropped in training.
        convolution: A name in ``model.convolutions.CONVOLUTIONS``.
        readout: Poolings of the nodes, see :func:`fastslow.networks.settings.terms.parse_readout`.
        block: One of :data:`BLOCKS`: ours (``model/network.py``), or TpuGraphs' (``published/plain.py``).
        input_attention: Whether nodes attend to all nodes before the blocks.
        joins_nodes: Whether the features of a configuration join on every node, not after the pooling.
    """

    hidden_channels: int
    num_layers: int
    cross_config: bool
    dropout: float
    convolution: str = "sage"
    readout: str = "sum"
    block: str = "attention"
    input_attention: bool = False
    joins_nodes: bool = False

    @property
    def num_levels(self) -> int:
        """Number of layers that pass something between nodes: a level of states for each."""
        return self.num_layers + self.input_attention

    @property
    def preactivates(self) -> bool:
        """Whether blocks start with their activation and one follows the last: TpuGraphs' tile ResGCN."""
        return self.block == "residual" and self.convolution == "mlp_gcn"

    @property
    def whole_graph(self) -> bool:
        """Whether a layer lets each node see the whole graph, not only its neighbours."""
        return self.input_attention


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
