"""The scores file: what every model of any kind writes and the ensemble reads.

One float64 array a graph, lower = predicted faster, for all configurations of valid and test in the order of
the competition file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fastslow.core.artifacts import Artifact
from fastslow.core.errors import DataError
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import Config, resolve
from fastslow.features.store import Features

PREDICTIONS = "predictions.npz"
PREDICTED_SPLITS = ("valid", "test")
_AGAIN = "Train this model again"

Predictions = dict[str, dict[str, np.ndarray]]  # split -> graph -> (C,)


def run_artifact(
    model: str, entry: str, config: Config, folder: str, own: Features, also: Iterable[Features] = ()
) -> Artifact:
    """The run folder of a model that scores one collection; it depends on the features it is trained on.

    Args:
        model: Kind of model, for the manifest.
        entry: Function that trains the model, as for :class:`fastslow.core.artifacts.Artifact`.
        config: The model's settings.
        folder: Where the run lies.
        own: Features of the collection that is scored.
        also: Features of other collections that are trained on.
    """
    settings = {"model": model, "collection": own.collection.name, **config.identity()}
    inputs = {"features": own.fingerprint, "data": own.data}
    inputs |= {other.collection.slug: other.fingerprint for other in also}
    return Artifact(resolve(folder), settings, inputs, entry)


def write_predictions(folder: Path, scores: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write the scores of the valid and the test split into a run folder."""
    arrays = {
        f"{split}/{name}": np.asarray(scores[split][name], np.float64)
        for split in PREDICTED_SPLITS
        for name in scores[split]
    }
    write_arrays(Path(folder) / PREDICTIONS, arrays)


def read_predictions(folder: Path) -> Predictions:
    """Read a run folder's scores.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    path = Path(folder) / PREDICTIONS
    scores: Predictions = {split: {} for split in PREDICTED_SPLITS}
    for key, score in read_arrays(path, remedy=_AGAIN).items():
        split, _, name = key.partition("/")
        if split not in scores or not name:
            raise DataError(path, f"{key} names no graph of {' or '.join(PREDICTED_SPLITS)}", _AGAIN)
        scores[split][name] = score
    return scores


def check_predictions(source: Path, scores: Predictions, features: Features) -> None:
    """Refuse scores that do not belong to these features: missing, foreign, wrong length, not finite.

    Args:
        source: Where the scores are from, for messages.
        scores: What :func:`read_predictions` gave.
        features: The features of the same collection.

    Raises:
        DataError: Names the split and the graph.
    """
    for split in PREDICTED_SPLITS:
        wanted = features.num_configs(split)
        for name in sorted({*wanted, *scores[split]}):
            if name not in scores[split]:
                raise DataError(source, f"no scores for {split} graph {name}", _AGAIN)
            if name not in wanted:
                raise DataError(source, f"scores for {name}, which is no {split} graph here", _AGAIN)
            score = scores[split][name]
            if score.shape != (wanted[name],):
                problem = f"{split} graph {name} has scores of shape {score.shape}, ({wanted[name]},) wanted"
                raise DataError(source, problem, _AGAIN)
            if not np.isfinite(score).all():
                raise DataError(source, f"{split} graph {name} has a score that is not finite", _AGAIN)
