"""Means over collections and paired differences, with a program as the unit.

The two searches of a program, ``default`` and ``random``, are not independent: where a model ranks one well,
it mostly ranks the other well too. Their scores are added before a variance is estimated.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

LEAST = 6
"""Programs of each collection that a verdict needs: of fewer a sign test has no result below 5 %."""
CONFIDENCE = 0.95
"""Of the interval of a difference; a verdict needs a p-value below the rest."""
MEAN = "mean of {}"
"""Name of the row of several collections."""


def clustered_mean(values: Mapping[str, pd.Series]) -> dict[str, float]:
    """Return the mean over collections of the mean over programs, with its standard error over programs.

    A program that several collections hold, by its name, is one draw. Its residuals, each with its weight in
    the mean, are added first, with n / (n - 1) for each collection (Liang and Zeger, Biometrika 1986).
    Programs of one architecture are not independent either, so that the true error is larger.

    Args:
        values: By collection, a value for each program, one or more.

    Returns:
        ``mean``, ``standard_error``, its degrees of ``freedom``, the number of different ``programs``, and
        ``fewest``, the programs of the smallest collection, where collections that share programs count
        together. Where a collection has a single program, ``fewest`` is 1 and the error is NaN. The degrees
        are by Welch and Satterthwaite, with collections that share programs as one sample, and NaN where the
        error is 0 or NaN.
    """
    residuals = {}
    for name, scores in values.items():
        count = len(scores)
        scale = math.sqrt(count / (count - 1)) if count > 1 else math.nan
        residuals[name] = (scores - scores.mean()) * scale / count / len(values)
    there = pd.DataFrame({name: pd.Series(1, scores.index) for name, scores in values.items()}).notna()
    known = not any(len(scores) < 2 for scores in values.values())
    by_program = pd.DataFrame(residuals).sum(axis=1).reindex(there.index)
    squares = by_program.to_numpy() ** 2
    parts = 0.0
    samples = _samples(there)
    for sample in samples:
        parts += squares[sample].sum() ** 2 / max(sample.sum() - 1, 1)
    variance = squares.sum() if known else math.nan
    return {
        "mean": float(np.mean([scores.mean() for scores in values.values()])),
        "standard_error": math.sqrt(variance),
        "freedom": variance**2 / parts if parts > 0 else math.nan,
        "programs": len(there),
        "fewest": int(min(sample.sum() for sample in samples)) if known else 1,
    }


def _samples(there: pd.DataFrame) -> list[np.ndarray]:
    """Return the programs, ``(programs,)`` bool each, of collections that share programs with each other.

    Args:
        there: Which program (row) is in which collection (column).
    """
    samples: list[np.ndarray] = []
    for name in there:
        sample = there[name].to_numpy()
        apart = [other for other in samples if not (other & sample).any()]
        for other in samples:
            if (other & sample).any():
                sample = sample | other
        samples = [*apart, sample]
    return samples


def seed_deviation(means: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation over seeds of the mean over collections; NaN where it is not known.

    Args:
        means: For each collection the mean of each seed, equally many. A collection with a single seed, such
            as tile, adds no deviation.
    """
    by_seed = [*means]
    seeds = max(map(len, by_seed))
    if seeds < 2 or any(len(part) not in (1, seeds) for part in by_seed):
        return math.nan
    return float(np.std(np.mean([np.broadcast_to(part, seeds) for part in by_seed], axis=0), ddof=1))


def paired_results(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the paired difference of two models on each collection and, of several, on their mean.

    Args:
        tables: By collection ``one`` and ``other``, a row for each program by its name.

    Returns:
        Rows by ``collection``, the last one of several ``mean of N``. ``programs`` is the number of different
        ones, ``fewest`` of them are in the smallest collection. ``one`` and ``other`` are means,
        ``difference`` is one - other with its ``standard_error``. Its 95 % interval by Student's t goes from
        ``low`` to ``high``, where each collection has six programs. A paired t test has the ``p_value``, but
        not below 0.5 ** (programs - 1), the lowest of a sign test of as many programs. ``higher``, ``equal``
        and ``lower`` are numbers of programs. NaN is not known.
    """
    rows = {name: _paired_row({name: table}) for name, table in tables.items()}
    if len(tables) > 1:
        rows[MEAN.format(len(tables))] = _paired_row(tables)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("collection")


def _paired_row(tables: Mapping[str, pd.DataFrame]) -> dict[str, float]:
    """Return the row of some collections together, see :func:`paired_results`."""
    from scipy.stats import t as student  # a second

    differences = {name: table["one"] - table["other"] for name, table in tables.items()}
    facts = clustered_mean(differences)
    mean, error, freedom, programs, fewest = facts.values()
    reach = 0.0
    chance = float(mean == 0)
    if error:  # or NaN
        reach = student.ppf((1 + CONFIDENCE) / 2, freedom) * error
        chance = 2 * student.sf(abs(mean) / error, freedom)
    if fewest < LEAST:
        reach = math.nan
    weighted = {name: part / len(part) for name, part in differences.items()}
    by_program = pd.DataFrame(weighted).sum(axis=1)
    return {
        "programs": programs,
        "fewest": fewest,
        "one": float(np.mean([table["one"].mean() for table in tables.values()])),
        "other": float(np.mean([table["other"].mean() for table in tables.values()])),
        "difference": mean,
        "standard_error": error,
        "low": mean - reach,
        "high": mean + reach,
        "p_value": float(np.maximum(chance, 0.5 ** (programs - 1))),
        "higher": int((by_program > 0).sum()),
        "equal": int((by_program == 0).sum()),
        "lower": int((by_program < 0).sum()),
    }


def verdict(facts: Mapping[str, float], names: tuple[str, str], metric: str) -> str:
    """Return the sentence that names the better of two, where their difference is beyond chance at 5 %.

    Args:
        facts: A row of :func:`paired_results`.
        names: Names of the two.
        metric: The metric; of a ``top_K_error`` lower is better.
    """
    if facts["fewest"] < LEAST:
        of = " of a collection" if facts["fewest"] < facts["programs"] else ""
        return f"too few programs{of} for a verdict ({facts['fewest']:.0f}, {LEAST} are needed)"
    if facts["p_value"] >= 1 - CONFIDENCE:
        return "no difference beyond chance"
    lower_is_better = metric.endswith("_error")
    return f"{names[int((facts['difference'] < 0) != lower_is_better)]} is better"


def plus_minus(facts: Mapping[str, float]) -> str:
    """Return the difference of a row of :func:`paired_results` with its standard error, where it is known."""
    error = facts["standard_error"]
    return f"{facts['difference']:+z.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")
