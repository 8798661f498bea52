"""Tied choices: the few choices that a layout configuration really makes.

The layouts of TpuGraphs are not chosen node by node. Tensors of ``node_config_feat`` (a node's output, input
or kernel) whose layouts determine each other over all configurations of a file form a *group*; a
configuration is one choice per group. The real files have 17 to 55 groups where they have up to 2,500
tensors, so what depends on the layouts of a group alone is computed once per option of the group.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fastslow.competition.layouts import ROLES


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
        codes: np.ndarray = self.codes[nodes, roles, self.values[rows][:, self.group]]
        return codes


def distinct_rows(columns: Iterable[np.ndarray], num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a table of whole numbers, without sorting rows as such.

    Args:
        columns: Columns ``(num_rows,)`` of whole numbers from 0; none at all make all rows equal.
        num_rows: Number of rows.

    Returns:
        ``(D,)`` first row of each kind, kinds in lexicographic order, and ``(num_rows,)`` kind of each row,
        both int64.
    """
    key, kinds = np.zeros(num_rows, np.int64), 1  # a row as one number, as far as it fits in 63 bits
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if kinds * width > np.iinfo(np.int64).max:
            distinct, key = np.unique(key, return_inverse=True)
            kinds = len(distinct)
        if width > 1:
            key, kinds = key * width + column, kinds * width
    return np.unique(key, return_index=True, return_inverse=True)[1:]


def no_choices(num_configs: int) -> Choices:
    """Return the choices of configurations that give no tensor a layout, as a tile kernel's do."""
    return Choices(
        values=np.zeros((num_configs, 0), np.uint8),
        group=np.zeros((0, len(ROLES)), np.int32),
        codes=np.zeros((0, len(ROLES), 1), np.uint16),
        options=np.zeros(0, np.int32),
    )
