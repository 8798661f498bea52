"""Options of a network and of its training, as plain values."""

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from fastslow.core.errors import SettingsError, check_options
from fastslow.networks.settings.inputs import CONFIG_INPUTS, CONFIGURABLE
from fastslow.networks.settings.segments import SegmentOptions, segment_rules

BLOCKS = ("attention", "residual", "unit")
OPCODE_ROWS = 128
"""Rows of an embedding of opcodes."""


@dataclass(frozen=True)
class ArchitectureOptions:
    """Layers of the network, and the inputs that they read."""

    group_title: ClassVar[str] = "architecture"

    hidden_channels: Annotated[int, Ge(1), Le(2048)] = 64
    """Channels of every layer; 64 suits the sample, 128 and more the real data."""
    num_layers: Annotated[int, Ge(0), Le(64)] = 1
    """Message-passing blocks; more than the ``hops`` of the features make no sense."""
    cross_config: bool = True
    """Layout only. Let each node compare the configurations of a step (cross-config attention)."""
    pair_edges: bool = True
    """Layout only. Join configurable nodes that share a tensor by an edge, however many element-wise nodes
    are between them. Ranks a little better; a large graph has many more states with it and is slower."""
    dropout: Annotated[float, Ge(0), Le(1 - 2**-16)] = 0.3
    """Share of channels dropped in training."""
    readout: str = "sum"
    """Poolings of the nodes, joined, ``POOL[@configurable]+...``: ``sum``, ``mean``, ``unit_sum`` (a sum
    scaled to length 1), ``max`` (of each channel; not with segments that add up); over all nodes or the
    configurable ones (TpuGraphs' layout baseline: ``mean+unit_sum+unit_sum@configurable``)."""
    node_inputs: str = "numeric+tiles"
    """Columns of a node, joined: ``numeric`` (134 of the 140), ``tiles`` (six dimensions mod and div 128),
    ``picked`` (30 hand-picked in place of ``numeric``, as in the Harvard report's compression). Computed on
    the whole graph, before pruning: ``depths`` (degrees, hops from outputs and inputs), ``attributes``
    (dimension numbers of dots and gathers, sizes of slices, shapes of operands; 3rd place, no gain in the
    10th's; the features need ``hlo_folder``)."""
    config_inputs: Literal[*CONFIG_INPUTS] = "all"
    """Features of a configuration as a whole that are read: ``all``; ``published`` (the 24 of a tile file);
    ``violation`` (layout: only the violation ratio, Harvard report); ``none``."""
    block: Literal[*BLOCKS] = "attention"
    """Structure around the convolutions: ``attention`` (ours: norms, channel and cross-config attention), or
    a structure of TpuGraphs' baselines on raw layouts: ``residual`` (a perceptron, then blocks that add),
    ``unit`` (states scaled to length 1; with ``num_layers=0`` the tile MLP)."""
    convolution: str = "sage"
    """Message passing of a block: GraphSAGE with ``mean`` or ``sum`` (``sage``; ``sage_sum``, TpuGraphs' tile
    baseline); ``gcn`` (symmetric normalisation, TpuGraphs' layout baseline); ``mlp_gcn`` (its residual GCN).
    The winners on the real data took ``sage``."""
    input_attention: bool = False
    """Attention over all nodes before the blocks, 16 heads, a non-neighbour's weight times 0.1 (Harvard
    report); needs ``block=residual``. All blocks then run densely on the kept nodes: a state for each node
    and configuration."""
    joins_nodes: bool = False
    """True joins the features of a configuration to every node of a tile kernel (early join; needs ``block``
    ``residual`` or ``unit``); False after the pooling (late join). Early, the network runs densely: a state
    for each node and configuration."""

    @property
    def num_levels(self) -> int:
        """Number of layers that pass something between nodes: a level of states for each."""
        return self.num_layers + self.input_attention


@dataclass(frozen=True)
class LoopOptions:
    """The loop: loss, steps, learning rate, selection of the weights."""

    group_title: ClassVar[str] = "training"

    seed: Annotated[int, Ge(0), Le(2**31 - 1)] = 0
    """Seed of weights, order of graphs and choice of configurations."""
    folds: Annotated[int, Ge(0), Le(100)] = 0
    """Split the train programs into so many parts; the training of seed s leaves out part s modulo ``folds``
    and predicts it, for the ensemble's weights. 0 leaves none out."""
    epochs: Annotated[int, Ge(1), Le(1_000_000)] = 20
    """Passes over the train graphs."""
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Peak learning rate (AdamW): linear warm-up to it, then the ``schedule``."""
    loss: str = "pairwise_hinge"
    """Losses added up, ``NAME[@PARAMETER][:WEIGHT]+...`` (``list_mle@10:1+mse_log:0.02``): ``pairwise_hinge``
    (parameter: margin), ``list_mle`` (temperature; slowest first; 10th and 16th place on the real data),
    ``mse_log`` (none; absolute log runtime)."""
    graphs_per_step: Annotated[int, Ge(1), Le(1024)] = 1
    """Graphs whose losses are averaged for one step."""
    configs_per_step: Annotated[int, Ge(2), Le(10_000)] = 128
    """Configurations drawn from a graph for one step; more is less noisy and slower."""
    weight_decay: Annotated[float, Ge(0)] = 1e-5
    """Decoupled weight decay (AdamW); 0 is Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after the warm-up: ``constant`` with early stopping is what published baselines do."""
    warmup: Annotated[float, Ge(0), Lt(1)] = 0.05
    """Share of the steps spent warming up."""
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    """Gradients of a larger norm are clipped to it."""
    edge_dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the edges that a training step leaves out, the same for all its configurations (the 5th place
    dropped up to 0.15 on the real data)."""
    evaluate_every: Annotated[int, Ge(1)] = 2
    """Epochs between two evaluations on valid."""
    valid_configs: Annotated[int, Ge(2), Le(1_000_000)] = 2000
    """Maximum number of configurations of a valid graph that are evaluated while training, the same ones each
    time; the final score uses all of them."""
    patience: Annotated[int, Ge(0)] = 0
    """Stop after this many evaluations without a better valid score of any collection; 0 never stops
    early."""
    average_last: Annotated[int, Ge(0), Le(1000)] = 5
    """Average the weights of this many last evaluations and keep them where they score better on valid; 0
    turns averaging off."""


@dataclass(frozen=True)
class NetworkOptions(SegmentOptions, LoopOptions, ArchitectureOptions):
    """All options of a training; their defaults suit the sample's layout collections.

    A value of another type or out of its range is a SettingsError, and so are two that do not fit.
    """

    kind: Literal["layout", "tile"] = "layout"
    """Kind of the collections to train on. The graph of a ``tile`` kernel is the same for all configurations
    and is embedded once; what its configurations differ in joins in the head."""

    def __post_init__(self) -> None:
        check_options(self)
        self.check_together()

    def check_together(self) -> None:
        """Raise a SettingsError of an option that does not fit together with another one."""
        tile = self.kind == "tile"
        early = tile and self.block != "attention"
        crosses = self.cross_config and not tile
        other = f"False with block={self.block!r}"
        rules = [
            ("cross_config", not crosses or self.block != "unit", other),
            ("input_attention", not self.input_attention or self.block == "residual", other),
            ("joins_nodes", not self.joins_nodes or early, "False for layout, and with block='attention'"),
            (
                "config_inputs",
                self.config_inputs != ("violation" if tile else "published"),
                f"for {self.kind}",
            ),
            ("readout", not tile or CONFIGURABLE not in self.readout, "for tile: no node is configurable"),
        ]
        if self.segment_training != "none":
            rules += segment_rules(self)
        for name, fits, allowed in rules:
            if not fits:
                raise SettingsError(name, f"{getattr(self, name)!r} is not {allowed}")

    def architecture(self) -> ArchitectureOptions:
        """Return the options of the layers; a ``tile`` network has no cross-config attention."""
        layers = {field.name: getattr(self, field.name) for field in fields(ArchitectureOptions)}
        return ArchitectureOptions(**layers | {"cross_config": self.cross_config and self.kind == "layout"})
