"""Programs and settings of a placement that are broken or too large: refused by name."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.core.errors import DataError, SettingsError
from fastslow.hlo.messages import Module
from fastslow_placement import command
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.roofline import DEVICES, read_device
from fastslow_placement.settings import PlaceSettings
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.cost_graphs import DEVICE
from helpers.dot_module import add, rich_module, small_module
from helpers.good_artifacts import change_arrays


def calling(opcode, *called, operands=(1,)):
    """A module whose last operator calls these computations: 1 is the caller, 2 a negation, 9 not there."""
    module = small_module(1)
    main = module.computations[0]
    other = module.computations.add(name="other", id=2)
    parameter = add(other, "parameter", (8, 4))
    other.root_id = add(other, "negate", (8, 4), parameter)
    main.root_id = add(main, opcode, (8, 4), *operands, called_computation_ids=called)
    return module


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_module_of_any_references_is_refused_or_has_finite_costs(tmp_path_factory, data):
    module = Module.FromString(rich_module().SerializeToString())
    module.computations.add().CopyFrom(calling("call", 2).computations[1])
    module.computations[-1].id = 3
    small = st.integers(-1, 4)
    for inst in data.draw(st.lists(st.sampled_from(module.computations[1].instructions), max_size=3)):
        inst.opcode = data.draw(st.sampled_from(OF_THESE))
        inst.operand_ids[:] = data.draw(st.lists(small, max_size=3))
        inst.called_computation_ids[:] = data.draw(st.lists(small, max_size=2))
        inst.shape.dimensions[:] = data.draw(st.lists(st.sampled_from([-1, 0, 2, 2**40]), max_size=3))
        inst.tuple_index = data.draw(small)
    path = tmp_path_factory.mktemp("any") / "x.pb"
    path.write_bytes(module.SerializeToString())
    try:
        graph = read_cost_graph(path, DEVICE)
    except DataError as error:
        assert "x.pb" in str(error)
    else:
        assert np.isfinite([graph.seconds, graph.flops, graph.output_bytes, graph.parameter_bytes]).all()


OF_THESE = ["call", "while", "fusion", "conditional", "tuple", "get-tuple-element", "bitcast", "dot", "add"]
OF_THESE += ["convolution", "parameter", "broadcast", "reduce", "constant"]


def dynamic(size):
    """A chain of two operators of dynamic sizes with this bound; below 0 is none."""
    module = Module(name="dynamic", entry_computation_name="main", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    first = add(main, "parameter", (size, size))
    main.root_id = add(main, "tanh", (size, size), add(main, "negate", (size, size), first))
    for inst in main.instructions:
        inst.shape.is_dynamic_dimension[:] = [True, True]
    return module


def test_a_size_without_a_bound_is_refused_by_name(tmp_path):
    path = tmp_path / "x.pb"
    path.write_bytes(dynamic(-(2**63)).SerializeToString())
    with pytest.raises(DataError, match=r"without a bound\. Give every dimension a fixed size"):
        read_cost_graph(path, DEVICE)


def test_a_bound_that_counts_as_the_size_is_said(tmp_path, capsys):
    path = tmp_path / "x.pb"
    path.write_bytes(dynamic(8).SerializeToString())
    assert read_cost_graph(path, DEVICE).shapes.max() == 8
    assert f"warning: {path}: dynamic dimensions have their bounds as sizes" in capsys.readouterr().err


def test_sizes_of_an_npz_beyond_any_memory_are_refused(tmp_path):
    path = write_npz(tmp_path / "x.npz", layout_arrays())
    assert len(read_cost_graph(path, DEVICE))

    def change(arrays):
        """Add a parameter that nobody uses: no other rule sees its sizes."""
        row = arrays["node_feat"][:1].copy()
        row[0, [21, 22, 23, 27, 28]] = [2e9, 2e9, 1, 4e9, 4e18]
        row[0, 134:137] = [2, 1, 0]
        arrays["node_feat"] = np.concatenate([arrays["node_feat"], row])
        arrays["node_opcode"] = np.append(arrays["node_opcode"], arrays["node_opcode"][0])

    change_arrays(path, change)
    with pytest.raises(DataError, match=r"x\.npz: node_feat\[10, 28\] is 4e\+18, at most 1e\+15 wanted"):
        read_cost_graph(path, DEVICE)


GOOD = {"name": "mine", "flops_per_second": 1e12, "bytes_per_second": 1e11, "memory": 1e9}
GOOD |= {"launch_seconds": 1e-6, "link_bytes_per_second": 1e10, "link_seconds": 0}


@cases(
    "changed, said",
    [
        ({"memory": 0}, "memory is 0: Input should be greater than or equal to 1"),
        (
            {"flops_per_second": 1e-320},
            "flops_per_second is 1e-320: Input should be greater",
        ),
        ({"memory": None}, "memory is None: Input should be a valid number"),
        ({"launch_seconds": float("nan")}, "launch_seconds"),
        ({"flops": 1}, "flops"),
    ],
)
def test_a_device_is_read_from_a_file_and_its_faults_named(tmp_path, changed, said):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD))
    assert PlaceSettings(device=str(path)).device_model.transfer_seconds(1e10) == 1.0
    path.write_text(json.dumps(GOOD | changed))
    with pytest.raises(DataError, match=rf"mine\.json: is no device: {said}"):
        read_device(str(path))
    path.write_text(json.dumps({"name": "mine"}))
    with pytest.raises(DataError, match=r"mine\.json: is no device: it lacks the key flops_per_second"):
        read_device(str(path))
    path.write_text("{")
    with pytest.raises(DataError, match=r"mine\.json.*constants: name, flops_per_second, .*eager"):
        read_device(str(path))
    with pytest.raises(DataError, match=r"none\.json: no such file\. Give an object of these constants"):
        PlaceSettings(device=str(tmp_path / "none.json")).check_typed()
    with pytest.raises(SettingsError, match="device: 'h900' is not one of p100"):
        PlaceSettings(device="h900")
    assert (
        all(device.source for device in DEVICES.values())
        and PlaceSettings(device="h100").device_model.memory == 80e9
    )


def test_a_packed_program_has_the_name_of_the_unpacked_one():
    for source in ("folder/rnn.pb", "rnn.pb.gz", "rnn.pb.xz", "rnn.pb.bz2", "zoo:rnn"):
        assert PlaceSettings(source=source, devices=2).folder == "runs/placement/rnn-placement-2"
    assert PlaceSettings(source="folder/model.py:make").name == "model-make"


def test_only_the_folders_of_results_are_cleared_below_the_folder_that_a_user_named(tmp_path, monkeypatch):
    """``out=~`` walked through the whole home."""
    name = ".x.json.0123456789ab.tmp.json"
    result, other = tmp_path / "rnn-placement-4" / name, tmp_path / "project" / "data" / name
    for path in (result, other):
        path.parent.mkdir(parents=True)
        path.write_text("half")
    monkeypatch.setattr(command, "run_step", lambda step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command.place_program(PlaceSettings(out=str(tmp_path)))
    assert other.exists() and not result.exists()
