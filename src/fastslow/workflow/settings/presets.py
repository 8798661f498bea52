"""Presets: what differs from the settings' defaults, which suit the sample competition on two CPU cores.

A preset maps a section to settings. A section is a step (``features``, ``gnn``, ``ranker``, ``ensemble``),
alone or with a scope: a kind (``gnn.tile``), a source (``gnn.layout-xla``) or a collection
(``gnn.layout-xla-random``). The narrower one takes precedence.

Plain data: a misspelt word raises an error before the libraries of the steps are imported.
"""

import itertools

from fastslow.core.errors import SettingsError
from fastslow.workflow.settings.published_presets import PUBLISHED

BASE: dict[str, dict] = {
    # a kernel is small and its graph is embedded once: more layers and graphs a step are affordable
    "gnn.tile": {"num_layers": 2, "dropout": 0.1, "epochs": 10, "graphs_per_step": 4}
}
"""Settings that every preset starts from: the defaults of the network's settings suit layout."""

# docs/kaggle_preset.md: what each place used, what was measured on the real data, and why ours departs.
_KAGGLE: dict[str, dict] = {
    # 2nd: labels of these are damaged; no model is selected on them
    "features.layout": {"skip_valid": ["layout:xla:*:*unet*", "layout:xla:default:mlperf_bert_batch_24_2x2"]},
    "gnn": {"hidden_channels": 128, "dropout": 0.2},  # 1st: blocks of 128 channels, dropout 0.2
    "gnn.layout": {
        "train_on": "collection",  # 1st and 2nd: default and random together are worse
        "num_layers": 2,  # 1st
        "pair_edges": False,  # ours: 13 times slower to predict 1,000 configurations of a genuine nlp program
        "epochs": 100,  # ours: what two cores train in a day; 1st: 750 to 1,000, see kaggle-full
        "evaluate_every": 10,
    },
    **{f"gnn.layout-{source}-default": {"configs_per_step": 64} for source in ("xla", "nlp")},  # 1st
    **{f"gnn.layout-{source}-random": {"cross_config": False} for source in ("xla", "nlp")},  # 1st
    # 1st: 100,000 steps of one kernel are 17.5 passes over the 5,709
    "gnn.tile": {"epochs": 20, "graphs_per_step": 8, "evaluate_every": 1},
    # ours: larger trees for ten times the programs; the 11th place names no size
    "ranker": {"num_iterations": 600, "num_leaves": 63, "min_data_in_leaf": 50},
    "ranker.layout": {"train_on": "collection", "configs_per_graph": 1000, "pairs_per_config": 4},
    "ranker.tile": {
        "configs_per_graph": 200,
        "pairs_per_config": 4,
        "valid_configs": 200,
        "evaluate_every": 20,
        "early_stopping_rounds": 100,  # 676 valid kernels choose well
    },
}

PRESETS: dict[str, dict[str, dict]] = {
    "sample": {  # little for tile, where the product of a tile's bounds alone is as good
        "gnn.tile": {"epochs": 2},
        "ranker.tile": {"num_iterations": 50, "configs_per_graph": 100, "pairs_per_config": 4},
    },
    "smoke": {  # the same steps with next to no training
        "gnn": {"epochs": 2, "hidden_channels": 32, "average_last": 0},
        "ranker": {"num_iterations": 30, "objective": "regression"},
        "ensemble": {"max_models": 5},
    },
    "kaggle": _KAGGLE,
    "kaggle-full": _KAGGLE
    | {
        "gnn.layout": {name: value for name, value in _KAGGLE["gnn.layout"].items() if name != "epochs"}
        | {"evaluate_every": 30},  # 1st: every 2,000 (xla) and 6,000 steps (nlp), 33 and 30 passes
        # 1st: blocks of 256 channels, half of them made by cross-config attention where there is any
        **{
            f"gnn.layout-{source}-random": {"cross_config": False, "hidden_channels": 256}
            for source in ("xla", "nlp")
        },
        "gnn.layout-xla": {"epochs": 750},
        "gnn.layout-nlp": {"epochs": 1000},
    },
    **{name: published.settings for name, published in PUBLISHED.items()},
}


STAGES = ("features", "train", "ensemble", "submission")
"""What a run does, in this order; an upload comes after it."""
MODELS = {"layout": ("gnn", "ranker"), "tile": ("gnn", "ranker")}
"""Every model, by kind."""
PACKAGED = "package"  # in place of a folder of trained models: those in the package
RULES = "rules"  # the choice of no model: ensembles of ridge regressions on the configurations' features

SEEDS = {
    "sample": {"tile": 1},
    "smoke": {"layout": 1, "tile": 1},
    "kaggle-full": {"layout": 5, "tile": 5},  # 1st: 5 to 20
}
"""Seeds of each model by kind, where they are not three; the sample's tile models score alike, to 0.001."""


HOURS = {"sample": 0.1, "kaggle": 19.0}
"""Wall hours of a preset with the data of its name, on two cores without a GPU.

Layout networks take 8 of the hours of ``kaggle`` (``benchmarks/tables/scale.md``)."""


def preset_seeds(preset: str, kind: str) -> int:
    """Return how many seeds of each model of a kind a preset trains; 3 where it has no number."""
    return SEEDS.get(preset, {}).get(kind, 3)


def trained_models(preset: str, chosen: str = "") -> dict[str, tuple[str, ...]]:
    """Return the models that are trained, by kind; a published baseline trains only networks.

    Args:
        preset: Name of a preset.
        chosen: Models to train, separated by commas, or :data:`RULES`; if empty, all that the preset has.

    Raises:
        SettingsError: The preset has no such model, or one is named twice.
    """
    every = {kind: ("gnn",) for kind in PUBLISHED[preset].kinds} if preset in PUBLISHED else MODELS
    if chosen == RULES:
        return dict.fromkeys(every, ())
    known = list(dict.fromkeys(itertools.chain.from_iterable(every.values())))
    names = [name.strip() for name in chosen.split(",")] if chosen else known
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise SettingsError(
            "models", f"{chosen!r} names {', '.join(repeated)} more than once; name each once"
        )
    if unknown := [repr(name) for name in names if name not in known]:
        problem = f"preset {preset} has no {', '.join(unknown)}; it has {', '.join(known)}"
        if chosen == PACKAGED or "/" in chosen:
            problem += f". Trained models predict with predict_with={chosen}"
        raise SettingsError("models", problem)
    kept = {kind: tuple(model for model in models if model in names) for kind, models in every.items()}
    return {kind: models for kind, models in kept.items() if models}
