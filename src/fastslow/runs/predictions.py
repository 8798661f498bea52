"""Predictions of a model: what every run folder holds and the ensemble reads, whatever framework made it.

A run folder has two files; :func:`write_run` writes both, with checksums. To read one that was edited, or
written by hand, is an error.

``predictions.npz``: one array per graph, named ``valid/<graph>`` or ``test/<graph>`` (the graph's file name
without ``.npz``), ``(C_file,)`` float64, finite, one value per configuration in the order of the competition
file, lower = predicted faster. Every graph of both splits is there. Only the order within a graph counts in a
submission, equal predictions in the order of the file; an ensemble also uses the distances.

``manifest.json``, written last, with at least these keys:

=====================  ==============================  ====================================================
key                    value                           read by
=====================  ==============================  ====================================================
``fingerprint``        string                          ensemble and submission: redone when it changes, or
                                                       a checksum of the predictions
``settings``           object                          ensemble, to find runs that differ only in ``seed``
``.collection``        such as ``layout:xla:random``   ensemble: another collection is an error
``.seed``              integer, optional               ensemble: seeds of one model share a weight
``inputs``             object                          ensemble, with ``settings``
``.data``              ``Features(...).data``          ensemble: other competition files are an error
``valid``              object                          table of results
``.mean``              number                          table of results
``.per_graph``         object of numbers per graph     table of results: the range over graphs
``members``            object, optional                table of results: weight (they sum to 1), score on
                                                       ``valid``, folder, model of each
``normalisation``      ``raw``, ``min_max``, ``rank``  ensemble applied to new programs: ``raw`` by default
``baselines``          object, optional                table of results: folder of each baseline
=====================  ==============================  ====================================================

For a model of any framework::

    features = Features(resolve("features/sample/layout-xla-random"))
    predictions = {split: {} for split in PREDICTED_SPLITS}
    for split in PREDICTED_SPLITS:
        for name in features.names(split):
            graph = features.graph(split, name)  # of distinct configurations
            predictions[split][name] = graph.expand(my_model(graph))  # of all configurations of the file
    write_run("runs/mine-layout-xla-random-s0", features, predictions, model="mine", seed=0)

Name the folder in the ensemble's ``extra`` (``make submit SET=ensemble.extra=FOLDER``), and it takes part.

``held_out.npz`` is there where a model has left out train programs (``folds``). All members need it, else the
weights of an ensemble are searched on valid.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, PREDICTED_SPLITS, TRAIN, VALID, Collection
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import MANIFEST, Artifact, finished_file, read_manifest
from fastslow.core.errors import DataError, SettingsError, listed, printable
from fastslow.core.files import digest, file_digest
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import Settings, path_text, resolve
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import Predictions, draw_configs
from fastslow.runs.features_folder import Features
from fastslow.runs.run_manifest import HELD_OUT, PREDICTIONS, REWRITE, read_run_manifest

_REVERSED = "valid is ordered against its runtimes (Kendall's tau {:.3f}): lower must mean predicted faster"
RUN_FILES = (MANIFEST, PREDICTIONS)
_AGAIN = "Train this model again"
_TRAINED = ("gnn", "ranker", "ensemble")
_EXACT = 2**53  # float64 holds all smaller integers
_LEFT_OUT = "Give write_run one finite value per configuration of each left-out graph"
_COMPLETE = "Give write_run one finite value per configuration, for every valid and test graph"

Predictor = Callable[[Features, str], dict[str, np.ndarray]]
"""A finished model: predicts the graphs of a split, ``(C_file,)`` float64 each, lower = faster."""


def run_artifact(
    model: str,
    entry: str,
    settings: Settings,
    folder: str,
    predicted: Features,
    also: Iterable[Features] = (),
    hours: float = 0.0,
) -> Artifact:
    """Return the run folder of a model that predicts one collection; it depends on the features trained on.

    Args:
        model: Kind of model, for the manifest.
        entry: Function that trains the model, as for :class:`fastslow.core.artifacts.Artifact`.
        settings: The model's settings.
        folder: The run folder.
        predicted: Features of the collection that is predicted.
        also: Features of other collections that are trained on.
        hours: Limit of the training's time; 0 has none.
    """
    given = {"model": model, "collection": predicted.collection.name, **settings.identity()}
    inputs = {"features": predicted.fingerprint, "data": predicted.data}
    inputs |= {other.collection.slug: other.fingerprint for other in also}
    return Artifact(resolve(folder), given, inputs, entry, hours=hours)


def write_run(
    folder: str | Path,
    features: Features,
    predictions: Mapping[str, Mapping],
    held_out: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict:
    """Write the run folder of a custom model, so that it can be a member of an ensemble.

    Args:
        folder: Run folder; a relative path starts at the same folder as in the settings.
        features: Features of the collection that is predicted.
        predictions: Split (``valid`` and ``test``) to graph to ``(C_file,)`` values, lower = predicted
            faster.
        held_out: Train graph to ``(C_file,)`` values, each of a model that has not learned from this program,
            in any of its searches or copies (:func:`fastslow.features.folds.split_folds`). If all members of
            an ensemble have some, its weights are searched on these programs in place of valid.
        **settings: For the manifest, anything JSON can hold. Runs that differ only in ``seed``, and whose
            folders have one name but for the seed (``mine-s0``, ``mine-s1``), share a weight in an ensemble.
            A ``collection`` must be the features'.

    Returns:
        The manifest, with the score on valid: Kendall's tau for layout, 1 - slowdown of the top 5 for tile.

    Raises:
        DataError: Predictions are missing, no numbers, masked, in another order, of another length or not
            finite; the graph is named.
        SettingsError: JSON cannot hold a setting, ``model`` is the name of what a command trains,
            or ``collection`` is another one than the features'. Or the folder is one of features, of a run,
            of a model that a command trained, or of another collection. Nothing is written then.
    """
    path = resolve(path_text("folder", folder))
    if settings.get("model") in _TRAINED:
        problem = f"{settings['model']!r} is what a command trains, and others read its weights from the run"
        raise SettingsError("model", f"{problem}; give another name, such as 'mine'")
    if _is_made_by_a_command(path):
        raise SettingsError("folder", f"{path} holds what a command made; name another one")
    if other := _other_collection(path, features.collection):
        wanted = f"a name that ends in {features.collection.slug}, or in it and -s0 for a seed"
        raise SettingsError("folder", f"{path} is for {other}, the features are not; give {wanted}")
    return replace_run(path, features, predictions, held_out, **settings)


def replace_run(
    path: Path,
    features: Features,
    predictions: Mapping[str, Mapping],
    held_out: Mapping[str, Any] | None = None,
    /,
    **settings: Any,
) -> dict:
    """Write a run folder as :func:`write_run` does, whatever was there."""
    for name, value in settings.items():
        _refuse_what_json_cannot_hold(name, value)
    predicted = features.collection.name
    if settings.setdefault("collection", predicted) != predicted:
        problem = f"{settings['collection']!r} is another one than the features', {predicted}; leave it out"
        raise SettingsError("collection", problem)
    for given in (
        predictions,
        *(predictions.values() if isinstance(predictions, Mapping) else ()),
        held_out or {},
    ):
        if not isinstance(given, Mapping):
            raise DataError(path, f"the predictions are {type(given).__name__}, a dict wanted", _COMPLETE)
    complete = {
        split: {name: _numbers(path, name, values) for name, values in predictions.get(split, {}).items()}
        for split in PREDICTED_SPLITS
    }
    check_predictions(path, complete, features, _COMPLETE)
    left_out = _left_out(path, features, held_out or {})
    artifact = Artifact(path, settings, {"features": features.fingerprint, "data": features.data})
    with artifact.building():
        warnings = write_predictions(path, complete)
        outputs = [PREDICTIONS]
        if left_out:
            write_held_out(path, left_out)
            outputs.append(HELD_OUT)
        # of the values too: nothing else shows that the model changed
        values = [file_digest(path / name) for name in outputs]
        valid = collection_score(features.collection.kind, features.labels(VALID), complete[VALID])
        fingerprint = digest([artifact.fingerprint, *values])
        if features.collection.kind == "layout" and valid["mean"] < 0:
            warnings.append(_REVERSED.format(valid["mean"]))
        artifact.finish(outputs, fingerprint=fingerprint, valid=valid, warnings=warnings)
    return read_run_manifest(path)


def _left_out(path: Path, features: Features, predictions: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what :func:`read_held_out` gives of predictions ``(C_file,)`` of train graphs.

    Raises:
        DataError: A graph is no train graph, or its predictions are not one finite number a configuration.
    """
    names = features.names(TRAIN)
    drawn = {}
    for name, given in predictions.items():
        if name not in names:
            raise DataError(path, f"held_out has {name}, which is no train graph here", "Leave it out")
        config_row = features.graph(TRAIN, name).config_row
        values = _numbers(path, name, given)
        if misfit := _misfit(values, len(config_row)):
            raise DataError(path, f"held_out of {name} has {misfit}", _LEFT_OUT)
        _, first = np.unique(config_row, return_index=True)
        distinct = values[first]
        drawn[name] = distinct[draw_configs(len(distinct), HELD_OUT_CONFIGS, 0, name)]
    return drawn


def _is_made_by_a_command(folder: Path) -> bool:
    """Return whether a folder holds runs, is a run, or a step of one, which has a digest of its code."""
    if (folder / MANIFEST).is_file():
        with contextlib.suppress(DataError):  # what is damaged may be replaced
            return bool(read_manifest(folder).get("code"))
    return any(any(folder.glob(f"{below}/{MANIFEST}")) for below in ("*", "*/*"))


def _other_collection(folder: Path, collection: Collection) -> str:
    """Return another collection that a folder's name ends in, or whose run it holds; empty where none is."""
    if (folder / MANIFEST).is_file():
        with contextlib.suppress(DataError):  # what is damaged may be replaced
            held = read_manifest(folder)["settings"].get("collection", collection.name)
            return "" if held == collection.name else held
    for other in COLLECTIONS:
        if other != collection and re.search(rf"{other.slug}(-s\d+)?$", folder.name):
            return other.name
    return ""


def _numbers(path: Path, graph: str, values: Any) -> np.ndarray:
    """Return the predictions of a graph as numbers; texts that look like numbers are none.

    Raises:
        DataError: They are none, or float64 in the order of the file would be other ones.
    """
    numbers = None
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iufb":
            numbers = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):  # such as ragged lists, or a tensor that needs a gradient
        pass
    problem = ""
    if numbers is None:
        problem = f"are no numbers ({type(values).__name__})"
    elif np.ma.is_masked(values):
        problem = "have masked values"
    elif isinstance(values, pd.Series) and not values.index.equals(pd.RangeIndex(len(values))):
        problem = "are a Series whose index is not 0, 1, 2, ...: sort it by configuration, or give to_numpy()"
    elif array.dtype.kind in "iu" and np.abs(numbers).max(initial=0) >= _EXACT:
        problem = f"have integers of {_EXACT:,} or more, which float64 does not distinguish: give floats"
    if numbers is None or problem:
        raise DataError(path, f"the predictions of {graph} {problem}", _COMPLETE)
    return numbers


def _refuse_what_json_cannot_hold(name: str, value: Any) -> None:
    try:
        text = json.dumps({name: value}, allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        raise SettingsError(printable(name), f"{value!r} holds a character that UTF-8 cannot write") from None
    except (TypeError, ValueError, RecursionError):
        problem = f"{str(value)[:60]!r} is {type(value).__name__}, which a manifest (JSON) cannot hold"
        raise SettingsError(name, f"{problem}. Give a number, a text, or lists of them") from None
    if name == "seed" and type(value) is not int:
        raise SettingsError("seed", f"{value!r} is {type(value).__name__}, a whole number wanted")
    if name == "model" and not isinstance(value, str | None):
        raise SettingsError("model", f"{value!r} is {type(value).__name__}, a text wanted")


def write_predictions(folder: Path, predictions: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Write the predictions of the valid and the test split into a run folder.

    Returns:
        Warnings for the manifest, where a graph has one prediction for all its configurations.

    Raises:
        DataError: A prediction is not finite; nothing is written.
    """
    arrays = {
        f"{split}/{name}": np.asarray(predictions[split][name], np.float64)
        for split in PREDICTED_SPLITS
        for name in predictions[split]
    }
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            remedy = "Train it again with other settings, for a network a lower learning_rate"
            raise DataError(folder, f"the model's predictions of {name} are not finite", remedy)
    write_arrays(Path(folder) / PREDICTIONS, arrays)
    return _warn_of_constant(arrays)


def _warn_of_constant(predictions: Mapping[str, np.ndarray]) -> list[str]:
    """Return a warning where all configurations of a graph, 2 or more, have one prediction.

    It is a valid model, and ranks such a graph by the order of its file.
    """
    several = {name: values for name, values in predictions.items() if values.size > 1}
    constant = [name for name, values in several.items() if values.min() == values.max()]
    if not constant:
        return []
    if len(constant) == len(several):
        return [f"constant model: one prediction for all configurations of each of {len(several)} graphs"]
    shown = listed(constant)
    return [f"constant prediction for {len(constant)} of {len(several)} graphs: {shown}"]


def read_predictions(folder: Path) -> Predictions:
    """Read a run folder's predictions.

    Returns:
        ``(C_file,)`` float64 by split (``valid``, ``test``) and graph; lower is predicted faster.

    Raises:
        DataError: The run is not finished, the file is lost or was changed since it was written, or an array
            is no finite float64 of a graph of a predicted split; the array is named.
    """
    predictions: Predictions = {split: {} for split in PREDICTED_SPLITS}
    path = finished_file(folder, PREDICTIONS, REWRITE)
    for key, prediction in read_arrays(path, remedy=_AGAIN).items():
        split, _, name = key.partition("/")
        if split not in predictions or not name:
            problem = f"holds the array {key}, valid/GRAPH or test/GRAPH wanted"
            raise DataError(path, problem, REWRITE)
        _require_sound(path, f"{split} graph {name}", prediction)
        predictions[split][name] = prediction
    return predictions


def _require_sound(path: Path, graph: str, values: np.ndarray) -> None:
    """Refuse an array that is no list of predictions, whatever the number of configurations is."""
    problem = _unsound(values)
    if values.ndim != 1 or not len(values):
        problem = f"predictions of shape {values.shape}, one for each configuration wanted"
    if problem:
        raise DataError(path, f"{graph} has {problem}", REWRITE)


def _misfit(values: np.ndarray, count: int) -> str:
    """Return what is wrong with the predictions of so many configurations; empty where nothing is."""
    if values.shape != (count,):
        return f"predictions of shape {values.shape}, ({count},) wanted"
    return _unsound(values)


def _unsound(values: np.ndarray) -> str:
    """Return what predictions are that no model makes; empty where they are finite float64."""
    if values.dtype != np.float64:
        return f"predictions of type {values.dtype}, float64 wanted"
    return "" if np.isfinite(values).all() else "a prediction that is not finite"


def write_held_out(folder: Path, predictions: Mapping[str, np.ndarray]) -> None:
    """Write the predictions of the train programs that a training left out, by graph."""
    arrays = {name: np.asarray(values, np.float64) for name, values in predictions.items()}
    write_arrays(Path(folder) / HELD_OUT, arrays)


def read_held_out(folder: Path) -> dict[str, np.ndarray]:
    """Read what :func:`write_held_out` wrote.

    Returns:
        By graph of ``train``, ``(n,)`` float64 of the distinct configurations that were drawn.

    Raises:
        DataError: The run has none, the file was changed since it was written, or an array is no finite
            float64 ``(n,)``; it is named.
    """
    path = finished_file(folder, HELD_OUT, REWRITE)
    held_out = read_arrays(path, remedy=_AGAIN)
    for graph, values in held_out.items():
        _require_sound(path, f"train graph {graph}", values)
    return held_out


def check_predictions(
    source: Path, predictions: Predictions, features: Features, remedy: str = _AGAIN
) -> None:
    """Refuse predictions that do not fit the features: missing, unknown, of another length, not finite.

    Args:
        source: Origin of the predictions, for the message.
        predictions: As returned by :func:`read_predictions`.
        features: Features of the same collection.
        remedy: Advice for the message.

    Raises:
        DataError: Names the split and the graph.
    """
    for split in PREDICTED_SPLITS:
        counts = features.num_configs(split)
        for name in sorted({*counts, *predictions[split]}):
            values = predictions[split].get(name)
            graph = f"{split} graph {name}"
            problem = ""
            if values is None:
                problem = f"no predictions for {graph}"
            elif name not in counts:
                problem = f"predictions for {name}, which is no {split} graph here"
            elif misfit := _misfit(values, counts[name]):
                problem = f"{graph} has {misfit}"
            if problem:
                raise DataError(source, problem, remedy)
