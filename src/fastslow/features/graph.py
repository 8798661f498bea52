"""A program with its distinct configurations, ready for a model."""

from dataclasses import dataclass, replace

import numpy as np

from fastslow.competition.tied_choices import Choices
from fastslow.features.scaling import expand_node_features


@dataclass(frozen=True)
class Graph:
    """One program with its distinct configurations, ready for a model; see ``features/README.md``.

    Letters in shapes: N nodes, E edges, K configurable nodes (tile: none), P pairs, L distinct layouts, C
    distinct configurations, C_file configurations of the competition file, V configuration features.
    """

    name: str  # stem of the competition file
    node_feat: np.ndarray  # (N, 140) float32, pruned and padded, not scaled
    node_extra: np.ndarray  # (N, Y) float32, columns node_encodings.EXTRA_COLUMNS
    node_opcode: np.ndarray  # (N,) uint8
    edge_index: np.ndarray  # (E, 2) int32; row (u, v): u consumes v's output
    config_index: np.ndarray  # (K,) int32, node number of each configurable node
    tensor_sizes: np.ndarray  # (K, 3, 6) int32, sizes of output, input and kernel; 0 beyond the rank
    tensor_bytes: np.ndarray  # (K, 3) uint8, bytes per element of these tensors
    pairs: np.ndarray  # (P, 3) int32: producer and consumer of one tensor in config_index, consumer's role
    pair_axes: np.ndarray  # (P, 6) int8, the producer's axis that each axis of the consumer's tensor is
    layouts: np.ndarray  # (L, 6) int8, minor to major, -1 padded; row 0 all -1 (tile: that row only)
    default_layouts: np.ndarray  # (K, 3, 6) int8, the compiler's own layouts, -1 where not known
    choices: Choices  # the C configurations as tied choices: each tensor's position in layouts
    config_feat: np.ndarray  # (C, V) float32; of a folder, rows that are read when indexed
    runtime: np.ndarray  # (C,) float64 label: ns (sample: cycles), tile: over normalizer; a mean; 0 in test
    config_row: np.ndarray  # (C_file,) int32, row of each configuration of the file, numbered as they occur
    file_runtime: np.ndarray  # (C_file,) float64, runtime of each configuration of the file

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes after pruning."""
        return len(self.node_opcode)

    @property
    def num_configs(self) -> int:
        """C, the number of distinct configurations."""
        return len(self.runtime)

    @property
    def count(self) -> np.ndarray:
        """``(C,)`` number of configurations of the file that each row represents, 1 or more."""
        return np.bincount(self.config_row, minlength=self.num_configs)

    @property
    def config_ids(self) -> np.ndarray:
        """``(C,)`` position in the file of the first configuration that each row represents."""
        return np.unique(self.config_row, return_index=True)[1]

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Repeat values of the rows, ``(C, ...)``, for every configuration of the file, ``(C_file, ...)``."""
        return values[self.config_row]

    def take(self, rows: np.ndarray | slice) -> "Graph":
        """Return the graph with some of its rows, as if the file held these configurations only.

        Args:
            rows: Positions of rows, in any order, repeats allowed.
        """
        runtime = self.runtime[rows]
        return replace(
            self,
            choices=self.choices.take(rows),
            config_feat=self.config_feat[rows],
            runtime=runtime,
            config_row=np.arange(len(runtime), dtype=np.int32),
            file_runtime=runtime,
        )


def expand_nodes(graph: Graph) -> np.ndarray:
    """Return what a network may read of the nodes, ``(N, EXPANDED_NODE_FEATURES)`` float32."""
    return expand_node_features(graph.node_feat, graph.node_extra)
