"""Measured runs of a program: effects of each tied choice, and which rule of binding they choose."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from common.binding_rules import COMMITTED
from fastslow.competition.layouts import ROLES
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import Program
from fastslow.competition.tied_choices import Choices
from fastslow.features.configs.config_tensors import config_tensors

NOTABLE = 0.01
"""A smaller effect on the runtime has no sign."""
FAR = 0.1
"""Difference of two effects from which they disagree."""
DRAWS = 200
_TEXT = """\
The rule was chosen on the runs of this table. {draws} times, the rule with the highest tau on a random
half of the {programs} programs that all rules above know ({configurations:,} configurations) was scored
on the other half. Tau {held_out} (mean, 2.5 and 97.5 percentile); chosen: {chosen}. Bootstrap of the
programs, tau of the rule of the labels: {interval}. All programs come from AlexNet."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one program.

    Args:
        runtime: ``(C,)`` nanoseconds.
        choices: The configurations.
        names: Name of each group of tied choices.
        decisive: ``(n,)`` groups that set outputs and reshapes.
    """

    runtime: np.ndarray
    choices: Choices
    names: list[str]
    decisive: np.ndarray

    def uncommon(self, group: int) -> np.ndarray:
        """Return which configurations take another than the commonest option of a group, ``(C,)`` bool."""
        values = self.choices.values[:, group]
        return values != np.bincount(values).argmax()

    def effect(self, group: int, cost: np.ndarray) -> list[float] | None:
        """Return how a choice changes the median cost, all else being common, and the choice's own tau.

        Args:
            group: The group of the choice.
            cost: ``(C,)`` runtimes or estimated cycles, NaN where unknown.

        Returns:
            The relative change and tau; None where the cost is not known both with and without the change.
        """
        known, uncommon = np.isfinite(cost), self.uncommon(group)
        common = known & ~np.any([self.uncommon(g) for g in self.decisive if g != group], axis=0)
        with_it, without = cost[common & uncommon], cost[common & ~uncommon]
        if not (len(with_it) and len(without)):
            return None
        change = np.median(with_it) / np.median(without) - 1
        return [float(change), kendall_tau(cost[known], uncommon[known].astype(int))]


def name_groups(file: Program, choices: Choices) -> list[str]:
    """Return a name of each group of tied choices: its tensors, with the shape of the first one."""
    tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids)
    names = []
    for group in range(choices.num_groups):
        nodes, roles = np.nonzero((choices.group == group) & tensors.known)
        opcodes = Counter(
            opcode_name(int(file.node_opcode[file.node_config_ids[n]])) for n in np.unique(nodes)
        )
        what = " and ".join(f"{ROLES[role]}s" for role in np.unique(roles))
        alike = ", ".join(f"{count} {opcode}{'s' * (count > 1)}" for opcode, count in opcodes.items())
        first = next(zip(nodes, roles, strict=True), None)
        shape = tensors.dims[first][: tensors.rank[first]].tolist() if first else []
        names.append(f"{what} of {alike} {shape}")
    return names


def effects(groups: np.ndarray, measured: Measured, cost: np.ndarray) -> dict[str, list[float]]:
    """Return effect and tau of tied choices by name, see :meth:`Measured.effect`."""
    found = {measured.names[g]: measured.effect(g, cost) for g in groups if g in measured.choices.varying}
    return {name: pair for name, pair in found.items() if pair}


def signs(truth: dict[str, list], estimated: dict[str, list]) -> tuple[int, int]:
    """Return how many estimated effects have the sign of the measured one, of how many notable ones."""
    notable = [name for name in estimated if abs(truth[name][0]) >= NOTABLE]
    return sum(truth[name][0] * estimated[name][0] > 0 for name in notable), len(notable)


def disagreements(truth: dict[str, list], estimated: dict[str, list]) -> list[str]:
    """Return sentences on the effects that are far from the measured ones, largest difference first."""
    far = [name for name in estimated if abs(estimated[name][0] - truth[name][0]) > FAR]
    far.sort(key=lambda name: -abs(estimated[name][0] - truth[name][0]))
    return [f"{name}: measured {truth[name][0]:+.0%}, estimated {estimated[name][0]:+.0%}" for name in far]


def choose_on_half(
    estimates: dict[str, np.ndarray], classes: np.ndarray, runtime: np.ndarray, draws: int = DRAWS
) -> dict:
    """Choose the rule on half of the programs and score it on the others, many times.

    Args:
        estimates: Estimated cycles of every configuration by rule, ``(C,)``, NaN where not known. Only
            configurations that all rules know are used.
        classes: ``(C,)`` number of the distinct program of each configuration; a half is one of programs,
            since configurations of one program differ only by noise.
        runtime: ``(C,)`` measured time.
        draws: Number of random halves, and of bootstraps.

    Returns:
        ``programs`` and ``configurations`` used. ``chosen``: how often each rule was the best of a half.
        ``held_out``: mean tau of the best on the other half, with its 2.5 and 97.5 percentiles. ``interval``:
        these percentiles of the tau of the rule of the labels over bootstraps of programs.
    """
    rng = np.random.default_rng(0)
    known = np.all([np.isfinite(estimate) for estimate in estimates.values()], axis=0)
    rows = {label: np.flatnonzero(known & (classes == label)) for label in np.unique(classes[known])}

    def tau(rule: str, some: np.ndarray) -> float:
        some_rows = np.concatenate([rows[label] for label in some])
        return kendall_tau(runtime[some_rows], estimates[rule][some_rows])

    chosen, held_out, spread = Counter(), [], []
    for _ in range(draws):
        halves = np.array_split(rng.permutation(list(rows)), 2)
        best = max(estimates, key=lambda rule: tau(rule, halves[0]))
        chosen[best] += 1
        held_out.append(tau(best, halves[1]))
        if COMMITTED in estimates:
            spread.append(tau(COMMITTED, rng.choice(list(rows), len(rows))))
    return {
        "programs": len(rows),
        "configurations": int(known.sum()),
        "chosen": dict(chosen.most_common()),
        "held_out": [float(np.mean(held_out)), *_ends(held_out)],
        "interval": _ends(spread),
    }


def _ends(values: list[float]) -> list[float]:
    return np.percentile(values, [2.5, 97.5]).tolist() if values else []


def choice_in_words(found: dict) -> str:
    """Return :func:`choose_on_half` as a paragraph."""

    def ends(low: float, high: float) -> str:
        return f"[{low:.3f}, {high:.3f}]"

    mean, *percentiles = found["held_out"]
    words = {
        "held_out": f"{mean:.3f} {ends(*percentiles)}",
        "interval": ends(*found["interval"]) if found["interval"] else "not computed",
        "chosen": ", ".join(f"{rule} {count}" for rule, count in found["chosen"].items()),
    }
    return _TEXT.format(**found | words, draws=DRAWS)
