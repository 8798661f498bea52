"""Presets: what differs from the settings' defaults, which suit the sample competition on two CPU cores.

A preset maps a section to settings. A section is a step (``features``, ``gnn``, ``ranker``,
``ensemble``), alone or with a kind (``gnn.tile``); a section with a kind takes precedence.

``gnn`` has one setting that its notebook does not have, see :class:`NetworkSection`.
"""

from typing import ClassVar, Literal

from fastslow.competition.catalog import TRAIN_ON
from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings
from fastslow.evaluation.ensemble import EnsembleSettings
from fastslow.features.settings import FeatureSettings
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.rankers.settings import RankerSettings
from fastslow.workflow.published_presets import PUBLISHED

BASE: dict[str, dict] = {
    # a kernel is small and its graph is embedded once: more layers and graphs a step are affordable
    "gnn.tile": {"num_layers": 2, "dropout": 0.1, "epochs": 10, "graphs_per_step": 4},
}
"""What every preset starts from: the defaults of the network's settings suit layout."""

PRESETS: dict[str, dict[str, dict]] = {
    "sample": {  # little for tile, where the product of a tile's bounds alone is as good
        "gnn.tile": {"epochs": 2},
        "ranker.tile": {
            "num_iterations": 50,
            "configs_per_graph": 100,
            "pairs_per_config": 4,
        },
    },
    "smoke": {  # the same steps with next to no training
        "gnn": {"epochs": 2, "hidden_channels": 32, "average_last": 0},
        "ranker": {"num_iterations": 30, "objective": "regression"},
        "ensemble": {"max_models": 5},
    },
    # For one GPU; it runs on a CPU too, slowly. Where a setting comes from: [winners] published solutions of
    # the competition, [real] measured on its files, [size] follows from the number of its graphs, [sample]
    # chosen on the sample competition and unproven on the real data.
    "kaggle": {
        "gnn": {"hidden_channels": 128},  # [winners] the width of the 1st place's layers
        "gnn.layout": {
            # [sample] the default and random search of one source; the 1st and 2nd place report no gain
            "train_on": "source",
            "num_layers": 2,  # [winners] as the 1st place
            "pair_edges": False,  # [real] 13 times slower to predict 1,000 configurations of an nlp program
            # [size] about 5 (xla) and 7 hours (nlp) on two cores, 300 epochs of 256 configurations 13 and 16
            # (benchmarks/tables/hours.md); [winners] 750 to 1,000 epochs: raise it where there is time
            "epochs": 150,
            "evaluate_every": 10,  # [size]
            "patience": 10,  # [size]
        },
        # [size] 5,709 train kernels, so fewer passes and more graphs a step than on the sample
        "gnn.tile": {"epochs": 20, "graphs_per_step": 8, "evaluate_every": 1},
        # [size] larger trees and more of them for ten times the programs: taken from no publication; all are
        # kept in layout, for 7 and 20 valid programs (xla, nlp) would choose worse than the sample's 16
        "ranker": {"num_iterations": 600, "num_leaves": 63, "min_data_in_leaf": 50},
        # [size] all configurations would be millions of rows, and pairs many times as many
        "ranker.layout": {"configs_per_graph": 1000, "pairs_per_config": 4},
        "ranker.tile": {
            "configs_per_graph": 200,
            "pairs_per_config": 4,
            "valid_configs": 200,
            "evaluate_every": 20,
            "early_stopping_rounds": 100,  # [size] 676 valid kernels
        },
        # From the defaults: 128 configurations a step (64 and 128 of the 1st place), learning rate, weight
        # decay, warm-up, hinge over pairs, cross-config attention, 1 to 5 hops and padding with -1 [winners];
        # the compiler's own layouts as features [real]; dropout 0.3 and averaging of weights [sample].
    },
    **{name: published.settings for name, published in PUBLISHED.items()},
}


MODELS = {"layout": ("gnn", "ranker"), "tile": ("gnn", "ranker")}
"""Every model, by kind."""

SEEDS = {"sample": {"tile": 1}, "smoke": {"layout": 1, "tile": 1}}
"""Seeds of each model by kind, where they are not three; the sample's tile models score alike, to 0.001."""


def preset_seeds(preset: str, kind: str) -> int:
    """Return how many seeds of each model of a kind a preset trains."""
    return SEEDS.get(preset, {}).get(kind, 3)


def trained_models(preset: str, chosen: str = "") -> dict[str, tuple[str, ...]]:
    """Return the models that are trained, by kind; a published baseline trains networks alone.

    Args:
        preset: Name of a preset.
        chosen: Models to train, separated by commas; if empty, all that the preset has.

    Raises:
        SettingsError: The preset has no such model, or one is named twice.
    """
    every = {kind: ("gnn",) for kind in PUBLISHED[preset].kinds} if preset in PUBLISHED else MODELS
    known = list(dict.fromkeys(model for own in every.values() for model in own))
    wanted = [name.strip() for name in chosen.split(",")] if chosen else known
    if repeated := [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]:
        raise SettingsError(f"models: {chosen!r} names {', '.join(repeated)} more than once; name each once")
    if unknown := [repr(name) for name in wanted if name not in known]:
        raise SettingsError(f"models: preset {preset} has no {', '.join(unknown)}; it has {', '.join(known)}")
    kept = {kind: tuple(model for model in own if model in wanted) for kind, own in every.items()}
    return {kind: own for kind, own in kept.items() if own}


class NetworkSection(TrainSettings):
    """Settings of section ``gnn``: those of the network notebook, and which networks are trained."""

    layout_only: ClassVar[tuple[str, ...]] = (*TrainSettings.layout_only, "train_on")

    train_on: Literal[*TRAIN_ON] = "layout"
    """Layout only. Whose train graphs one network learns from: of one ``collection``, of both searches of a
    ``source`` (xla or nlp), or of every ``layout`` collection. The network predicts for all of them."""


SETTINGS: dict[str, type[Settings]] = {
    "features": FeatureSettings,
    "gnn": NetworkSection,
    "ranker": RankerSettings,
    "ensemble": EnsembleSettings,
}
"""Settings of every section of the presets and of the command line."""


def preset_settings(preset: str, overrides: dict[str, dict], step: str, kind: str) -> dict:
    """Return the settings of one step; overrides take precedence over the preset, and that over ``BASE``.

    What the preset sets and the chosen settings make unread is left out, such as the pairs of ``pairwise``
    where another objective is chosen.

    Args:
        preset: Name of a preset.
        overrides: Settings by section, as in a preset.
        step: ``features``, ``gnn``, ``ranker`` or ``ensemble``.
        kind: ``layout`` or ``tile``.

    Raises:
        SettingsError: There is no such preset.
    """
    if preset not in PRESETS:
        raise SettingsError(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    chosen = _section(overrides, step, kind)
    given = _section(BASE, step, kind) | _section(PRESETS[preset], step, kind) | chosen
    settings = SETTINGS[step]
    unread = settings.unread_of({**given, **({"kind": kind} if "kind" in settings.model_fields else {})})
    return {name: value for name, value in given.items() if name in chosen or name not in unread}


def _section(settings: dict[str, dict], step: str, kind: str) -> dict:
    return settings.get(step, {}) | settings.get(f"{step}.{kind}", {})


def network_settings(preset: str, overrides: dict[str, dict], kind: str) -> tuple[dict, str]:
    """Return the settings of the networks of a kind, and ``train_on``, see :class:`NetworkSection`.

    Arguments and errors as for :func:`preset_settings`.

    Raises:
        SettingsError: ``train_on`` is refused.
    """
    settings = preset_settings(preset, overrides, "gnn", kind)
    own = {name: settings.pop(name) for name in ("train_on",) if name in settings}
    return settings, NetworkSection(kind=kind, **own).train_on
