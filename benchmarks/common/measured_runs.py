"""Measured runs of a program, and measured and estimated effects of each tied choice."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from fastslow.choices.layouts import ROLES
from fastslow.choices.tied_choices import Choices
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import CompetitionFile
from fastslow.features.configs.config_tensors import config_tensors

NOTABLE = 0.01
"""A smaller effect on the runtime has no sign."""
FAR = 0.1
"""Difference of two effects from which they disagree."""


@dataclass(frozen=True)
class Measured:
    """Measured runs of one program.

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


def name_groups(file: CompetitionFile, choices: Choices) -> list[str]:
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
        shape = (
            tensors.dims[nodes[0], roles[0], : tensors.rank[nodes[0], roles[0]]].tolist()
            if len(nodes)
            else []
        )
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
