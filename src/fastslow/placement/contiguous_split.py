"""The best contiguous split of one order of the units, by dynamic programming (as PipeDream and DPL).

The exact programme over all ideals of the graph (Tarnawski et al. 2020) has exponentially many states; over
one
topological order there are U ** 2 / 2 runs.
"""

import numpy as np

from fastslow.placement.public_problems import PartitionProblem


def run_loads(problem: PartitionProblem) -> np.ndarray:
    """Return the load of each run of units, infinite where it exceeds the memory: (U, U + 1), [begin,
    end).
    """
    workload, count = problem.workload, len(problem.choices)
    units = problem._position_of[workload.units]
    work = np.concatenate([[0.0], np.cumsum(problem.work)])
    size = np.concatenate([[0.0], np.cumsum(np.bincount(units, workload.size, count))])
    begin, end = np.meshgrid(np.arange(count), np.arange(count + 1), indexing="ij")
    loads = work[end] - work[begin]
    crossing = np.zeros((count + 1, count + 1))
    touched: dict[int, set[int]] = {}
    for producer, consumer in workload.edges.tolist():
        touched.setdefault(producer, {int(units[producer])}).add(int(units[consumer]))
    for producer, places in touched.items():
        # a transfer counts in a run that holds some, but not all, of the units that make or need the output
        _add_touching(crossing, sorted(places), workload.transfer[producer], count)
    loads = loads + crossing[:count]
    loads[(size[end] - size[begin] > workload.memory) | (end <= begin)] = np.inf
    return loads


def _add_touching(table: np.ndarray, places: list[int], cost: float, count: int) -> None:
    """Add a cost to every run [begin, end) that holds at least one of the places but not all."""
    if len(places) < 2:
        return
    bounds = [-1, *places]
    for before, place in zip(
        bounds, places, strict=False
    ):  # begin in (before, place], first place in the run
        table[before + 1 : place + 1, place + 1 :] += cost
    table[: places[0] + 1, places[-1] + 1 :] -= cost


def contiguous_optimum(problem: PartitionProblem) -> np.ndarray:
    """Return the split of the problem's order into at most k runs with the smallest largest load: (U,)."""
    loads, count = run_loads(problem), len(problem.choices)
    k = problem.workload.devices
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    links = np.zeros((k, count + 1), np.int64)
    for device in range(k):
        candidates = np.maximum(best[:count, None], loads)
        arg = candidates.argmin(0)
        value = candidates[arg, np.arange(count + 1)]
        stay = best <= value
        links[device] = np.where(stay, np.arange(count + 1), arg)
        best = np.where(stay, best, value)
    decision, end = np.zeros(count, np.int64), count
    for device in range(k - 1, -1, -1):
        begin = links[device, end]
        decision[begin:end] = device
        end = int(begin)
    return decision
