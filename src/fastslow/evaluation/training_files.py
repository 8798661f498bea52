"""What a training leaves in its folder for a notebook to show."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fastslow.competition.metrics import ALL_METRICS
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, check_regular
from fastslow.core.npz_io import readable
from fastslow.core.settings import resolve

METRICS = "metrics.jsonl"
IMPORTANCE = "importance.csv"
_AGAIN = "Train this model again"


def read_history(folder: str) -> pd.DataFrame:
    """Return the evaluations of a finished training, one row each, see ``metrics.jsonl``.

    Args:
        folder: Folder of a training as the settings name it.

    Raises:
        DataError: The training is not finished, or the file is missing or broken.
    """
    read_manifest(resolve(folder))
    path = resolve(folder) / METRICS
    check_regular(path, MAX_TEXT_BYTES)
    with readable(path, _AGAIN):
        history = pd.read_json(path, lines=True)
    return _numbers(path, history, ("valid",))


def read_metrics(folder: str) -> pd.DataFrame:
    """Return every metric of the evaluations that have them: all of a network's, the kept ones of rankers.

    Args:
        folder: Folder of a training as the settings name it.

    Returns:
        One row per evaluation: its epoch, or objective and round, and a column per name of
        :data:`fastslow.competition.metrics.ALL_METRICS`, each the mean over valid graphs (a network's: then
        over collections).

    Raises:
        DataError: As for :func:`read_history`.
    """
    history = read_history(folder)
    at = [name for name in ("epoch", "objective", "round") if name in history]
    _numbers(resolve(folder) / METRICS, history, ALL_METRICS)
    return history[history["tau"].notna()].set_index(at)[list(ALL_METRICS)]


def read_importance(folder: str) -> pd.DataFrame:
    """Return the total gain of a ranker's splits on each column, ``column`` and ``gain``, largest first.

    Args:
        folder: Run folder of a ranker as the settings name it.

    Raises:
        DataError: The run is not finished, or the file is missing or broken.
    """
    read_manifest(resolve(folder))
    path = resolve(folder) / IMPORTANCE
    check_regular(path, MAX_TEXT_BYTES)
    with readable(path, _AGAIN):
        table = pd.read_csv(path)
    if "column" not in table:
        raise DataError(path, "it lacks the column column", _AGAIN)
    return _numbers(path, table, ("gain",))


def _numbers(path: Path, table: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Return a table, once it has rows and these columns, numbers all of them."""
    if table.empty:
        raise DataError(path, "it holds no rows", _AGAIN)
    for column in columns:
        if column not in table:
            raise DataError(path, f"it lacks the column {column}", _AGAIN)
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise DataError(path, f"{column} holds other than numbers", _AGAIN)
    return table
