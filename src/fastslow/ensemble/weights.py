"""Ways to combine members: predictions are normalised; weights are equal, searched on valid, or between."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from fastslow.competition.catalog import VALID
from fastslow.competition.metrics import is_finite
from fastslow.core.errors import DataError, SettingsError, registered
from fastslow.features.graph import Predictions
from fastslow.features.scaling import unit_ranks


def min_max(prediction: np.ndarray) -> np.ndarray:
    """Rescale the predictions ``(C,)`` of one graph to 0 (fastest) to 1; all 0 where they are equal."""
    prediction = np.asarray(prediction, np.float64)  # differences of a smaller type may overflow or be ties
    low, high = prediction.min(), prediction.max()
    if max(high, -low) > _LARGE:  # their difference may overflow
        return min_max(prediction / 4)
    return (prediction - low) / (high - low) if high > low else np.zeros_like(prediction)


_LARGE = np.finfo(np.float64).max / 2
NORMALISATIONS = {"min_max": min_max, "rank": unit_ranks, "raw": partial(np.asarray, dtype=np.float64)}


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

    Raises:
        SettingsError: There is no such member or normalisation, or no weight is above 0.
        DataError: A prediction is not 1-D and finite, or members differ in graphs or lengths.
    """
    if not (0 < sum(weights.values()) < math.inf and min(weights.values()) >= 0):
        raise SettingsError("weights", f"{dict(weights)} are not 0 or more, of which one is above 0")
    normalise = registered(NORMALISATIONS, "normalisation", normalisation)
    used = {name: weight for name, weight in weights.items() if weight}
    _check(members, split, used)
    return _mean(members, split, normalise, used)


def _mean(
    members: Mapping[str, Predictions], split: str, normalise: Callable, used: Mapping[str, float]
) -> dict[str, np.ndarray]:
    first = members[next(iter(used))][split]
    if len(used) == 1:  # rounding in a normalisation could only create ties
        return dict(first)
    return {g: sum(w * normalise(members[name][split][g]) for name, w in used.items()) for g in first}


def _check(members: Mapping[str, Predictions], split: str, names: Iterable[str]) -> None:
    """Refuse predictions of these members that have no mean, with the errors of :func:`combine`."""
    lengths: dict[str, int] | None = None  # of the first member
    for name in names:
        graphs = registered(registered(members, "weights", name), f"split of {name}", split)
        if lengths is None:
            lengths = {graph: np.size(values) for graph, values in graphs.items()}
        for graph in {**lengths, **graphs}:
            length = lengths.get(graph, 0)
            shape = np.shape(graphs.get(graph, ()))
            if shape != (length,) or not is_finite(graphs[graph]):
                problem = f"its prediction of {split} graph {graph}, of shape {shape}, is not {length} finite"
                raise DataError(name, f"{problem} numbers", "Give all members the same configurations")


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
        models: Members that share a weight, such as the seeds of one model; each member is in one of them.

    Returns:
        Weights by member, adding up to 1.

    Raises:
        SettingsError: ``max_models`` is below 1, or the models are not made of the members, each once.
        DataError: As for :func:`combine`, or a score is no number.
    """
    models = list(models)
    normalise = registered(NORMALISATIONS, "normalisation", normalisation)
    if max_models < 1:
        raise SettingsError("max_models", f"{max_models} is not 1 or more")
    placed = [name for names in models for name in names]
    if not members or not all(models) or sorted(placed) != sorted(members):
        raise SettingsError("models", f"{models} are not made of the members {', '.join(members)}, each once")
    _check(members, VALID, members)
    scaled = {
        name: {VALID: {graph: normalise(values) for graph, values in predictions[VALID].items()}}
        for name, predictions in members.items()
    }

    def value(weights: Mapping[str, float]) -> float:
        used = {name: weight for name, weight in weights.items() if weight}
        return valid_score(_mean(members if len(used) == 1 else scaled, VALID, np.asarray, used))

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
        if not math.isfinite(values[added]):
            problem = f"{values[added]} of {trials[added]} is no score"
            raise DataError("valid_score", problem, "Return a number")
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
