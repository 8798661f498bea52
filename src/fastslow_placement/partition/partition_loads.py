"""Loads of devices for batches of splits, and the order of a workload's units."""

import numpy as np

from fastslow_placement.partition.partition import Workload


class Loads:
    """Loads of the devices for batches of splits; what does not depend on the split is computed once.

    Args:
        workload: The instance.
    """

    def __init__(self, workload: Workload):
        self.workload = workload
        self.total = workload.devices + workload.cpus
        self.count = int(workload.units.max()) + 1
        self._time = np.bincount(workload.units, workload.accelerator, self.count)
        self._cpu = np.bincount(workload.units, workload.cpu, self.count)
        self._size = np.bincount(workload.units, workload.size, self.count)
        # distinct (producer, consumer's unit): a producer is sent once however many nodes of a unit need it
        rows = np.stack([workload.edges[:, 0], workload.units[workload.edges[:, 1]]], 1)
        rows = rows[workload.units[rows[:, 0]] != rows[:, 1]] if len(rows) else rows
        self._rows = np.unique(rows, axis=0).reshape(-1, 2)
        self._senders, self._sender = np.unique(self._rows[:, 0], return_inverse=True)

    def loads(self, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return load and memory of every device.

        Args:
            splits: (B, U) devices of the units; from ``devices`` on they are CPUs.

        Returns:
            Loads (B, devices + cpus), infinite where a node is not supported, and bytes (B, devices).
        """
        work, splits = self.workload, np.asarray(splits)
        batch, total = len(splits), self.total
        on_cpu = splits >= work.devices
        key = (splits + np.arange(batch)[:, None] * total).ravel()
        time = np.where(on_cpu, self._cpu, self._time).ravel()
        loads = np.bincount(key, time, batch * total).reshape(batch, total)
        sizes = np.broadcast_to(self._size, splits.shape).ravel()
        memory = np.bincount(key, sizes, batch * total).reshape(batch, total)[:, : work.devices]
        loads[:, : work.devices] += self._transfers(splits)[:, : work.devices]
        return loads, memory

    def _transfers(self, splits: np.ndarray) -> np.ndarray:
        """Return the time of transfers into and out of each device, each producer once: (B, devices +
        cpus).
        """
        batch, work, senders = len(splits), self.workload, self._senders
        home = splits[:, work.units[senders]]  # (B, S)
        needs = np.zeros((batch, len(senders), self.total), bool)
        target = splits[:, self._rows[:, 1]]
        needs[np.arange(batch)[:, None], self._sender[None, :], target] = True
        local = np.arange(self.total) == home[:, :, None]
        needs &= ~local
        needs |= local & needs.any(2, keepdims=True)  # sending counts at the producer's device as well
        return np.einsum("bsd,s->bd", needs, work.transfer[senders])


def depth_first_order(workload: Workload) -> np.ndarray:
    """Return the units such that each stands right before what needs it: (U,) int64.

    The postorder of a depth-first walk from the last units to what they need, the deepest first, so that few
    outputs are in use between two neighbours and a weight stands just before its use. The backward pass,
    whose nodes share units with the forward pass, is walked the other way. Without cycles between units the
    order is topological.
    """
    units, backward = workload.units, workload.backward
    count = int(units.max()) + 1
    ahead = workload.edges[~backward[workload.edges].any(1)]
    back = workload.edges[backward[workload.edges].all(1)][::-1, ::-1]
    depth = np.zeros(len(workload), np.int64)
    for before, after in [*ahead[np.argsort(ahead[:, 1], kind="stable")].tolist(), *_by_last(back)]:
        depth[after] = max(depth[after], depth[before] + 1)
    deepest = np.zeros(count, np.int64)
    np.maximum.at(deepest, units, depth)
    pairs = units[np.concatenate([ahead, back])]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).reshape(-1, 2)
    needs: list[list[int]] = [[] for _ in range(count)]
    for before, after in pairs[np.argsort(-deepest[pairs[:, 0]], kind="stable")].tolist():
        needs[after].append(before)
    last = np.bincount(pairs[:, 0], minlength=count) == 0
    return _postorder(needs, np.lexsort((deepest, ~last)).tolist())


def _by_last(back: np.ndarray) -> list[list[int]]:
    """Return reversed edges of the backward pass, those into later nodes first."""
    return back[np.argsort(-back[:, 1], kind="stable")].tolist()


def _postorder(needs: list[list[int]], roots: list[int]) -> np.ndarray:
    """Return all nodes, each after those that it needs (but for cycles)."""
    seen, order = [False] * len(needs), []
    for root in roots:
        if seen[root]:
            continue
        seen[root] = True
        stack = [(root, iter(needs[root]))]
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if not seen[other]:
                    seen[other] = True
                    stack.append((other, iter(needs[other])))
                    break
            else:
                order.append(node)
                stack.pop()
    return np.array(order, np.int64)
