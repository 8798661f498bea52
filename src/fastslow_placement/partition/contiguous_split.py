"""The best split of one order of the units into runs, one run a device, by dynamic programming.

PipeDream and DPL (Tarnawski et al. 2020) split one topological order; their exact programme runs over all
ideals of the graph, exponentially many. The largest load is minimised; the runs of accelerators and of CPUs
come in any order. An order of more than ``most`` units is cut only where few transfers cross, once in each of
``most`` stretches of about equal work, so that time and memory are bounded: ``most`` ** 2 runs.
"""

import numpy as np

from fastslow_placement.base.problem import midpoints
from fastslow_placement.partition.workload import Workload


def contiguous_split(workload: Workload, order: np.ndarray, most: int = 600) -> np.ndarray:
    """Return the device of each unit: (U,), from ``devices`` on CPUs.

    Where the limit of memory leaves no split of this order, all units get the first device.

    Args:
        workload: The instance.
        order: (U,) its units.
        most: Largest number of places to cut at.
    """
    place = np.argsort(order)
    block = _blocks(workload, order, place, most)[place]
    runs, on_cpu = _runs(workload, block, int(block.max()) + 1)
    return _smallest(runs, on_cpu, workload.devices, workload.cpus)[block]


def _blocks(workload: Workload, order: np.ndarray, place: np.ndarray, most: int) -> np.ndarray:
    """Return which block each place of the order belongs to: (U,); a block is never cut."""
    count = len(order)
    if count <= most:
        return np.arange(count)
    places, first, last, cost = _touched(workload, place)
    crossing = np.zeros(count + 1)
    np.add.at(crossing, places[first] + 1, cost)
    np.add.at(crossing, places[last] + 1, -cost)
    crossing = crossing.cumsum()[1:-1]  # where a cut after each place but the last would be
    time = np.where(np.isfinite(workload.of_units[0]), workload.of_units[0], 0)
    stretch = (midpoints(time[order] + time.mean() + 1e-300) * most).astype(np.int64)[:-1]
    cheapest = np.lexsort((crossing, stretch))
    cheapest = cheapest[np.unique(stretch[cheapest], return_index=True)[1]]
    starts = np.zeros(count, np.int64)
    starts[cheapest + 1] = 1
    return starts.cumsum()


def _touched(workload: Workload, place: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the places that touch each producer in turn, which are its first and its last, its cost."""
    producer, unit = workload.touches
    places = place[unit]
    places = places[np.lexsort((places, producer))]
    first = np.flatnonzero(np.diff(producer, prepend=-1))
    last = np.append(first[1:], len(producer))[: len(first)] - 1
    return places, first, last, workload.transfer[producer[first]]


def _runs(workload: Workload, block: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the load of each run [begin, end) of blocks on an accelerator and on a CPU: (B, B + 1) each.

    A transfer counts in a run that holds some, but not all, of the units that make or need the output. An
    empty run, and one that does not fit, is infinite.
    """
    places, first, last, cost = _touched(workload, block)
    each = np.repeat(cost, last - first + 1)
    before = np.append(-1, places)[: len(places)]
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
    table = table.astype(float).cumsum(0).cumsum(1)[:count, : count + 1]  # integers where there is no pair

    def of_runs(column: np.ndarray) -> np.ndarray:
        sums = np.append(0.0, np.cumsum(np.bincount(block, column, count)))
        return sums[None] - sums[:count, None]

    time, cpu, size = workload.of_units
    supported = np.isfinite(time)
    table = np.maximum(table + of_runs(np.where(supported, time, 0)), 0)
    empty = np.arange(count + 1)[None] <= np.arange(count)[:, None]
    too_large = of_runs(size) > workload.memory * (1 + 1e-12)
    unfit = empty | too_large | (of_runs(~supported) > 0)
    return np.where(unfit, np.inf, table), np.where(empty, np.inf, of_runs(cpu))


def _smallest(runs: np.ndarray, on_cpu: np.ndarray, devices: int, cpus: int) -> np.ndarray:
    """Return the device of each block with the smallest largest run: (B,)."""
    count = len(runs)
    best: dict[tuple[int, int], np.ndarray] = {}  # by accelerators and CPUs: largest run up to each end

    def steps(k: int, c: int) -> list[tuple]:
        """Return the states with a device less, the table of that device's runs, and the device."""
        fewer = ((k - 1, c), runs, k - 1), ((k, c - 1), on_cpu, devices + c - 1)
        return [step for step in fewer if step[0] in best]

    for c in range(cpus + 1):
        for k in range(devices + 1):
            value = np.full(count + 1, np.inf)
            value[0] = 0.0
            for state, table, _ in steps(k, c):
                reached = np.maximum(best[state][:count, None], table).min(0)
                value = np.minimum(np.minimum(value, reached), best[state])
            best[k, c] = value
    split, end, state = np.zeros(count, np.int64), count, (devices, cpus)
    while end and np.isfinite(best[state][end]):
        before = steps(*state)
        spare = next((fewer for fewer, _, _ in before if best[fewer][end] <= best[state][end]), None)
        if spare is not None:  # a device is left empty
            state = spare
            continue
        reached = [np.maximum(best[fewer][:count], table[:, end]) for fewer, table, _ in before]
        last = next(i for i, values in enumerate(reached) if values.min() <= best[state][end])
        begin = int(reached[last].argmin())
        split[begin:end], state, end = before[last][2], before[last][0], begin
    return split
