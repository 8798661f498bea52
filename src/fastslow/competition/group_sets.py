"""Sets of groups of tied choices, and the classes of configurations that agree on all groups of a set.

What depends on the layouts of some tensors alone (a node's state, its cost, a copy between two nodes) is the
same for all configurations of a class. A graph has thousands of nodes but few distinct sets of groups.
"""

from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

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
        """Return one set of groups for each part of the M: the union of the sets of its entries.

        Args:
            part: ``(M,)`` part of each entry, 0 to J - 1, each of them at least once.

        Returns:
            The sets of the J parts.
        """
        pairs = (np.ones(len(part), np.int64), (part, self.index))
        members = sparse.csr_matrix(pairs, shape=(int(part.max()) + 1, self.num_sets)) @ self._members
        return GroupSets(sparse.csr_matrix(members), self._options)

    def classes(self, values: np.ndarray) -> Classes:
        """Divide configurations into the classes that agree on each set.

        Args:
            values: ``(C, G)`` option that each configuration chooses for each group.

        Returns:
            The classes; within a set they are in no particular order.
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
