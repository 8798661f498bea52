"""Graphs of DOPPLER: their costs by its simulator's rules, and its heuristic against known results."""

import numpy as np
import pytest

from common.doppler_instances import PUBLIC, critical_path, doppler_problems, read_doppler_graph
from fastslow.core.errors import DataError

SMALL = "6\n1, 4\n0, 0, 1, 2, 2\n1, 2, 3, 3, 3\n10000000000,5000000000,7\n20000000000,90000000000\n" + (
    "30000000000,5000000000\n40000000000,0"
)
REFERENCE = {  # of list scheduling, in the README of the graphs
    "8gpu_full_transformer": (349.78, 272.82),
    "8gpu_transformer_block": (437.32, 354.44),
    "chain_mm_112nodes": (1800.09, 1400.03),
    "ffnn_192nodes": (84.18, 55.84),
    "full_transformer_layer_261nodes": (264.68, 193.92),
    "transformer_block_215nodes": (247.11, 221.77),
}
"""On 4 and on 8 devices."""


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
def test_the_heuristic_gives_the_known_ends_of_the_public_graphs():
    found = {problem.name: list_schedule(problem, critical_path(problem)) for problem in doppler_problems()}
    known = {f"{name} on {4 + 4 * n}": both[n] for name, both in REFERENCE.items() for n in (0, 1)}
    assert found == pytest.approx(known, abs=0.005)
