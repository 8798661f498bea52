"""How far to trust a ranking: the programs that the models have seen, and the score to expect at a distance.

Where the members of an ensemble disagree they are wrong more often. A line is fitted to the scores on valid
programs, which no model was trained on, over the agreement of the members; it gives the score to expect.
``benchmarks/trust.py`` compares it with the scores on test programs of architectures never seen, where a line
over the distance to the nearest train program was no better than a constant. The distance of two programs is
the share of nodes that would need another opcode (:func:`fastslow.competition.opcodes.distance`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID, Collection
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.opcodes import distance, opcode_name, opcode_shares
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import resolve
from fastslow.evaluation.distances import nearest_train
from fastslow.evaluation.predictions import read_predictions, read_run_manifest
from fastslow.features.store import Features, Graph
from fastslow_programs.ranking.runs import find_members

FILE = "experience-{kind}.npz"
"""By kind of collection, the file in a folder of runs that keeps an :class:`Experience`."""
COVERED = 0.8
"""Share of programs whose score is to lie in the interval."""
_AGAIN = "Delete it, or pack the models again"


def agreement(members: Sequence[np.ndarray]) -> float:
    """Return the mean Kendall's tau between two members' predictions ``(C,)``; 1 for a single member."""
    taus = [kendall_tau(one, other) for i, one in enumerate(members) for other in members[:i]]
    return float(np.mean(taus)) if taus else 1.0


class Expected(NamedTuple):
    """A score to expect, Kendall's tau for layout and 1 - slowdown for tile, and its interval."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class Experience:
    """What the models of one kind of collection, layout or tile, have seen.

    Args:
        shares: ``(T, 256)`` opcode shares of the train programs.
        nodes: ``(T,)`` their nodes, after pruning.
        choices: ``(T,)`` their choices of more than one option.
        collection: ``(P,)`` number in ``COLLECTIONS`` of each scored program, of the valid split.
        distance: ``(P,)`` its distance to the nearest train program.
        agreement: ``(P,)`` the members' agreement on it, see :func:`agreement`; 1 for a single member.
        score: ``(P,)`` the ensemble's score on it.
    """

    shares: np.ndarray
    nodes: np.ndarray
    choices: np.ndarray
    collection: np.ndarray
    distance: np.ndarray
    agreement: np.ndarray
    score: np.ndarray

    @classmethod
    def gather(cls, pairs: Mapping[Path, Features]) -> "Experience":
        """Collect the experience of some ensembles of one kind.

        Args:
            pairs: By folder of an ensemble, the features that its members learned from.

        Raises:
            DataError: A folder is not finished, or a graph's file is missing or broken.
        """
        stores = list(pairs.values())
        seen = {
            (graph.node_opcode.tobytes(), _count_choices(graph)): graph
            for features in stores
            for graph in (features.graph(TRAIN, name) for name in features.names(TRAIN))
        }
        distances, rows = nearest_train(stores, VALID), []
        for folder, features in pairs.items():
            manifest = read_run_manifest(folder)
            members = [read_predictions(own)[VALID] for own in find_members(folder, manifest).values()]
            number = COLLECTIONS.index(features.collection)
            near = distances[features.collection.name]
            rows += [
                (number, near[name], agreement([own[name] for own in members]), score)
                for name, score in manifest["valid"]["per_graph"].items()
            ]
        scored = map(np.array, zip(*rows, strict=True))
        shares = opcode_shares(graph.node_opcode for graph in seen.values())
        sizes = [np.array([size(graph) for graph in seen.values()]) for size in (_nodes, _count_choices)]
        return cls(shares, *sizes, *scored)

    @classmethod
    def of(cls, runs: Path, kind: str) -> "Experience | None":
        """Return the experience of a folder of runs, such as ``runs/sample``.

        It is read from its file, or collected from the features of the same name.

        Returns:
            None where there are neither.

        Raises:
            DataError: The file or the features are broken.
        """
        path = runs / FILE.format(kind=kind)
        if path.is_file():
            return cls(**read_arrays(path, list(cls.__dataclass_fields__), _AGAIN))
        pairs = {}
        for collection in COLLECTIONS:
            folder = resolve(f"features/{runs.name}/{collection.slug}")
            if collection.kind == kind and folder.is_dir():
                pairs[runs / f"ensemble-{collection.slug}"] = Features(folder)
        return cls.gather(pairs) if pairs and all(folder.is_dir() for folder in pairs) else None

    def write(self, folder: Path, kind: str) -> None:
        """Write the file that :meth:`of` reads."""
        write_arrays(folder / FILE.format(kind=kind), vars(self))

    def to_nearest(self, graph: Graph) -> float:
        """Return a program's distance to the nearest train program, 0 to 1."""
        return float(distance(opcode_shares([graph.node_opcode]), self.shares).min())

    def expect(self, collection: Collection, near: float, agreed: float) -> Expected | None:
        """Return the score to expect of a program of a collection.

        All collections of the kind share the slope of the line, which does not fall with the agreement. The
        interval is that of the residuals, 80 % of the programs.

        Args:
            collection: The collection.
            near: The program's distance to the nearest train program.
            agreed: The members' agreement on it.

        Returns:
            None where no program of the collection was scored at such a distance or a larger one.
        """
        own = self.collection == COLLECTIONS.index(collection)
        if not own.any() or near > self.distance.max():
            return None
        x, y = self.agreement.astype(float), self.score.astype(float)
        for rows in (self.collection == number for number in np.unique(self.collection)):
            x, y = np.where(rows, x - x[rows].mean(), x), np.where(rows, y - y[rows].mean(), y)
        slope = max(0.0, float(x @ y / max(x @ x, 1e-12)))
        score = self.score[own].mean() + slope * (agreed - self.agreement[own].mean())
        low, high = np.quantile(y - slope * x, [(1 - COVERED) / 2, (1 + COVERED) / 2])
        return Expected(*(float(np.clip(score + offset, -1, 1)) for offset in (0.0, low, high)))

    def judge(self, collection: Collection, graph: Graph, members: Sequence[np.ndarray]) -> "Trust":
        """Return how far to trust a ranking of a program by the models of a collection.

        Args:
            collection: The collection.
            graph: The program.
            members: ``(C,)`` prediction of each member.
        """
        near = self.to_nearest(graph)
        scored = float(self.distance.min()), float(self.distance.max())
        expected = self.expect(collection, near, agreement(members))
        return Trust(collection.kind, near, scored, expected, self._unfamiliar(graph))

    def _unfamiliar(self, graph: Graph) -> list[str]:
        """Return in words what no train program has: opcodes, and sizes beyond the largest."""
        known = (self.shares > 0).sum(0) > 0
        unknown = np.unique(graph.node_opcode[~known[graph.node_opcode]])
        found = []
        if len(unknown):
            share = float(np.mean(~known[graph.node_opcode]))
            found.append(
                f"{', '.join(opcode_name(int(code)) for code in unknown)} ({share:.0%} of its nodes)"
            )
        sizes = ((_nodes(graph), self.nodes, "nodes"), (_count_choices(graph), self.choices, "choices"))
        found += [
            f"{own:,} {what}, at most {seen.max():,} there" for own, seen, what in sizes if own > seen.max()
        ]
        return found


@dataclass(frozen=True)
class Trust:
    """How far to trust the ranking of a program.

    Args:
        kind: Kind of its collection, which decides the score.
        nearest: Distance to the nearest train program, 0 to 1.
        scored: Smallest and largest distance of the programs that were scored.
        expected: The score to expect, None where none was scored at such a distance.
        unfamiliar: In words, what no train program has.
    """

    kind: str
    nearest: float
    scored: tuple[float, float]
    expected: Expected | None
    unfamiliar: list[str]

    def words(self) -> list[str]:
        """Return the same as sentences."""
        low, high = self.scored
        found = [
            f"trust: {self.nearest:.0%} of its nodes would need another opcode to be as in the nearest "
            f"train program (programs that were scored: {low:.0%} to {high:.0%})"
        ]
        if self.expected:
            score = {"layout": "Kendall's tau", "tile": "1 - slowdown of the top 5"}[self.kind]
            e = self.expected
            found.append(
                f"expected {score}: {e.score:.2f}, for {COVERED:.0%} of such programs {e.low:.2f} to "
                f"{e.high:.2f}, with labels like those that the models learned"
            )
        else:
            found.append("expected score: unknown, no program this far from the train programs was scored")
        if self.unfamiliar:
            found.append(f"no train program has: {'; '.join(self.unfamiliar)}")
        return found


def _nodes(graph: Graph) -> int:
    return graph.num_nodes


def _count_choices(graph: Graph) -> int:
    return int((graph.choices.options > 1).sum())
