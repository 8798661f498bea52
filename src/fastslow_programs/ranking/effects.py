"""What each choice does to the prediction: its marginal effect over the configurations of a file."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fastslow.features.scaling import unit_ranks
from fastslow_programs.ranking.named_choices import NamedChoice

EFFECT_COLUMNS = (
    "choice",
    "where",
    "nodes",
    "option",
    "default",
    "configs",
    "effect",
    "standard_error",
    "explained",
)


def effects(choices: Sequence[NamedChoice], prediction: np.ndarray) -> pd.DataFrame:
    """Return how much each option of each choice moves a configuration in the ranking.

    The unit is percentage points of the ranking, 0 (fastest) to 100, as predictions of different models and
    ensembles have none of their own. The *marginal effect* of an option is the mean place of the
    configurations that take it minus the mean place of the configurations that take the default's option. Its
    standard error is the one of a difference of two means. Where configurations were drawn at random the
    other choices average out; where a search proposed them (``default`` collections) an effect may belong to
    a choice that went along.

    Args:
        choices: The choices of a file.
        prediction: ``(C,)`` lower = predicted faster.

    Returns:
        One row per option that is not the default's, of the choice that explains most first. Columns:
        ``choice`` (its number), ``where``, ``nodes``, ``option`` and ``default`` in words, ``configs`` that
        take it, ``effect`` (negative is faster), ``standard_error`` (NaN below two configurations on a side),
        and ``explained``. The latter is the share of the variance of the places that the choice by itself
        explains, 0 to 1, adjusted for its number of options (epsilon squared; Kelley, PNAS 21, 1935).
    """
    place = 100 * unit_ranks(prediction)
    rows = []
    for number, choice in enumerate(choices):
        groups = [place[choice.values == option] for option in range(len(choice.options))]
        explained = _explained(groups, place)
        default = groups[choice.default]
        for option, group in enumerate(groups):
            if option != choice.default and len(group):
                words = choice.options[option], choice.options[choice.default]
                effect = group.mean() - default.mean() if len(default) else np.nan
                errors = _standard_error(group, default)
                rows.append(
                    (number, choice.where, choice.tied + 1, *words, len(group), effect, errors, explained)
                )
    table = pd.DataFrame(rows, columns=EFFECT_COLUMNS).astype(dict.fromkeys(EFFECT_COLUMNS[-3:], float))
    order = ["explained", "choice", "effect"]
    return table.sort_values(order, ascending=[False, True, True], kind="stable", ignore_index=True)


def _standard_error(one: np.ndarray, other: np.ndarray) -> float:
    if min(len(one), len(other)) < 2:
        return np.nan
    return float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))


def _explained(groups: Sequence[np.ndarray], place: np.ndarray) -> float:
    present = [group for group in groups if len(group)]
    total = place.var() * len(place)
    free = len(place) - len(present)
    if total == 0 or free <= 0:
        return 0.0
    within = sum(group.var() * len(group) for group in present)
    return max(0.0, float(1 - (within / free) / (total / (len(place) - 1))))
