"""Settings of a network: what its inputs and poolings are, and what is refused by name."""

import numpy as np
import pytest

from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.core.errors import SettingsError
from fastslow.features.scaling import EXPANDED_NODE_FEATURES, Scaler
from fastslow.networks.settings.columns import PICKED
from fastslow.networks.settings.inputs import input_columns, require_inputs
from fastslow.networks.settings.options import NetworkOptions
from fastslow.steps.network_settings import TrainSettings
from helpers.cases import cases

FIELDS = [  # field, value, what the error says after the field's name
    ("epoch", 3, ".*did you mean 'epochs'"),
    *(
        ("device", value, ".*one of auto, cpu, cuda, cuda:N")
        for value in ("gpu", "cuda:", "cuda:-1", "cuda:٣")
    ),
    *(
        (name, 0, ".*1 or more")
        for name in ("hidden_channels", "epochs", "graphs_per_step", "evaluate_every")
    ),
    *((name, 1, ".*2 or more") for name in ("configs_per_step", "configs_together")),
    *((name, -1, ".*0 or more") for name in ("seed", "num_layers", "patience", "average_last")),
    ("processes", 0, "0 is not 1 or more"),
    ("learning_rate", 0.0, ".*above 0"),
    ("max_grad_norm", 0, ".*above 0"),
    ("dropout", 1 - 2**-17, ".*at most 0.99998"),
    ("warmup", -0.1, ".*0 or more"),
    ("weight_decay", -1e-9, ".*0 or more"),
    ("readout", "sum+median", "'median' in 'sum.median' is not one of"),
    ("readout", "sum@all", "'sum@all' in 'sum@all' is not one of"),
    ("readout", "mean+sum+mean", "mean is given twice"),
    ("node_inputs", "numeric+tile", "'tile' in 'numeric.tile' is none of"),
    ("node_inputs", "tiles+tiles", "tiles is given twice"),
    ("node_inputs", "numeric+picked", "numeric in 'numeric.picked' contains picked; give one of them"),
    ("loss", "hinge", "'hinge' in 'hinge' is none of pairwise_hinge, "),
    ("loss", "pairwise_hinge+pairwise_hinge:2", "pairwise_hinge is given twice"),
    ("loss", "mse_log@2", "mse_log takes no parameter"),
    ("loss", "pairwise_hinge:0", "'0' in 'pairwise_hinge:0' is no number of 1e-20 to 1e20"),
    ("loss", "list_mle@", "'' in 'list_mle@' is no number of 1e-20 to 1e20; the form is NAME"),
    ("loss", "pairwise_hinge@1e39", "'1e39' in 'pairwise_hinge@1e39' is no number of 1e-20 to 1e20"),
    ("loss", "pairwise_hinge:1+", "'' in 'pairwise_hinge:1.' is none of"),
    ("config_inputs", "published", "'published' is not for layout"),
    ("segment_training", "gst+d", "'gst.d'"),
    ("segment_nodes", 10, "10 has no effect with segment_training 'none'"),
]
TOGETHER = [  # settings that do not fit, and what the error says of which of them
    *(
        ({"kind": "tile", name: value}, f"{name}: .* has no effect for tile; leave it at")
        for name, value in (("cross_config", False), ("pair_edges", False), ("configs_together", 10))
    ),
    ({"block": "unit"}, "cross_config: True is not False with block='unit'"),
    ({"input_attention": True}, "input_attention: True is not False with block='attention'"),
    (
        {"block": "residual", "input_attention": True, "segment_training": "gst"},
        "input_attention: True is not False for segment_training 'gst': it sees the whole graph; it may",
    ),
    ({"joins_nodes": True}, "joins_nodes: True is not False for layout, and with block='att"),
    ({"config_inputs": "violation", "kind": "tile"}, "config_inputs: 'violation' is not for tile"),
    ({"readout": "sum+sum@configurable", "kind": "tile"}, "readout: 'sum.sum@configurable' is not for tile"),
    ({"segment_training": "gst+e", "head_epochs": 2}, "head_epochs: 2 has no effect"),
    ({"segment_training": "edges", "segment_border": "cut"}, "segment_border: 'cut' has no effect"),
    ({"segment_training": "gst+ef", "head_epochs": 20}, "head_epochs: 20 is not below epochs"),
    ({"segment_training": "one", "edge_dropout": 0.1}, "edge_dropout: 0.1 is not 0"),
    (
        {"segment_training": "gst", "readout": "sum+max"},
        "readout: 'sum.max' is not a readout of sums and means for segment_training 'gst', whose",
    ),
    ({"segment_training": "one", "segment_border": "cut_live"}, "segment_border: 'cut_live' is not"),
    (
        {"segment_training": "gst+e", "processes": 2, "graphs_per_step": 2},
        "processes: 2 is not 1 for segment_training 'gst.e'",
    ),
    ({"segment_training": "gst", "kind": "tile"}, "segment_training: 'gst' has no effect for tile"),
    ({"processes": 3, "graphs_per_step": 2}, "graphs_per_step: 2 is not 3 or more, as each of 3 processes"),
    (
        {"processes": 2, "graphs_per_step": 2, "device": "cuda:0"},
        "device: 'cuda:0' is not for 2 processes; use 'auto'",
    ),
]


@cases("changes, said", [*(({name: value}, f"{name}: {said}") for name, value, said in FIELDS), *TOGETHER])
def test_settings_are_refused_by_name(changes, said):
    with pytest.raises(SettingsError, match=f"^{said}"):
        TrainSettings(**changes)


IN_PYTHON = [  # as TOGETHER, of options that are given without a step
    ({"kind": "tile", "segment_training": "gst"}, "segment_training: 'gst' is not 'none' for tile"),
    ({"seed": 2**64}, "seed: 18446744073709551616: Input should be less than or equal to 2147483647"),
    *(
        (changes, said)
        for changes, said in TOGETHER
        if not {"processes", "pair_edges", "configs_together"} & {*changes}
        if "has no effect" not in said
    ),
]


@cases("changes, said", IN_PYTHON)
def test_options_in_python_are_refused_as_settings_are(changes, said):
    with pytest.raises(SettingsError, match=f"^{said}"):
        NetworkOptions(**changes)


def test_the_cache_key_holds_what_the_kind_reads():
    layout, tile = TrainSettings().identity(), TrainSettings(kind="tile").identity()
    only = {"cross_config", "pair_edges", "segment_training"}
    assert layout.keys() - tile.keys() == only and not tile.keys() - layout.keys()


def test_thirty_columns_are_picked_each_with_a_reason():
    assert len(PICKED) == 30 and all(PICKED.values()) and {*PICKED} <= {*COLUMN_NAMES}
    columns = input_columns("picked+tiles")
    assert [COLUMN_NAMES[column] for column in columns[:30]] == [*PICKED]
    assert columns[30:] == [*range(134, 146)]


def test_columns_that_the_features_lack_are_refused():
    std = np.ones(EXPANDED_NODE_FEATURES)
    require_inputs("numeric+attributes", Scaler(std, std))
    std[input_columns("attributes")] = 0
    require_inputs("numeric+depths", Scaler(std, std))
    said = "node_inputs: the features have no attributes; build .*hlo_folder"
    with pytest.raises(SettingsError, match=said):
        require_inputs("numeric+attributes", Scaler(std, std))
