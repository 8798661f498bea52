"""Sections: the settings of a run's steps, as presets and the command line name them.

``gnn`` has one setting that its notebook does not have, see :class:`NetworkSection`.
"""

from typing import ClassVar, Literal

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.training_groups import TRAIN_ON
from fastslow.workflow.settings.presets import BASE, PRESETS


class NetworkSection(TrainSettings):
    """Settings of section ``gnn``: the settings of the network notebook, and which networks are trained."""

    layout_only: ClassVar[tuple[str, ...]] = (*TrainSettings.layout_only, "train_on")

    train_on: Literal[*TRAIN_ON] = "layout"
    """Layout only. Whose train graphs one network learns from: of one ``collection``, of both searches of a
    ``source`` (xla or nlp), or of every ``layout`` collection. The network predicts for all of them."""


SECTIONS: dict[str, type[Settings]] = {
    "features": FeatureSettings,
    "gnn": NetworkSection,
    "ranker": RankerSettings,
    "ensemble": EnsembleSettings,
}
"""Settings of every section of the presets and of the command line: a step each."""
SET_BY_THE_WORKFLOW = (
    "features",
    "runs",
    "folder",
    "collection",
    "data_root",
    "kind",
    "seed",
    "train",
    "trained",
)
"""Settings of these that a run sets itself."""


SCOPES = tuple(
    dict.fromkeys(
        "-".join(parts[:length])
        for parts in (collection.slug.split("-") for collection in COLLECTIONS)
        for length in range(1, len(parts) + 1)
    )
)
"""Scopes that a section may be restricted to: a kind, a source, a collection."""


def sections_of(step: str, scope: str) -> list[str]:
    """Return the sections that a step of a scope reads, from the general to the particular."""
    parts = scope.split("-")
    return [step, *(f"{step}.{'-'.join(parts[:length])}" for length in range(1, len(parts) + 1))]


def preset_settings(preset: str, overrides: dict[str, dict], step: str, scope: str) -> dict:
    """Return the settings of one step; overrides take precedence over the preset, and that over ``BASE``.

    What the preset sets and the chosen settings make unread is left out, such as the pairs of ``pairwise``
    where another objective is chosen.

    Args:
        preset: Name of a preset.
        overrides: Settings by section, as in a preset.
        step: ``features``, ``gnn``, ``ranker`` or ``ensemble``.
        scope: One of ``SCOPES``: the collection, or what the collections that are trained together share.

    Raises:
        SettingsError: There is no such preset.
    """
    if preset not in PRESETS:
        raise SettingsError("preset", f"{preset!r} is none of {', '.join(PRESETS)}")
    chosen = _of_step(overrides, step, scope)
    given = _of_step(BASE, step, scope) | _of_step(PRESETS[preset], step, scope) | chosen
    settings = SECTIONS[step]
    kind = {"kind": scope.partition("-")[0]} if "kind" in settings.model_fields else {}
    unread = settings.unread_of({**given, **kind})
    return {name: value for name, value in given.items() if name in chosen or name not in unread}


def _of_step(sections: dict[str, dict], step: str, scope: str) -> dict:
    """Return what sections set for a step, the narrower one last."""
    settings: dict = {}
    for section in sections_of(step, scope):
        settings |= sections.get(section, {})
    return settings
