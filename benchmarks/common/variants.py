"""The variants of our layout network that ``models.py`` compares.

Each changes settings. Settings are written as for ``--set``. All others come from the
preset, cut to a few epochs.
"""

from collections.abc import Iterable

from common.held_out import BASE
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.losses import LOSSES
from fastslow.networks.settings.architecture import NODE_ATTENTIONS
from fastslow.networks.settings.terms import POOLS
from fastslow.networks.settings.train_settings import TrainSettings

EPOCHS = 6
CUT = [f"gnn.layout.epochs={EPOCHS}", "gnn.layout.average_last=0", f"gnn.layout.evaluate_every={EPOCHS}"]


def _each(field: str, values: Iterable[str]) -> dict[str, list[str]]:
    """Return a variant for each value of a setting; the default is the base."""
    default = TrainSettings.model_fields[field].get_default()
    return {f"{field} {v}": [f"gnn.layout.{field}={v}"] for v in values if v != default}


GROUPS: dict[str, dict[str, list[str]]] = {
    "convolution": {
        **_each("convolution", CONVOLUTIONS),
        **_each("node_attention", NODE_ATTENTIONS),
        **_each("edge_dropout", ["0.1"]),
    },
    "loss": {
        **_each("loss", LOSSES),
        **_each("loss", ["list_mle@10:1+mse_log:0.02"]),  # TpuGraphs' tile baseline
    },
    "readout": {
        **_each("readout", POOLS),
        # of the 16th place and of TpuGraphs' layout baseline
        **_each("readout", ["mean+max", "mean+sum+sum@configurable"]),
    },
    "node inputs": {
        **_each("node_inputs", ["numeric", "picked+tiles"]),
        **_each("node_inputs", ["numeric+tiles+depths"]),
        **_each("dimension_tokens", ["True"]),  # the 5th's
    },
    "size": {
        **_each("num_layers", ["2"]),
        "num_layers 3, hops 3": ["gnn.layout.num_layers=3", "features.hops=3"],
        **_each("hidden_channels", ["32", "128"]),
        "the network of PRESET=kaggle": [
            "gnn.hidden_channels=128",
            "gnn.layout.num_layers=2",
            "gnn.layout.pair_edges=False",
        ],
        **_each("cross_config", ["False"]),
        **_each("pair_edges", ["False"]),
    },
    "training": {
        # as many steps as the base, on fewer graphs
        "train_on source": ["gnn.layout.train_on=source", f"gnn.layout.epochs={2 * EPOCHS}"],
        "train_on collection": ["gnn.layout.train_on=collection", f"gnn.layout.epochs={4 * EPOCHS}"],
        **_each("dropout", ["0.1", "0.4"]),
        **_each("learning_rate", ["5e-4", "2e-3"]),
        **_each("weight_decay", ["0.05"]),
        **_each("configs_per_step", ["16"]),
    },
    "features": {
        "hops 0": ["features.hops=0"],
        "hops 3": ["features.hops=3"],
        "whole graph": ["features.hops=-1"],
        "compiler_defaults False": ["features.compiler_defaults=False"],
        "copies of neighbours": ["features.copies_through=0"],
        "padding 0": ["features.padding=0"],
    },
}
VARIANTS = {BASE: [], **{name: own for group in GROUPS.values() for name, own in group.items()}}
