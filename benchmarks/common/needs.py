"""Evaluations that searches need to find a good configuration."""

import numpy as np

GUIDED = "guided"
"""The search that ``tune`` does by default, with which the others are compared."""
WITHIN = {"within 5%": 0.05, "within 1%": 0.01}
"""Distances to the best known value, relative to it."""


def needs_of(curve: np.ndarray) -> dict[str, int]:
    """Return the evaluations until a curve is within each distance; all of them if it never is.

    Args:
        curve: ``(n,)`` best value after each evaluation over the best of all, minus 1.
    """
    return {name: int(min(len(curve), (curve > within).sum() + 1)) for name, within in WITHIN.items()}


def summarise(programs: list[dict], reference: str = GUIDED) -> dict:
    """Return the evaluations needed by search, and how many more than the reference's.

    Args:
        programs: Per program ``counts`` (by search a list of :func:`needs_of`, one per seed, the reference's
            the longest), ``size`` (configurations) and ``near`` (fraction of the configurations within 1 %).
        reference: The search that the others are compared with.

    Returns:
        ``needed``, by search and distance: mean, standard error of the mean, the mean difference to the
        reference from the same starts, and its standard error. Errors are over programs, or of a single
        program over seeds. Further ``programs``, ``configurations`` (median, smallest, largest), ``within
        1 %``.
    """
    sizes = [program["size"] for program in programs]
    return {
        "programs": len(sizes),
        "needed": {
            name: {within: _compared(programs, name, reference, within) for within in WITHIN}
            for name in programs[0]["counts"]
        },
        "configurations": [int(np.median(sizes)), min(sizes), max(sizes)],
        "within 1 %": float(np.median([program["near"] for program in programs])),
    }


def _compared(programs: list[dict], name: str, reference: str, within: str) -> list[float]:
    counts = [[count[within] for count in program["counts"][name]] for program in programs]
    others = [[count[within] for count in program["counts"][reference]] for program in programs]
    more = [
        np.array(program_counts) - other[: len(program_counts)]
        for program_counts, other in zip(counts, others, strict=True)
    ]
    figures: list[float] = []
    for values in (counts, more):
        means = (
            np.array([np.mean(program_values) for program_values in values])
            if len(values) > 1
            else np.array(values[0])
        )
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        figures += [float(means.mean()), float(error)]
    return figures


def needs_table(group: dict) -> list[dict[str, str]]:
    """Return the rows of a table: each search with mean ± standard error, and the difference likewise."""
    rows = []
    for name, figures_within in group["needed"].items():
        row = {"search": name}
        for within, (mean, error, more, its_error) in figures_within.items():
            row[within] = f"{mean:.2f} ± {error:.2f}"
            row[f"{within}, more than guided"] = f"{more:+.2f} ± {its_error:.2f}" if name != GUIDED else ""
        rows.append(row)
    return rows
