"""Architecture of a network: the options that its layers are built from."""

from dataclasses import dataclass

BLOCKS = ("attention", "residual", "unit")
OPCODE_ROWS = 128
"""Rows of an embedding of opcodes."""


@dataclass(frozen=True)
class Architecture:
    """Options of the layers.

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
