"""Simulated annealing of splits: single classes, connected regions and runs of the order change devices.

Throughput: the loads are kept up to date from move to move, so a candidate costs some microseconds whatever
the size of the workload, and a smooth form of the largest load is annealed, which also sees the second
largest. Latency: every candidate is evaluated in full.
"""

import math
import random

import numpy as np

from fastslow.core.progress import progress
from fastslow_placement.base.local_search import Found
from fastslow_placement.partition.split_state import SplitState
from fastslow_placement.public.public_problems import PartitionProblem

_HOT, _COLD = 0.03, 1e-4  # temperatures, of the value
_NORM = 10  # of the loads
_LARGEST = 64  # units of a region or run
_REPORT = 256


def anneal_split(problem: PartitionProblem, start: np.ndarray, candidates: int, seed: int = 0) -> Found:
    """Return the best split of simulated annealing from a start; it is no worse than the start.

    Args:
        problem: The problem.
        start: (U,) first split, a valid one; an invalid one is replaced by the default.
        candidates: How many splits are looked at; each counts as an evaluation.
        seed: Seed of the moves.
    """
    found = Found.of(problem, start)
    if not np.isfinite(found.cost):
        found = Found.of(problem, problem.default)
    search = _Search(problem, found.decision, seed)
    value = search.value()
    with progress(total=candidates, desc="search", unit="split") as bar:
        while found.evaluations < candidates:
            if found.evaluations % _REPORT == 0:
                bar.update(min(_REPORT, candidates - bar.n))
            units, target = search.propose()
            source = search.state.device[units[0]]
            found.evaluations += 1
            if not search.supports(units, target):
                continue
            search.move(units, target)
            new = search.value() if search.fits(target) else math.inf
            heat = _HOT * (_COLD / _HOT) ** (found.evaluations / candidates)
            if new < math.inf and (
                new <= value or search.rng.random() < math.exp((value - new) / value / heat)
            ):
                value, cost = new, search.cost(new)
                if cost < found.cost * (1 - 1e-12):
                    found.cost = cost
                    found.decision = problem.decision(np.array(search.state.device))
                    found.history.append((found.evaluations, cost))
            else:
                search.move(units, source)
        bar.update(candidates - bar.n)
    found.cost = float(problem.evaluate(found.decision[None]).order[0])  # sums without drift
    return found


class _Search:
    """The current split, its value, and moves."""

    def __init__(self, problem: PartitionProblem, decision: np.ndarray, seed: int):
        self.problem, self.rng = problem, random.Random(seed)
        self.state = SplitState(problem.workload, problem.split(decision))
        self.options = int(problem.choices[0])
        self.order = problem.order.tolist()
        self.place = np.argsort(problem.order).tolist()
        self.scale = max(self.state.load) or 1.0
        self.throughput, work = problem.objective == "throughput", problem.workload
        self.limit = work.memory
        self.only_cpu = set(work.units[~np.isfinite(work.accelerator)].tolist())

    def value(self) -> float:
        """Return what is annealed: the norm of the loads, or the latency."""
        if self.throughput:
            return sum((load / self.scale) ** _NORM for load in self.state.load) ** (1 / _NORM)
        decision = self.problem.decision(np.array(self.state.device))
        return float(self.problem.evaluate(decision[None]).order[0])

    def cost(self, value: float) -> float:
        """Return the objective of the current split, whose value is known."""
        return max(self.state.load) if self.throughput else value

    def fits(self, device: int) -> bool:
        """Return whether a device is a CPU or within its memory."""
        return device >= self.state.accelerators or self.state.memory[device] <= self.limit

    def supports(self, units: list[int], device: int) -> bool:
        """Return whether all units can be on a device."""
        return device >= self.state.accelerators or self.only_cpu.isdisjoint(units)

    def move(self, units: list[int], target: int) -> None:
        """Give units to a device."""
        for unit in units:
            self.state.move(unit, target)

    def propose(self) -> tuple[list[int], int]:
        """Return units of one device and another device for them, that of a neighbour if possible."""
        rng, device = self.rng, self.state.device
        while True:
            unit = rng.randrange(len(device))
            others = [device[v] for v in self.state.near[unit] if device[v] != device[unit]]
            target = rng.choice(others) if others and rng.random() < 0.7 else rng.randrange(self.options)
            if target != device[unit] or self.options == 1:
                break
        kind, size = rng.random(), int(_LARGEST ** rng.random())
        if kind < 0.4:
            return [unit], target
        if kind < 0.8:
            return self._region(unit, size), target
        place = self.place[unit]
        run = (
            self.order[place : place + size]
            if rng.random() < 0.5
            else self.order[max(place - size, 0) : place]
        )
        return [unit, *(v for v in run if device[v] == device[unit] and v != unit)], target

    def _region(self, unit: int, size: int) -> list[int]:
        """Return a connected set of units on one device, grown along heavy transfers, with noise."""
        state, rng = self.state, self.rng
        own, inside, rim = state.device[unit], {unit}, dict(state.near[unit])
        while len(inside) < size:
            rim = {v: cost for v, cost in rim.items() if state.device[v] == own and v not in inside}
            if not rim:
                break
            best = max(rim, key=lambda v: rim[v] * rng.random())
            inside.add(best)
            for other, cost in state.near[best].items():
                rim[other] = rim.get(other, 0.0) + cost
        return [unit, *(inside - {unit})]
