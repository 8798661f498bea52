"""The public formats and their costs against the definitions; figures of their authors where the files
are.
"""

import json
import os

import numpy as np
import pytest

from common.public_placement import read_split
from fastslow.core.errors import DataError, SettingsError
from fastslow_placement.go.policy import load_policy
from fastslow_placement.partition.problems import PartitionProblem
from fastslow_placement.partition.workload import read_workload
from helpers.cases import cases
from helpers.competition_files import ROOT
from helpers.cost_graphs import random_workload, slow_loads

PUBLIC = ROOT.parent / "shared" / "placement"
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no public instances beside the repository")
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


@cases("seed", range(8))
def test_loads_are_those_of_the_definition(seed):
    workload = random_workload(seed)
    splits = np.random.default_rng(seed).integers(0, 3, (10, int(workload.units.max()) + 1))
    found, memory = workload.loads(splits)
    for split, row, used in zip(splits, found, memory, strict=True):
        device = split[workload.units]
        assert row.tolist() == slow_loads(workload, device)
        assert used.tolist() == [workload.size[device == d].sum() for d in range(2)]


@cases(
    "changed, said",
    [
        ({"nodes": [{"id": 5}]}, "it lacks the key nodes.0.fpgaLatency"),
        ({"edges": [{"sourceId": 5, "destId": 99, "cost": 1}]}, "edge 5 -> 99 names no node"),
        ({"maxFPGAs": 0, "maxCPUs": 0}, "maxFPGAs is 0: Input should be greater than or equal to 1"),
        ({"nodes": [{"id": n + 5, **NODE, "size": -1.0} for n in range(3)]}, "nodes.0.size is -1.0"),
        (
            {
                "edges": [
                    {"sourceId": 5, "destId": 6, "cost": 1},
                    {"sourceId": 6, "destId": 5, "cost": 1},
                ]
            },
            "cycle through '5'",
        ),
    ],
)
def test_a_wrong_instance_is_refused_by_name(tmp_path, changed, said):
    with pytest.raises(DataError, match=said):
        read_workload(written(tmp_path / "x.json", {**instance(), **changed}))


def test_an_instance_without_valid_split_is_refused(tmp_path):
    path = written(tmp_path / "x.json", {**instance(), "maxSizePerFPGA": 1.0, "maxCPUs": 0})
    with pytest.raises(SettingsError, match="no valid split of 'x': '5' does not fit"):
        PartitionProblem(read_workload(path))
    held = read_workload(written(path, {**instance(), "maxSizePerFPGA": 1.0}))
    problem = PartitionProblem(held)  # a CPU holds it
    assert problem.choices[0] == 3 and problem.evaluate(problem.default[None]).valid[0]


@cases("value", [[1], True, 10**400, float("nan"), -1.0])
@cases(
    "field", ["fpgaLatency", "size", "id", "supportedOnFpga", "maxFPGAs", "maxCPUs", "maxSizePerFPGA", "cost"]
)
def test_a_wrong_value_of_an_instance_is_refused_with_the_name_of_its_field(tmp_path, field, value):
    data = instance()
    owner = data["edges"][0] if field == "cost" else data["nodes"][0] if field in NODE | {"id": 0} else data
    owner[field] = value
    if field == "supportedOnFpga" and value is True:
        return
    with pytest.raises(DataError, match=field):
        read_workload(written(tmp_path / "x.json", data))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(DataError, match="named pipe"):
        read_workload(tmp_path / "x.json")
    with pytest.raises(DataError, match="named pipe"):
        load_policy(tmp_path / "x.json")


@cases("nodes", [1, 3])
def test_an_instance_without_edges_has_a_split(tmp_path, nodes):
    workload = read_workload(written(tmp_path / "x.json", instance(nodes, ())))
    problem = PartitionProblem(workload)
    assert problem.evaluate(problem.default[None]).valid[0]


@needs_public
@cases(
    "name, expert, one, human",
    [
        ("bert24_inference", "bert24_inference", 92.41, 20.08),
        ("bert24_training", "bert24_training", 217.8, 49.40),
        ("resnet50_inference", "resnet50_inference", 201.5, 43.92),
        ("resnet50_training", "resnet50_inference", 462.4, 112.1),
        ("inceptionv3_inference", "inceptionv3_inference", 311.0, 102.5),
        ("inceptionv3_training", "inceptionv3_inference", 710.7, 213.7),
    ],
)
def test_loads_of_public_splits_are_what_the_authors_program_prints(name, expert, one, human):
    folder = PUBLIC / "dnn-partitioning"
    workload = read_workload(folder / "throughput-inputs" / "LayerGraphs" / f"{name}.json")
    problem = PartitionProblem(workload)
    split = read_split(folder / "human-experts" / f"{expert}_expert.json", problem.workload)
    both = np.stack([np.zeros_like(problem.default), split])
    assert problem.evaluate(both).cost == pytest.approx([one, human], rel=6e-4)
