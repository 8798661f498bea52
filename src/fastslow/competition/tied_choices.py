"""Tied choices: the few choices that a layout configuration really makes.

The layouts of TpuGraphs are not chosen node by node. Tensors of ``node_config_feat`` (a node's output, input
or kernel) whose layouts determine each other over all configurations of a file form a *group*; a
configuration is one choice per group. The real files have 17 to 55 groups where they have up to 2,500
tensors, so what depends on the layouts of a group alone is computed once per option of the group.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import sparse

from fastslow.competition.layouts import ROLES, layouts_of


@dataclass(frozen=True)
class Choices:
    """Layout configurations as tied choices, without loss.

    Letters in shapes: C configurations, K configurable nodes, G groups, O the maximum number of options.
    Groups are numbered by their first tensor, in the order node by node, then output, input, kernel; the
    options of a group by first occurrence. Tensors whose layout never varies form one group with one option.

    Args:
        values: ``(C, G)`` uint8 or uint16, the option that each configuration chooses for each group.
        group: ``(K, 3)`` int32, the group of each tensor, 0 to G - 1.
        codes: ``(K, 3, O)`` uint16, layout code of each tensor under each option of its group; 0 beyond the
            options of the group.
        options: ``(G,)`` int32, number of options of each group, 1 or more.
    """

    values: np.ndarray
    group: np.ndarray
    codes: np.ndarray
    options: np.ndarray

    def __len__(self) -> int:
        """Return C."""
        return len(self.values)

    @property
    def num_groups(self) -> int:
        """G, the number of groups, a group of constant tensors included."""
        return len(self.options)

    @property
    def varying(self) -> np.ndarray:
        """``(V,)`` groups that have more than one option."""
        return np.flatnonzero(self.options > 1)

    def take(self, rows: np.ndarray | slice) -> "Choices":
        """Return the choices of some configurations; groups and options stay as they are."""
        return replace(self, values=self.values[rows])

    def layout_codes(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the layout code of every tensor, ``(rows, K, 3)`` uint16."""
        nodes, roles = np.indices(self.group.shape)
        return np.asarray(self.codes[nodes, roles, self.values[rows][:, self.group]])


def distinct_rows(columns: Iterable[np.ndarray], num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a table of whole numbers, without sorting rows as such.

    Args:
        columns: Columns ``(num_rows,)`` of whole numbers from 0; none at all make all rows equal.
        num_rows: Number of rows.

    Returns:
        ``(D,)`` first row of each kind, kinds in lexicographic order, and ``(num_rows,)`` kind of each row,
        both int64.
    """
    key = np.zeros(num_rows, np.int64)  # a row as one number, as far as it fits in 63 bits
    kinds = 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if kinds * width > np.iinfo(np.int64).max:
            distinct, key = np.unique(key, return_inverse=True)
            kinds = len(distinct)
        if width > 1:
            key = key * width + column
            kinds = kinds * width
    return np.unique(key, return_index=True, return_inverse=True)[1:]


def no_choices(num_configs: int) -> Choices:
    """Return the choices of configurations that give no tensor a layout, as a tile kernel's do."""
    return Choices(
        values=np.zeros((num_configs, 0), np.uint8),
        group=np.zeros((0, len(ROLES)), np.int32),
        codes=np.zeros((0, len(ROLES), 1), np.uint16),
        options=np.zeros(0, np.int32),
    )


_Step = tuple[np.ndarray, sparse.csr_matrix]
_KEY_BITS = 62
_BLOCK = 1 << 20  # keys that are sorted at once, 8 bytes each


@dataclass(frozen=True)
class Classes:
    """The T classes of C configurations under Q sets of groups; the classes of one set are adjacent."""

    index: np.ndarray  # (Q, C) int32, class of each configuration under each set, 0 to T - 1
    start: np.ndarray  # (Q + 1,) int64, first class of each set, and T
    config: np.ndarray  # (T,) int64, a configuration of each class
    count: np.ndarray  # (T,) int64, number of its configurations, 1 or more

    def __len__(self) -> int:
        """Return T."""
        return len(self.config)

    @property
    def size(self) -> np.ndarray:
        """``(Q,)`` number of classes of each set, 1 or more."""
        return np.diff(self.start)

    def picks(self, configs: slice = slice(None)) -> sparse.csr_array:
        """Return the matrix ``(configs, T)`` float64, 1 where a configuration is in a class: Q in a row."""
        index = self.index[:, configs].T
        indptr = np.arange(len(index) + 1, dtype=np.int64) * index.shape[1]
        return sparse.csr_array((np.ones(index.size), index.ravel(), indptr), shape=(len(index), len(self)))

    def sum(self, table: np.ndarray, chunk_bytes: int = 1 << 26) -> np.ndarray:
        """Sum the rows of a table ``(T, F)`` over the classes of each configuration: ``(C, F)``.

        Rows are added in order of the sets; the working memory for one chunk changes no value.
        """
        num_sets, num_configs = self.index.shape
        step = max(1, chunk_bytes // (24 * max(1, num_sets)))
        chunks = [slice(start, start + step) for start in range(0, num_configs, step)]
        return np.concatenate([self.picks(chunk) @ table for chunk in chunks])


class GroupSets:
    """The distinct sets of groups among M sets; groups with one option are left out, they divide nothing.

    Args:
        members: ``(M, G)`` matrix, not zero where a group is in a set.
        options: ``(G,)`` number of options of each group.

    Attributes:
        index: ``(M,)`` int64, distinct set of each of the M, numbered by first occurrence, 0 to Q - 1.
        num_sets: Q.
    """

    def __init__(self, members: sparse.csr_matrix, options: np.ndarray):
        rows, groups = members.nonzero()
        varies = options[groups] > 1
        members = sparse.csr_matrix(
            (np.ones(varies.sum(), np.int64), (rows[varies], groups[varies])), shape=members.shape
        )
        number: dict[bytes, int] = {}
        sets = (members.indices[start:stop].tobytes() for start, stop in pairwise(members.indptr))
        self.index = np.array([number.setdefault(key, len(number)) for key in sets], np.int64)
        self._members = members[np.unique(self.index, return_index=True)[1]]
        self._options = options
        self._bits = np.array([int(count - 1).bit_length() for count in options], np.int64)
        self.num_sets = len(number)
        self._known_steps: dict[int, list[_Step]] = {}

    def take(self, rows: np.ndarray) -> "GroupSets":
        """Return the sets at the positions ``rows`` ``(n,)`` of the M."""
        used, index = np.unique(self.index[rows], return_inverse=True)
        part = copy(self)
        part.index = index
        part.num_sets = len(used)
        part._members, part._known_steps = self._members[used], {}
        return part

    def union(self, part: np.ndarray) -> "GroupSets":
        """Return a set of groups for each of J parts of the M, the union of the sets of its entries.

        ``part`` ``(M,)`` is the part of each entry, 0 to J - 1, each of them at least once.
        """
        pairs = (np.ones(len(part), np.int64), (part, self.index))
        members = sparse.csr_matrix(pairs, shape=(int(part.max()) + 1, self.num_sets)) @ self._members
        return GroupSets(sparse.csr_matrix(members), self._options)

    def classes(self, values: np.ndarray) -> Classes:
        """Divide configurations into the classes that agree on each set, in no particular order within one.

        ``values`` ``(C, G)`` has the option that each configuration chooses for each group.
        """
        num_configs = len(values)
        choices = np.ascontiguousarray(np.asarray(values).T, np.int64)
        class_bits = num_configs.bit_length()
        index = np.zeros((self.num_sets, num_configs), np.int32)
        for rows, word in self._steps(class_bits):
            for start in range(0, len(rows), step := max(1, _BLOCK // num_configs)):
                block = rows[start : start + step]
                above = index[block].astype(np.int64) << (_KEY_BITS - class_bits)
                index[block] = _rank_rows(above | (word[start : start + step] @ choices))
        size = index.max(1, initial=-1) + 1
        first = np.concatenate([[0], np.cumsum(size, dtype=np.int64)])
        index += first[:-1, None].astype(np.int32)
        config = np.empty(first[-1], np.int64)
        config[index] = np.arange(num_configs)
        return Classes(index, first, config, np.bincount(index.ravel(), minlength=len(config)))

    def _steps(self, class_bits: int) -> list[_Step]:
        """Return how to number the classes of less than ``2**class_bits`` configurations, word by word.

        A word writes choices of a set into one number. A choice takes bits of its own, so words are equal if
        and only if the choices are. A key is a word below the class by the words before. A step has the
        ``(n,)`` sets and the ``(n, G)`` matrix that gives their words from choices.
        """
        if class_bits in self._known_steps:
            return self._known_steps[class_bits]
        bits = self._bits[self._members.indices]
        sizes = np.diff(self._members.indptr)
        stop = np.cumsum(bits)
        stop -= np.repeat(np.concatenate([[0], stop])[self._members.indptr[:-1]], sizes)
        spill = self._bits.max(initial=1)  # bits of a choice that begin in the word before
        width = _KEY_BITS - class_bits - spill
        word = (stop - 1) // width
        stop += spill * (word > 0) - word * width
        row = np.repeat(np.arange(self.num_sets), sizes)
        steps: list[_Step] = []
        for number in range(word.max(initial=-1) + 1):
            in_word = word == number
            used = np.zeros(self.num_sets, np.int64)
            np.maximum.at(used, row[in_word], stop[in_word])
            places = row[in_word], self._members.indices[in_word]
            matrix = sparse.csr_matrix((1 << (stop - bits)[in_word], places), shape=self._members.shape)
            rows = np.flatnonzero(used)
            steps.append((rows, matrix[rows]))
        self._known_steps[class_bits] = steps
        return steps


def _rank_rows(keys: np.ndarray) -> np.ndarray:
    """Return the position ``(Q, C)`` of each key among the distinct keys of its row, ascending."""
    order = np.argsort(keys, axis=1)
    ordered = np.take_along_axis(keys, order, 1)
    rank = np.zeros(keys.shape, np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=rank[:, 1:])
    positions = np.empty_like(rank)
    np.put_along_axis(positions, order, rank, 1)
    return positions


_LEARNED = 16  # rows that groups are divided by at once: the work is quadratic in them
_NONE = -1  # number of no layout


class ChoiceFinder:
    """Groups of tensors whose layouts determine each other in all configurations seen so far.

    Call :meth:`explain` and :meth:`add` for each chunk of configurations, and :meth:`finish` at the end.

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
        """Return the option ``(n, G)`` of each group from the numbers ``(n, T)`` int32 of tensors' layouts.

        Groups are divided, and options added, where that is needed.
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
                self.first = np.append(self.first, lead)
                self.options = np.append(self.options, 0)
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
