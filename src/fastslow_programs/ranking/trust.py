"""How far to trust a ranking: a band for its score, and what of the program no train program has.

The band is split-conformal (Lei et al., JASA 2018). It uses the collection's valid programs, which no model
was trained on: the ``NEAREST`` whose distance to the train programs is most like the program's. Their scores
hold a new one of such programs with a probability of at least ``COVERED``. The distance of two programs is
the share of nodes that would need another opcode (:func:`fastslow.competition.opcodes.distance`).
``benchmarks/trust.py`` measures how often the band holds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID, Collection
from fastslow.competition.opcodes import distance, opcode_name, opcode_shares
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import resolve
from fastslow.evaluation.distances import nearest_train
from fastslow.evaluation.predictions import read_run_manifest
from fastslow.features.store import Features, Graph

FILE = "experience-{kind}.npz"
"""By kind of collection, the file in a folder of runs that keeps a :class:`Seen`."""
COVERED = 0.8
NEAREST = 19  # of 19 scores the second lowest and the second highest bound exactly 80 %
_ROUNDING = 1e-9  # of a distance between equal programs
_AGAIN = "Delete it, or pack the models again"


@dataclass(frozen=True)
class Seen:
    """What the models of one kind of collection, layout or tile, were trained and scored on.

    Args:
        shares: ``(T, 256)`` opcode shares of the train programs.
        nodes: ``(T,)`` their nodes, after pruning.
        choices: ``(T,)`` their choices of more than one option.
        collection: ``(P,)`` number in ``COLLECTIONS`` of each valid program.
        distance: ``(P,)`` its distance to the nearest train program, 0 to 1.
        score: ``(P,)`` the ensemble's score on it.
    """

    shares: np.ndarray
    nodes: np.ndarray
    choices: np.ndarray
    collection: np.ndarray
    distance: np.ndarray
    score: np.ndarray

    @classmethod
    def gather(cls, pairs: Mapping[Path, Features]) -> "Seen":
        """Collect what some ensembles of one kind have seen.

        Args:
            pairs: By folder of an ensemble, the features that its members learned from.

        Raises:
            DataError: A folder is not finished, or a graph's file is missing or broken.
        """
        stores = list(pairs.values())
        train = {
            (graph.node_opcode.tobytes(), _count_choices(graph)): graph
            for features in stores
            for graph in (features.graph(TRAIN, name) for name in features.names(TRAIN))
        }.values()
        distances = nearest_train(stores, VALID)
        rows = [
            (COLLECTIONS.index(features.collection), distances[features.collection.name][name], score)
            for folder, features in pairs.items()
            for name, score in read_run_manifest(folder)["valid"]["per_graph"].items()
        ]
        sizes = [graph.num_nodes for graph in train], [_count_choices(graph) for graph in train]
        shares = opcode_shares(graph.node_opcode for graph in train)
        return cls(shares, *map(np.array, sizes), *map(np.array, zip(*rows, strict=True)))

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

    def to_nearest(self, graph: Graph) -> float:
        """Return a program's distance to the nearest train program, 0 to 1."""
        return float(distance(opcode_shares([graph.node_opcode]), self.shares).min())

    def band(self, collection: Collection, near: float) -> tuple[float, float] | None:
        """Return the lowest and the highest score to expect at a distance to the train programs.

        Returns:
            None where no program of the collection at such a distance or a larger one was scored, or too few
            programs.
        """
        own = self.collection == COLLECTIONS.index(collection)
        if near > self.distance[own].max(initial=-1.0):
            return None
        like = np.argsort(np.abs(self.distance[own] - near), kind="stable")[:NEAREST]
        scores = np.sort(self.score[own][like])
        left_out = math.floor((1 - COVERED) / 2 * (len(scores) + 1) + 1e-9)  # at either end, and its bound
        return (float(scores[left_out - 1]), float(scores[-left_out])) if left_out else None

    def judge(self, collection: Collection, graph: Graph) -> "Trust":
        """Return how far to trust a ranking of a program by the models of a collection."""
        near, alike = self.to_nearest(graph), self.shares[self.nodes == graph.num_nodes]
        same = distance(opcode_shares([graph.node_opcode]), alike) < _ROUNDING
        known: np.ndarray = (self.shares > 0).any(0)
        unknown, found = np.unique(graph.node_opcode[~known[graph.node_opcode]]), []
        if len(unknown):
            names = ", ".join(opcode_name(int(code)) for code in unknown)
            found.append(f"{names} ({np.mean(~known[graph.node_opcode]):.0%} of its nodes)")
        sizes = (graph.num_nodes, self.nodes, "nodes"), (_count_choices(graph), self.choices, "choices")
        found += [
            f"{own:,} {what}, at most {seen.max():,} there" for own, seen, what in sizes if own > seen.max()
        ]
        return Trust(collection.kind, near, self.band(collection, near), found, bool(same.any()))


@dataclass(frozen=True)
class Trust:
    """How far to trust the ranking of a program.

    Args:
        kind: Kind of its collection, which decides the score.
        nearest: Distance to the nearest train program, 0 to 1.
        band: The lowest and the highest score to expect, None where it is not known.
        unfamiliar: In words, what no train program has.
        trained_on: Whether a train program has as many nodes of each opcode, as the program itself has.
    """

    kind: str
    nearest: float
    band: tuple[float, float] | None
    unfamiliar: list[str]
    trained_on: bool = False

    def words(self) -> list[str]:
        """Return the same as sentences."""
        score = {"layout": "Kendall's tau", "tile": "1 - slowdown of the top 5"}[self.kind]
        expected = "unknown, too few programs this far from the train programs were scored"
        if self.band:
            expected = "{:.2f} to {:.2f} for {:.0%} of such programs".format(*self.band, COVERED)
        found = [
            f"trust: {self.nearest:.0%} of its nodes would need another opcode to be as in a train program",
            f"expected {score}: {expected}, with labels like those that the models learned; for others, as "
            "of a device, measure some (fastslow measure) and rank with known=",
        ]
        if self.trained_on:
            seen = "the models were trained on this program, or on one with as many nodes of each opcode"
            found.append(f"{seen}: their score here is no measure of their score on new programs")
        return found + [f"no train program has: {'; '.join(self.unfamiliar)}"] * bool(self.unfamiliar)


def _count_choices(graph: Graph) -> int:
    return int((graph.choices.options > 1).sum())
