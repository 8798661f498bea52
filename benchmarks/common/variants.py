"""The variants that ``explore.py`` compares: the settings that each changes, and the columns it leaves out.

Settings are written as for ``--set``; all others are the preset's.
"""

from common.held_out import BASE
from fastslow.features.violation import VIOLATION_NAMES

VARIANTS = {
    BASE: [],
    "depth 2": ["gnn.layout.num_layers=2"],
    "depth 3, hops 3": ["gnn.layout.num_layers=3", "features.hops=3"],
    "train on source, 40 epochs": ["gnn.layout.train_on=source", "gnn.layout.epochs=40"],
    "train on collection, 80 epochs": ["gnn.layout.train_on=collection", "gnn.layout.epochs=80"],
    "10 epochs": ["gnn.layout.epochs=10"],
    "30 epochs": ["gnn.layout.epochs=30"],
    "width 32": ["gnn.hidden_channels=32"],
    "width 128": ["gnn.hidden_channels=128"],
    "dropout .1": ["gnn.dropout=0.1"],
    "dropout .4": ["gnn.dropout=0.4"],
    "no cross-config": ["gnn.layout.cross_config=False"],
    "no edges of pairs": ["gnn.layout.pair_edges=False"],
    "width 128, depth 2, no edges of pairs": [  # the network of the kaggle preset
        "gnn.hidden_channels=128",
        "gnn.layout.num_layers=2",
        "gnn.layout.pair_edges=False",
    ],
    "no averaging": ["gnn.average_last=0"],
    "hops 0": ["features.hops=0"],
    "hops 1": ["features.hops=1"],
    "hops 3": ["features.hops=3"],
    "hops 5": ["features.hops=5"],
    "whole graph": ["features.hops=-1"],
    "no violation features": [],
    "copies of neighbours": ["features.copies_through=0"],
    "padding 0": ["features.padding=0"],
    "weight decay .05": ["gnn.weight_decay=0.05"],
    "learning rate 5e-4": ["gnn.learning_rate=5e-4"],
    "learning rate 2e-3": ["gnn.learning_rate=2e-3"],
    "4 graphs a step": ["gnn.graphs_per_step=4"],
    "16 configurations a step": ["gnn.configs_per_step=16"],
}
LEFT_OUT = {"no violation features": VIOLATION_NAMES}
"""Columns of ``config_feat`` that a variant leaves out: here violation ratios, padding and alignment."""
