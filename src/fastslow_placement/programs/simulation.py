"""The compiled core of schedules: list scheduling, memory by liveness, latest starts, annealing (numba).

Placement evaluates tens of thousands of decisions of one graph. ``tests/helpers/cost_graphs.py`` has slow
forms of the same rules. Arrays of a graph are described at :class:`Arrays`. All is in one file, since numba
looks only at the time of a function's own file to see that it is stale.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from fastslow_placement.base.jit import njit
from fastslow_placement.programs.cost_graph import CostGraph

_LARGEST = 32  # units of a region
_FOLLOW = 0.5  # how often the new device is that of a neighbour
_COOLING = 1e-2  # last temperature over the first


class Arrays(NamedTuple):
    """A graph of N operators and E edges as arrays.

    Args:
        seconds: (N,) float64 time of each operator.
        send: (N,) float64 time of a transfer of each output.
        output: (N,) float64 bytes of each output.
        parameters: (N,) float64 bytes resident with each operator.
        begins: (N + 1,) int64 where the consumers of each operator begin.
        consumers: (E,) int64 consumers of each operator, ascending.
        inputs: (N,) int64 number of producers.
        eager: Whether operators start in the order in which they are ready, and transfers wait for no other.
    """

    seconds: np.ndarray
    send: np.ndarray
    output: np.ndarray
    parameters: np.ndarray
    begins: np.ndarray
    consumers: np.ndarray
    inputs: np.ndarray
    eager: bool


def arrays_of(graph: CostGraph, send: np.ndarray, eager: bool) -> Arrays:
    """Return the arrays of a graph, as the simulation reads them.

    Args:
        graph: The graph; its edges are sorted by producer.
        send: (N,) seconds that the output of each operator takes over a link.
        eager: Whether operators start as soon as they are ready.
    """
    producer, consumer = graph.edges.astype(np.int64).reshape(-1, 2).T
    sizes = np.bincount(producer, minlength=len(graph))
    count = np.bincount(consumer, minlength=len(graph))
    floats = (graph.seconds, send, graph.output_bytes, graph.parameter_bytes)
    seconds, send, output, parameters = (np.ascontiguousarray(column, np.float64) for column in floats)
    return Arrays(
        seconds=seconds,
        send=send,
        output=output,
        parameters=parameters,
        begins=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        consumers=np.ascontiguousarray(consumer),
        inputs=count.astype(np.int64),
        eager=eager,
    )


@njit(cache=True)
def simulate(arrays, place, rank, devices):
    """Return the list schedule of a placement.

    Args:
        arrays: The graph.
        place: (N,) int64 device of each operator.
        rank: (N,) int64 distinct numbers; of the ready operators of a device the lowest starts first. Where
            devices are eager, this holds only for operators that are ready at once.
        devices: Number of devices.

    Returns:
        Start (N,), finish (N,), operators in the order of their starts (N,), and of the T transfers in the
        order in which they are queued: producer, source, target (T, 3), start and finish (T, 2).
    """
    count = len(place)
    start = np.zeros(count)
    finish = np.zeros(count)
    begun = np.empty(count, np.int64)
    order = np.empty(count, np.int64)
    for node in range(count):
        order[rank[node]] = node
    waiting = arrays.inputs.copy()
    number = 0
    sent = 0
    most = min(len(arrays.consumers), count * (devices - 1))
    routes = np.empty((most, 3), np.int64)
    times = np.empty((most, 2))
    ready = [[np.int64(0) for _ in range(0)] for _ in range(devices)]
    for node in range(count):
        if waiting[node] == 0:
            heappush(ready[place[node]], rank[node])
    idle = np.ones(devices, np.bool_)
    links = np.zeros((devices, devices))
    targets = np.zeros(devices, np.bool_)
    events = [
        (0.0, np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)
    ]  # time, done or arrived, node, device
    touched = np.ones(devices, np.bool_)
    now = 0.0
    turn = np.int64(0)
    while True:
        for device in range(devices):
            if touched[device] and idle[device] and len(ready[device]):
                node = order[heappop(ready[device]) % count]
                idle[device] = False
                begun[number] = node
                number += 1
                start[node] = now
                finish[node] = now + arrays.seconds[node]
                heappush(events, (finish[node], np.int64(0), node, np.int64(device)))
        if len(events) == 0:
            break
        now = events[0][0]
        turn += count * arrays.eager  # in the queue of a device before all that is ready later
        touched[:] = False
        while len(events) and events[0][0] == now:
            _, kind, node, device = heappop(events)
            touched[device] = True
            after = arrays.consumers[arrays.begins[node] : arrays.begins[node + 1]]
            if kind == 0:
                idle[device] = True
                targets[:] = False
                for consumer in after:
                    targets[place[consumer]] = True
                targets[device] = False
                for target in range(devices):
                    if targets[target]:
                        begin = now if arrays.eager else max(now, links[device, target])
                        end = begin + arrays.send[node]
                        links[device, target] = end
                        routes[sent, 0], routes[sent, 1], routes[sent, 2] = node, device, target
                        times[sent, 0], times[sent, 1] = begin, end
                        sent += 1
                        heappush(events, (end, np.int64(1), node, np.int64(target)))
            for consumer in after:
                if place[consumer] == device:
                    waiting[consumer] -= 1
                    if waiting[consumer] == 0:
                        heappush(ready[device], turn + rank[consumer])
    return start, finish, begun, routes[:sent], times[:sent]


@njit(cache=True)
def held_at_most(arrays, place, routes, devices):
    """Return the bytes on each device if all that is ever there were held all the time: (devices,).

    Args:
        arrays: The graph of N operators.
        place: (N,) int64 device of each operator.
        routes: (T, 3) producer, source and target of each transfer, as :func:`simulate` returns them.
        devices: Number of devices.
    """
    held = np.zeros(devices)
    for node in range(len(place)):
        held[place[node]] += arrays.parameters[node] + arrays.output[node]
    for row in range(len(routes)):
        held[routes[row, 2]] += arrays.output[routes[row, 0]]
    return held


@njit(cache=True)
def occupancy(arrays, place, start, finish, routes, times, devices):
    """Return when outputs come to a device and leave it: (N, devices) twice, infinite where they never do.

    Where an output is produced, it is held from the start of its operator to the end of its last local
    consumer and last transfer. Where it is sent, it is held from the start of the transfer to the end of the
    last consumer there. An output without consumers stays to the end.

    Args:
        arrays: The graph of N operators.
        place: (N,) int64 device of each operator.
        start: (N,) seconds at which each operator starts, as :func:`simulate` returns them.
        finish: (N,) seconds at which it ends.
        routes: (T, 3) producer, source and target of each transfer.
        times: (T, 2) start and finish of each transfer, in seconds.
        devices: Number of devices.
    """
    count = len(place)
    end = finish.max()
    first = np.full((count, devices), np.inf)
    last = np.full((count, devices), -np.inf)
    for node in range(count):
        device = place[node]
        lonely = arrays.begins[node] == arrays.begins[node + 1]
        first[node, device] = start[node]
        last[node, device] = end if lonely else finish[node]
        for consumer in arrays.consumers[arrays.begins[node] : arrays.begins[node + 1]]:
            there = place[consumer]
            last[node, there] = max(last[node, there], finish[consumer])
    for row in range(len(routes)):
        node, source, target = routes[row]
        last[node, source] = max(last[node, source], times[row, 1])
        first[node, target] = times[row, 0]
    return first, last


@njit(cache=True)
def evaluate(arrays, places, rank, devices, limit):
    """Return runtimes (B,) in seconds, and bytes over the limit (B,), summed over the devices.

    Args:
        arrays: The graph of N operators.
        places: (B, N) int64 device of each operator, for each of B placements.
        rank: (N,) int64 order of ready operators, as for :func:`simulate`.
        devices: Number of devices.
        limit: Bytes that a device holds.
    """
    seconds = np.empty(len(places))
    excess = np.zeros(len(places))
    for row in range(len(places)):
        start, finish, _, routes, times = simulate(arrays, places[row], rank, devices)
        seconds[row] = finish.max()
        if (held_at_most(arrays, places[row], routes, devices) > limit).any():
            first, last = occupancy(arrays, places[row], start, finish, routes, times, devices)
            for device in range(devices):
                peak = _peak(arrays, first[:, device], last[:, device])
                for node in range(len(places[row])):
                    if places[row, node] == device:
                        peak += arrays.parameters[node]
                excess[row] += max(peak - limit, 0.0)
    return seconds, excess


@njit(cache=True)
def _peak(arrays, first, last):
    """Return the most bytes of outputs that are held at once."""
    here = np.flatnonzero(np.isfinite(first))
    when = np.concatenate((last[here], first[here]))
    sizes = np.concatenate((-arrays.output[here], arrays.output[here]))
    held, most = 0.0, 0.0
    order = np.argsort(when, kind="mergesort")
    for step in range(len(order)):
        held += sizes[order[step]]
        if step + 1 == len(order) or when[order[step + 1]] != when[order[step]]:
            most = max(most, held)
    return most


@njit(cache=True)
def latest(arrays, place, finish, begun, routes, times, devices):
    """Return when operators (N,) and transfers (T,) must start at the latest, so that the end stays.

    Args:
        arrays: The graph of N operators.
        place: (N,) int64 device of each operator.
        finish: (N,) seconds at which each operator ends, as :func:`simulate` returns them.
        begun: (N,) operators in the order of their starts.
        routes: (T, 3) producer, source and target of each transfer.
        times: (T, 2) start and finish of each transfer, in seconds.
        devices: Number of devices.
    """
    count = len(place)
    end = finish.max()
    operators = np.zeros(count)
    transfers = np.zeros(len(routes))
    device_due = np.full(devices, end)
    link_due = np.full((devices, devices), end)
    sent = np.zeros((count, 2), np.int64)  # the transfers of an output are queued together
    for number in range(len(routes)):
        producer = routes[number, 0]
        if number == 0 or routes[number - 1, 0] != producer:
            sent[producer, 0] = number
        sent[producer, 1] = number + 1
    arrivals = np.empty(devices)
    for step in range(count - 1, -1, -1):  # all that waits for a node starts after it
        node = begun[step]
        due = device_due[place[node]]
        arrivals[:] = end
        for consumer in arrays.consumers[arrays.begins[node] : arrays.begins[node + 1]]:
            there = place[consumer]
            if there == place[node]:
                due = min(due, operators[consumer])
            else:
                arrivals[there] = min(arrivals[there], operators[consumer])
        for number in range(sent[node, 0], sent[node, 1]):
            source, target = routes[number, 1], routes[number, 2]
            by = arrivals[target] if arrays.eager else min(arrivals[target], link_due[source, target])
            by -= times[number, 1] - times[number, 0]
            transfers[number] = link_due[source, target] = by
            due = min(due, by)
        operators[node] = device_due[place[node]] = due - arrays.seconds[node]
    return operators, transfers


@njit(cache=True)
def _grow(decision, begins, near, unit, target, size, region, inside, rng):
    """Give a connected region around a unit another device, in place."""
    device, count = decision[unit], 1
    region[0] = unit
    inside[:] = False
    inside[unit] = True
    rim = [np.int64(0) for _ in range(0)]
    newest = unit
    while count < size:
        for other in near[begins[newest] : begins[newest + 1]]:
            if not inside[other] and decision[other] == device:
                inside[other] = True
                rim.append(other)
        if len(rim) == 0:
            break
        pick = rng.integers(0, len(rim))
        newest = rim[pick]
        rim[pick] = rim[-1]
        rim.pop()
        region[count] = newest
        count += 1
    for member in region[:count]:
        decision[member] = target


@njit(cache=True)
def _target(decision, begins, near, unit, devices, rng):
    """Return another device for a unit: a neighbour's half the time, if one has another, else any."""
    device = decision[unit]
    if rng.random() < _FOLLOW:
        around = near[begins[unit] : begins[unit + 1]]
        others = around[decision[around] != device]
        if len(others):
            return decision[others[rng.integers(0, len(others))]]
    return (device + 1 + rng.integers(0, devices - 1)) % devices


@njit(cache=True)
def _cost(arrays, decision, rank, members, devices, limit, places):
    """Return the runtime of a decision of units, infinite where it does not fit; ``places`` is written."""
    for node in range(len(members)):
        places[0, node] = decision[members[node]]
    seconds, excess = evaluate(arrays, places, rank, devices, limit)
    return seconds[0] if excess[0] <= 0 else np.inf


@njit(cache=True)
def walk_regions(arrays, rank, members, devices, limit, begins, near, start, evaluations, heat, rng):
    """Return the best decision of an annealing of regions, its cost, and the history of best costs.

    Args:
        arrays: The graph, of N operators.
        rank: (N,) order of operators that are ready.
        members: (N,) unit of each operator.
        devices: Number of devices.
        limit: Memory of a device in bytes.
        begins: (U + 1,) where the neighbours of each unit begin.
        near: Neighbours of all units.
        start: (U,) first decision.
        evaluations: Number of decisions that are evaluated.
        heat: First temperature over the cost of the first valid decision.
        rng: Generator.
    """
    current = start.copy()
    region = np.empty(_LARGEST, np.int64)
    inside = np.zeros(len(start), np.bool_)
    places = np.empty((1, len(members)), np.int64)
    cost = _cost(arrays, start, rank, members, devices, limit, places)
    best = current
    lowest = cost
    hot = heat * cost
    history = [(1, cost)]
    for number in range(1, evaluations):
        candidate = current.copy()
        unit = rng.integers(0, len(start))
        target = _target(current, begins, near, unit, devices, rng)
        _grow(candidate, begins, near, unit, target, int(_LARGEST ** rng.random()), region, inside, rng)
        new = _cost(arrays, candidate, rank, members, devices, limit, places)
        temperature = hot * _COOLING ** (number / evaluations)
        if new <= cost or rng.random() < np.exp((cost - new) / temperature):
            if cost == np.inf:
                hot = heat * new
            current = candidate
            cost = new
            if cost < lowest:
                best = current
                lowest = cost
                history.append((number + 1, cost))
    return best, lowest, history
