"""Which collections one model learns from together, and which of their train programs it leaves out."""

from collections.abc import Mapping

from fastslow.competition.catalog import COLLECTIONS, TEST, TRAIN, Collection
from fastslow.core.errors import SettingsError, counted
from fastslow.features.graph import GraphSet, held_out

TRAIN_ON = ("collection", "source", "layout")
"""Choices of the collections whose train graphs a model learns from, from few to many."""
_SHARED = dict(zip(TRAIN_ON, (3, 2, 1), strict=True))  # leading parts of the name that they share


def training_groups(kind: str, train_on: str) -> dict[str, list[Collection]]:
    """Group the collections of a kind into those that one network learns from together and predicts.

    Args:
        kind: ``layout`` or ``tile``.
        train_on: One of ``TRAIN_ON``: ``collection``, ``source`` or ``layout``.

    Returns:
        The collections by the shared part of their names: ``layout``, ``layout-xla`` or
        ``layout-xla-random``.

    Raises:
        SettingsError: ``train_on`` is none of these.
    """
    if train_on not in TRAIN_ON:
        raise SettingsError("train_on", f"{train_on!r} is not one of {', '.join(TRAIN_ON)}")
    groups: dict[str, list[Collection]] = {}
    for collection in COLLECTIONS:
        if collection.kind == kind:
            parts = collection.name.split(":")[: _SHARED[train_on]]
            groups.setdefault("-".join(parts), []).append(collection)
    return groups


def trained_together(collection: Collection, train_on: str) -> list[Collection]:
    """Return the other collections whose train graphs are trained on together with a collection's own.

    Those are none (``collection``), the other search of xla or nlp (``source``), or every other layout
    collection (``layout``). For tile there is none.
    """
    (group,) = (group for group in training_groups(collection.kind, train_on).values() if collection in group)
    return [c for c in group if c != collection]


def warn_of_predicted(sources: Mapping[str, GraphSet]) -> list[str]:
    """Return warnings that name the train programs that valid or test hold too; none where there are none.

    A copy of a test program under another name is learned from, as the competition's labels allow it.

    Args:
        sources: Graphs of every collection that is trained on.
    """
    left_out = held_out(sources)
    tested = {of.content(TEST, name): f"{TEST}/{name}" for of in sources.values() for name in of.names(TEST)}
    train = [(name, of.content(TRAIN, name)) for of in sources.values() for name in of.names(TRAIN)]
    learned = {name: tested[mark] for name, mark in train if mark in tested and name not in left_out}
    told = {"trained without {} that valid or test hold too": left_out}
    told["trained on {} that test holds too, whose scores tell nothing of new programs"] = learned
    return [
        f"{words.format(counted(len(programs), 'program'))}: {_with_names(programs)}"
        for words, programs in told.items()
        if programs
    ]


def _with_names(programs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} (as {predicted})" for name, predicted in programs.items())
