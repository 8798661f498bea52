"""Exact deduplication of states: each distinct (node, configuration) representation once.

After l layers of message passing a node's representation depends on the configuration only through
the configurable nodes within l hops, so most (node, configuration) pairs share one. A *state* of level
l is such a class of pairs of one node; a network that computes states instead of pairs gives the same
result for a small share of the work.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Level:
    """The states after one number of layers, sorted: first those of varying nodes, then constant ones.

    Args:
        node_ids: ``(S,)`` int64, the node each state belongs to; states of a node are neighbours.
        multiplicity: ``(S,)`` int64, how many configurations give the node this state; sums to C a node.
        table: ``(R, C)`` int32, the state of each varying node, by increasing number, in each configuration.
        own: ``(S,)`` int64, the node's state one level below (level 0: its own position).
        operands: ``(S, S_below)`` CSR, row-normalised: mean over the states of the node's operands.
        users: The same over the nodes that consume its output.
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
        levels: Level 0 (no message passed) to level ``depth``.
        state_config: ``(S_0,)`` int64, a configuration that gives each state of level 0.
        config_row: ``(S_0,)`` int64, position in ``config_index`` of each state's node, -1 where the
            node is not configurable.
        pooling: ``(C, S)`` CSR of ones, the varying states of the last level that make up a configuration.
        num_constant: Number of constant states, at the end of the last level, which every configuration has.
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
    """Which state each (node, configuration) has: a table for varying nodes, one state for the others."""

    varying_ids: np.ndarray  # (R,) nodes with more than one possible state, increasing
    table: np.ndarray  # (R, C) state
    constant: np.ndarray  # (N,) state of each constant node, -1 elsewhere

    def lookup(self, node_ids: np.ndarray, configs: np.ndarray) -> np.ndarray:
        states = self.constant[node_ids]
        varying = states < 0
        rows = np.searchsorted(self.varying_ids, node_ids[varying])
        states[varying] = self.table[rows, configs[varying]]
        return states


def _mix(values: np.ndarray, salt: int) -> np.ndarray:
    """splitmix64's finaliser: spreads 64-bit integers so that sums of them tell multisets apart."""
    x = values.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _group(
    varying_ids: np.ndarray, num_nodes: int, keys_of: Callable[[int], np.ndarray]
) -> tuple[_Assignment, np.ndarray, np.ndarray, np.ndarray]:
    """Number the distinct keys of every row over all rows, then the constant nodes.

    Args:
        varying_ids: ``(R,)`` nodes of the rows.
        num_nodes: N.
        keys_of: Function of a salt that gives ``(R, C)`` uint64 keys.

    Returns:
        The assignment, and ``(S,)`` of each state: node, multiplicity, a configuration that has it.
    """
    for attempt in count():
        keys, check = keys_of(2 * attempt), keys_of(2 * attempt + 1)
        order = np.argsort(keys, axis=1, kind="stable")
        in_order = np.take_along_axis(keys, order, 1)
        check = np.take_along_axis(check, order, 1)
        differs = in_order[:, 1:] != in_order[:, :-1]
        # a second, independent key must change exactly where the first does: else two states collided
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
    adjacency: sparse.csr_matrix, node_ids: np.ndarray, configs: np.ndarray, below: _Assignment, width: int
):
    """Row-normalised matrix from the states below to these states along one direction of edges."""
    degree = np.diff(adjacency.indptr)[node_ids]
    first = adjacency.indptr[node_ids]
    indptr = np.concatenate([[0], np.cumsum(degree)])
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - first, degree)
    neighbours = adjacency.indices[position]
    states = below.lookup(neighbours, np.repeat(configs, degree))
    weights = np.repeat(1.0 / np.maximum(degree, 1), degree).astype(np.float32)
    return sparse.csr_matrix((weights, states, indptr), shape=(len(node_ids), width))


def build_states(
    edge_index: np.ndarray, num_nodes: int, config_index: np.ndarray, codes: np.ndarray, depth: int
) -> States:
    """The states of a graph under a set of configurations.

    Args:
        edge_index: ``(E, 2)``; row ``(u, v)``: u consumes v's output.
        num_nodes: N.
        config_index: ``(K,)`` configurable nodes, distinct.
        codes: ``(C, K, 3)`` layout codes of the configurations.
        depth: Number of message-passing layers, 0 or more.

    Returns:
        States of levels 0 to ``depth``. Exact: two pairs of a node share a state of level l if and only if
        they agree on the codes of every configurable node within l hops, either way along the edges.
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
    for _ in range(depth):
        assignment, level = _next_level(operands, users, assignment, width=len(levels[-1].node_ids))
        levels.append(level)
    num_constant = int((assignment.constant >= 0).sum())
    pooling = _pooling(levels[-1])
    return States(levels, state_config, config_row, pooling, num_constant, num_nodes, len(codes))


def _next_level(
    operands: sparse.csr_matrix, users: sparse.csr_matrix, below: _Assignment, width: int
) -> tuple[_Assignment, Level]:
    """One more layer of messages, from ``width`` states below."""
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
        _aggregate(operands, node_ids, configs, below, width),
        _aggregate(users, node_ids, configs, below, width),
    )


def _message_keys(operands, users, below: _Assignment, above_ids: np.ndarray):
    """Keys of the next level: own state, multiset of operand states, multiset of user states.

    Neighbours that do not vary add the same to every configuration of a node and are left out.
    """
    has_own = np.isin(above_ids, below.varying_ids)  # both increasing, the latter a part of the former

    def keys(salt: int) -> np.ndarray:
        own = np.zeros((len(above_ids), below.table.shape[1]), np.uint64)
        own[has_own] = _mix(below.table, 3 * salt)
        return own + operands @ _mix(below.table, 3 * salt + 1) + users @ _mix(below.table, 3 * salt + 2)

    return keys


def _pooling(level: Level) -> sparse.csr_matrix:
    num_rows, num_configs = level.table.shape
    states, width = level.table.T.ravel(), len(level.node_ids)
    indptr = np.arange(num_configs + 1) * num_rows
    return sparse.csr_matrix((np.ones(len(states), np.float32), states, indptr), shape=(num_configs, width))


def select_states(states: States, configs: np.ndarray) -> States:
    """The states under some of the configurations, without hashing: several times faster than anew.

    Args:
        states: The states of a graph.
        configs: ``(C',)`` positions of configurations, any order.

    Returns:
        What :func:`build_states` gives for these configurations, but for the order of a node's states.
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
    """The matrix with its columns, old states below, numbered anew."""
    shape = (rows.shape[0], len(below.node_ids))
    return sparse.csr_matrix((rows.data, number[rows.indices], rows.indptr), shape=shape)
