"""Latency instances of dnn-partitioning: their placement by the format's definition, and refused ones."""

import json

import numpy as np
import pytest

from common.latency_instances import PUBLIC, latency_problems, read_latency_instance
from fastslow.core.errors import DataError, SettingsError
from helpers.cases import cases

NODE = {"supportedOnFpga": 1, "cpuLatency": 9.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 2.0}


def instance(nodes=3, edges=((0, 1), (1, 2)), **changed):
    return {
        "maxSizePerFPGA": 10.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [{"id": n + 5, **NODE} for n in range(nodes)],
        "edges": [{"sourceId": u + 5, "destId": v + 5, "cost": 0.5} for u, v in edges],
        **changed,
    }


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def test_an_output_goes_to_the_host_and_from_there_to_another_accelerator(tmp_path):
    problem = read_latency_instance(written(tmp_path / "x.json", instance()))
    outcome = problem.evaluate(np.array([[0, 0, 0], [0, 1, 1], [0, 1, 0]]))
    assert outcome.cost == pytest.approx([3e-3, 4e-3, 5e-3]) and outcome.valid.all()


def test_the_limit_is_of_each_accelerator(tmp_path):
    problem = read_latency_instance(written(tmp_path / "x.json", instance(maxSizePerFPGA=5.0)))
    assert problem.evaluate(np.array([[0, 0, 0], [0, 0, 1]])).valid.tolist() == [False, True]
    with pytest.raises(SettingsError, match="memory: no placement of '.* x' on 2 devices"):
        read_latency_instance(written(tmp_path / "x.json", instance(maxSizePerFPGA=2.5)))


def test_nodes_of_a_colour_are_one_unit(tmp_path):
    data = instance()
    data["nodes"][0]["colorClass"] = data["nodes"][2]["colorClass"] = 6  # not the node of id 6
    problem = read_latency_instance(written(tmp_path / "x.json", data))
    assert problem.units.tolist() == [0, 1, 0]


@cases(
    "changed, said",
    [
        ({"nodes": [{"id": 5}]}, "it lacks the key nodes.0.fpgaLatency"),
        ({"nodes": [{"id": 5, **NODE}] * 2}, "two nodes of one id"),
        ({"edges": [{"sourceId": 5, "destId": 99, "cost": 1}]}, "edge 5 -> 99 names no node"),
        ({"edges": [{"sourceId": 5, "destId": d, "cost": d} for d in (6, 7)]}, "5 has two transfer times"),
    ],
)
def test_a_wrong_instance_is_refused_by_name(tmp_path, changed, said):
    with pytest.raises(DataError, match=said):
        read_latency_instance(written(tmp_path / "x.json", instance() | changed))


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no public instances beside the repository")
def test_the_default_of_a_public_instance_is_valid():
    problems = {problem.name: problem for problem in latency_problems()}
    assert len(problems) == 6
    bert = problems["LayerGraphs bert24_inference"]
    assert bert.work.sum() == pytest.approx(92.406e-3) and bert.devices == 5
    for problem in problems.values():
        outcome = problem.evaluate(problem.default[None])
        assert outcome.valid.all() and outcome.cost >= problem.bound
