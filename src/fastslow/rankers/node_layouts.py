"""The distinct layouts that each configurable node takes on, and which of them a configuration picks.

A node takes few layouts however many configurations there are, so what depends on a node and its layouts
alone is computed once per distinct (node, output, input, kernel layout) and summed per configuration by a
sparse (C, S) matrix with a one for every node.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from fastslow.competition.schema import ROLES
from fastslow.features.config_tensors import config_chunks


class LayoutStates:
    """The S distinct (node, layouts) states among the configurations of a graph.

    Which states there are, and their order, depends neither on the order of the configurations nor on how
    often one occurs.

    Args:
        codes: (C, K, 3) position of every tensor's layout; may be memory-mapped, read in chunks.
        num_layouts: Number of layouts L that a code may name.
        nodes: Positions of the nodes to look at, of K; all of them unless told.
        chunk_bytes: Working memory for one chunk of configurations; changes no value.

    Attributes:
        node: (S,) position of each state's node, ascending.
        codes: (S, 3) its layouts.
    """

    def __init__(
        self,
        codes: np.ndarray,
        num_layouts: int,
        nodes: np.ndarray | None = None,
        chunk_bytes: int = 1 << 26,
    ):
        self._codes, self._num_layouts, self._chunk_bytes = codes, num_layouts, chunk_bytes
        self._nodes = np.arange(codes.shape[1]) if nodes is None else np.asarray(nodes)
        self._steps: list[np.ndarray] = []
        self._reached: tuple[np.ndarray, int] = (np.arange(len(self._nodes)), 0)
        self.node, self.codes = self._nodes, np.zeros((len(self._nodes), 0), np.int64)
        for role in range(len(ROLES)):
            # A state so far and the next role's layout give a slot; the slots that occur are the new states.
            taken = np.zeros(len(self.node) * num_layouts, bool)
            for chunk, state in self._index():
                taken[self._slots(chunk, state, role)] = True
            slots = np.flatnonzero(taken)
            self._steps.append((np.cumsum(taken) - 1).astype(np.int32))
            before, code = np.divmod(slots, num_layouts)
            self.node = self.node[before]
            self.codes = np.column_stack([self.codes[before], code])

    def __len__(self) -> int:
        """S."""
        return len(self.node)

    def _slots(self, chunk: slice, state: np.ndarray, role: int) -> np.ndarray:
        """The slot of each node's state so far and the layout of its next role, (chunk, nodes)."""
        code = self._codes[chunk][:, self._nodes, role]
        return np.multiply(state, self._num_layouts, dtype=np.intp) + code

    def _index(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Chunks of configurations with the states so far of their nodes, (chunk, nodes)."""
        chunks = list(config_chunks(len(self._codes), 48 * len(self._nodes), self._chunk_bytes))
        for chunk in chunks:
            state, roles = self._reached
            for role in range(roles, len(self._steps)):
                state = self._steps[role].take(self._slots(chunk, state, role))
            if len(chunks) == 1:  # the next role, or the sum, goes on from here
                self._reached = state, len(self._steps)
            yield chunk, state

    def sum(self, table: np.ndarray) -> np.ndarray:
        """Sum over the nodes of the rows of their states.

        Args:
            table: (S, F) float64.

        Returns:
            (C, F) float64. The order of summation is that of the nodes in every configuration.
        """
        sums = np.zeros((len(self._codes), table.shape[1]))
        for chunk, index in self._index():
            starts = np.arange(len(index) + 1) * index.shape[1]
            picks = sparse.csr_array(
                (np.ones(index.size), index.ravel(), starts), shape=(len(index), len(table))
            )
            sums[chunk] = picks @ table
        return sums
