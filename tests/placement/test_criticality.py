"""Slack of schedules by a fixed point over all constraints; what fits elsewhere by the definition."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow_placement.explain import critical_path
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.schedule import Scheduler
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph

CASES = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 3))


def slow_latest(graph, timeline, eager):
    """Lower the latest starts of operators, then transfers, until every constraint holds."""
    place, order, count = timeline.placement, timeline.order.tolist(), len(graph)
    pairs = [(u, v) for u, v in graph.edges.tolist() if place[u] == place[v]]
    pairs += [(u, v) for i, u in enumerate(order) for v in order[i + 1 :] if place[u] == place[v]]
    for number, one in enumerate(timeline.transfers, count):
        pairs.append((one.producer, number))
        pairs += [(number, v) for v in graph.consumers[one.producer] if place[v] == one.target]
        later = [] if eager else timeline.transfers[number - count + 1 :]
        link = (one.source, one.target)
        pairs += [(number, n) for n, t in enumerate(later, number + 1) if (t.source, t.target) == link]
    length = np.array([*graph.seconds, *(t.finish - t.start for t in timeline.transfers)])
    latest = timeline.seconds - length
    for _ in range(len(latest)):
        for before, after in pairs:
            latest[before] = min(latest[before], latest[after] - length[before])
    return latest


@settings(max_examples=80)
@given(CASES, st.booleans())
def test_the_latest_starts_are_those_of_all_constraints(case, eager):
    seed, count, devices = case
    graph, rng = random_graph(seed, count), np.random.default_rng(seed)
    timeline = Scheduler(graph, devices, replace(DEVICE, eager=eager)).run(rng.integers(0, devices, count))
    assert sorted(timeline.order) == list(range(count))
    assert (np.diff(timeline.start[timeline.order]) >= 0).all()
    operators, transfers = timeline.latest
    assert np.array_equal([*operators, *transfers], slow_latest(graph, timeline, eager))
    slack = np.array([*operators - timeline.start, *transfers - [t.start for t in timeline.transfers]])
    assert slack.min() == 0, "something is critical, and nothing is late"
    path, sent = critical_path(timeline)
    waited = sum(timeline.transfers[n].finish - timeline.transfers[n].start for n in sent)
    assert graph.seconds[path].sum() + waited == timeline.seconds, "a chain fills the runtime"


def slow_feedback(problem, decision):
    """What the docstring of device_feedback says, for one operator and device at a time."""
    graph, timeline, of = problem.graph, problem.timeline(decision), problem.units
    place, end = timeline.placement, timeline.seconds
    latest, _ = timeline.latest
    sent = {(t.producer, t.target): t.finish for t in timeline.transfers}
    send = problem.device.transfer_seconds(graph.output_bytes)
    rows = np.full((len(problem.choices), problem.devices, 4), end)
    for node, device in np.ndindex(len(graph), problem.devices):
        begin, due = 0.0, end
        for u, v in graph.edges.tolist():
            if v == node and (of[u] == of[v] or place[u] == device):
                begin = max(begin, timeline.finish[u])
            elif v == node:
                begin = max(begin, sent.get((u, device), timeline.finish[u] + send[u]))
            if u == node:
                due = min(due, latest[v] - send[u] * (of[u] != of[v] and place[v] != device))
        low, high = sorted([min(begin, end), max(due, 0.0)])
        on_device = np.flatnonzero(place == device)
        busy = np.minimum(timeline.finish[on_device], high) - np.maximum(timeline.start[on_device], low)
        room = np.sign(max(due, 0.0) - begin) * (high - low - np.maximum(busy, 0).sum())
        work = graph.seconds[node] * (place[node] != device)
        row = rows[of[node], device]
        row[3] = 1 - graph.seconds[place == device].sum() / end
        if graph.seconds[node] > 0:
            row[1] = min(row[1], due - begin - graph.seconds[node])
            row[2] = min(row[2], room - work)
    rows[..., 0] = np.minimum(rows[..., 1], rows[..., 2])
    rows[..., :3] = np.tanh(rows[..., :3] / (0.1 * end))
    return rows.reshape(-1, 4)


@cases("seed", range(12))
def test_what_fits_elsewhere_is_that_of_the_definition(seed):
    graph = random_graph(seed, 8, 0.3, grouped=seed % 2 == 1)
    graph.seconds[0] += 1  # some work
    problem = PlacementProblem(graph, 3, DEVICE)
    decision = problem.draw(1, np.random.default_rng(seed))[0]
    assert np.allclose(problem.feedback(decision), slow_feedback(problem, decision), atol=1e-6)
