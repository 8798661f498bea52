"""The boosting loop: grow a tree, evaluate on valid, stop early where that is wanted."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from fastslow.competition.metrics import collection_score
from fastslow.core.errors import DataError
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import resolve
from fastslow.rankers.settings import RankerSettings

USED = "used.json"
"""File in the folder of an interrupted ranker: the seconds that its trees took, of a limit in hours."""
_WRITTEN_EVERY = 1.0  # seconds
History = list[tuple[int, float]]
"""(iteration, valid score) of every evaluation."""
Report = Callable[[int, float], None]
"""Called after every boosting iteration with its number and the latest valid score."""


def boost(
    settings: RankerSettings,
    update: Callable[[], bool],
    predict: Callable[[int, int], Mapping[str, np.ndarray]],
    kind: str,
    labels: Mapping[str, np.ndarray],
    report: Report | None = None,
) -> History:
    """Grow trees, until the time is over or, with ``early_stopping_rounds``, valid stops improving.

    Args:
        settings: Settings.
        update: Grows one tree; returns whether none could be grown, which ends the training.
        predict: Valid predictions ``(C,)`` per graph of ``num_iteration`` trees from ``start_iteration`` on,
            its two arguments. Predictions of consecutive trees add up, so each tree is evaluated once.
        kind: ``layout`` or ``tile``, which decides the metric.
        labels: Valid runtimes ``(C,)`` per graph.
        report: Called with the iteration and the latest valid score after every iteration.

    Returns:
        Every evaluation; the last tree is always evaluated.
    """
    predictions = {name: np.zeros(len(runtime)) for name, runtime in labels.items()}
    history: History = []
    evaluated = 0
    began = time.monotonic() - read_used(settings)
    written = -math.inf
    ends = began + (3600 * settings.hours or math.inf)
    for iteration in range(1, settings.num_iterations + 1):
        stuck = update()
        last = stuck or iteration == settings.num_iterations or time.monotonic() > ends
        if last or iteration % settings.evaluate_every == 0:
            grown = iteration - stuck
            for name, values in predict(evaluated, grown - evaluated).items():
                predictions[name] += values
            evaluated = grown
            history.append((grown, collection_score(kind, labels, predictions)["mean"]))
        if settings.hours and time.monotonic() - written > _WRITTEN_EVERY:
            written = time.monotonic()
            _write_used(settings, written - began)
        if report:
            report(iteration, history[-1][1] if history else np.nan)
        patience = settings.early_stopping_rounds
        if last or (patience and history and evaluated - kept_trees(settings, history) >= patience):
            break
    return history


def kept_trees(settings: RankerSettings, history: History) -> int:
    """Return the number of trees of a model: all, or with early stopping up to the first best valid score."""
    if not settings.early_stopping_rounds:
        return history[-1][0]
    return max(history, key=lambda entry: entry[1])[0]


def read_used(settings: RankerSettings) -> float:
    """Return the seconds of its limit that an interrupted training with these settings used; else 0."""
    path = resolve(settings.folder) / USED
    if not (settings.hours and path.is_file()):
        return 0.0
    with contextlib.suppress(DataError, KeyError, TypeError, ValueError):  # broken: as if it was not there
        used = read_json(path)
        if used["settings"] == _mark(settings):
            return float(used["seconds"])
    return 0.0


def _write_used(settings: RankerSettings, seconds: float) -> None:
    write_json(resolve(settings.folder) / USED, {"settings": _mark(settings), "seconds": seconds})


def forget_used(settings: RankerSettings) -> None:
    """Remove what :func:`read_used` reads: the training is finished."""
    (resolve(settings.folder) / USED).unlink(missing_ok=True)


def _mark(settings: RankerSettings) -> str:
    return digest([settings.identity(), settings.hours])
