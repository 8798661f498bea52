"""Sums over the tensors of a configuration, computed from its tied choices.

What is summed over tensors, or over pairs of tensors, has one value for each option of their group (or pair
of groups). So it is summed within each group once per option, and a configuration picks one of these sums per
group: C x G additions in place of C x K.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from fastslow.choices.tied_choices import Choices, distinct_rows
from fastslow.features.config_tensors import config_chunks


def choice_sums(
    choices: Choices,
    nodes: np.ndarray,
    roles: np.ndarray,
    terms: Callable[[np.ndarray, np.ndarray], np.ndarray],
    chunk_bytes: int = 1 << 24,
) -> np.ndarray:
    """Sum terms of items over all items, for every configuration.

    Args:
        choices: The C configurations.
        nodes: ``(I, n)`` the n tensors whose layouts an item depends on: positions of configurable nodes.
        roles: ``(I, n)`` and roles, 0 to 2.
        terms: Maps items ``(R,)`` and codes of their tensors' layouts ``(R, n)`` to terms ``(R, M)`` float64.
            Whole numbers below 2**53: then their sums are exact, in any order.
        chunk_bytes: Working memory for one chunk of configurations; changes no value.

    Returns:
        ``(C, M)`` float64.
    """
    groups = choices.group[nodes, roles]
    first, kind = distinct_rows(groups.T, len(groups))
    options = choices.options[groups].astype(np.int64)
    states = options.prod(1)
    item = np.repeat(np.arange(len(groups)), states)
    state = np.arange(len(item)) - np.repeat(np.cumsum(states) - states, states)
    step = options[:, ::-1].cumprod(1)[:, ::-1] // options  # the last of the n options varies fastest
    option = state[:, None] // step[item] % options[item]
    values = terms(item, choices.codes[nodes[item], roles[item], option])
    start = np.cumsum(states[first]) - states[first]
    to_sum = np.ones(len(item)), (start[kind[item]] + state, np.arange(len(item)))
    sums = sparse.csr_array(to_sum, shape=(states[first].sum(), len(item))) @ values
    varies = states[first] > 1
    constant = sums[start[~varies]].sum(0)
    first, start = first[varies], start[varies]
    return constant + _pick(choices.values, groups[first], step[first], start, sums, chunk_bytes)


def _pick(values, groups, step, start, sums, chunk_bytes: int) -> np.ndarray:
    """Sum one row of ``sums`` (S, M) per kind of item, ``start + values[:, groups] @ step``: (C, M)."""
    total = np.empty((len(values), sums.shape[1]))
    for chunk in config_chunks(len(values), 24 * len(groups), chunk_bytes):
        row = np.asarray(values[chunk]).astype(np.int32)
        picks = start.astype(np.int32) + sum(
            row[:, column] * weight for column, weight in zip(groups.T, step.T.astype(np.int32), strict=True)
        )
        starts = np.arange(len(row) + 1, dtype=np.int32) * np.int32(len(groups))
        ones = np.ones(picks.size)
        total[chunk] = sparse.csr_array((ones, picks.ravel(), starts), (len(row), len(sums))) @ sums
    return total
