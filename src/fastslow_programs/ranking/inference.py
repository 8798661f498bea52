"""Apply finished runs to programs that they never saw: network, rankers, and ensembles with their weights.

Graphs of the programs are built as those that the run learned from
(:func:`fastslow.features.unseen.read_unseen`); each model then predicts them as it predicts a test split. The
run folder is all that is needed: neither data nor features::

    run = FinishedRun(resolve("runs/sample/ensemble-layout-xla-default"))
    programs = read_unseen(run.folder, ["program.npz"])
    run.predict(programs)["program"]  # one value per configuration of the file, lower = predicted faster
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import TEST, Collection, get_collection
from fastslow.core.errors import DataError
from fastslow.evaluation.ensemble_weights import combine
from fastslow.evaluation.predictions import Predictor, read_run_manifest
from fastslow.features.store import Features
from fastslow.networks.training.trained import TrainedNetwork
from fastslow.rankers.train import read_ranker
from fastslow_programs.ranking.runs import find_members

MODELS: dict[str, Callable[[Path], Predictor]] = {
    "gnn": TrainedNetwork,
    "ranker": lambda folder: read_ranker(folder).predict_split,
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
        DataError: The run or a member is not finished, a member was trained again since, or its model cannot
            be applied.
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
            if self.manifest["inputs"].get("features") != features.fingerprint:
                problem = f"trained on features other than {features.folder}"
                raise DataError(self.folder, problem, "Give the features of the same run, or train it again")
            return {self.name: self._predictor(features, split)}
        predictions = {name: run.predict(features, split) for name, run in self.members.items()}
        return {**predictions, self.name: self.combine(predictions)}

    def combine(self, predictions: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return an ensemble's predictions per graph from its members' predictions, with its weights."""
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
