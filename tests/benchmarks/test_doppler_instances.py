"""Graphs of DOPPLER: their costs by its simulator's rules, and its heuristic against known results."""

import re

import numpy as np
import pytest

from common.doppler_instances import PUBLIC, critical_path, doppler_problems, read_doppler_graph
from fastslow.core.errors import DataError
from fastslow_placement.programs import problems

COSTS = "1e10,5e9,7\n2e10,9e10\n3e10,5e9\n4e10,0"
SMALL = f"6\n1, 4\n0, 0, 1, 2, 2\n1, 2, 3, 3, 3\n{COSTS}"


def list_schedule(problem, decision):
    """The end if operators start by the longest path to the end, none before one that is first."""
    graph, place = problem.graph, problem.place(decision)
    finish, free, path = {}, dict.fromkeys(range(problem.devices), 0.0), graph.seconds.copy()
    for node in reversed(range(len(graph))):
        path[node] += max((path[c] + graph.output_bytes[node] for c in graph.consumers[node]), default=0)
    for node in sorted(range(len(graph)), key=lambda n: (-path[n], n)):
        far = [finish[p] + graph.output_bytes[p] * (place[p] != place[node]) for p in graph.producers[node]]
        free[place[node]] = finish[node] = max([free[place[node]], *far]) + graph.seconds[node]
    return max(finish.values())


def test_costs_of_a_small_graph_are_those_of_the_rules(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text(SMALL)
    problem = read_doppler_graph(path, 2)
    assert problem.name == "small on 2" and len(problem.choices) == 4 and len(problem.graph.edges) == 4
    outcome = problem.evaluate(np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]))
    assert outcome.cost.tolist() == [10, 16.5, 9, 16]
    assert problem.bound == 8 and critical_path(problem).tolist() == [0, 0, 1, 0]


def test_a_file_of_another_kind_or_cut_short_is_refused(tmp_path):
    path = tmp_path / "x.txt"
    for text in ("", "nothing", "\n".join(SMALL.split("\n")[:4]), SMALL.rpartition("\n")[0]):
        path.write_text(text)
        with pytest.raises(DataError, match="x.txt"):
            read_doppler_graph(path, 2)


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the graphs of DOPPLER are not here")
def test_the_heuristic_gives_the_known_ends_of_the_public_graphs(monkeypatch):
    """Its weights read no spectral order."""
    monkeypatch.setattr(problems, "spectral_orders", lambda work, *_: [np.arange(len(work))] * 2)
    found = {problem.name: list_schedule(problem, critical_path(problem)) for problem in doppler_problems()}
    table = (PUBLIC / "README.md").read_text().partition("For reference, list scheduling")[2]
    rows = re.findall(r"^\| (\w+)\.txt \| (\S+) \| (\S+) \|$", table, re.MULTILINE)
    known = {f"{name} on {4 + 4 * n}": float(both[n]) for name, *both in rows for n in (0, 1)}
    assert len(known) == 12 and found == pytest.approx(known, abs=0.005)
