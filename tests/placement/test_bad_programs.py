"""Programs and settings of a placement that are broken or too large: refused by name."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.core.errors import DataError, SettingsError
from fastslow.xla.messages import Module
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.settings import PlaceSettings
from fastslow_placement.sharding import sharding
from fastslow_placement.sharding.sharding import read_problem_file
from helpers.bad_files import ANY_FILE, BINARY, absurd_members
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


def mutual():
    """Two computations that call each other."""
    module = calling("call", 2)
    other = module.computations[1]
    other.root_id = add(other, "call", (8, 4), 1, called_computation_ids=[1])
    return module


def changed(name, **fields):
    """The small module with other fields of its first operator of that name."""
    module = small_module(1)
    inst = next(inst for inst in module.computations[0].instructions if inst.opcode == name)
    for field, value in fields.items():
        getattr(inst, field)[:] = value
    return module


MODULES = {
    "a call of itself": (calling("call", 1), "recursive|calls itself"),
    "two that call each other": (mutual(), "recursive|calls itself"),
    "a fusion of itself": (calling("fusion", 1), "recursive|calls itself"),
    "a call of nothing": (calling("call"), "call.* names 0 computations, it needs 1"),
    "a call of what is not there": (calling("call", 9), "computation that call .* calls is missing"),
    "a loop without a condition": (calling("while", 2), "while.* names 1 computations, it needs 2"),
    "a branch without branches": (calling("conditional"), "conditional.* names 0 computations"),
    "a fusion of nothing": (calling("fusion"), "fusion.* names 0 computations"),
    "a dot without operands": (changed("dot", operand_ids=[]), "dot.* has 0 operands"),
    "a dot of one": (changed("dot", operand_ids=[1]), "dot.* has 1 operands"),
    "a reshape of nothing": (changed("reshape", operand_ids=[]), "reshape.* has 0 operands"),
}


@cases("name", MODULES)
def test_an_unsound_program_is_refused(tmp_path, name):
    module, said = MODULES[name]
    path = tmp_path / "x.pb"
    path.write_bytes(module.SerializeToString())
    with pytest.raises(DataError, match=rf"x\.pb: .*({said})"):
        read_cost_graph(path, DEVICE)


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


def put(key, position, value):
    return lambda arrays: arrays[key].__setitem__(position, value)


def renew(key, make):
    return lambda arrays: arrays.update({key: make(arrays[key])})


ARRAYS = {
    "a negative size": (put("node_feat", (1, 21), -8), r"node_feat\[1, 21\] is -8"),
    "half a size": (put("node_feat", (1, 21), 0.5), r"node_feat\[1, 21\] is 0.5"),
    "a product beyond any memory": (
        put("node_feat", (1, 28), 1e30),
        r"\[1, 28\] is 1e\+30, 0 to 1e\+15 wanted",
    ),
    "a negative product": (
        put("node_feat", (1, 28), -64),
        r"\[1, 28\] is -64, 0 to 1e\+15 wanted",
    ),
    "NaN": (put("node_feat", (1, 9), np.nan), r"node_feat\[1, 9\] is nan"),
    "opcode 255": (put("node_opcode", 1, 255), r"node_opcode\[1\] is 255, 0 to 120 wanted"),
    "opcode -1": (renew("node_opcode", lambda a: a.astype(np.int64) - 200), r"node_opcode\[0\] is -"),
    "opcodes of halves": (renew("node_opcode", lambda a: a + 0.5), "node_opcode has type float64"),
    "an edge to nowhere": (put("edge_index", (0, 0), 99), r"edge_index\[0, 0\] is 99"),
    "an edge from -1": (put("edge_index", (0, 0), -1), r"edge_index\[0, 0\] is -1"),
    "a node of itself": (put("edge_index", 0, 1), "a node other than its operand"),
    "edges of three": (renew("edge_index", lambda a: np.hstack([a, a[:, :1]])), r"edge_index has shape"),
    "a row of features less": (renew("node_feat", lambda a: a[1:]), "node_opcode has shape"),
    "a column less": (renew("node_feat", lambda a: a[:, 1:]), "node_feat has shape"),
    "features in one row": (renew("node_feat", np.ravel), "node_feat has shape"),
    "text": (renew("node_feat", lambda a: a.astype("U3")), "node_feat has type"),
    "no node": (lambda arrays: arrays.update({key: arrays[key][:0] for key in arrays}), "has no nodes"),
    "no edges key": (lambda arrays: arrays.__delitem__("edge_index"), "key edge_index is missing"),
}


def npz(tmp_path):
    """A competition file whose program can be placed."""
    path = write_npz(tmp_path / "x.npz", layout_arrays())
    assert len(read_cost_graph(path, DEVICE))
    return path


@cases("name", ARRAYS, npz=npz)
def test_an_npz_of_other_shapes_types_or_ranges_is_refused(npz, name):
    change, said = ARRAYS[name]
    change_arrays(npz, change)
    with pytest.raises(DataError, match=rf"x\.npz: .*({said})"):
        read_cost_graph(npz, DEVICE)


FILES = {**BINARY, **absurd_members("node_opcode")}


@cases("name", FILES, npz=npz)
def test_an_npz_that_is_none_is_refused(npz, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    FILES[name](npz)
    with pytest.raises(DataError, match=r"x\.npz: "):
        read_cost_graph(npz, DEVICE)
    assert not (tmp_path / "executed").exists()


ENDS = {
    "devices": (1, 256),
    "threads": (0, 256),
    "updates": (0, 1_000_000),
    "samples": (1, 10_000),
    "epochs": (0, 1000),
    "sage_layers": (1, 64),
    "attention_layers": (0, 64),
    "passes": (1, 64),
    "segment": (1, 4096),
    "unroll": (0, 10_000),
}


@cases("name", ENDS)
def test_a_setting_has_two_ends(name):
    low, high = ENDS[name]
    policy = {"policy": "x.pt"} if name == "updates" else {}  # 0 updates need one
    for value in (low, high):
        assert getattr(PlaceSettings(**policy, **{name: value}), name) == value
    for value in (low - 1, high + 1, 10**6 + high, 2**63, -(2**63)):
        with pytest.raises(SettingsError, match=name):
            PlaceSettings(**policy, **{name: value})


@cases("filler", [b" ", b"\0", b"["])
def test_a_packed_problem_is_unpacked_up_to_a_limit(tmp_path, monkeypatch, filler):
    monkeypatch.setattr(sharding, "_MAX_BYTES", 100_000)
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"a": "b" * 90_000}).encode()))
    assert read_problem_file(path) == {"a": "b" * 90_000}
    path.write_bytes(gzip.compress(filler * 100_001))
    with pytest.raises(DataError, match=r"x\.json\.gz: unpacks to more than 100,000 bytes"):
        read_problem_file(path)
    (tmp_path / "x.json").write_bytes(filler * 100_001)
    with pytest.raises(DataError, match=r"x\.json: has 100,001 bytes, at most 100,000 are read"):
        read_problem_file(tmp_path / "x.json")


@cases("name", [*ANY_FILE])
def test_a_problem_that_is_no_file_or_no_json_is_refused(tmp_path, name):
    path = tmp_path / "x.json"
    path.write_text("{}")
    ANY_FILE[name](path)
    with pytest.raises(DataError, match=r"x\.json: "):
        read_problem_file(path)
