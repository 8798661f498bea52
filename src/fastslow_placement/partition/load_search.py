"""Search of splits by moves of connected regions, compiled (numba).

The largest load counts, but few moves touch it. So annealing lowers a power mean of the loads, in rounds of
rising power and falling temperature, each from the best split so far. A move changes only the loads of
what it moves, so it takes microseconds. Regions grow as those of ``programs/simulation``; numba's cache needs
kernels that call each other in one file, so both files have the two functions.
"""

from typing import NamedTuple

import numpy as np

from fastslow_placement.base.jit import njit
from fastslow_placement.base.problem import adjacent
from fastslow_placement.base.search import Found
from fastslow_placement.partition.problems import PartitionProblem

_POWERS, _HEATS = (8.0, 16.0, 32.0), (0.03, 0.01, 0.003)  # first temperatures over the cost
_MANY = 50  # of more units each is a smaller share of the cost, and so are the temperatures
_COOLING = 1e-2  # last temperature of a round over its first
_LARGEST = 64  # units of a region
_FOLLOW = 0.7  # how often the new device is that of a neighbour


class _Units(NamedTuple):
    """The U units of a workload, and the S outputs that several of them touch, as arrays.

    Args:
        begins: (U + 1,) where the outputs that each unit touches begin.
        outputs: Outputs that the units touch.
        transfer: (S,) time of the transfer of each output.
        time: (U, devices + cpus) time of each unit, infinite where it is not supported.
        size: (U,) bytes.
        around: (U + 1,) where the neighbours of each unit begin.
        near: Neighbours of all units.
    """

    begins: np.ndarray
    outputs: np.ndarray
    transfer: np.ndarray
    time: np.ndarray
    size: np.ndarray
    around: np.ndarray
    near: np.ndarray


def move_regions(problem: PartitionProblem, start: np.ndarray, moves: int, seed: int = 0) -> Found:
    """Return the best split of an annealing of regions; the start where that is not valid.

    Args:
        problem: The problem.
        start: (U,) first split.
        moves: Number of moves that are tried.
        seed: Seed of the moves.
    """
    found = Found.of(problem, start)
    if not np.isfinite(found.cost) or problem.choices[0] < 2:
        return found
    units, workload, rng = _units(problem), problem.workload, np.random.default_rng(seed)
    rounds = [(power, heat) for power in _POWERS for heat in _HEATS]
    for power, heat in rounds:
        count = max(moves // len(rounds), 1)
        given = units, workload.devices, float(workload.memory), found.decision.astype(np.int64)
        split = _anneal(*given, count, power, heat, rng)
        found.evaluations += count - 1
        found.see(split[None], problem.evaluate(split[None]).order)
    return found


def _units(problem: PartitionProblem) -> _Units:
    workload, count = problem.workload, len(problem.choices)
    accelerator, cpu, size = workload.of_units
    producers, unit = workload.touches
    senders, output = np.unique(producers, return_inverse=True)
    around, near, _ = adjacent(problem.edges, problem.weight, count)
    return _Units(
        begins=np.append(0, np.cumsum(np.bincount(unit, minlength=count))),
        outputs=output[np.argsort(unit, kind="stable")],
        transfer=workload.transfer[senders].astype(np.float64),
        time=np.stack([accelerator] * workload.devices + [cpu] * workload.cpus, 1),
        size=size.astype(np.float64),
        around=around,
        near=near,
    )


@njit(cache=True)
def _anneal(units, accelerators, limit, start, moves, power, heat, rng):
    """Return the split of the smallest largest load of a round: (U,)."""
    count, devices = units.time.shape
    split, best = start.copy(), start.copy()
    load, held, touching, spread = _state(units, accelerators, split)
    lowest = load.max()
    cost = _mean(load, power)
    hot = heat * cost * min(1.0, _MANY / count)
    region, inside = np.empty(_LARGEST, np.int64), np.zeros(count, np.bool_)
    for number in range(moves):
        unit = rng.integers(0, count)
        own = split[unit]
        other = _target(units, split, unit, devices, rng)
        size = _grow(units, split, unit, int(_LARGEST ** rng.random()), region, inside, rng)
        if not np.isfinite(units.time[:, other][region[:size]]).all():
            continue
        for member in region[:size]:
            _shift(units, accelerators, split, member, other, load, held, touching, spread)
        new = _mean(load, power)
        fits = other >= accelerators or held[other] <= limit
        temperature = hot * _COOLING ** (number / moves)
        if fits and (new <= cost or rng.random() < np.exp((cost - new) / temperature)):
            cost = new
            if load.max() < lowest:
                lowest = load.max()
                best[:] = split
        else:
            for member in region[:size]:
                _shift(units, accelerators, split, member, own, load, held, touching, spread)
    return best


@njit(cache=True)
def _state(units, accelerators, split):
    """Return load and bytes of each device, how many units touch each output there, and its devices."""
    count, devices = units.time.shape
    load, held = np.zeros(devices), np.zeros(devices)
    touching = np.zeros((len(units.transfer), devices), np.int64)
    spread = np.zeros(len(units.transfer), np.int64)
    for unit in range(count):
        load[split[unit]] += units.time[unit, split[unit]]
        held[split[unit]] += units.size[unit]
        for output in units.outputs[units.begins[unit] : units.begins[unit + 1]]:
            touching[output, split[unit]] += 1
    for output in range(len(spread)):
        spread[output] = (touching[output] > 0).sum()
        if spread[output] > 1:
            _send(load, touching, output, accelerators, units.transfer[output])
    return load, held, touching, spread


@njit(cache=True)
def _send(load, touching, output, accelerators, seconds):
    """Add the transfer of an output to the accelerators that touch it; a CPU's transfers cost nothing."""
    for device in range(accelerators):
        if touching[output, device] > 0:
            load[device] += seconds


@njit(cache=True)
def _shift(units, accelerators, split, unit, other, load, held, touching, spread):
    """Give a unit another device, in place."""
    own = split[unit]
    split[unit] = other
    load[own] -= units.time[unit, own]
    load[other] += units.time[unit, other]
    held[own] -= units.size[unit]
    held[other] += units.size[unit]
    for output in units.outputs[units.begins[unit] : units.begins[unit + 1]]:
        seconds = units.transfer[output]
        touching[output, own] -= 1
        touching[output, other] += 1
        left, came = touching[output, own] == 0, touching[output, other] == 1
        before = spread[output]
        spread[output] += int(came) - int(left)
        if before > 1 and left and own < accelerators:
            load[own] -= seconds
        if before > 1 and came and other < accelerators:
            load[other] += seconds
        if before > 1 and spread[output] == 1:
            _send(load, touching, output, accelerators, -seconds)
        elif before == 1 and spread[output] > 1:
            _send(load, touching, output, accelerators, seconds)


@njit(cache=True)
def _mean(load, power):
    """Return the power mean of the loads, without the factor for their number."""
    largest = load.max()
    return largest * ((np.maximum(load, 0.0) / max(largest, 1e-300)) ** power).sum() ** (1 / power)


@njit(cache=True)
def _target(units, split, unit, devices, rng):
    """Return another device for a unit: mostly a neighbour's, if one has another, else any."""
    own = split[unit]
    if rng.random() < _FOLLOW:
        around = units.near[units.around[unit] : units.around[unit + 1]]
        others = around[split[around] != own]
        if len(others):
            return split[others[rng.integers(0, len(others))]]
    return (own + 1 + rng.integers(0, devices - 1)) % devices


@njit(cache=True)
def _grow(units, split, unit, size, region, inside, rng):
    """Write a connected region of one device around a unit, and return the number of its units."""
    own, count = split[unit], 1
    region[0] = newest = unit
    rim = [np.int64(0) for _ in range(0)]
    seen = [unit]
    inside[unit] = True
    while count < size:
        for other in units.near[units.around[newest] : units.around[newest + 1]]:
            if not inside[other] and split[other] == own:
                inside[other] = True
                rim.append(other)
                seen.append(other)
        if len(rim) == 0:
            break
        pick = rng.integers(0, len(rim))
        newest = rim[pick]
        rim[pick] = rim[-1]
        rim.pop()
        region[count] = newest
        count += 1
    for other in seen:
        inside[other] = False
    return count
