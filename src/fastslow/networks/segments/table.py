"""The historical table of Graph Segment Training: what each segment added when it was last learned from.

A configuration reaches a segment only through the groups of tied choices that the segment's nodes see, so the
table has a row for each *distinct* state of a segment; the published one has a row for every configuration.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class GraphTable:
    """The table of one graph: J segments, T distinct segment states, P D channels, L layers.

    Args:
        sums: ``(T, P D)`` float32, what a segment in this state adds to the sums over the nodes.
        written: ``(T,)`` bool, rows that were written.
        moments: ``(J, L, 2, D)`` float32, mean and variance of a segment's states at the input of each norm.
        known: ``(J,)`` bool, segments whose moments were written.
    """

    sums: np.ndarray
    written: np.ndarray
    moments: np.ndarray
    known: np.ndarray

    @classmethod
    def empty(cls, rows: int, segments: int, channels: int, layers: int, hidden: int) -> "GraphTable":
        """Return a table in which nothing is known. Rows take no memory before they are written.

        Args:
            rows: Number of states of segments, of all of a graph's configurations.
            segments: Number of segments.
            channels: Channels of the readout.
            layers: Number of norms.
            hidden: Channels of a norm.
        """
        return cls(
            np.zeros((rows, channels), np.float32),
            np.zeros(rows, bool),
            np.zeros((segments, layers, 2, hidden), np.float32),
            np.zeros(segments, bool),
        )

    def write(self, segment: int, rows: np.ndarray, sums: np.ndarray, moments: np.ndarray) -> None:
        """Write what a segment adds under some configurations.

        Args:
            segment: Number of the segment.
            rows: ``(C,)`` row of each configuration; configurations of a row have equal sums.
            sums: ``(C, P D)`` float64.
            moments: ``(L, 2, D)``.
        """
        self.sums[rows], self.written[rows] = sums, True
        self.moments[segment], self.known[segment] = moments, True

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the fields for a checkpoint, each with its shape; ``sums`` has the written rows only."""
        stored = {**vars(self), "sums": self.sums[self.written]}
        return {field: torch.from_numpy(array) for field, array in stored.items()}

    @classmethod
    def of_state(cls, state: dict[str, torch.Tensor]) -> "GraphTable":
        """Return the table of which :meth:`state_dict` returned the state."""
        arrays = {field: tensor.numpy() for field, tensor in state.items()}
        written = arrays["written"]
        sums = np.zeros((len(written), arrays["sums"].shape[1]), np.float32)
        sums[written] = arrays["sums"]
        return cls(**{**arrays, "sums": sums})
