"""What a network is made of: the settings that its layers are built from, without torch."""

from dataclasses import dataclass

NODE_ATTENTIONS = ("none", "linear")
BLOCKS = ("attention", "residual", "unit")
OPCODE_ROWS = 128
"""Rows of an embedding of opcodes."""
GAT_HEADS = 4
"""Attention heads of ``gat``; ``hidden_channels`` must be a multiple."""


@dataclass(frozen=True)
class Architecture:
    """Settings of the layers.

    Args:
        hidden_channels: Channels D of every layer.
        num_layers: Number of message-passing blocks.
        cross_config: Whether each block has cross-config attention.
        dropout: Share of channels dropped in training.
        convolution: A name in ``model.convolutions.CONVOLUTIONS``.
        node_attention: One of :data:`NODE_ATTENTIONS`, beside the convolution.
        readout: Poolings of the nodes, see :func:`fastslow.networks.settings.terms.parse_readout`.
        block: One of :data:`BLOCKS`: ours (``model/network.py``), or TpuGraphs' (``published/plain.py``).
        input_attention: Whether nodes attend to all nodes before the blocks.
        joins_nodes: Whether the features of a configuration join on every node, not after the pooling.
        dimension_tokens: Whether each node is also embedded by its dimensions.
    """

    hidden_channels: int
    num_layers: int
    cross_config: bool
    dropout: float
    convolution: str = "sage"
    node_attention: str = "none"
    readout: str = "sum"
    block: str = "attention"
    input_attention: bool = False
    joins_nodes: bool = False
    dimension_tokens: bool = False

    @property
    def num_levels(self) -> int:
        """Number of layers that pass something between nodes: a level of states for each."""
        return self.num_layers + self.input_attention

    @property
    def preactivates(self) -> bool:
        """Whether blocks start with their activation and one follows the last: TpuGraphs' tile ResGCN."""
        return self.block == "residual" and self.convolution.startswith("mlp_gcn")

    @property
    def whole_graph(self) -> bool:
        """Whether a layer lets each node see the whole graph, not its neighbours alone."""
        return self.node_attention != "none" or self.input_attention
