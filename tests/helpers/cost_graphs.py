"""Random cost graphs and slow reference forms of the placement package's costs."""

from itertools import pairwise

import numpy as np

from fastslow_placement.base.problem import Problem
from fastslow_placement.programs.cost_graph import CostGraph, build
from fastslow_placement.programs.roofline import Device

DEVICE = Device("test", 100.0, 10.0, 1e9, 0.25, 4.0, 0.5, 1.0)
ELEMENTWISE = ("add", "multiply", "tanh", "broadcast", "dot")


def random_graph(seed: int, count: int = 7, density: float = 0.4, grouped: bool = False) -> CostGraph:
    """A graph with small integer costs, so that sums are exact and times tie."""
    rng = np.random.default_rng(seed)
    edges = [(u, v) for v in range(count) for u in range(v) if rng.random() < density]
    columns = {
        "seconds": rng.integers(0, 5, count),
        "flops": rng.integers(0, 50, count),
        "output_bytes": rng.integers(0, 20, count),
        "parameter_bytes": rng.integers(0, 30, count),
        "read_bytes": rng.integers(0, 30, count),
    }
    groups = rng.integers(0, count, count) if grouped else np.arange(count)
    opcodes = rng.choice(ELEMENTWISE, count).tolist()
    return build("test", f"random{seed}", opcodes, [(2, 3)] * count, edges, groups=groups, **columns)


def slow_schedule(graph: CostGraph, placement, priority, devices: int, device: Device):
    """Start and finish of each operator, transfers as {(producer, target): (start, finish)}.

    Looks at every operator, link and device again after every event, in the order of the rules. ``device``
    may be eager.
    """
    count = len(graph)
    finish, start, sent = {}, {}, {}
    queue = {
        (a, b): [] for a in range(devices) for b in range(devices)
    }  # (producer), first come first served
    link_free = dict.fromkeys(queue, 0.0)
    announced = set()
    now = 0.0
    while True:
        for node in sorted(finish, key=lambda n: (finish[n], n)):
            if finish[node] <= now and node not in announced:
                announced.add(node)
                a = placement[node]
                for b in sorted({placement[v] for u, v in graph.edges.tolist() if u == node} - {a}):
                    begin = max(finish[node], 0 if device.eager else link_free[a, b])
                    seconds = device.link_seconds + graph.output_bytes[node] / device.link_bytes_per_second
                    link_free[a, b] = begin + seconds
                    sent[node, b] = (begin, link_free[a, b])
        for d in range(devices):
            busy = any(placement[n] == d and start[n] <= now < finish[n] for n in start)
            while not busy:
                ready = []
                for node in range(count):
                    if node in start or placement[node] != d:
                        continue
                    inputs = [u for u, v in graph.edges.tolist() if v == node]
                    there = [u for u in inputs if u in announced]
                    arrivals = [finish[u] if placement[u] == d else sent[u, d][1] for u in there]
                    arrivals += [np.inf] * (len(inputs) - len(there))
                    if (last := max(arrivals, default=0.0)) <= now:
                        ready.append((last * device.eager, -priority[node], node))
                if not ready:
                    break
                node = min(ready)[-1]
                start[node], finish[node] = now, now + graph.seconds[node]
                busy = True
        times = [t for t in finish.values() if t > now] + [f for _, f in sent.values() if f > now]
        fresh = [n for n in finish if finish[n] <= now and n not in announced]
        if fresh:
            continue
        if not times:
            break
        now = min(times)
    return [start[n] for n in range(count)], [finish[n] for n in range(count)], sent


def slow_peak(graph: CostGraph, placement, start, finish, sent, devices: int) -> list[float]:
    """Largest memory of each device, looked at between any two neighbouring events."""
    end = max(finish)
    times = sorted({0.0, *start, *finish, *(t for both in sent.values() for t in both), end + 1})
    peak = [0.0] * devices
    for a, b in pairwise(times):
        middle = (a + b) / 2
        if middle > end:
            continue
        for d in range(devices):
            used = sum(graph.parameter_bytes[n] for n in range(len(graph)) if placement[n] == d)
            for n in range(len(graph)):
                users = [v for u, v in graph.edges.tolist() if u == n and placement[v] == d]
                until = [finish[v] for v in users]
                if placement[n] == d:
                    first = start[n]
                    until += [finish[n]] + [f for (m, _), (_, f) in sent.items() if m == n]
                    if not any(u == n for u, _ in graph.edges.tolist()):
                        until.append(end)
                elif (n, d) in sent:
                    first = sent[n, d][0]
                else:
                    continue
                used += graph.output_bytes[n] * (first <= middle < max(until))
            peak[d] = max(peak[d], used)
    return peak


def drawn(problem: Problem, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random decisions (count, U) int64: any option of a unit is equally likely."""
    return (rng.random((count, len(problem.choices))) * problem.choices).astype(np.int64)
