"""A split of a workload that knows its loads while units move between devices."""

import numpy as np

from fastslow_placement.partition.partition import Workload


class SplitState:
    """Devices of the units, and loads and memory of the devices, kept up to date.

    A move costs time in proportion to the transfers that touch the unit, whatever the size of the workload.
    The loads are those of :class:`fastslow_placement.partition.partition_loads.Loads`, but for units that an
    accelerator does not support, which take it no time here.

    Args:
        workload: The instance.
        split: (U,) device of each unit; from ``devices`` on they are CPUs.
    """

    def __init__(self, workload: Workload, split: np.ndarray):
        self.accelerators, self.devices = workload.devices, workload.devices + workload.cpus
        units, count = workload.units, int(workload.units.max()) + 1
        times = np.where(np.isfinite(workload.accelerator), workload.accelerator, 0), workload.cpu
        self._time = [np.bincount(units, time, count).tolist() for time in times]
        self._size = np.bincount(units, workload.size, count).tolist()
        self._touched, self._cost = _transfers(workload)
        self._transfers_of: list[list[int]] = [[] for _ in range(count)]
        self.near: list[dict[int, float]] = [{} for _ in range(count)]
        """Neighbours of each unit, and the cost of the transfers that both touch."""
        for number, members in enumerate(self._touched):
            for unit in members:
                self._transfers_of[unit].append(number)
            for one, other in zip(members, members[1:] + members[:1], strict=True):  # a ring of a large set
                for a, b in ((one, other), (other, one)):
                    self.near[a][b] = self.near[a].get(b, 0.0) + self._cost[number]
        self.reset(split)

    def reset(self, split: np.ndarray) -> None:
        """Take another split."""
        self.device = np.asarray(split).tolist()
        self.load, self.memory = [0.0] * self.devices, [0.0] * self.devices
        for unit, device in enumerate(self.device):
            self.load[device] += self._time[device >= self.accelerators][unit]
            self.memory[device] += self._size[unit]
        self._inside = [[0] * self.devices for _ in self._touched]  # units per transfer and device
        for number, members in enumerate(self._touched):
            inside = self._inside[number]
            for unit in members:
                inside[self.device[unit]] += 1
            if sum(map(bool, inside)) > 1:
                for device in range(self.accelerators):
                    self.load[device] += self._cost[number] * bool(inside[device])
        self._places = [sum(map(bool, inside)) for inside in self._inside]

    def move(self, unit: int, target: int) -> None:
        """Give a unit to a device."""
        source, load, k = self.device[unit], self.load, self.accelerators
        if source == target:
            return
        self.device[unit] = target
        load[source] -= self._time[source >= k][unit]
        load[target] += self._time[target >= k][unit]
        self.memory[source] -= self._size[unit]
        self.memory[target] += self._size[unit]
        for number in self._transfers_of[unit]:
            inside, cost, before = self._inside[number], self._cost[number], self._places[number]
            inside[source] -= 1
            gone, new = not inside[source], not inside[target]
            inside[target] += 1
            after = self._places[number] = before + new - gone
            if before > 1 and gone and source < k:
                load[source] -= cost
            if before == 1 and after > 1 and source < k:
                load[source] += cost
            if target < k:
                if after > 1 and (new or before == 1):
                    load[target] += cost
                elif after == 1 and before > 1 and not new:
                    load[target] -= cost


def _transfers(workload: Workload) -> tuple[list[list[int]], list[float]]:
    """Return the units that touch each output which several touch, and its cost; equal sets are one."""
    touched: dict[int, set[int]] = {}
    for producer, consumer in workload.edges.tolist():
        own = touched.setdefault(producer, {int(workload.units[producer])})
        own.add(int(workload.units[consumer]))
    costs: dict[tuple, float] = {}
    for producer, members in touched.items():
        if len(members) > 1 and workload.transfer[producer]:
            key = tuple(sorted(members))
            costs[key] = costs.get(key, 0.0) + float(workload.transfer[producer])
    return [list(key) for key in costs], list(costs.values())
