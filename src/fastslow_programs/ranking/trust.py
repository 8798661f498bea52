"""How far to trust a ranking: bands for its score, how sure a pair is, what no train program has.

Both are read from programs that no model was trained on: the valid programs of a collection, and its test
programs where their runtimes are known. The ``NEAREST`` count whose distance to the train programs is most
like the program's. A band is split-conformal (Lei et al., JASA 2018): it holds the score of a new one of such
programs with the probability of its level, or a higher one. A pair of configurations is as sure as pairs of
these programs that are predicted as far apart. The distance of two programs is the share of nodes that would
need another opcode (:func:`fastslow.competition.opcodes.distance`).
``benchmarks/trust.py`` measures how often both hold.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from fastslow.competition.catalog import COLLECTIONS, PREDICTED_SPLITS, TRAIN, Collection
from fastslow.competition.metrics import collection_score
from fastslow.competition.opcodes import distance, opcode_name, opcode_shares
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import find_data, resolve
from fastslow.evaluation.distances import nearest_train
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.run_record import read_run_record
from fastslow.evaluation.scores import solution_of, truth_of
from fastslow.features.store import Features, Graph

FILE = "experience-{kind}.npz"
"""By kind of collection, the file in a folder of runs that keeps a :class:`Seen`."""
LEVELS = 0.5, 0.8, 0.9
TOLD = 0.8  # the level of what is said of pairs
NEAREST = 39  # of 39 scores the tenth, fourth and second at either end bound exactly 50, 80 and 90 %
_PAIRED, _STEEPEST = 300, 20.0  # configurations of a program whose pairs are taken, drawn at random
_ROUNDING = 1e-9  # of a distance between equal programs
_AGAIN = "Delete it, or pack the models again"


@dataclass(frozen=True)
class Seen:
    """What the models of one kind of collection, layout or tile, were trained and scored on.

    Args:
        shares: ``(T, 256)`` opcode shares of the train programs.
        nodes: ``(T,)`` their nodes, after pruning.
        collection: ``(P,)`` number in ``COLLECTIONS`` of each program that was scored.
        distance: ``(P,)`` its distance to the nearest train program, 0 to 1.
        score: ``(P,)`` the ensemble's score on it.
        steepness: ``(P,)`` how fast its pairs become sure, see :func:`_steepness`.
    """

    shares: np.ndarray
    nodes: np.ndarray
    collection: np.ndarray
    distance: np.ndarray
    score: np.ndarray
    steepness: np.ndarray

    @classmethod
    def gather(cls, pairs: Mapping[Path, Features]) -> "Seen":
        """Collect what some ensembles of one kind have seen, all in one folder of runs.

        Args:
            pairs: By folder of an ensemble, the features that its members learned from.

        Raises:
            DataError: A folder is not finished, or a graph's file is missing or broken.
        """
        stores, record = list(pairs.values()), read_run_record(next(iter(pairs)).parent)
        solution = solution_of(find_data(record["data"])) if record else None
        train = {
            graph.node_opcode.tobytes(): graph
            for features in stores
            for graph in (features.graph(TRAIN, name) for name in features.names(TRAIN))
        }.values()
        distances, rows = {split: nearest_train(stores, split) for split in PREDICTED_SPLITS}, []
        for folder, features in pairs.items():
            collection, predictions = features.collection, read_predictions(folder)
            for split, runtimes in truth_of(features, solution).items():
                if {name: len(own) for name, own in runtimes.items()} != features.num_configs(split):
                    continue  # the solution is of other data than the run
                own, near = predictions[split], distances[split][collection.name]
                for name, score in collection_score(collection.kind, runtimes, own)["per_graph"].items():
                    steepness = _steepness(own[name], runtimes[name])
                    rows.append((COLLECTIONS.index(collection), near[name], score, steepness))
        nodes = np.array([graph.num_nodes for graph in train])
        shares = opcode_shares(graph.node_opcode for graph in train)
        return cls(shares, nodes, *map(np.array, zip(*rows, strict=True)))

    @classmethod
    def of(cls, runs: Path, kind: str) -> "Seen | None":
        """Read the file of a folder of runs, or collect the same from the features of the folder's name.

        Returns:
            None where there are neither.

        Raises:
            DataError: The file or the features are broken.
        """
        path = runs / FILE.format(kind=kind)
        if path.is_file():
            return cls(**read_arrays(path, list(cls.__dataclass_fields__), _AGAIN))
        collections = [collection for collection in COLLECTIONS if collection.kind == kind]
        folders = {
            runs / f"ensemble-{c.slug}": resolve(f"features/{runs.name}/{c.slug}") for c in collections
        }
        pairs = {run: Features(own) for run, own in folders.items() if own.is_dir()}
        return cls.gather(pairs) if pairs and all(run.is_dir() for run in pairs) else None

    def write(self, folder: Path, kind: str) -> None:
        """Write the file that :meth:`of` reads."""
        write_arrays(folder / FILE.format(kind=kind), vars(self))

    def at(self, collection: Collection, near: float) -> tuple[np.ndarray, np.ndarray]:
        """Return scores, the lowest first, and steepness ``(n,)`` of the programs at most like distance.

        There are none where every program of the collection that was scored is nearer.
        """
        own = np.flatnonzero(self.collection == COLLECTIONS.index(collection))
        like = own[np.argsort(np.abs(self.distance[own] - near), kind="stable")[:NEAREST]]
        if near > self.distance[own].max(initial=-1.0):
            like = like[:0]
        return np.sort(self.score[like]), self.steepness[like]

    def judge(self, collection: Collection, graph: Graph) -> "Trust":
        """Return how far to trust a ranking of a program by the models of a collection."""
        apart = distance(opcode_shares([graph.node_opcode]), self.shares)
        near, same = float(apart.min()), (apart < _ROUNDING) & (self.nodes == graph.num_nodes)
        known: np.ndarray = (self.shares > 0).any(0)
        unknown, found = np.unique(graph.node_opcode[~known[graph.node_opcode]]), []
        if len(unknown):
            names = ", ".join(opcode_name(int(code)) for code in unknown)
            found.append(f"{names} ({np.mean(~known[graph.node_opcode]):.0%} of its nodes)")
        if graph.num_nodes > self.nodes.max():
            found.append(f"{graph.num_nodes:,} nodes, at most {self.nodes.max():,} there")
        return Trust(collection.kind, near, *self.at(collection, near), found, bool(same.any()))


@dataclass(frozen=True)
class Trust:
    """How far to trust the ranking of a program.

    Args:
        kind: Kind of its collection, which decides the score.
        nearest: Distance to the nearest train program, 0 to 1.
        scores: ``(n,)`` of the programs at most like distance, the lowest first.
        steepness: ``(n,)`` of these, see :class:`Seen`.
        unfamiliar: In words, what no train program has.
        trained_on: Whether a train program has as many nodes of each opcode, as the program itself has.
    """

    kind: str
    nearest: float
    scores: np.ndarray
    steepness: np.ndarray
    unfamiliar: list[str]
    trained_on: bool = False

    def band(self, level: float) -> tuple[float, float] | None:
        """Return the lowest and the highest score to expect; None where such programs are too few."""
        left_out = math.floor((1 - level) / 2 * (len(self.scores) + 1) + 1e-9)  # at either end, and its bound
        return (float(self.scores[left_out - 1]), float(self.scores[-left_out])) if left_out else None

    def faster(self, prediction: np.ndarray, than: int) -> np.ndarray | None:
        """Return the probability that each configuration is faster than one, by its position.

        It is ``(C,)`` as the predictions, equal runtimes counted half; None without a band of level ``TOLD``.
        """
        gap = (prediction[than] - prediction) / (prediction.std() or 1.0)
        return expit(np.multiply.outer(self.steepness, gap)).mean(0) if self.band(TOLD) else None

    def facts(self) -> dict:
        """Return distance, bands by level (None: not known) and whether it was trained on, for JSON."""
        bands = {f"{level:.0%}": self.band(level) for level in LEVELS}
        return {"distance": self.nearest, "bands": bands, "trained_on": self.trained_on}

    def words(self) -> list[str]:
        """Return the same as sentences."""
        score = {"layout": "Kendall's tau", "tile": "1 - slowdown of the top 5"}[self.kind]
        bands = {level: self.band(level) for level in LEVELS}
        told = ["{:.2f} to {:.2f} for {:.0%}".format(*own, level) for level, own in bands.items() if own]
        expected = f"{', '.join(told)} of such programs" if told else "unknown"
        if few := [f"{level:.0%}" for level, own in bands.items() if not own]:
            expected += f" ({', '.join(few)}: too few programs this far from the train programs were scored)"
        found = [
            f"trust: {self.nearest:.0%} of its nodes would need another opcode to be as in a train program",
            f"expected {score}: {expected}, with labels like those that the models learned; for others, as "
            "of a device, measure some (fastslow measure) and rank with known=",
        ]
        if self.trained_on:
            seen = "the models were trained on this program, or on one with as many nodes of each opcode"
            found.append(f"{seen}: their score here is no measure of their score on new programs")
        return found + [f"no train program has: {'; '.join(self.unfamiliar)}"] * bool(self.unfamiliar)


def _steepness(prediction: np.ndarray, runtime: np.ndarray) -> float:
    """Return the slope of the logistic curve that fits how often a program's pairs are ordered rightly.

    The curve is over the difference of two predictions in standard deviations of all; 0 is chance.
    """
    drawn = np.random.default_rng(0).permutation(len(runtime))[:_PAIRED]
    one, other = drawn[np.array(np.triu_indices(len(drawn), 1))]
    gap = np.abs(prediction[one] - prediction[other]) / (prediction.std() or 1.0)
    order = np.sign(prediction[one] - prediction[other]) * np.sign(runtime[one] - runtime[other])

    def loss(slope: float) -> float:
        logs = np.logaddexp(0, -slope * gap) + (1 - order) / 2 * slope * gap  # an equal pair counts half
        return logs.sum() + 1e-3 * slope**2  # which is 0 without a pair

    return float(minimize_scalar(loss, bounds=(-_STEEPEST, _STEEPEST), method="bounded").x)
