"""Ways to combine members: predictions are normalised; weights are equal, searched on valid, or between."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fastslow.competition.catalog import VALID
from fastslow.features.graph import Predictions
from fastslow.features.scaling import unit_ranks


def min_max(prediction: np.ndarray) -> np.ndarray:
    """Rescale the predictions ``(C,)`` of one graph to 0 (fastest) to 1; all 0 where they are equal."""
    span = prediction.max() - prediction.min()
    return (prediction - prediction.min()) / span if span > 0 else np.zeros_like(prediction)


def raw(prediction: np.ndarray) -> np.ndarray:
    """Return predictions ``(C,)`` unchanged."""
    return prediction


NORMALISATIONS = {"min_max": min_max, "rank": unit_ranks, "raw": raw}


def combine(
    members: Mapping[str, Predictions], split: str, normalisation: str, weights: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Return the weighted mean of normalised predictions per graph; one member's are returned unchanged.

    Args:
        members: Predictions by member.
        split: ``valid`` or ``test``.
        normalisation: One of ``NORMALISATIONS``.
        weights: Weight by member, adding up to 1.

    Returns:
        ``(C,)`` float64 per graph, lower = predicted faster.
    """
    used = {name: weight for name, weight in weights.items() if weight}
    first = members[next(iter(used))][split]
    if len(used) == 1:  # rounding in a normalisation could only create ties
        return dict(first)
    normalise = NORMALISATIONS[normalisation]
    return {g: sum(w * normalise(members[name][split][g]) for name, w in used.items()) for g in first}


def equal_weights(models: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the same weight for every model, divided among its members."""
    models = list(models)
    return {name: 1 / len(models) / len(names) for names in models for name in names}


def _shares(models: Sequence[Sequence[str]], times: Counter[int]) -> dict[str, float]:
    """Return the weight of each member, where model ``i`` was chosen ``times[i]`` times."""
    total = times.total()
    return {name: times[number] / total / len(names) for number, names in enumerate(models) for name in names}


def search_weights(
    members: Mapping[str, Predictions],
    normalisation: str,
    max_models: int,
    valid_score: Callable[[dict[str, np.ndarray]], float],
    models: Iterable[Sequence[str]],
) -> dict[str, float]:
    """Search weights by greedy forward selection with replacement (Caruana et al., ICML 2004).

    The search starts from the best model alone and adds, one at a time, the model that raises the valid score
    of the mean most. The best mixture seen is returned: on valid it scores at least as high as its best
    model, seeds averaged.

    Args:
        members: Predictions by member.
        normalisation: One of ``NORMALISATIONS``.
        max_models: Maximum number of models added, with repetition.
        valid_score: Function from predictions per graph to the mean metric on valid, higher is better.
        models: Members that share a weight, such as the seeds of one model.

    Returns:
        Weights by member, adding up to 1.
    """
    models = list(models)
    normalise = NORMALISATIONS[normalisation]
    scaled = {
        name: {VALID: {graph: normalise(values) for graph, values in predictions[VALID].items()}}
        for name, predictions in members.items()
    }

    def value(weights: Mapping[str, float]) -> float:
        alone = sum(weight > 0 for weight in weights.values()) == 1
        return valid_score(combine(members if alone else scaled, VALID, "raw", weights))

    chosen: Counter[int] = Counter()
    best, best_weights = -math.inf, {}
    for _ in range(max_models):
        trials = []
        for tried in range(len(models)):
            shares = _shares(models, chosen + Counter([tried]))
            # in the order of the members, as combined later: another order of the sum could break a tie
            trials.append({name: shares[name] for name in members})
        values = [*map(value, trials)]
        added = int(np.argmax(values))
        chosen[added] += 1
        if values[added] > best:
            best, best_weights = values[added], trials[added]
    return best_weights


def pull_to_equal(weights: Mapping[str, float], models: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the weights of :func:`search_weights` half way to equal ones, as means of the two.

    Valid has few programs, and they choose the networks' epochs too, so weights that were searched on them go
    too far. Equal ones trust a weak model as much as a good one. On programs that chose neither, the mean
    of both is level with the better of the two (``benchmarks/ensemble.py``).
    """
    equal = equal_weights(models)
    return {name: (weight + equal[name]) / 2 for name, weight in weights.items()}
