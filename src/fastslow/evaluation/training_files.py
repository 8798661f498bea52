"""What a training leaves in its folder for a notebook to show."""

import pandas as pd

from fastslow.core.artifacts import read_manifest
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
    with readable(path, _AGAIN):
        return pd.read_json(path, lines=True)


def read_importance(folder: str) -> pd.DataFrame:
    """Return the total gain of a ranker's splits on each column, ``column`` and ``gain``, largest first.

    Args:
        folder: Run folder of a ranker as the settings name it.

    Raises:
        DataError: The run is not finished, or the file is missing or broken.
    """
    read_manifest(resolve(folder))
    path = resolve(folder) / IMPORTANCE
    with readable(path, _AGAIN):
        return pd.read_csv(path)
