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
        row_step: ``(T,)`` int32, step at which a row was written; -1 for never.
        moments: ``(J, L, 2, D)`` float32, mean and variance of a segment's states at the input of each norm.
        known: ``(J,)`` bool, whether a segment's moments were written.
    """

    sums: np.ndarray
    row_step: np.ndarray
    moments: np.ndarray
    known: np.ndarray

    @classmethod
    def empty(cls, rows: int, segments: int, channels: int, layers: int, hidden: int) -> "GraphTable":
        """Return a table in which nothing is known. Rows take no memory before they are written."""
        return cls(
            np.zeros((rows, channels), np.float32),
            np.full(rows, -1, np.int32),
            np.zeros((segments, layers, 2, hidden), np.float32),
            np.zeros(segments, bool),
        )

    def write(self, segment: int, rows: np.ndarray, sums: np.ndarray, moments: np.ndarray, step: int) -> None:
        """Write what a segment adds under some configurations.

        Args:
            segment: Number of the segment.
            rows: ``(C,)`` row of each configuration; configurations of a row have equal sums.
            sums: ``(C, P D)`` float64.
            moments: ``(L, 2, D)``.
            step: Number of the optimiser's step.
        """
        self.sums[rows], self.row_step[rows] = sums, step
        self.moments[segment], self.known[segment] = moments, True


class SegmentTable:
    """The tables of all graphs, and the ages of the rows that were read in an epoch."""

    def __init__(self):
        self.graphs: dict[str, GraphTable] = {}
        self._ages: list[np.ndarray] = []
        self._wanted = 0

    def note(self, ages: np.ndarray, wanted: int) -> None:
        """Note the ages in steps of the (segment, configuration) pairs that were read, of ``wanted``."""
        self._ages.append(ages)
        self._wanted += wanted

    def summary(self) -> dict:
        """Return median and maximum age of what was read since the last call, and how much was never written.

        ``missing`` is the share of the (segment, configuration) pairs that were wanted and never written;
        ``rows`` the number of rows that are written.
        """
        ages = np.concatenate([*self._ages, np.zeros(0, np.int32)])
        wanted, self._ages, self._wanted = self._wanted, [], 0
        return {
            "age_median": float(np.median(ages)) if len(ages) else None,
            "age_max": int(ages.max()) if len(ages) else None,
            "missing": 1 - len(ages) / wanted if wanted else None,
            "rows": sum(int((table.row_step >= 0).sum()) for table in self.graphs.values()),
        }

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return a checkpoint of the tables: tensors by field by graph.

        ``sums`` has the written rows only; :meth:`load_state_dict` restores the others as 0.
        """
        return {
            name: {
                **{field: torch.from_numpy(array) for field, array in vars(table).items()},
                "sums": torch.from_numpy(table.sums[table.row_step >= 0]),
            }
            for name, table in self.graphs.items()
        }

    def load_state_dict(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.graphs = {}
        for name, stored in state.items():
            arrays = {field: tensor.numpy() for field, tensor in stored.items()}
            written, sums = arrays["row_step"] >= 0, arrays["sums"]
            arrays["sums"] = np.zeros((len(written), sums.shape[1]), sums.dtype)
            arrays["sums"][written] = sums
            self.graphs[name] = GraphTable(**arrays)
