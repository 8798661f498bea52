"""Tied choices of a stream of configurations: found on the first rows, verified on all others.

After a few hundred configurations the groups and their options are known, and every further one is a choice
among them: it is written out from the choices of one tensor per group and compared with what the file holds.
"""

import numpy as np

from fastslow.competition.layouts import ROLES, layouts_of
from fastslow.competition.tied_choices import Choices, distinct_rows

_LEARNED = 16  # rows that groups are divided by at once: the work is quadratic in them
_NONE = -1  # number of no layout


class ChoiceFinder:
    """Groups of tensors whose layouts determine each other in all configurations seen so far.

    Letters in shapes: T = 3 K tensors, G groups, O maximum number of options of a group.

    Args:
        num_nodes: K, number of configurable nodes.

    Attributes:
        group: ``(T,)`` group of each tensor; a group that is divided keeps its number for its first tensor's
            part.
        first: ``(G,)`` first tensor of each group.
        options: ``(G,)`` number of options of each group.
        numbers: ``(T, O)`` int32 number of each tensor's layout under each option of its group, in order of
            first occurrence; -1 beyond the options.
        held: Bytes of the choices of all configurations added.
    """

    def __init__(self, num_nodes: int):
        num_tensors = num_nodes * len(ROLES)
        self.group = np.zeros(num_tensors, np.int64)
        self.first = np.zeros(min(1, num_tensors), np.int64)
        self.options = np.zeros(min(1, num_tensors), np.int64)
        self.numbers = np.full((num_tensors, 1), _NONE, np.int32)
        self._parent = self.first.tolist()  # the group that each was divided from
        self._values: list[np.ndarray] = []
        self.held = 0

    def add(self, values: np.ndarray) -> None:
        """Append configurations by the option that each chooses for each group, ``(n, G)``."""
        self._values.append(values.astype(np.min_scalar_type(max(0, self.numbers.shape[1] - 1))))
        self.held += self._values[-1].nbytes

    def explain(self, rows: np.ndarray) -> np.ndarray:
        """Find the options of configurations, and divide groups and add options where that is needed.

        Args:
            rows: ``(n, T)`` int32 numbers of the layouts of each tensor.

        Returns:
            ``(n, G)`` option of each group.
        """
        start = np.arange(len(self.group))
        while True:
            seen = rows[:, self.first, None] == self.numbers[self.first]
            values = seen.argmax(2) if seen.size else np.zeros(seen.shape[:2], np.int64)
            entry = values.take(self.group, axis=1) + start * self.numbers.shape[1]
            wrong = self.numbers.take(entry) != rows
            unexplained = np.flatnonzero(wrong.any(1))[:_LEARNED]
            if not len(unexplained):
                return values
            self._learn(rows[unexplained], np.unique(self.group[wrong[unexplained].any(0)]))

    def _learn(self, rows: np.ndarray, groups: np.ndarray) -> None:
        """Divide some groups, and extend their options, so that these rows (m, T) are explained."""
        tensors = np.flatnonzero(np.isin(self.group, groups))
        rows, known = rows[:, tensors], self.numbers[tensors].T
        earlier = np.concatenate([known, rows])
        same_as = (earlier == rows[:, None]).argmax(1)  # (m, T') the first that equals each
        leader, part = distinct_rows([self.group[tensors], *same_as], len(tensors))
        is_new = same_as[:, leader] == len(known) + np.arange(len(rows))[:, None]  # (m, parts)
        before = self.options[self.group[tensors[leader]]]
        after = before + is_new.sum(0)
        wider = max(0, after.max() - self.numbers.shape[1])
        self.numbers = np.pad(self.numbers, ((0, 0), (0, wider)), constant_values=_NONE)
        for number, lead in enumerate(tensors[leader]):
            members = np.flatnonzero(part == number)
            added = rows[is_new[:, number]][:, members].T
            self.numbers[tensors[members], before[number] : after[number]] = added
            group = self.group[lead]
            if self.first[group] != lead:
                self._parent.append(group)
                group = len(self.first)
                self.first, self.options = np.append(self.first, lead), np.append(self.options, 0)
            self.group[tensors[members]] = group
            self.options[group] = after[number]

    def finish(self) -> tuple[np.ndarray, Choices]:
        """Return the distinct layouts of all configurations, all -1 first, and the choices among them.

        Returns:
            ``(L, 6)`` int8 layouts in the order of their numbers, and the choices of all configurations
            added.
        """
        parts = []
        for values in self._values:
            origin = list(range(len(self.first)))
            for group in range(values.shape[1], len(origin)):
                origin[group] = origin[self._parent[group]]
            parts.append(values[:, origin])
        order = np.argsort(self.first)
        layouts = np.union1d(self.numbers[self.numbers >= 0], 0)
        codes = np.where(self.numbers < 0, 0, np.searchsorted(layouts, self.numbers)).astype(np.uint16)
        shape = len(self.group) // len(ROLES), len(ROLES)
        return layouts_of(layouts), Choices(
            values=np.ascontiguousarray(np.concatenate(parts)[:, order]),
            group=np.argsort(order)[self.group].reshape(shape).astype(np.int32),
            codes=codes.reshape(*shape, -1 if codes.size else 1),
            options=self.options[order].astype(np.int32),
        )
