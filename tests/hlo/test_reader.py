"""Reading HLO files of every kind, and refusing other files."""

from collections import Counter

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.hlo import forms
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module, ModuleTuningData, TuningData
from fastslow.hlo.reader import read_hlo, read_hlo_modules
from helpers.competition_files import PUBLISHED_GRAPH, PUBLISHED_MODULE, needs_pair, npz_program
from helpers.forked_workers import forked  # noqa: F401 (fixture)
from helpers.hlo_message import Program

HLO_TEXT = """HloModule product, entry_computation_layout={(f32[4,8]{1,0})->f32[4,4]{1,0}}

ENTRY main {
  p = f32[4,8]{1,0} parameter(0)
  t = f32[8,4]{0,1} transpose(p), dimensions={1,0}
  ROOT d = f32[4,4]{1,0} dot(p, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def module():
    """A module whose root is a reshape of a sum."""
    program = Program()
    tensor = program.add("parameter", (2, 3), name="p")
    total = program.reduce((2,), [tensor], [1], name="sum")
    program.computation.root_id = program.add("reshape", (2, 1), [total], name="r")
    program.module.name = "small"
    program.module.entry_computation_name = program.computation.name = "main"
    program.module.entry_computation_id = program.computation.id
    return program.module


@pytest.fixture
def file(tmp_path):
    """Write bytes or a message to a file."""

    def write(content):
        path = tmp_path / "program.pb"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return path

    return write


def layout_run(layouts, nanoseconds, **fields):
    """Return a run under a layout configuration: the layouts of the tensors of every node."""
    nodes = [{"tensors": [{"dims": dims} for dims in node]} for node in layouts]
    settings = {"layout_config": {"nodes": nodes}}
    return {"module_config": settings, "profile": {"compute_time_ns": nanoseconds}, **fields}


def tile_run(kernel, output, nanoseconds, **fields):
    """Return a run under a tile configuration."""
    tile = {"kernel_bounds": kernel, "output_bounds": output}
    settings = {"tile_size_config": tile}
    return {"op_config": settings, "profile": {"compute_time_ns": nanoseconds}, **fields}


def test_buffers_of_a_compiler_dump_are_not_taken_for_runs(file, module):
    """Field 3 of an HloProto is the buffer assignment, that of a ModuleTuningData holds the runs."""
    as_runs = ModuleTuningData(module=module, runs=[layout_run([[[0]]], 5)])
    assert read_hlo(file(as_runs)).runs == {}


def test_fields_that_are_not_named_here_survive(file, module):
    foreign = module.SerializeToString() + b"\xc2\x3e\x03abc"  # field 1000
    assert read_hlo(file(foreign)).module.SerializeToString() == foreign


def test_layout_runs_in_file_order_without_those_that_failed(file, module):
    runs = [
        layout_run([[[1, 0], [0]]], 500, is_default=True),
        layout_run([[[0, 1], [0]]], 300),
        layout_run([[[0, 1], [0]]], 200, error=True),
        {"module_config": {"layout_config": {}}},
        layout_run([[[], []]], 400),
    ]
    program = read_hlo(
        file(ModuleTuningData(module=module, fingerprint=1, runs=runs, config_index_to_node=[3]))
    )
    assert program.module == module
    assert program.runs["config_runtime"].tolist() == [500, 300, 400]
    assert program.runs["node_config_ids"].tolist() == [3]
    empty = [-1] * 6
    rows = [[1, 0, *empty[:4], 0, *empty[:5], *empty], [0, 1, *empty[:4], 0, *empty[:5], *empty], empty * 3]
    assert program.runs["node_config_feat"].tolist() == [[row] for row in rows]


def test_module_and_runs_make_a_competition_file(file, module, tmp_path):
    tuned = ModuleTuningData(module=module, fingerprint=1, runs=[layout_run([[[1, 0], [0]]], 500)])
    tuned.config_index_to_node.append(3)
    program = read_hlo(file(tuned))
    np.savez(tmp_path / "program.npz", **graph_arrays(program.module), **program.runs)
    assert npz_program(tmp_path / "program.npz", "layout", labelled=True).runtime.tolist() == [500]


def test_tile_runs_of_several_modules(file, module, tmp_path):
    other = Module.FromString(module.SerializeToString())
    other.name = "other"
    tiles = [tile_run([2, 3], [1, 2, 1, 2, 1, 2, 3], 70, is_default=True), tile_run([1], [2], 50)]
    tuned = [ModuleTuningData(module=part, fingerprint=7, runs=tiles) for part in (module, other)]
    path = file(TuningData(modules=tuned))
    programs = read_hlo_modules(path)
    assert [program.module.name for program in programs] == ["small", "other"]
    runs = programs[0].runs
    kernel, output = [2, 3, 0, 0, 0, 0, 5, 6], [1, 2, 1, 2, 1, 2, 12, 24]
    assert runs["config_feat"].tolist() == [
        [*kernel, *output, *[0] * 8],
        [1, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 2, 2, *[0] * 8],
    ]
    assert runs["config_runtime"].tolist() == [70, 50]
    assert runs["config_runtime_normalizers"].tolist() == [70, 70]
    np.savez(tmp_path / "kernel.npz", **graph_arrays(module), **runs)
    assert npz_program(tmp_path / "kernel.npz", "tile").normalizers.tolist() == [70, 70]
    with pytest.raises(DataError, match=r"holds 2 kernels \(0 small, 1 other\)\. Choose one.*kernel="):
        read_hlo(path)
    assert read_hlo(path, "other").module == read_hlo(path, "1").module == other


def test_a_default_that_was_measured_twice_gives_the_mean(file, module):
    tiles = [tile_run([2], [1], time, is_default=True) for time in (70, 90)]
    tuned = ModuleTuningData(module=module, fingerprint=7, runs=[*tiles, tile_run([1], [2], 50)])
    assert read_hlo(file(tuned)).runs["config_runtime_normalizers"].tolist() == [80, 80, 80]


def node(module, number):
    return module.computations[0].instructions[number]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda m: setattr(m.computations[0], "root_id", 77), "the root of computation main is missing"),
        (lambda m: node(m, 2).operand_ids.append(77), "an operand of reduce sum is missing"),
        (lambda m: m.computations.pop(), "a computation that reduce sum calls is missing"),
        (lambda m: setattr(m, "entry_computation_id", 9), "the entry computation main is missing"),
        (lambda m: setattr(m.computations[1], "id", 1), "two computations have the same id"),
        (lambda m: setattr(node(m, 1), "id", 0), "two instructions of computation main"),
    ],
)
def test_a_module_that_names_what_it_lacks_is_refused(file, module, change, problem):
    change(module)
    with pytest.raises(DataError, match=f"program.pb: HLO module 'small': {problem}"):
        read_hlo(file(module))


def test_runs_that_do_not_fit_the_module_are_refused(file, module):
    def read(ids, *runs):
        tuned = ModuleTuningData(module=module, fingerprint=1, runs=runs, config_index_to_node=ids)
        return read_hlo(file(tuned))

    with pytest.raises(DataError, match="names node 99, but the program has"):
        read([99], layout_run([[[0]]], 5))
    with pytest.raises(DataError, match=f"program.pb: config_index_to_node names node {2**63 + 5}, but"):
        read([2**63 + 5, 3], layout_run([[[0]]], 5))
    with pytest.raises(DataError, match="program.pb: config_index_to_node names node 3 twice"):
        read([3, 3], layout_run([[[0]], [[0]]], 5))
    with pytest.raises(
        DataError, match=r"program.pb: a run has the layout \[0, 2147483647\], axes from 0 to"
    ):
        read([3], layout_run([[[0, 2**31 - 1]]], 5))
    for bound in (-(2**40), 2**62):
        with pytest.raises(DataError, match=f"program.pb: a run has the tile bound {bound}, 0 to 2147483647"):
            read([], tile_run([1], [bound], 5, is_default=True))
    with pytest.raises(DataError, match="2 configurations of HLO module 'small' are marked as the default"):
        read([], tile_run([1], [1], 5, is_default=True), tile_run([2], [1], 7, is_default=True))
    with pytest.raises(DataError, match="configures 2 nodes, but config_index_to_node names 1"):
        read([1], layout_run([[[0]], [[0]]], 5))
    with pytest.raises(DataError, match="none is the default"):
        read([], tile_run([1], [1], 5))
    with pytest.raises(DataError, match="mix layouts and tiles"):
        read([1], layout_run([[[0]]], 5), tile_run([1], [1], 5, is_default=True))


@pytest.fixture
def parser(tmp_path, monkeypatch):
    """A function that puts a parser in the place of jaxlib's, of the lines of its body."""

    def put(body):
        package = tmp_path / "jaxlib"
        package.mkdir()
        (package / "__init__.py").touch()
        lines = f"import os, time\nclass hlo:\n    def hlo_module_from_text(text):\n        {body}\n"
        (package / "xla_client.py").write_text(lines)
        monkeypatch.syspath_prepend(tmp_path)

    return put


def test_text_without_jaxlib_says_how_to_get_a_protobuf(file, tmp_path, monkeypatch):
    (tmp_path / "jaxlib.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match="jaxlib is not installed.*xla_dump_hlo_as_proto.*fastslow.compiler"):
        read_hlo(file(HLO_TEXT.encode()))


PARSERS = {  # what the parser does: the message
    "os.write(2, b'rank == 4'); os.abort()": r"and XLA's parser ended on it \(SIGABRT: rank == 4\)\. Dump",
    "bytearray(10**12)": "that XLA's parser ends on: it needed more than the memory limit",
    "time.sleep(60)": "does not finish in 2 s",
    "raise OSError('no such opcode')": "is HLO text that this version of XLA does not read: no such opcode",
}


@pytest.mark.parametrize("does", PARSERS)
def test_a_parser_that_ends_does_not_end_us(file, parser, monkeypatch, does):
    parser(does)
    monkeypatch.setattr(forms, "_PARSER_SECONDS", 2.0)
    with pytest.raises(DataError, match=PARSERS[does]):
        read_hlo(file(HLO_TEXT.encode()))


ENDS = {  # what replaces a part of the text: the message
    (
        "parameter(0)",
        "parameter(1)",
    ): r"XLA's parser ended on it, probably at 'p = .*parameter\(1\)' \(SIGABRT: ",
    ("f32[8,4]{0,1} transpose(p)", "token[8,4] transpose(p)"): r"ended on it, probably at 't = token\[8,4\]",
    (
        "p = f32[4,8]{1,0} parameter(0)",
        "q = (f32[4,8]) parameter(0)\n  p = f32[4,8] get-tuple-element(q), index=1",
    ): ("get-tuple-element p takes element 1 of a tuple of 1"),
    (
        "p = f32[4,8]{1,0} parameter(0)",
        "q = (f32[4,8]) parameter(0)\n  p = f32[4,8] get-tuple-element(q), index=-1",
    ): ("get-tuple-element p takes element -1 of a tuple of 1"),
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("change", ENDS)
def test_a_text_that_xla_ends_on_is_explained_in_one_line(file, change):
    pytest.importorskip("jaxlib.xla_client", reason="HLO text needs jaxlib, an optional requirement")
    _, header, body = HLO_TEXT.partition("HloModule product")
    body = body.partition("\n")[2].replace(*change)
    with pytest.raises(DataError, match=ENDS[change]) as caught:
        read_hlo(file(f"{header}\n{body}".encode()))
    assert "\n" not in str(caught.value) and "***" not in str(caught.value)


def test_text_by_the_compilers_own_parser(file):
    pytest.importorskip("jaxlib.xla_client", reason="HLO text needs jaxlib, an optional requirement")
    module = read_hlo(file(HLO_TEXT.encode())).module
    (main,) = module.computations
    assert [inst.opcode for inst in main.instructions] == ["parameter", "transpose", "dot"]
    assert list(main.instructions[2].dot.lhs_contracting) == [1]
    assert list(main.instructions[1].shape.layout.minor_to_major) == [0, 1]


@needs_pair
def test_the_published_runs_are_those_of_the_npz_by_configuration_and_runtime():
    runs = read_hlo(PUBLISHED_MODULE).runs
    with np.load(PUBLISHED_GRAPH, allow_pickle=False) as npz:
        published = {key: npz[key] for key in runs}
    assert np.array_equal(runs["node_config_ids"], published["node_config_ids"])
    ours, theirs = (
        Counter(
            (int(time), settings.tobytes())
            for time, settings in zip(part["config_runtime"], part["node_config_feat"], strict=True)
        )
        for part in (runs, published)
    )
    assert ours.total() == 112
    assert ours <= theirs, "a run that the npz does not hold"
