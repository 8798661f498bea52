"""Exact deduplication of (node, configuration) pairs into states.

After l message-passing layers a node's representation depends on the configuration only through the
configurable nodes within l hops, so most (node, configuration) pairs of a node share one. A *state* of level
l is such a class of pairs: a colour of Weisfeiler-Leman refinement that starts from (node, its configured
layouts). A network that computes states instead of pairs gives the same result for a fraction of the work.
``README.md`` beside this file has a drawing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Level:
    """The S states after some number of layers: those of the R varying nodes, then those of constant nodes.

    A node is *varying* if configurations can differ in its state, else *constant*.

    Args:
        node_ids: ``(S,)`` int64, node of each state; the states of a node are adjacent.
        multiplicity: ``(S,)`` int64, number of configurations that give the node this state; sums to C per
            node.
        table: ``(R, C)`` int32, state of each varying node (increasing node number) in each configuration.
        own: ``(S,)`` int64, the node's state one level below (level 0: the state's own position).
        operands: ``(S, S_below)`` CSR, row-normalised: mean over the states of the node's operands.
        users: ``(S, S_below)`` CSR, the same over the nodes that consume its output.
    """

    node_ids: np.ndarray
    multiplicity: np.ndarray
    table: np.ndarray
    own: np.ndarray
    operands: sparse.csr_matrix | None = None
    users: sparse.csr_matrix | None = None


@dataclass(frozen=True)
class States:
    """The states of one graph under C configurations, level by level.

    Args:
        levels: Level 0 (before any message) to level ``num_layers``.
        state_config: ``(S_0,)`` int64, one configuration that has each state of level 0.
        config_row: ``(S_0,)`` int64, position in ``config_index`` of each state's node, -1 where the node is
            not configurable.
        pooling: ``(C, S)`` CSR of ones, the varying states of the last level in each configuration.
        num_constant: Number of constant states: the last ones of the last level, part of every configuration.
        num_nodes: N.
        num_configs: C.
    """

    levels: list[Level]
    state_config: np.ndarray
    config_row: np.ndarray
    pooling: sparse.csr_matrix
    num_constant: int
    num_nodes: int
    num_configs: int


@dataclass(frozen=True)
class _Assignment:
    """State of a (node, configuration) pair: a table for varying nodes, one state for each constant one."""

    varying_ids: np.ndarray  # (R,) varying nodes, increasing
    table: np.ndarray  # (R, C) state of each
    constant: np.ndarray  # (N,) state of each constant node, -1 elsewhere

    def lookup(self, node_ids: np.ndarray, configs: np.ndarray) -> np.ndarray:
        states = self.constant[node_ids]
        varying = states < 0
        rows = np.searchsorted(self.varying_ids, node_ids[varying])
        states[varying] = self.table[rows, configs[varying]]
        return states


def _mix(values: np.ndarray, salt: int) -> np.ndarray:
    """Hash 64-bit integers (splitmix64, Steele et al. 2014), so that sums of hashes distinguish multisets."""
    x = values.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _group(
    varying_ids: np.ndarray, num_nodes: int, keys_of: Callable[[int], np.ndarray]
) -> tuple[_Assignment, np.ndarray, np.ndarray, np.ndarray]:
    """Number the distinct keys of each row consecutively over all rows, then the constant nodes.

    Args:
        varying_ids: ``(R,)`` nodes of the rows.
        num_nodes: N.
        keys_of: Returns ``(R, C)`` uint64 hashes for a salt.

    Returns:
        The assignment, and for each state ``(S,)`` its node, multiplicity and a configuration that has it.
    """
    for attempt in count():
        keys, check = keys_of(2 * attempt), keys_of(2 * attempt + 1)
        order = np.argsort(keys, axis=1, kind="stable")
        in_order = np.take_along_axis(keys, order, 1)
        check = np.take_along_axis(check, order, 1)
        differs = in_order[:, 1:] != in_order[:, :-1]
        # a second, independent hash must change exactly where the first does: otherwise two states collided
        if np.array_equal(differs, check[:, 1:] != check[:, :-1]):
            break
    starts = np.ones(keys.shape, bool)
    starts[:, 1:] = differs
    table = np.empty(keys.shape, np.int32)
    np.put_along_axis(table, order, (np.cumsum(starts, dtype=np.int32) - 1).reshape(keys.shape), 1)
    rows = np.nonzero(starts)[0]
    multiplicity = np.diff(np.append(np.flatnonzero(starts), starts.size))
    constant_ids = np.setdiff1d(np.arange(num_nodes), varying_ids, assume_unique=True)
    constant = np.full(num_nodes, -1, np.int64)
    constant[constant_ids] = len(rows) + np.arange(len(constant_ids))
    return (
        _Assignment(varying_ids, table, constant),
        np.concatenate([varying_ids[rows], constant_ids]),
        np.concatenate([multiplicity, np.full(len(constant_ids), keys.shape[1])]),
        np.concatenate([order[starts], np.zeros(len(constant_ids), np.int64)]),
    )


def _aggregate(
    adjacency: sparse.csr_matrix,
    node_ids: np.ndarray,
    configs: np.ndarray,
    below: _Assignment,
    num_below: int,
):
    """Return the row-normalised ``(S, S_below)`` matrix along one direction of the edges."""
    degree = np.diff(adjacency.indptr)[node_ids]
    first = adjacency.indptr[node_ids]
    indptr = np.concatenate([[0], np.cumsum(degree)])
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - first, degree)
    neighbours = adjacency.indices[position]
    states = below.lookup(neighbours, np.repeat(configs, degree))
    weights = np.repeat(1.0 / np.maximum(degree, 1), degree).astype(np.float32)
    return sparse.csr_matrix((weights, states, indptr), shape=(len(node_ids), num_below))


def build_states(
    edge_index: np.ndarray, num_nodes: int, config_index: np.ndarray, codes: np.ndarray, num_layers: int
) -> States:
    """Compute the states of a graph under a set of configurations.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        config_index: ``(K,)`` configurable nodes, distinct.
        codes: ``(C, K, 3)`` unsigned integers below 2**16, layout codes of the configurations.
        num_layers: Number of message-passing layers, 0 or more.

    Returns:
        The states of levels 0 to ``num_layers``. Exact: two pairs of a node share a state of level l if and
        only if they agree on the codes of every configurable node within l hops, in either edge direction.
    """
    edges = np.ones(len(edge_index), np.uint64), (edge_index[:, 0], edge_index[:, 1])
    operands = sparse.csr_matrix(edges, shape=(num_nodes, num_nodes))
    users = operands.T.tocsr()

    order = np.argsort(config_index)
    triple = codes[:, order].astype(np.uint64)
    triple = (triple[..., 0] << np.uint64(32)) | (triple[..., 1] << np.uint64(16)) | triple[..., 2]
    assignment, node_ids, multiplicity, state_config = _group(
        np.asarray(config_index, np.int64)[order], num_nodes, lambda salt: _mix(triple.T, salt)
    )
    row_of = np.full(num_nodes, -1, np.int64)
    row_of[config_index] = np.arange(len(config_index))
    levels = [Level(node_ids, multiplicity, assignment.table, own=np.arange(len(node_ids)))]
    config_row = row_of[node_ids]
    for _ in range(num_layers):
        assignment, level = _next_level(operands, users, assignment, num_below=len(levels[-1].node_ids))
        levels.append(level)
    num_constant = int((assignment.constant >= 0).sum())
    pooling = _pooling(levels[-1])
    return States(levels, state_config, config_row, pooling, num_constant, num_nodes, len(codes))


def _next_level(
    operands: sparse.csr_matrix, users: sparse.csr_matrix, below: _Assignment, num_below: int
) -> tuple[_Assignment, Level]:
    """Return the level above: the states after one more layer of messages."""
    num_nodes = len(below.constant)
    from_operands, from_users = operands[:, below.varying_ids], users[:, below.varying_ids]
    reached = (from_operands.getnnz(1) > 0) | (from_users.getnnz(1) > 0)
    reached[below.varying_ids] = True
    above_ids = np.flatnonzero(reached)
    keys = _message_keys(from_operands[above_ids], from_users[above_ids], below, above_ids)
    above, node_ids, multiplicity, configs = _group(above_ids, num_nodes, keys)
    return above, Level(
        node_ids,
        multiplicity,
        above.table,
        below.lookup(node_ids, configs),
        _aggregate(operands, node_ids, configs, below, num_below),
        _aggregate(users, node_ids, configs, below, num_below),
    )


def _message_keys(operands, users, below: _Assignment, above_ids: np.ndarray):
    """Return the hash function of the next level: own state, multisets of operand states and of user states.

    Constant neighbours add the same to every configuration of a node and are left out.
    """
    has_own = np.isin(above_ids, below.varying_ids)  # both increasing, the latter a subset of the former

    def keys(salt: int) -> np.ndarray:
        own = np.zeros((len(above_ids), below.table.shape[1]), np.uint64)
        own[has_own] = _mix(below.table, 3 * salt)
        return own + operands @ _mix(below.table, 3 * salt + 1) + users @ _mix(below.table, 3 * salt + 2)

    return keys


def _pooling(level: Level) -> sparse.csr_matrix:
    num_rows, num_configs = level.table.shape
    states, shape = level.table.T.ravel(), (num_configs, len(level.node_ids))
    indptr = np.arange(num_configs + 1) * num_rows
    return sparse.csr_matrix((np.ones(len(states), np.float32), states, indptr), shape=shape)


def select_states(states: States, configs: np.ndarray) -> States:
    """Select the states of some of the configurations: several times faster than to build them again.

    Args:
        states: The states of a graph.
        configs: ``(C',)`` positions of configurations, in any order.

    Returns:
        What :func:`build_states` gives for these configurations, up to the order of a node's states.
    """
    levels: list[Level] = []
    number = np.zeros(0, np.int64)  # the new number of each state that is kept
    for level in states.levels:
        table, size = level.table[:, configs], len(level.node_ids)
        count = np.bincount(table.ravel(), minlength=size)
        count[size - (states.num_nodes - len(table)) :] = len(configs)  # the constant states
        kept, below, number = np.flatnonzero(count), number, np.cumsum(count > 0) - 1
        own, links = np.arange(len(kept)), ()
        if levels:
            own = below[level.own[kept]]
            links = [_relink(side[kept], below, levels[-1]) for side in (level.operands, level.users)]
        levels.append(Level(level.node_ids[kept], count[kept], number.astype(np.int32)[table], own, *links))
    first = levels[0]
    state_config = np.zeros(len(first.node_ids), np.int64)
    state_config[first.table] = np.arange(len(configs))
    row_of = np.empty(states.num_nodes, np.int64)
    row_of[states.levels[0].node_ids] = states.config_row
    return replace(
        states,
        levels=levels,
        state_config=state_config,
        config_row=row_of[first.node_ids],
        pooling=_pooling(levels[-1]),
        num_configs=len(configs),
    )


def _relink(rows: sparse.csr_matrix, number: np.ndarray, below: Level) -> sparse.csr_matrix:
    """Return the matrix with its columns, states of the level below, renumbered."""
    shape = (rows.shape[0], len(below.node_ids))
    return sparse.csr_matrix((rows.data, number[rows.indices], rows.indptr), shape=shape)
