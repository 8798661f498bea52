"""The distinct states of configured tensors, and which of them each configuration has.

A configurable node takes few combinations of layouts, however many configurations there are. What depends on
the layouts of a node (or of a pair of tensors) alone is therefore computed once per distinct combination, a
*state*, and summed for each configuration by a sparse (C, S) matrix with a one per item.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from fastslow.competition.schema import ROLES
from fastslow.features.config_tensors import config_chunks


def tensor_positions(nodes: np.ndarray, roles: np.ndarray | int) -> np.ndarray:
    """Return the positions of tensors among the 3 K of a graph, for :class:`LayoutStates`.

    Args:
        nodes: Positions of nodes, of K.
        roles: Their tensors: 0 output, 1 input, 2 kernel; broadcast against ``nodes``.
    """
    return np.asarray(nodes) * len(ROLES) + roles


def node_tensors(nodes: np.ndarray) -> np.ndarray:
    """Return the positions ``(M, 3)`` of output, input and kernel of M nodes."""
    return tensor_positions(np.asarray(nodes)[:, None], np.arange(len(ROLES)))


class LayoutStates:
    """The S distinct combinations of layouts of M items of D tensors each.

    Which states there are, and their order, depends neither on the order of the configurations nor on how
    often one occurs.

    Args:
        codes: ``(C, K, 3)`` index of every tensor's layout; may be memory-mapped, read in chunks.
        num_layouts: Number of layouts L that a code may refer to.
        tensors: ``(M, D)`` positions of each item's tensors, from :func:`tensor_positions`.
        chunk_bytes: Working memory for one chunk of configurations; changes no value.

    Attributes:
        item: ``(S,)`` item of each state, 0 to M - 1, ascending.
        codes: ``(S, D)`` its layouts, in lexicographic order within an item.
    """

    def __init__(self, codes: np.ndarray, num_layouts: int, tensors: np.ndarray, chunk_bytes: int = 1 << 26):
        self._codes, self._num_layouts, self._chunk_bytes = codes, num_layouts, chunk_bytes
        self._tensors = np.asarray(tensors, np.intp)
        items, depth = self._tensors.shape
        self._steps: list[np.ndarray] = []
        self._reached: tuple[np.ndarray, int] = (np.arange(items), 0)
        self.item, self.codes = np.arange(items), np.zeros((items, 0), np.int64)
        for step in range(depth):
            # a combination so far and the next layout give a slot; the slots that occur are the new ones
            taken = np.zeros(len(self.item) * num_layouts, bool)
            for chunk, state in self._index():
                taken[self._slots(chunk, state, step)] = True
            self._steps.append(np.cumsum(taken, dtype=np.int32) - 1)
            before, code = np.divmod(np.flatnonzero(taken), num_layouts)
            self.item = self.item[before]
            self.codes = np.column_stack([self.codes[before], code])

    def __len__(self) -> int:
        """Return S."""
        return len(self.item)

    def _slots(self, chunk: slice, state: np.ndarray, step: int) -> np.ndarray:
        """Return the slot (chunk, M) of each item's combination so far and the layout of its next tensor."""
        codes = self._codes[chunk]
        codes = codes.reshape(len(codes), codes.shape[1] * codes.shape[2]).take(self._tensors[:, step], 1)
        return np.multiply(state, self._num_layouts, dtype=np.intp) + codes

    def _index(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield chunks of configurations with the combination (chunk, M) of each item so far."""
        chunks = list(config_chunks(len(self._codes), 48 * len(self._tensors), self._chunk_bytes))
        for chunk in chunks:
            state, reached = self._reached
            for step in range(reached, len(self._steps)):
                state = self._steps[step].take(self._slots(chunk, state, step))
            if len(chunks) == 1:  # the next step, or the sum, continues from here
                self._reached = state, len(self._steps)
            yield chunk, state

    def _matrix(self, index: np.ndarray) -> sparse.csr_array:
        starts = np.arange(len(index) + 1) * index.shape[1]
        return sparse.csr_array((np.ones(index.size), index.ravel(), starts), shape=(len(index), len(self)))

    def matrix(self) -> sparse.csr_array:
        """Return the matrix ``(C, S)`` float64, 1 where a configuration has the state."""
        index = np.empty((len(self._codes), len(self._tensors)), np.int32)
        for chunk, state in self._index():
            index[chunk] = state
        return self._matrix(index)

    def sum(self, table: np.ndarray) -> np.ndarray:
        """Sum the rows of the states of each configuration.

        Args:
            table: ``(S, F)`` float64.

        Returns:
            ``(C, F)`` float64, summed in the order of the items.
        """
        sums = np.zeros((len(self._codes), table.shape[1]))
        for chunk, state in self._index():
            sums[chunk] = self._matrix(state) @ table
        return sums
