"""Slack of schedules by a fixed point over all constraints, and the critical path."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow_placement.explain import critical_path
from fastslow_placement.programs.schedule import Scheduler
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
