"""The best split of one order of the units into runs, one run a device, by dynamic programming.

PipeDream and DPL (Tarnawski et al. 2020) split one topological order; their exact programme runs over all
ideals of the graph, exponentially many. *Throughput*: the largest load is minimised, the runs of accelerators
and of CPUs come in any order. *Latency*: the sum of the runs' times, which is the latency if nothing
overlaps, and no less than it otherwise; between the runs of accelerators any number of units run on the CPU.

An order of more than ``most`` units is cut only where few transfers cross, once in each of ``most`` stretches
of about equal work, so that time and memory are bounded: ``most`` ** 2 runs.
"""

import numpy as np

from fastslow_placement.base.problem import midpoints
from fastslow_placement.partition.partition import Workload


class ContiguousSplit:
    """Dynamic programme over orders of one workload's units.

    Args:
        workload: The instance.
        objective: ``throughput`` or ``latency``.
        most: Largest number of places to cut at.
    """

    def __init__(self, workload: Workload, objective: str = "throughput", most: int = 600):
        self.workload, self.objective, self.most = workload, objective, most
        units, count = workload.units, int(workload.units.max()) + 1
        self._time = np.bincount(
            units, np.where(np.isfinite(workload.accelerator), workload.accelerator, 0), count
        )
        self._only_cpu = np.bincount(units, ~np.isfinite(workload.accelerator), count)
        self._cpu = np.bincount(units, workload.cpu, count)
        self._size = np.bincount(units, workload.size, count)
        # (producer, unit that makes or needs its output), for producers that several units touch
        ends = [np.stack([workload.edges[:, 0], units[workload.edges[:, side]]], 1) for side in (0, 1)]
        rows = np.unique(np.concatenate(ends), axis=0).reshape(-1, 2)
        rows = rows[np.bincount(rows[:, 0], minlength=len(workload))[rows[:, 0]] > 1]
        self._producer, self._unit = rows[:, 0], rows[:, 1]

    def split(self, order: np.ndarray) -> np.ndarray:
        """Return the device of each unit: (U,), from ``devices`` on CPUs.

        Where the limit of memory leaves no split of this order, all units get the first device.
        """
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        block = self._blocks(order, place)[place]
        ends = np.arange(block.max() + 2)
        runs, on_cpu = self._runs(block, len(ends) - 1)
        runs[ends[None] <= ends[:-1, None]] = np.inf
        walk = _largest if self.objective == "throughput" else _summed
        return walk(runs, on_cpu, self.workload.devices, self.workload.cpus)[block]

    def _blocks(self, order: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return which block each place of the order belongs to: (U,); a block is never cut."""
        count = len(order)
        if count <= self.most:
            return np.arange(count)
        places, first, last, cost = self._touched(place)
        crossing = np.zeros(count + 1)
        np.add.at(crossing, places[first] + 1, cost)
        np.add.at(crossing, places[last] + 1, -cost)
        crossing = crossing.cumsum()[1:-1]  # where a cut after each place but the last would be
        stretch = (midpoints(self._time[order] + self._time.mean() + 1e-300) * self.most).astype(np.int64)[
            :-1
        ]
        cheapest = np.lexsort((crossing, stretch))
        cheapest = cheapest[np.unique(stretch[cheapest], return_index=True)[1]]
        starts = np.zeros(count, np.int64)
        starts[cheapest + 1] = 1
        return starts.cumsum()

    def _touched(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the places that touch each producer in turn, which are its first and its last, its cost."""
        places = place[self._unit]
        order = np.lexsort((places, self._producer))
        producer = self._producer[order]
        change = np.flatnonzero(np.diff(producer)) + 1
        first, last = np.concatenate([[0], change]), np.concatenate([change, [len(producer)]]) - 1
        if not len(producer):
            first = last = change
        return places[order], first, last, self.workload.transfer[producer[first]]

    def _runs(self, block: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the load of each run [begin, end) of blocks on an accelerator, (B, B + 1), and on a CPU.

        A transfer counts in a run that holds some, but not all, of the units that make or need the output.
        """
        places, first, last, cost = self._touched(block)
        each = np.repeat(cost, last - first + 1)
        before = np.concatenate([[-1], places[:-1]]) if len(places) else places
        before[first] = -1
        wide = count + 2
        corners = [  # begin in (before, place] and end > place; all of them: begin <= first, end > last
            ((before + 1) * wide + places + 1, each),
            ((places + 1) * wide + places + 1, -each),
            (places[last] + 1, -cost),
            ((places[first] + 1) * wide + places[last] + 1, cost),
        ]
        where, value = (np.concatenate(column) for column in zip(*corners, strict=True))
        table = np.bincount(where, value, (count + 1) * wide).reshape(count + 1, wide)
        table = (
            table.astype(float).cumsum(0).cumsum(1)[:count, : count + 1]
        )  # integers where there is no pair
        time, size, other, cpu = (
            np.concatenate([[0.0], np.cumsum(np.bincount(block, column, count))])
            for column in (self._time, self._size, self._only_cpu, self._cpu)
        )
        table += time[None] - time[:count, None]
        too_large = size[None] - size[:count, None] > self.workload.memory * (1 + 1e-12)
        table[too_large | (other[None] > other[:count, None])] = np.inf
        return np.maximum(table, 0), cpu[None] - cpu[:count, None]


def _largest(runs: np.ndarray, on_cpu: np.ndarray, devices: int, cpus: int) -> np.ndarray:
    """Return the device of each block with the smallest largest run: (B,)."""
    count = len(runs)
    forbidden = np.arange(count + 1)[None] <= np.arange(count)[:, None]
    tables = {"accelerator": runs, "cpu": np.where(forbidden, np.inf, on_cpu)}
    best: dict[tuple[int, int], np.ndarray] = {}

    def before(k: int, c: int) -> dict:
        return {"accelerator": (k - 1, c), "cpu": (k, c - 1)}

    for c in range(cpus + 1):
        for k in range(devices + 1):
            value = np.full(count + 1, np.inf)
            value[0] = 0.0
            for kind, state in before(k, c).items():
                if state in best:
                    reached = np.maximum(best[state][:count, None], tables[kind]).min(0)
                    value = np.minimum(np.minimum(value, reached), best[state])
            best[k, c] = value
    split, end, k, c = np.zeros(count, np.int64), count, devices, cpus
    while end and np.isfinite(best[k, c][end]):
        k, c, end = _step_back(best, tables, before(k, c), split, (k, c, end), devices)
    return split


def _step_back(best, tables, before: dict, split: np.ndarray, state: tuple, devices: int) -> tuple:
    """Undo the last run of a state (accelerators, CPUs, end), or leave a device empty; return the state
    before.
    """
    k, c, end = state
    for fewer_k, fewer_c in before.values():
        if (fewer_k, fewer_c) in best and best[fewer_k, fewer_c][end] <= best[k, c][end]:
            return fewer_k, fewer_c, end
    for kind, (fewer_k, fewer_c) in before.items():
        if (fewer_k, fewer_c) in best:
            reached = np.maximum(best[fewer_k, fewer_c][: len(split)], tables[kind][:, end])
            begin = int(reached.argmin())
            if reached[begin] <= best[k, c][end]:
                split[begin:end] = k - 1 if kind == "accelerator" else devices + c - 1
                return fewer_k, fewer_c, begin
    raise AssertionError("a state has a state before it")


def _summed(runs: np.ndarray, on_cpu: np.ndarray, devices: int, cpus: int) -> np.ndarray:
    """Return the device of each block with the smallest sum of runs; ``devices`` is the CPU: (B,)."""
    count = len(runs)
    alone = on_cpu[0] if cpus else np.concatenate([[0.0], np.full(count, np.inf)])
    values, begins = [alone], []
    places = np.arange(count + 1)
    for _ in range(devices):
        reached = values[-1][:count, None] + runs
        begin = reached.argmin(0)
        value = np.minimum(reached[begin, places], values[-1])
        if cpus:  # from the end of the last run on, units run on the CPU
            value = np.minimum.accumulate(value - alone) + alone
        values.append(value)
        begins.append(begin)
    split, end, k = np.full(count, devices if cpus else 0), count, devices
    while k and np.isfinite(values[k][end]):
        fewer, begin = values[k - 1], begins[k - 1][end]
        if fewer[end] <= values[k][end] + 1e-9:
            k -= 1
        elif end and fewer[begin] + runs[begin, end] <= values[k][end] + 1e-9:
            split[begin:end] = k - 1
            k, end = k - 1, int(begin)
        else:
            end -= 1
    return split
