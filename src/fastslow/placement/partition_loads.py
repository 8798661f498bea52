"""Loads of devices for batches of splits, and the order of a workload's units."""

import numpy as np

from fastslow.placement.partition import Workload


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


def contiguous_order(workload: Workload) -> np.ndarray:
    """Return the units from the input to the output of the network: (U,) int64.

    A forward node stands at its distance to the end of the forward pass, so that weights and constants come
    just
    before what needs them, a backward node at its distance from the start of the backward pass; a unit at the
    mean of its forward nodes, or of its backward nodes if it has no others.
    """
    count, backward = int(workload.units.max()) + 1, workload.backward
    time = np.where(np.isfinite(workload.accelerator), workload.accelerator, workload.cpu)
    time = time + 1e-9 * max(time.max(), 1.0)
    distance = time.copy()
    for producer, consumer in workload.edges[::-1].tolist():  # sorted by producer: the last ones first
        if not backward[consumer]:
            distance[producer] = max(distance[producer], time[producer] + distance[consumer])
    for producer, consumer in workload.edges.tolist():
        if backward[producer]:
            distance[consumer] = max(distance[consumer], distance[producer] + time[consumer])
    for kind in (backward, ~backward):
        distance[kind] /= distance[kind].max() if kind.any() else 1.0
    place = np.zeros(count)
    for kind in (backward, ~backward):
        members = np.bincount(workload.units[kind], minlength=count)
        mean = np.bincount(workload.units[kind], distance[kind], count) / np.maximum(members, 1)
        place = np.where(members > 0, mean, place)
    return np.argsort(-place, kind="stable")
