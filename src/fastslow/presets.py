"""Presets: what differs from the settings' defaults, which suit the sample competition on two CPU cores.

A preset maps a section to settings. A section is a step (``features``, ``gnn``, ``ranker``, ``additive``,
``ensemble``), alone or with a kind (``gnn.tile``), which then goes before the one without.

``gnn.layout`` has one setting more than its notebook, ``train_on``, see :func:`network_settings`.
"""

from fastslow.core.errors import ConfigError

PRESETS: dict[str, dict[str, dict]] = {
    "sample": {},
    "smoke": {  # the same path with next to no training
        "gnn": {"epochs": 2, "hidden_channels": 32, "average_last": 0},
        "ranker": {"num_iterations": 30, "objective": "regression"},
        "additive": {"num_iterations": 10},
        "ensemble": {"max_models": 5},
    },
    "kaggle": {  # one GPU, or patience
        "gnn": {"hidden_channels": 128},
        # ten times the programs: each source has enough of its own, and they bear a second layer
        "gnn.layout": {
            "train_on": "source",
            "num_layers": 2,
            "pair_edges": False,  # 13 times slower to score 1,000 configurations of an nlp program
            "epochs": 300,
            "configs_per_step": 256,
            "evaluate_every": 10,
            "patience": 10,
        },
        "gnn.tile": {"epochs": 20, "graphs_per_step": 8, "evaluate_every": 1},
        "ranker": {"num_iterations": 2000, "num_leaves": 63, "min_data_in_leaf": 50, "evaluate_every": 20},
        # all configurations would be millions of rows, and pairs so many times more
        "ranker.layout": {"configs_per_graph": 1000, "pairs_per_config": 4},
        "ranker.tile": {"configs_per_graph": 200, "pairs_per_config": 4},
        # ten times the programs bear larger trees and more of them; patience finds how many. Every state of
        # every configuration is held at 16 bytes, up to a few thousand of them a configuration
        "additive": {
            "num_iterations": 1000,
            "num_leaves": 31,
            "min_data_in_leaf": 50,
            "configs_per_graph": 500,
        },
    },
}


def preset_settings(preset: str, overrides: dict[str, dict], step: str, kind: str) -> dict:
    """Settings of one step, from general to particular: preset, then overrides.

    Args:
        preset: Name of a preset.
        overrides: Settings by section, as in a preset.
        step: ``features``, ``gnn``, ``ranker``, ``additive`` or ``ensemble``.
        kind: ``layout`` or ``tile``.

    Raises:
        ConfigError: No preset is called so.
    """
    if preset not in PRESETS:
        raise ConfigError(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    settings: dict = {}
    for source in (PRESETS[preset], overrides):
        settings |= source.get(step, {}) | source.get(f"{step}.{kind}", {})
    return settings


def network_settings(preset: str, overrides: dict[str, dict], kind: str) -> tuple[dict, str]:
    """Settings of the networks of a kind, and ``train_on``: how many collections one of them learns from.

    It is a ``collection`` alone, both searches of a ``source`` (xla or nlp) or, unless told, every ``layout``
    collection; the network scores all that it learns from. Arguments as for :func:`preset_settings`.
    """
    settings = preset_settings(preset, overrides, "gnn", kind)
    return settings, settings.pop("train_on", "layout")
