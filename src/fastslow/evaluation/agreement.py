"""Agreement of two submissions: how far they rank the same programs alike."""

from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import TOP_K, kendall_tau
from fastslow.competition.submission_checks import read_any_submission
from fastslow.competition.submission_csv import collection_of
from fastslow.core.errors import DataError, counted, listed


def agreement(one: Path, other: Path) -> pd.DataFrame:
    """Compare two submissions row by row.

    Returns:
        For each ID that both have: ``id``, ``collection``, ``configs`` (number that ``one`` lists), ``tau``
        and ``top_5``. ``tau`` is Kendall's tau of the two rankings, -1 to 1; NaN for a tile row, and where
        the two list different configurations. ``top_5`` is the share of the first five that both have, 0 to
        1.

    Raises:
        DataError: A CSV is missing or broken, or the two have no row in common.
    """
    first = read_any_submission(one)
    second = read_any_submission(other)
    rows = []
    for key in [key for key in first if key in second]:
        a = first[key]
        b = second[key]
        tau = np.nan
        if collection_of(key).kind == "layout" and len(a) == len(b) and set(a) == set(b):
            tau = kendall_tau(np.argsort(a), np.argsort(b))
        top = len({*a[:TOP_K].tolist()} & {*b[:TOP_K].tolist()}) / min(TOP_K, len(a), len(b))
        name = collection_of(key).name
        rows.append({"id": key, "collection": name, "configs": len(a), "tau": tau, "top_5": top})
    if not rows:
        remedy = "Compare two submissions of one competition"
        raise DataError(other, f"has no row in common with {one}", remedy)
    return pd.DataFrame(rows)


def without_counterpart(one: Path, other: Path) -> list[str]:
    """Return which rows only one of two CSVs has, a sentence for each CSV that lacks some.

    Raises:
        DataError: A CSV is missing or broken.
    """
    first = read_any_submission(one)
    second = read_any_submission(other)
    reasons = []
    for path, rows, lacking in ((other, first, second), (one, second, first)):
        if lost := [row_id for row_id in rows if row_id not in lacking]:
            shown = listed(lost)
            reasons.append(f"not compared: {path} lacks {len(lost)} of {counted(len(rows), 'row')}: {shown}")
    return reasons


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of the rows of :func:`agreement` by collection.

    Columns are ``rows`` (in common), ``tau`` and its extremes, ``top_5``, and ``chance``, the share of the
    first five that two random rankings have in common (NaN for tile, whose rows list five).
    """
    tau = {"tau": ("tau", "mean"), "lowest": ("tau", "min"), "highest": ("tau", "max")}
    table = rows.groupby("collection").agg(rows=("id", "size"), **tau, top_5=("top_5", "mean"))
    layout = rows[rows["collection"].str.startswith("layout")]
    table["chance"] = (TOP_K / layout["configs"].clip(lower=TOP_K)).groupby(layout["collection"]).mean()
    return table.reindex([c.name for c in COLLECTIONS if c.name in table.index])
