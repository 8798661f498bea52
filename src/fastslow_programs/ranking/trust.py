"""How far to trust a ranking: bands for its score, how sure a pair is, and what it is worth on a device.

Bands and sureness are read from programs that no model was trained on: the valid programs of a kind of
collection, and its test programs where their runtimes are known. A layout program is often scored in both
searches. Its two scores are alike, so programs are counted and not scores: a band is split-conformal over
programs (HCP of Lee, Barber and Willett, arXiv:2306.06342). A band of the 39 programs whose distance to the
train programs is most alike is little narrower (``benchmarks/trust.py``). A tile has no band, as nearly every
kernel scores 1, but the share of kernels that do. A pair of configurations is as sure as pairs of these
programs that are predicted as far apart. The distance of two programs is the share of nodes that would need
another opcode (:func:`fastslow.competition.opcodes.distance`). Neither band nor probability is given where no
program like it was scored. ``benchmarks/trust.py`` measures both. What a ranking is worth on a device while
no runtime is known is in files of the package, which benchmarks write beside their tables.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from fastslow.competition.catalog import COLLECTIONS, TRAIN
from fastslow.competition.metrics import collection_score
from fastslow.competition.node_columns import SHAPE_PRODUCT
from fastslow.competition.opcodes import distance, opcode_name
from fastslow.core.errors import SettingsError
from fastslow.core.files import read_json
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import find_data, resolve
from fastslow.core.tables import percent
from fastslow.evaluation.run_record import read_run_record
from fastslow.evaluation.scores import solution_of, truth_of
from fastslow.features.graph import Graph
from fastslow.runs.features_folder import Features
from fastslow.runs.packaged import FOLDER
from fastslow.runs.predictions import read_predictions

FILE = "experience-{kind}.npz"
"""By kind of collection, the file in a folder of runs that keeps a :class:`Seen`."""
LEVELS = 0.5, 0.8, 0.9
TOLD = 0.8  # the least probability that counts as sure
FEWEST_PROGRAMS = 19  # of a band: their lowest and highest score bound 90 % of further ones
_PAIRED, _STEEPEST = 300, 20.0  # configurations of a program whose pairs are taken, drawn at random
_OPCODES = 256  # values of the type of ``node_opcode``
_AGAIN = "Delete it, or pack the models again"

FIGURES = FOLDER / "device.json"
"""Means over ``programs`` programs that no model saw, measured on ``device``. A figure is how much slower a
configuration is than the one that measuring all of them would choose; 0.1 is 10 % slower. ``default``,
``first`` and ``rule`` are the default and the first of the ranking and of the trivial rule. With ``measured``
configurations measured, ``first_learnt`` is the fastest of these and of the first of the ranking that learnt
from them; ``first_at_random`` takes one more at random instead. ``first_over_default`` is ``first`` minus
``default``, ``gain_over_default`` and ``gain_over_random`` are ``default`` and ``first_at_random`` minus
``first_learnt``; ``..._error`` is the standard error of each over programs. ``benchmarks/does_it_help.py
--labels device`` writes them."""
ESTIMATES = FOLDER / "estimates.json"
"""Kendall's ``tau`` of the compiler's estimates with measured runs of ``program``, on halves of its programs
that did not choose the rule of the labels: the mean, and ``low`` and ``high``, the 2.5 and 97.5 percentiles.
``benchmarks/label_truth.py`` writes it beside its table."""
ADVISED = 8
"""Number of measurements that are advised."""


@dataclass(frozen=True)
class Seen:
    """What the models of one kind of collection, layout or tile, were trained and scored on.

    Args:
        train: ``(T, 256)`` nodes of each opcode of the train programs, after pruning.
        scored: ``(P, 256)`` the same of the programs that were scored, in each collection again: a row is
            one of the P rankings.
        largest: ``(P,)`` elements of the largest tensor of the ranked program.
        score: ``(P,)`` the ensemble's score.
        steepness: ``(P,)`` how fast pairs of the ranking become sure, see :func:`_steepness`.
    """

    train: np.ndarray
    scored: np.ndarray
    largest: np.ndarray
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
        record = read_run_record(next(iter(pairs)).parent)
        solution = solution_of(find_data(record["data"])) if record else None
        train = {
            graph.node_opcode.tobytes(): graph
            for features in pairs.values()
            for graph in (features.graph(TRAIN, name) for name in features.names(TRAIN))
        }
        graphs, rows = [], []
        for folder, features in pairs.items():
            predictions = read_predictions(folder)
            for split, runtimes in truth_of(features, solution).items():
                if {name: len(values) for name, values in runtimes.items()} != features.num_configs(split):
                    continue  # the solution is of other data than the run
                predicted = predictions[split]
                scores = collection_score(features.collection.kind, runtimes, predicted)["per_graph"]
                for name, score in scores.items():
                    graph = features.graph(split, name)
                    graphs.append(graph)
                    rows.append((_largest(graph), score, _steepness(predicted[name], runtimes[name])))
        largest, score, steepness = map(np.array, zip(*rows, strict=True))
        return cls(_opcode_counts(train.values()), _opcode_counts(graphs), largest, score, steepness)

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
            return cls(**read_arrays(path, [field.name for field in fields(cls)], _AGAIN))
        collections = [collection for collection in COLLECTIONS if collection.kind == kind]
        folders = {
            runs / f"ensemble-{c.slug}": resolve(f"features/{runs.name}/{c.slug}") for c in collections
        }
        pairs = {run: Features(folder) for run, folder in folders.items() if folder.is_dir()}
        return cls.gather(pairs) if pairs and all(run.is_dir() for run in pairs) else None

    def write(self, folder: Path, kind: str) -> None:
        """Write the file that :meth:`of` reads."""
        write_arrays(folder / FILE.format(kind=kind), asdict(self))

    @cached_property
    def distance(self) -> np.ndarray:
        """``(P,)`` distance of each program that was scored to the nearest train program, 0 to 1."""
        return distance(_shares(self.scored), _shares(self.train)).min(1)

    def program_shares(self, kind: str) -> np.ndarray:
        """Return ``(P,)`` which share of its program each ranking is: a half where both searches have one.

        Layout programs with as many nodes of each opcode and as large a tensor count as one. A kernel of a
        tile collection is in it once.
        """
        if kind == "tile":
            return np.ones(len(self.score))
        programs = np.column_stack([self.scored, self.largest])
        _, program, rankings = np.unique(programs, axis=0, return_inverse=True, return_counts=True)
        return 1 / rankings[program]

    def judge(self, kind: str, graph: Graph) -> "Trust":
        """Return how far to trust a ranking of a program by the models of a kind of collection."""
        counts = _opcode_counts([graph])
        near = float(distance(_shares(counts), _shares(self.train)).min())
        shares = self.program_shares(kind)
        return Trust(
            kind=kind,
            nearest=near,
            scores=self.score,
            steepness=self.steepness,
            shares=shares,
            unlike=self._unlike(graph, near, round(shares.sum())),
            new_opcodes=np.flatnonzero((counts[0] > 0) & (self.train == 0).all(0)).tolist(),
            trained_on=_has(self.train, counts),
            scored_on=_has(self.scored, counts),
        )

    def _unlike(self, graph: Graph, near: float, programs: int) -> list[str]:
        """Return in words why no program like this one was scored; empty where some were."""
        reasons = []
        sizes = {
            "nodes": (graph.num_nodes, self.scored.sum(1)),
            "elements in its largest tensor": (_largest(graph), self.largest),
        }
        for name, (size, scored) in sizes.items():
            if not scored.min() <= size <= scored.max():
                others = f"the scored programs have {scored.min():,.0f} to {scored.max():,.0f}"
                reasons.append(f"it has {size:,.0f} {name} where {others}")
        if near > self.distance.max():
            reasons.append(f"every program that was scored is nearer, at most {percent(self.distance.max())}")
        if graph.default_layouts.size and (graph.default_layouts < 0).all():
            reasons.append("the compiler's own layouts are not known")
        if programs < FEWEST_PROGRAMS:
            reasons.append(f"{programs} programs were scored, {FEWEST_PROGRAMS} are needed")
        return reasons


def programs_before(shares: np.ndarray) -> np.ndarray:
    """Return ``(P,)`` how many programs are before each ranking, given the shares ``(P,)`` in an order."""
    return (np.cumsum(shares) - shares).round(9)


@dataclass(frozen=True)
class Trust:
    """How far to trust the ranking of a program.

    Args:
        kind: Kind of its collection, which decides the score.
        nearest: Distance to the nearest train program, 0 to 1.
        scores: ``(P,)`` scores of all rankings of the kind.
        steepness: ``(P,)`` how fast the pairs of each ranking become sure, see :class:`Seen`.
        shares: ``(P,)`` which share of its program each ranking is, see :meth:`Seen.program_shares`.
        unlike: In words, why no program like it was scored; then nothing is expected of it.
        new_opcodes: Its opcodes that no train program has.
        trained_on: Whether a train program has as many nodes of each opcode, as the program itself has.
        scored_on: The same of the programs that were scored, of which ``scores`` is made.
        remedy: What to do to know more, as a sentence; empty for nothing.
    """

    kind: str
    nearest: float
    scores: np.ndarray
    steepness: np.ndarray
    shares: np.ndarray
    unlike: list[str]
    new_opcodes: list[int]
    trained_on: bool
    scored_on: bool
    remedy: str = ""

    def band(self, level: float) -> tuple[float, float] | None:
        """Return the lowest and the highest Kendall's tau to expect; None where it is not known, or a tile.

        Args:
            level: Probability that the score is in it, one of ``LEVELS``.

        Raises:
            SettingsError: It is another one.
        """
        if level not in LEVELS:
            raise SettingsError("level", f"{level!r} is none of {', '.join(map(str, LEVELS))}")
        if self.unlike or self.kind == "tile":
            return None
        # programs beyond either bound, of which the new one is one; 0.9999999 is meant as 1
        most = round((1 - level) / 2 * (self.programs + 1) - 1, 9)
        upwards = np.argsort(self.scores)
        low, high = (self._furthest(order, most) for order in (upwards, upwards[::-1]))
        return low, high

    @property
    def programs(self) -> int:
        """Number of programs that were scored."""
        return round(self.shares.sum())

    def _furthest(self, order: np.ndarray, most: float) -> float:
        """Return the last score in an order before which there are at most so many programs."""
        before = programs_before(self.shares[order])
        return float(self.scores[order][np.searchsorted(before, most, side="right") - 1])

    def faster(self, prediction: np.ndarray, than: int) -> np.ndarray | None:
        """Return the probability that each configuration is faster than one, by its position.

        It is ``(C,)`` as the predictions, equal runtimes counted half; None where no program like it was
        scored.
        """
        if self.unlike:
            return None
        gap = (prediction[than] - prediction) / (prediction.std() or 1.0)
        return np.average(expit(np.multiply.outer(self.steepness, gap)), axis=0, weights=self.shares)

    def facts(self) -> dict:
        """Return distance, bands by level (None: not known), ``trained_on`` and ``unlike``, for JSON."""
        bands = {f"{level:.0%}": self.band(level) for level in LEVELS}
        facts = {"distance": self.nearest, "bands": bands, "trained_on": self.trained_on}
        return facts | {"unlike": self.unlike}

    def words(self) -> list[str]:
        """Return the same as sentences."""
        far = percent(self.nearest)
        sentences = [
            f"trust: {far} of its nodes differ in opcode from the nearest train program",
            f"{self._expected()}. {self.remedy}" if self.remedy else self._expected(),
        ]
        if self.trained_on:
            seen = "the models were trained on this program, or on one with as many nodes of each opcode"
            sentences.append(f"{seen}: their score here is no measure of their score on new programs")
        if self.new_opcodes:
            sentences.append(f"no train program has: {', '.join(map(opcode_name, self.new_opcodes))}")
        return sentences

    def _expected(self) -> str:
        if self.unlike:
            return f"no score is expected: {'; '.join(self.unlike)}"
        labels = "with labels like those that the models learned, not of a device"
        if self.kind == "tile":
            best = f"{percent((self.scores == 1).mean())} of {self.programs} kernels"
            return f"expected: the fastest is among the first five, as in {best}, {labels}"
        bands = {percent(level): self.band(level) for level in LEVELS}
        told = [f"{band[0]:.2f} to {band[1]:.2f} for {level}" for level, band in bands.items() if band]
        scored = f"of {self.programs} programs that no model was trained on"
        return f"expected Kendall's tau: {', '.join(told)} {scored}, {labels}"


def advise(to_measure: str, configurations: int | None = None) -> list[str]:
    """Return as sentences that the default is the choice to keep, and what measurements bring.

    Args:
        to_measure: How to measure configurations of the program, in words.
        configurations: Number of configurations that the program has; None for more than are advised.
    """
    figures = read_json(FIGURES)
    slower = {name: percent(value, 1) for name, value in figures.items() if isinstance(value, float)}
    keep = (
        "to keep: the compiler's default, while no runtime is known. On {programs} programs measured on a "
        "device ({device}) it is {default} slower than the configuration that measuring all of them would "
        "choose, the first of the ranking {first}, the first of the trivial rule {rule}".format(
            **figures | slower
        )
    )
    if not _beyond_chance(figures, "first_over_default"):
        keep += "; default and ranking do not differ beyond chance"
    if configurations is not None:
        gain = f"to gain: measure all {configurations} configurations, and take the fastest. "
        return [keep, gain + to_measure]
    gain = (
        "to gain: measure {measured} configurations and rank again. The fastest of these and the new first "
        "one is {first_learnt} slower than that one; a random one in its place: {first_at_random}. "
    ).format(**figures | slower)
    rivals = {"the default": "gain_over_default", "the random one": "gain_over_random"}
    level = [rival for rival, name in rivals.items() if not _beyond_chance(figures, name)]
    if level:
        gain += f"It is not ahead of {' or '.join(level)} beyond chance. "
    return [keep, gain + to_measure]


def _beyond_chance(figures: Mapping[str, float], name: str) -> bool:
    """Return whether a difference is more than twice its standard error above 0."""
    return bool(figures[name] > 2 * figures[f"{name}_error"])


def describe_estimates() -> str:
    """Return in words how well the compiler's estimates agree with measured runs."""
    said = "{tau:.2f} on {program}'s measured runs (95 % of random halves: {low:.2f} to {high:.2f})"
    return said.format(**read_json(ESTIMATES))


def _opcode_counts(graphs: Iterable[Graph]) -> np.ndarray:
    """Return the number of nodes of each opcode, ``(graphs, 256)``."""
    counts = [np.bincount(graph.node_opcode, minlength=_OPCODES) for graph in graphs]
    return np.array(counts, np.int32).reshape(-1, _OPCODES)


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(1, keepdims=True)


def _has(programs: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether one of the programs ``(n, 256)`` has the counts ``(1, 256)``."""
    return bool((programs == counts).all(1).any())


def _largest(graph: Graph) -> float:
    """Return the number of elements of a program's largest tensor."""
    return float(graph.node_feat[:, SHAPE_PRODUCT].max())


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
