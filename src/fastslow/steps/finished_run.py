"""Apply finished runs to programs that they never saw: network, rankers, and ensembles with their weights.

Graphs of the programs are built as those that the run learned from
(:func:`fastslow.steps.unseen.read_unseen`); each model then predicts them as it predicts a test split. The
run folder is all that is needed: neither data nor features::

    run = FinishedRun(resolve("runs/sample/ensemble-layout-xla-default"))
    programs = read_unseen(run.folder, ["program.npz"])
    run.predict(programs)["program"]  # one value per configuration of the file, lower = predicted faster

Networks have no weight where a program's tensors are much larger than a train program's. They gain nothing
there over rankers, whose columns weigh choices by formulas (``benchmarks/more_programs.py``).
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import TEST, Collection, get_collection
from fastslow.competition.node_columns import SHAPE_PRODUCT
from fastslow.core.artifacts import MANIFEST, finished_file
from fastslow.core.errors import DataError
from fastslow.ensemble.baselines import Columns, predict_configs
from fastslow.ensemble.weights import combine, equal_weights
from fastslow.features.graph import Graph, GraphSet
from fastslow.features.scaling import Scaler, signed_log1p
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import Predictor
from fastslow.runs.run_manifest import find_members, read_run_manifest
from fastslow.runs.scalers import SCALERS, read_scaler
from fastslow.runs.trained_network import TrainedNetwork
from fastslow.runs.trained_ranker import read_ranker

_AGAIN = "Train this model again"
READERS: dict[str, Callable[[Path], Predictor]] = {
    "gnn": TrainedNetwork,
    "ranker": lambda folder: read_ranker(folder).predict_split,
}
"""By ``model`` of a run's manifest, the function that reads its folder as a predictor."""
FAR = 1.0
"""Size shift of a program, see :meth:`FinishedRun.size_shift`, from which networks have no weight."""


class AppliedRule(NamedTuple):
    """A trivial rule applied to a program.

    Args:
        name: Its columns and their order, such as ``violation_ratio, ascending``.
        valid: Its score on the valid programs.
        models: The score of the models there.
        prediction: ``(C,)`` lower = predicted faster.
    """

    name: str
    valid: float
    models: float
    prediction: np.ndarray


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
        self._networks = [name for name, member in self.members.items() if member.model == "gnn"]
        self._rankers = [name for name, member in self.members.items() if member.model == "ranker"]

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.folder.name

    @property
    def model(self) -> str | None:
        """What it is, as its manifest names it: a key of ``READERS`` or ``ensemble``."""
        return self.manifest["settings"].get("model")

    @property
    def collection(self) -> Collection:
        """The collection whose graphs it predicts."""
        return get_collection(self.manifest["settings"]["collection"])

    def predict(self, features: Features, split: str = TEST) -> dict[str, np.ndarray]:
        """Predict the graphs of a split.

        Args:
            features: The features that the run learned from, or graphs built alike
                (:class:`fastslow.steps.unseen.UnseenGraphs`).
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
            ``(C_file,)`` float64 per graph, by member and last by the run's own name; lower = predicted
            faster.
        """
        if self._predictor:
            if not self._reads(features):
                problem = f"trained on features other than {features.folder}"
                raise DataError(self.folder, problem, "Give the features of the same run, or train it again")
            return {self.name: self._predictor(features, split)}
        predictions = {name: run.predict(features, split) for name, run in self.members.items()}
        combined = {}
        for name in features.names(split):
            weights = self._chosen
            if self._networks:  # whose weight depends on the graph
                weights = self.weights(features.graph(split, name))
            members = {member: {split: {name: values[name]}} for member, values in predictions.items()}
            combined |= combine(members, split, self.manifest.get("normalisation", "raw"), weights)
        return {**predictions, self.name: combined}

    def predict_program(self, features: Features, name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Predict one program of the split ``test``.

        Returns:
            ``(C_file,)`` of each member, or of the run itself where it is a single model, and of the run.
            Networks are left out where they have no weight because the program is far.
        """
        predictions = {member: by_split[name] for member, by_split in self.predict_members(features).items()}
        if not self.members:
            return predictions, predictions[self.name]
        joined = predictions.pop(self.name)
        if self.is_far(features.graph(TEST, name)):
            predictions = {
                member: values for member, values in predictions.items() if member not in self._networks
            }
        return predictions, joined

    def weights(self, graph: Graph) -> dict[str, float]:
        """Return the weight of each member for a graph: as the ensemble chose it; of one model 1.

        Where the graph is far from the train programs by size, the rankers share equally. An ensemble without
        rankers, or without networks, keeps its weights.
        """
        if not self.members:
            return {self.name: 1.0}
        if self.is_far(graph):
            return dict.fromkeys(self.members, 0.0) | equal_weights([self._rankers])
        return self._chosen

    @property
    def _chosen(self) -> dict[str, float]:
        """Weight by member as the ensemble chose it."""
        return {name: member["weight"] for name, member in self.manifest["members"].items()}

    def is_far(self, graph: Graph) -> bool:
        """Return whether a graph's tensors are so large that rankers alone have a weight; of tiles never."""
        if not self._rankers or self.collection.kind != "layout":
            return False
        shift = self.size_shift(graph)
        return shift is not None and shift > FAR

    def size_shift(self, graph: Graph) -> float | None:
        """Return how much larger a graph's tensors are than the train programs' tensors.

        It is None without networks, and otherwise the mean over nodes of the logarithm of the number of
        elements, minus its mean over the train programs, in standard deviations of their nodes. These moments
        scale the inputs of the first network.
        """
        if not self._networks:
            return None
        sizes = signed_log1p(graph.node_feat[:, SHAPE_PRODUCT])
        scaler = self._size_scaler
        return float((sizes.mean() - scaler.mean[SHAPE_PRODUCT]) / scaler.std[SHAPE_PRODUCT])

    @cached_property
    def _size_scaler(self) -> Scaler:
        network = self.members[self._networks[0]]
        return read_scaler(finished_file(network.folder, SCALERS, _AGAIN), "node", remedy=_AGAIN)

    def _reads(self, features: Features) -> bool:
        """Return whether it learned from these features, or from others that were built alike."""
        recipe = self.manifest.get("features", {})
        alike = [recipe.get(key) == features.recipe[key] for key in ("settings", "config_columns")]
        return all(alike) or self.manifest["inputs"].get("features") == features.recipe["fingerprint"]

    def _read(self) -> Predictor:
        if self.model not in READERS:
            problem = f"is a run of {repr(self.model) if self.model else 'your own'}, whose model is not kept"
            raise DataError(
                self.folder, problem, f"Name a run of {', '.join(READERS)}, or an ensemble of them"
            )
        return READERS[self.model](self.folder)


def best_rule(run: FinishedRun, graphs: GraphSet, program: str) -> AppliedRule | None:
    """Apply the rule of one or more columns that scored best on the valid programs of a run.

    Args:
        run: An ensemble; a single model is not compared with rules, nor is a run whose manifest does not
            hold ``columns`` and ``sign`` of its rules (of commit 8c8ffaf1 or before).
        graphs: The program's graph.
        program: Its name.

    Raises:
        DataError: The rule names a column that the graphs do not have.
    """
    names = graphs.config_columns
    rules = [
        rule for rule in run.manifest.get("baselines", {}).values() if {"columns", "sign"} <= rule.keys()
    ]
    if not rules:
        return None
    best = max(rules, key=lambda rule: rule["valid"])
    if unknown := [name for name in best["columns"] if name not in names]:
        problem = f"a rule of its baselines names the column {unknown[0]!r}, which its features do not have"
        raise DataError(run.folder / MANIFEST, problem, _AGAIN)
    rule = Columns(tuple(map(names.index, best["columns"])), best["sign"])
    prediction = predict_configs(rule, graphs.graph(TEST, program))
    return AppliedRule(rule.describe(names), best["valid"], run.manifest["valid"]["mean"], prediction)
