"""Files that a training leaves in its folder for a notebook to show."""

import math
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fastslow.competition.metrics import ALL_METRICS
from fastslow.core.artifacts import finished_file
from fastslow.core.files import read_json
from fastslow.core.npz_io import readable
from fastslow.core.settings import resolve

NOTEBOOK = "notebook.ipynb"  # the executed one, of any step
METRICS = "metrics.jsonl"
TRAINING_PLOT = "training.png"
IMPORTANCE = "importance.csv"
_AGAIN = "Train this model again"


def notebook_seconds(folder: Path) -> float | None:
    """Return the seconds that the executed notebook of a folder took; None where there is none."""
    facts = _execution(folder)
    return None if facts is None else facts.seconds


def wall_seconds(folders: Iterable[Path]) -> float:
    """Return the seconds in which at least one of the executed notebooks of some folders ran."""
    seconds = 0.0
    until = -math.inf
    for begin, length in sorted(filter(None, map(_execution, folders))):
        end = begin + length
        seconds += max(0.0, end - max(begin, until))
        until = max(until, end)
    return seconds


class _Execution(NamedTuple):
    """When a notebook was begun, in seconds since 1970, and how many seconds it took."""

    begin: float
    seconds: float


def _execution(folder: Path) -> _Execution | None:
    """Return what papermill recorded of the executed notebook of a folder; None where there is none."""
    try:
        facts = read_json(folder / NOTEBOOK)["metadata"]["papermill"]
        begin = datetime.fromisoformat(facts["start_time"]).timestamp()
        return _Execution(begin, float(facts["duration"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_history(folder: str) -> pd.DataFrame:
    """Return the evaluations of a finished training, one row each, see ``metrics.jsonl``.

    Args:
        folder: Folder of a training as the settings name it.

    Raises:
        DataError: The training is not finished, or the file is lost or was changed.
    """
    path = finished_file(resolve(folder), METRICS, _AGAIN)
    with readable(path, _AGAIN):
        return pd.read_json(path, lines=True)


def read_metrics(folder: str) -> pd.DataFrame:
    """Return every metric of the evaluations that have them: all of a network's, the kept ones of rankers.

    Returns:
        One row per evaluation: its epoch, or objective and round, and a column per name of
        :data:`fastslow.competition.metrics.ALL_METRICS`, each the mean over valid graphs (a network's: then
        over collections); NaN of a metric that the training did not know.
    """
    history = read_history(folder)
    at = [name for name in ("epoch", "objective", "round") if name in history]
    return history[history["tau"].notna()].set_index(at).reindex(columns=list(ALL_METRICS))
