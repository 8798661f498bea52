"""The tied choices of whole arrays: the reference of what the reader finds as it streams."""

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.tied_choices import Choices


def factorise(codes: np.ndarray) -> Choices:
    """Find the tied choices of configurations that are held whole.

    Args:
        codes: ``(C, K, 3)`` unsigned layout codes, C at least 1.

    Returns:
        The choices: two tensors share a group if and only if equal layouts of one mean equal layouts of the
        other in every pair of configurations.
    """
    num_configs, num_nodes, num_roles = codes.shape
    columns = codes.reshape(num_configs, num_nodes * num_roles)
    number = np.zeros(columns.shape, np.int64)  # each column's values by first occurrence
    tables = []
    for column, values in enumerate(columns.T):
        distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number[:, column] = np.argsort(order)[inverse]
        tables.append(distinct[order])
    patterns, first, group = np.unique(number, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    group, patterns = np.argsort(order)[group.ravel()], patterns[:, order]
    options = patterns.max(0, initial=0) + 1
    table = np.zeros((len(tables), options.max(initial=1)), np.uint16)
    for column, values in enumerate(tables):
        table[column, : len(values)] = values
    return Choices(
        values=patterns.astype(np.uint8 if options.max(initial=1) <= 256 else np.uint16),
        group=group.reshape(num_nodes, len(ROLES)).astype(np.int32),
        codes=table.reshape(num_nodes, len(ROLES), table.shape[1]),
        options=options.astype(np.int32),
    )
