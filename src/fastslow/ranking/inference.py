"""Apply finished runs to programs that they never saw: network, rankers, and ensembles with their weights.

Graphs of the programs are built as those that the run learned from
(:func:`fastslow.features.unseen.read_unseen`); each model then predicts them as it predicts a test split. The
run folder is all that is needed: neither data nor features::

    run = FinishedRun(resolve("runs/sample/ensemble-layout-xla-default"))
    programs = read_unseen(run.folder, ["program.npz"])
    run.predict(programs)["program"]  # one value per configuration of the file, lower = predicted faster
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, Collection, get_collection
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.ensemble_weights import combine
from fastslow.evaluation.predictions import Predictor, read_run_manifest
from fastslow.evaluation.run_record import is_rehearsal
from fastslow.features.store import Features
from fastslow.networks.training.trained import TrainedNetwork
from fastslow.rankers.train import read_ranker_predictor

MODELS: dict[str, Callable[[Path], Predictor]] = {
    "gnn": TrainedNetwork,
    "ranker": read_ranker_predictor,
}
"""By ``model`` of a run's manifest, the function that reads its folder as a predictor."""


class FinishedRun:
    """A finished run, read once and applied to any number of graphs.

    Args:
        folder: Folder of a network's or a ranker's run, or of an ensemble. Members of an ensemble are where
            its manifest names them, or beside it, where the folder of all runs was copied elsewhere.

    Attributes:
        members: The members of an ensemble by name, each a finished run; empty for a single model.

    Raises:
        DataError: The run or a member is not finished, a member was trained again since, or it is of a model
            that cannot be applied.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.manifest = read_run_manifest(self.folder)
        self.members = {
            name: FinishedRun(folder) for name, folder in find_members(self.folder, self.manifest).items()
        }
        self._predictor = None if self.members else self._read()

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.folder.name

    @property
    def collection(self) -> Collection:
        """The collection whose graphs it predicts."""
        return get_collection(self.manifest["settings"]["collection"])

    def predict(self, features: Features, split: str = TEST) -> dict[str, np.ndarray]:
        """Predict the graphs of a split.

        Args:
            features: The features that the run learned from, or graphs built alike
                (:class:`fastslow.features.unseen.UnseenGraphs`).
            split: The split to predict.

        Returns:
            ``(C_file,)`` float64 per graph, in the order of the competition file, lower = predicted faster.

        Raises:
            DataError: The run learned from other features.
        """
        return self.predict_members(features, split)[self.name]

    def predict_members(self, features: Features, split: str = TEST) -> dict[str, dict[str, np.ndarray]]:
        """Predict the graphs of a split with each member of an ensemble, and with the run itself.

        Arguments and errors as for :meth:`predict`.

        Returns:
            Predictions per graph, by member and last by the run's own name.
        """
        if self._predictor:
            self._refuse_other(features)
            return {self.name: self._predictor(features, split)}
        predictions = {name: run.predict(features, split) for name, run in self.members.items()}
        return {**predictions, self.name: self.combine(predictions)}

    def combine(self, predictions: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return an ensemble's predictions per graph from those of its members, with its weights."""
        weights = {name: member["weight"] for name, member in self.manifest["members"].items()}
        splits = {name: {TEST: own} for name, own in predictions.items()}
        return combine(splits, TEST, self.manifest.get("normalisation", "raw"), weights)

    def _read(self) -> Predictor:
        model = self.manifest["settings"].get("model")
        if model not in MODELS:
            problem = f"a run of {model!r}, whose model is not kept"
            raise DataError(
                self.folder, problem, f"Name a run of {', '.join(MODELS)}, or an ensemble of them"
            )
        return MODELS[model](self.folder)

    def _refuse_other(self, features: Features) -> None:
        if self.manifest["inputs"].get("features") != features.fingerprint:
            problem = f"trained on features other than {features.folder}"
            raise DataError(self.folder, problem, "Give the features of the same run, or train it again")


def find_members(ensemble: Path, manifest: dict) -> dict[str, Path]:
    """Return the run folder of each member of an ensemble by name; nothing for a single model.

    Args:
        ensemble: Folder of the ensemble.
        manifest: Its manifest.

    Raises:
        DataError: A member is missing, or was trained again since.
    """
    found = {}
    for name, member in manifest.get("members", {}).items():
        recorded, wanted = member["folder"], manifest["inputs"].get(name)
        for folder in (resolve(recorded), ensemble.parent / Path(recorded).name):
            here = name not in found and (folder / MANIFEST).is_file()
            if here and read_manifest(folder)["fingerprint"] == wanted:
                found[name] = folder
        if name not in found:
            problem = f"its member {recorded} is missing, or was trained again since"
            raise DataError(ensemble, problem, "Copy the members beside it, or run `make ensemble` again")
    return found


def runs_folder(named: str | Path = "") -> Path:
    """Return the folder of runs that a setting names; the newest (:func:`newest_run`) if it is empty.

    Raises:
        DataError: Nothing is named and no ensemble was trained.
    """
    return resolve(str(named)) if named else newest_run()


def newest_run() -> Path:
    """Return the complete folder of runs whose ensembles were finished last, such as ``runs/sample``.

    A complete one has an ensemble of every collection, each with the members that it was made of. Runs of the
    preset ``smoke`` and what notebooks write by default are left out: they are used where they are named.

    Raises:
        DataError: There is none; the message says why each folder is left out.
    """
    runs, finished, left_out = resolve("runs"), {}, []
    for folder in sorted(runs.glob("*/")):
        try:
            finished[folder] = _finished_at(folder)
        except DataError as error:
            path, problem, _ = error.args
            left_out.append(f"{os.path.relpath(path, runs)}: {problem}")
    if not finished:
        remedy = "Train one with `make submit` (minutes on the embedded sample), or name another with RUN="
        raise DataError(runs, f"holds no complete run ({'; '.join(left_out) or 'nor any other'})", remedy)
    return max(finished, key=finished.__getitem__)


def _finished_at(folder: Path) -> str:
    """Return when the last ensemble of a complete run was finished, in ISO format.

    Raises:
        DataError: The run is not complete, or was made to try something.
    """
    if is_rehearsal(folder):
        raise DataError(folder, "used only where it is named", f"Name it with RUN=runs/{folder.name}")
    finished = []
    for collection in COLLECTIONS:
        ensemble = folder / f"ensemble-{collection.slug}"
        manifest = read_run_manifest(ensemble)
        find_members(ensemble, manifest)
        finished.append(str(manifest.get("created", "")))
    return max(finished)


def find_run(folder: Path, collection: Collection) -> Path:
    """Return the run folder to predict a collection's programs with.

    Args:
        folder: A run folder, or the folder of a whole run with an ensemble per collection.
        collection: The collection.

    Raises:
        DataError: There is no such folder, it is of another collection, or it has no ensemble for this one.
    """
    if not folder.is_dir():
        raise DataError(folder, "no such folder", "Name a folder of runs/, such as runs/sample")
    if not (folder / MANIFEST).is_file():
        run = folder / f"ensemble-{collection.slug}"
        if not (run / MANIFEST).is_file():
            found = ", ".join(sorted(path.parent.name for path in folder.glob(f"ensemble-*/{MANIFEST}")))
            problem = f"holds no finished ensemble for {collection.name} ({found or 'nor any other'})"
            raise DataError(folder, problem, "Train it with `make ensemble`, or choose another collection")
        return run
    own = read_run_manifest(folder)["settings"]["collection"]
    if own != collection.name:
        remedy = f"Name a run of {collection.name}, or set collection={own} if the program belongs there"
        raise DataError(folder, f"a run of {own}, {collection.name} wanted", remedy)
    return folder
