"""The boosting loop: grow a tree, evaluate on valid, stop early where that is wanted."""

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from fastslow.competition.metrics import collection_score
from fastslow.rankers.options import RankerOptions

History = list[tuple[int, float]]
"""(iteration, valid score) of every evaluation."""
Report = Callable[[int, float], None]
"""Called after every boosting iteration with its number and the latest valid score."""


def boost(
    options: RankerOptions,
    update: Callable[[], bool],
    predict: Callable[[int, int], Mapping[str, np.ndarray]],
    kind: str,
    labels: Mapping[str, np.ndarray],
    seconds: float = math.inf,
    report: Report | None = None,
) -> History:
    """Grow trees, until the time is over or, with ``early_stopping_rounds``, valid stops improving.

    Args:
        options: What the trees learn.
        update: Grows one tree; returns whether none could be grown, which ends the training.
        predict: Valid predictions ``(C,)`` per graph of ``num_iteration`` trees from ``start_iteration`` on,
            its two arguments. Predictions of consecutive trees add up, so each tree is evaluated once.
        kind: ``layout`` or ``tile``, which decides the metric.
        labels: Valid runtimes ``(C,)`` per graph.
        seconds: Time after which no further tree is grown.
        report: Called with the iteration and the latest valid score after every iteration.

    Returns:
        Every evaluation; the last tree is always evaluated.
    """
    predictions = {name: np.zeros(len(runtime)) for name, runtime in labels.items()}
    history: History = []
    evaluated = 0
    ends = time.monotonic() + seconds
    for iteration in range(1, options.num_iterations + 1):
        stuck = update()
        last = stuck or iteration == options.num_iterations or time.monotonic() > ends
        if last or iteration % options.evaluate_every == 0:
            grown = iteration - stuck
            for name, values in predict(evaluated, grown - evaluated).items():
                predictions[name] += values
            evaluated = grown
            history.append((grown, collection_score(kind, labels, predictions)["mean"]))
        if report:
            report(iteration, history[-1][1] if history else np.nan)
        patience = options.early_stopping_rounds
        if last or (patience and history and evaluated - kept_trees(options, history) >= patience):
            break
    return history


def kept_trees(options: RankerOptions, history: History) -> int:
    """Return the number of trees of a model: all, or with early stopping up to the first best valid score."""
    if not options.early_stopping_rounds:
        return history[-1][0]
    return max(history, key=lambda entry: entry[1])[0]
