"""Predictions for a large configuration set in one pass: layer by layer, some nodes at a time.

A block of nodes under all configurations holds every state of its nodes, so the softmax of cross-config
attention is complete within it, and a norm needs one statistic of the level below. Each distinct state of
the whole set is computed once, where chunks of configurations (``chunked_prediction.py``) compute it in each
chunk and in each of several passes. Memory: the states of one level, the sums of the classes, and a block.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fastslow.networks.hardware.devices import ran_out_of_memory
from fastslow.networks.model.graph_batch import Batch, LevelTensors, PreparedGraph, level_tensors
from fastslow.networks.model.layers import pooled_states
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.settings.inputs import POOLS, Pooling
from fastslow.networks.states.config_states import Level, Reach
from fastslow.networks.states.set_statistics import Moments, Statistic
from fastslow.networks.states.sparse import SparseOperator, largest_rows

BLOCK_STATES = {"cpu": 1 << 15, "cuda": 1 << 19}
"""States of a block, by type of device: on a CPU few enough to stay in its caches."""
_PICKS = 1 << 22  # entries of the matrix that gives configurations their classes, at a time
_HEAD_ROWS = 1 << 13


def computes_by_nodes(network: RankingNetwork) -> bool:
    """Return whether each node's states need only its neighbours' states."""
    layers = network.architecture
    local = not layers.input_attention and layers.block == "attention"
    return local and layers.num_layers > 0


def predict_by_nodes(
    network: RankingNetwork,
    prepared: PreparedGraph,
    configs: np.ndarray,
    device: torch.device,
    max_bytes: int,
    block_states: int | None = None,
) -> Tensor | None:
    """Predict a configuration set, each configuration compared with the whole set.

    Args:
        network: A network in evaluation mode.
        prepared: A layout graph.
        configs: ``(C,)`` positions of the configurations.
        device: Device of the network.
        max_bytes: Bound on what is held besides a block: states of a level and sums of classes.
        block_states: States of a block, at least the states of one node; by default :data:`BLOCK_STATES`.

    Returns:
        ``(C,)`` predictions, equal to the predictions of one batch up to float32 rounding; None beyond
        ``max_bytes``, where memory runs out, and for a network that :func:`computes_by_nodes` refuses.
    """
    if not computes_by_nodes(network):
        return None
    try:
        return _predict(network, prepared, configs, device, max_bytes, block_states)
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        return None


@torch.no_grad()
def _predict(
    network: RankingNetwork,
    prepared: PreparedGraph,
    configs: np.ndarray,
    device: torch.device,
    max_bytes: int,
    block_states: int | None,
) -> Tensor | None:
    reach = prepared.reach(network.num_layers)
    levels = reach.unlinked(np.asarray(prepared.graph.choices.values[configs]))
    if _held_bytes(levels, network.architecture.hidden_channels) > max_bytes:
        return None
    degrees = prepared.degrees()
    block_states = block_states or BLOCK_STATES[device.type]
    below = level_tensors(levels[0], len(configs), degrees, differentiable=False).to(device)
    x, embedding = _embed(network, prepared, prepared.state_features(levels[0], configs), below)
    root = np.arange(len(x))  # of each state the state of level 0 below it
    for number, block in enumerate(network.trunk.blocks):
        lower, level = levels[number : number + 2]
        moments = block.norm.moments(x, below)
        last = number + 1 == network.num_layers
        pools = [_pool_of(part, level, len(configs)) for part in network.head.readout.parts]
        above = None
        above_root = np.empty(len(level), np.int64)
        for nodes, part, needed in _parts(reach, level, lower, block_states):
            tensors = level_tensors(part, len(configs), degrees[nodes], differentiable=False).to(device)
            chosen = torch.from_numpy(needed).to(device)
            under = replace(below, share=below.share[chosen], node_ids=below.node_ids[chosen])
            below_embedding = embedding[torch.from_numpy(root[needed]).to(device)]
            y = block(x[chosen], below_embedding, under, tensors, partial(_complete, moments))
            if last:
                configurable = prepared.configurable[nodes].to(device)[tensors.node_ids, None]
                for pool, pooling in zip(pools, network.head.readout.parts, strict=True):
                    pool.add(nodes, pooled_states(y, pooling, configurable), tensors)
                continue
            place = np.arange(len(part)) + (level.start[nodes] - part.start[:-1])[part.node_ids]
            above = y.new_empty(len(level), y.shape[1]) if above is None else above
            above[torch.from_numpy(place).to(device)] = y
            above_root[place] = root[needed[part.itself]]
        if not last:
            x, root = above, above_root
            below = level_tensors(level, len(configs), degrees, differentiable=False).to(device)
    sums = torch.cat([pool.per_config() for pool in pools], 1)
    pooled = network.head.readout.of_sums(sums, prepared.configurable.to(device))
    return _read_out(network, pooled, prepared.config_features(configs).to(device))


def _held_bytes(levels: list[Level], channels: int) -> int:
    """Return the bytes of two levels of float32 states and of the sums of classes."""
    return 4 * channels * (len(levels[-1].classes) + 2 * max(map(len, levels[:-1]), default=0))


def _embed(network: RankingNetwork, prepared: PreparedGraph, states, level: LevelTensors):
    """Return the embeddings of the states of level 0, and the embeddings of their configuration."""
    parts = (prepared.numeric, prepared.node_layout, prepared.opcode, *states)
    numeric, node_layout, opcode, *layouts = (part.to(level.node_ids.device) for part in parts)
    # of level 0 alone, nothing is pooled or scored
    nothing = {"pooling": None, "config_feat": None, "runtime": None, "configurable": None}
    return network.trunk.embed(Batch(numeric, node_layout, opcode, *layouts, levels=[level], **nothing))


def _complete(moments: Moments, part: Statistic) -> Statistic:
    """Return the moments of the whole level below; a softmax of whole nodes is complete as it is."""
    return moments if isinstance(part, Moments) else part


def _node_blocks(level: Level, block_states: int) -> Iterator[np.ndarray]:
    """Yield nodes in order of their sets of groups, in blocks whose last states fall into one run of so many.

    A block has at most so many states more than its first node.
    """
    order = np.argsort(level.set_index, kind="stable")
    block = (np.cumsum(np.diff(level.start)[order]) - 1) // block_states
    yield from np.split(order, np.flatnonzero(np.diff(block)) + 1)


def _parts(
    reach: Reach, level: Level, below: Level, block_states: int
) -> Iterator[tuple[np.ndarray, Level, np.ndarray]]:
    """Yield blocks of nodes, their part of the level, and the states below that it needs."""
    for nodes in _node_blocks(level, block_states):
        yield nodes, *_only_needed(reach.link(level, below, nodes))


def _only_needed(part: Level) -> tuple[Level, np.ndarray]:
    """Return a level whose links count only the states below that it is linked to, and these states."""
    sides = part.operands, part.users
    linked = np.zeros(sides[0].shape[1], bool)
    for index in (part.itself, *(side.indices for side in sides)):
        linked[index] = True
    needed = np.flatnonzero(linked)
    number = np.cumsum(linked) - 1
    shape = len(part), len(needed)
    sides = (sparse.csr_matrix((s.data, number[s.indices], s.indptr), shape=shape) for s in sides)
    return Level(part.classes, part.set_index, number[part.itself], *sides), needed


class _Pool:
    """Pools the nodes of each configuration, block after block.

    Args:
        level: The last level.
        num_configs: C.
    """

    def __init__(self, level: Level, num_configs: int):
        self._level, self._num_configs = level, num_configs

    def _by_set(self, nodes: np.ndarray, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield the classes of each set among nodes in order of their sets, and their states.

        The states are ``(n, classes, D)``, of the n nodes that see the set.
        """
        start = 0
        sets, counts = np.unique(self._level.set_index[nodes], return_counts=True)
        for number, count in zip(sets, counts, strict=True):
            rows = slice(*self._level.classes.start[number : number + 2].tolist())
            size = rows.stop - rows.start
            yield rows, x[start : start + count * size].view(count, size, -1)
            start += count * size

    def _picks(self) -> Iterator[SparseOperator]:
        """Yield the matrices that give some configurations at a time their classes."""
        classes = self._level.classes
        step = max(1, _PICKS // len(classes.size))
        for start in range(0, self._num_configs, step):
            yield SparseOperator(classes.picks(slice(start, start + step)), differentiable=False)


class _Sums(_Pool):
    """Sums the nodes of each configuration, as :class:`~fastslow.networks.model.layers.Readout` does."""

    def __init__(self, level: Level, num_configs: int):
        super().__init__(level, num_configs)
        self._shared: Tensor | None = None  # (D,) what all configurations share
        self._classes: Tensor | None = None  # (T, D) what the configurations of a class add

    def add(self, nodes: np.ndarray, x: Tensor, tensors: LevelTensors) -> None:
        """Add the states of nodes that are in order of their sets."""
        if self._classes is None:
            self._shared = x.new_zeros(x.shape[1], dtype=torch.float64)
            self._classes = x.new_zeros(len(self._level.classes), x.shape[1], dtype=torch.float32)
        mean = tensors.per_node @ x
        self._shared += mean.sum(0, dtype=torch.float64)
        for rows, varying in self._by_set(nodes, x - mean[tensors.node_ids]):
            self._classes[rows] += varying.sum(0)

    def per_config(self) -> Tensor:
        """Return the sums ``(C, D)`` float64."""
        device = self._classes.device
        return torch.cat([self._shared + picks.to(device) @ self._classes for picks in self._picks()])


class _Maxima(_Pool):
    """Takes the maximum over the nodes of each configuration, channel by channel."""

    def __init__(self, level: Level, num_configs: int):
        super().__init__(level, num_configs)
        self._classes: Tensor | None = None  # (T, D) maximum over the nodes that see the class's set

    def add(self, nodes: np.ndarray, x: Tensor, tensors: LevelTensors) -> None:
        """Add the states of nodes that are in order of their sets."""
        if self._classes is None:
            shape = len(self._level.classes), x.shape[1]
            self._classes = x.new_full(shape, -torch.inf, dtype=torch.float32)
        for rows, states in self._by_set(nodes, x.float()):
            self._classes[rows] = torch.maximum(self._classes[rows], states.amax(0))

    def per_config(self) -> Tensor:
        """Return the maxima ``(C, D)`` float64."""
        device = self._classes.device
        parts = [largest_rows(picks.to(device), self._classes) for picks in self._picks()]
        return torch.cat(parts).double()


def _pool_of(part: Pooling, level: Level, num_configs: int) -> _Sums | _Maxima:
    """Return what pools the nodes as a part of the readout asks."""
    return _Maxima(level, num_configs) if POOLS[part.pool].largest else _Sums(level, num_configs)


def _read_out(network: RankingNetwork, pooled: Tensor, config_feat: Tensor) -> Tensor:
    joined = network.head.join(pooled, config_feat)
    mean = joined.mean(0)
    moments = Moments(len(joined), mean, (joined - mean).square().mean(0))
    complete = partial(_complete, moments)
    return torch.cat([network.head.read_out(part, complete) for part in joined.split(_HEAD_ROWS)])
