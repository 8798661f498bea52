"""Presets of published baselines: each is one command, such as ``make train PRESET=tpugraphs-late-join``.

Settings of our network, loop and data path. ``docs/baselines.md`` lists them with source and departures.
A baseline trains networks only, for the kinds of collections that it names.
"""

from dataclasses import dataclass

from fastslow.features.nodes.node_encodings import WHOLE_GRAPH

Sections = dict[str, dict]

_TRAINING = {  # Adam at a constant rate, stopped early; the best weights, not an average
    "weight_decay": 0.0,
    "warmup": 0.0,
    "schedule": "constant",
    "average_last": 0,
    "evaluate_every": 1,
}
_INPUTS = {"node_inputs": "numeric", "dropout": 0.0}
_TILE = {
    **_TRAINING,
    **_INPUTS,
    "config_inputs": "published",
    "loss": "list_mle@10:1+mse_log:0.02",
    "graphs_per_step": 10,
    "configs_per_step": 10,
    "max_grad_norm": 0.001,
    "epochs": 100,
    "patience": 20,
}
_SAGE = {"block": "unit", "convolution": "sage_sum", "num_layers": 3}
_RESGCN = {"block": "residual", "convolution": "mlp_gcn", "num_layers": 3}
_EARLY = {"joins_nodes": True}
_LAYOUT = {
    **_TRAINING,
    **_INPUTS,
    "train_on": "collection",
    "block": "residual",
    "pair_edges": False,
    "config_inputs": "none",
}
_ALONE = {"cross_config": False}  # nothing compares configurations
_RESMODEL = {
    **_LAYOUT,
    "convolution": "gcn",
    "num_layers": 2,
    "hidden_channels": 32,
    "readout": "mean+unit_sum+unit_sum@configurable",
    "loss": "list_mle",
    "max_grad_norm": 0.01,
}
_PAPER = "TpuGraphs, arXiv 2308.13490; google-research-datasets/tpu_graphs"


@dataclass(frozen=True)
class Published:
    """A published baseline as a preset.

    Args:
        what: The network in a few words.
        source: The publication.
        departs: Departures of this preset from its source, beside the departures that all presets of its kind
            share (``docs/baselines.md``), and whether it runs densely.
        settings: Settings by section, as in every preset. Sections with a kind say which kinds it trains.
    """

    what: str
    source: str
    departs: str
    settings: Sections

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the collections that it trains on, ``layout``, ``tile`` or both."""
        sections = {section.partition(".")[2] for section in self.settings}
        return tuple(kind for kind in ("layout", "tile") if kind in sections)


def _tile(what: str, departs: str = "nothing more", **settings) -> Published:
    all_settings = {"features.tile": {"padding": 0}, "gnn.tile": {**_TILE, **settings}}
    return Published(what, f"{_PAPER}, baselines/tiles", departs, all_settings)


def _layout(what: str, source: str, departs: str, hops: int = WHOLE_GRAPH, **settings) -> Published:
    sections = {"features.layout": {"padding": 0, "hops": hops}, "gnn.layout": settings}
    return Published(what, source, departs, sections)


_BACKPROP_DROPOUT = {"segment_training": "gst", "segment_border": "cut_live"}
_BATCH = {"graphs_per_step": 8, "configs_per_step": 16, "epochs": 50, "patience": 25}
_DENSE = "dense: a state for each node and configuration"
_TWO_WEIGHTS = "a weight for each direction of the edges"

PUBLISHED: dict[str, Published] = {
    "tpugraphs-mlp": _tile("tile MLP", block="unit", num_layers=0),
    "tpugraphs-early-join": _tile("tile SAGE, early join", f"{_TWO_WEIGHTS}; {_DENSE}", **_SAGE, **_EARLY),
    "tpugraphs-late-join": _tile("tile SAGE, late join", _TWO_WEIGHTS, **_SAGE),
    "tpugraphs-early-join-resgcn": _tile("tile ResGCN, early join", _DENSE, **_RESGCN, **_EARLY),
    "tpugraphs-late-join-resgcn": _tile("tile ResGCN, late join", **_RESGCN),
    "tpugraphs-resmodel": _layout(
        "layout ResModel",
        f"{_PAPER}, baselines/layout",
        "biases in the head",
        **{**_RESMODEL, **_ALONE, **_BATCH, **_BACKPROP_DROPOUT},
        segment_nodes=5000,
    ),
    "tpugraphs-sage": _layout(
        "layout SAGE, 3 layers, residual",
        "GST, arXiv 2305.12322; kaidic/GST, configs/tpugraphs.yaml",
        "activations and residuals, which the report has and the public code lacks; a hinge averaged over"
        " pairs, not summed; a readout of mean and sum of length 1, not mean and maximum; one score of the"
        " graph, not a sum over segments; an opcode embedding as wide as the hidden layers (128), not 32; 200"
        " epochs with early stopping, not 20,000",
        **{**_LAYOUT, **_ALONE, "dropout": 0.1},
        num_layers=3,
        hidden_channels=128,
        readout="mean+unit_sum",
        loss="pairwise_hinge@0.1",
        learning_rate=1e-4,
        graphs_per_step=32,
        configs_per_step=32,
        epochs=200,
        patience=20,
        segment_training="gst",
        segment_border="cut",
    ),
    "ie-slides": _layout(
        "layout ResModel, attention, edge sampling",
        "IE slides (239th of 616 in the competition)",
        "attention between the configurations of a node, as in the winner's network that the slides name:"
        " they do not specify it; batch 10, the best on Kaggle's private board; edges sampled in whole"
        " graphs, not 100 nodes of each",
        **_RESMODEL,
        edge_dropout=0.1,
        graphs_per_step=10,
        configs_per_step=20,
        epochs=6,
        patience=2,
    ),
    "harvard": _layout(
        "layout ResModel, attention over nodes, violation ratio",
        "Harvard report (107th of 616 in the competition)",
        "the mask's 0.1 multiplies weights before they are normalised; the attention is added to its input;"
        " training on 1,000 consecutive ones of the nodes within a hop of a configurable one, prediction on"
        " all of these; 10 epochs, as in its figures for attention; a batch of 16 configurations of one"
        f" graph; no tile network; {_DENSE}",
        hops=1,
        **{**_RESMODEL, **_ALONE, "config_inputs": "violation"},
        input_attention=True,
        segment_training="one",
        segment_border="cut",
        configs_per_step=16,
        epochs=10,
        configs_together=32,
    ),
}
PUBLISHED["tpugraphs"] = Published(
    "all five collections: tile SAGE, early join; layout ResModel",
    _PAPER,
    "see tpugraphs-early-join and tpugraphs-resmodel",
    PUBLISHED["tpugraphs-early-join"].settings | PUBLISHED["tpugraphs-resmodel"].settings,
)
