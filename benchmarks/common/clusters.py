"""A mean over collections with a standard error over programs that occur in several of them."""

import pandas as pd

from fastslow.evaluation.paired import clustered_mean


def collection_mean(values: pd.Series, collections: pd.Series, programs: pd.Series) -> tuple[float, float]:
    """Return the mean of the collections' means, as the competition scores, and its standard error.

    Where a program has both searches, the error counts it once
    (:func:`fastslow.evaluation.paired.clustered_mean`). It is NaN where a collection has a single program.

    Args:
        values: A number for each program of each collection, such as a paired difference.
        collections: Name of the collection of each value.
        programs: Name of the program of each value. Programs of one name are one program.
    """
    by_program = values.set_axis(pd.Index(programs))
    parts = {name: part for name, part in by_program.groupby(collections.to_numpy())}
    facts = clustered_mean(parts)
    return facts["mean"], facts["standard_error"]


def source_of(collection: str) -> str:
    """Return the source of a layout collection, whose two searches have the same programs."""
    return collection.rpartition(":")[0]
