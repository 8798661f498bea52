"""Competition files, HLO files and archives that are broken in every known way: refused by name, or read."""

import os
import shutil
import stat
import tarfile
import zipfile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import SCHEMA
from fastslow.core.errors import DataError
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.reader import read_hlo_modules
from fastslow.kaggle.unpacking import unpack
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.program.graph_picture import assign_layers
from helpers.bad_files import ANY_FILE, BINARY, absurd_members, refused, replace, workplace
from helpers.cases import cases
from helpers.competition_files import ROOT, npz_program, write_npz
from helpers.good_artifacts import change_arrays
from helpers.hlo_message import Program


def put(key, position, value, dtype=None):
    """A mutation of arrays: one value, in an array of another type where one is given."""

    def change(arrays):
        arrays[key] = arrays[key].astype(dtype or arrays[key].dtype)
        arrays[key][position] = value

    return change


def cast(key, dtype):
    return lambda arrays: arrays.update({key: arrays[key].astype(dtype)})


def cut(*keys):
    return lambda arrays: arrays.update({key: arrays[key][:0] for key in keys})


def without(key):
    return lambda arrays: arrays.__delitem__(key)


def longer(key):
    return lambda arrays: arrays.update({key: np.concatenate([arrays[key], arrays[key][:1]])})


def deeper(key):
    return lambda arrays: arrays.update({key: arrays[key][None]})


def transposes(axis):
    """A mutation that makes node 2 a transpose of an axis."""

    def change(arrays):
        arrays["node_opcode"][2] = OPCODES["transpose"]
        arrays["node_feat"][2, 31] = axis

    return change


def no_configurable(arrays):
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]


def no_configuration(arrays):
    for key in {"config_runtime", "node_config_feat", "config_feat", "config_runtime_normalizers"} & {
        *arrays
    }:
        arrays[key] = arrays[key][:0]


def unsigned(arrays):
    arrays["node_config_feat"] = arrays["node_config_feat"].astype(np.int8).astype(np.uint8)


def column_by_column(arrays):
    arrays["node_config_feat"] = np.asfortranarray(arrays["node_config_feat"])


def turned(key, **order):
    """A mutation that reverses an array, or one of its axes."""
    return lambda arrays: arrays.update({key: np.flip(arrays[key], **order)})


TYPES = ("complex64", "datetime64[s]", "bool")
OF_ANY_KIND = {
    **{f"node_feat is {v}": (put("node_feat", (1, 9), v), r"node_feat\[1, 9\]") for v in (np.nan, np.inf)},
    "a negative size": (put("node_feat", (1, 21), -1), r"node_feat\[1, 21\] is -1.0, .*padding=-1"),
    "a size beyond 32 bits": (put("node_feat", (1, 21), 2.0**31), r"node_feat\[1, 21\]"),
    "half an axis": (put("node_feat", (1, 134), 0.5), r"node_feat\[1, 134\] is 0.5, a whole axis"),
    "axis 64": (put("node_feat", (1, 139), 64), r"node_feat\[1, 139\] is 64.0, a whole axis"),
    "an opcode of 121": (put("node_opcode", 1, 121), r"node_opcode\[1\] is 121"),
    "an edge to nowhere": (put("edge_index", (1, 1), 99), r"edge_index\[1, 1\] is 99"),
    "a runtime beyond 64 bits": (put("config_runtime", 2, 2**63, np.uint64), r"config_runtime\[2\]"),
    "no nodes": (cut("node_feat", "node_opcode"), "has no nodes"),
    "another sum": (put("node_feat", (1, 27), 5), r"node_feat\[1, 27\] is 5, the sum .*shape_sum of a param"),
    "another product": (put("node_feat", (1, 28), 0), r"node_feat\[1, 28\] is 0, .* product"),
    "a hole in the shape": (put("node_feat", (1, slice(21, 23)), [0, 2]), r"node_feat\[1, 2[78]\]"),
    "two element types": (put("node_feat", (1, 5), 1), "one element type"),
    "no element type": (put("node_feat", (1, slice(2, 21)), 0), "one element type"),
    "half an element type": (
        put("node_feat", (1, 5), 0.5),
        r"node_feat\[1, 5\] is 0.5, a whole flag from 0 to 1",
    ),
    "a tuple's size of a tensor": (put("node_feat", (1, 29), 2), r"node_feat\[1, 29\] is 2, .* no tuple"),
    "a layout of one axis twice": (put("node_feat", (1, slice(134, 136)), [1, 1]), "each axis"),
    "an axis beyond the rank in a layout": (put("node_feat", (1, 136), 1), "each axis of the tensor once"),
    "a root of 7": (put("node_feat", (1, 0), 7), r"node_feat\[1, 0\] is 7"),
    "no root": (put("node_feat", (slice(None), 0), 0), "a root wanted"),
    "a window size of -3": (put("node_feat", (2, 37), -3), r"node_feat\[2, 37\] is -3"),
    "a window of a parameter": (
        put("node_feat", (1, slice(92, 93)), 2),
        r"node_feat\[1, 92\] is 2, an empty",
    ),
    "a group count of -2": (put("node_feat", (2, 107), -2), r"node_feat\[2, 107\] is -2"),
    "a row of zeros": (put("node_feat", 2, 0), "node_feat"),
    "columns in another order": (turned("node_feat", axis=1), "node_feat"),
    "edges the other way": (
        turned("edge_index", axis=1),
        r"node \d+, a parameter, has \d operands .*\(edge_index\)",
    ),
    "an edge twice": (longer("edge_index"), r"edge_index\[\d+\] is .*, an edge of an earlier row"),
    "no known opcode": (put("node_opcode", slice(None), 0), "node_opcode is 0 everywhere"),
    "opcodes in another order": (
        turned("node_opcode", axis=0),
        "node_config_ids|edge_index: node|an empty column wanted .parameter_number of a dot",
    ),
    "no configuration": (no_configuration, "has no configurations"),
}
OF_LAYOUT = {
    "a default beyond the rank": (
        lambda a: a.update(
            node_config_default=np.full((len(a["node_config_ids"]), 18), -1) + np.eye(1, 18) * 5
        ),
        r"node_config_default\[0, 0\] is 4, but the node's output has 2 dimensions",
    ),
    **{
        f"a transpose of axis {axis:g}": (transposes(axis), r"node_feat\[2, 31\]|node 2, a transpose, has")
        for axis in (-3, 0.5, 2, 6, 120, 1e9)
    },
    "no configurable node": (no_configurable, "has no configurable nodes"),
    "a configurable node beyond the graph": (put("node_config_ids", 1, 99), r"node_config_ids\[1\] is 99"),
    "a configurable node twice": (put("node_config_ids", 1, 2), "names a node twice"),
    "a configurable parameter": (
        put("node_config_ids", 1, 1),
        "names node 1, a parameter; configurable are convolution",
    ),
    **{
        f"an axis of {v}": (put("node_config_feat", (2, 1, 7), v), r"node_config_feat\[2, 1, 7\]")
        for v in (6, -2, 0.5, 255, 1e30, np.nan, np.inf)
    },
    "a layout that repeats an axis": (put("node_config_feat", (2, 1, slice(6, 8)), 1), "names twice"),
    "a layout with a hole": (
        put("node_config_feat", (2, 1, slice(6, 9)), [0, -1, 1]),
        r"node_config_feat\[2, 1, 8\] is 1, .* names after padding",
    ),
    "a layout beyond the rank": (
        put("node_config_feat", (2, 1, slice(0, 2)), [2, 0]),
        r"node_config_feat\[2, 1, 0\] is 2, but the node's output has 2 dimensions",
    ),
    "an input layout beyond the rank": (
        put("node_config_feat", (2, 1, slice(6, 8)), [2, 0]),
        r"node_config_feat\[2, 1, 6\] is 2, but the node's input has 2 dimensions",
    ),
    "a kernel layout beyond the rank": (
        put("node_config_feat", (2, 1, slice(12, 14)), [0, 5]),
        r"node_config_feat\[2, 1, 13\] is 5, but the node's kernel has 2 dimensions",
    ),
    "an unsigned -1": (unsigned, r"node_config_feat\[.*\] is 255, a whole number from -1 to 5 wanted"),
    "layouts column by column": (column_by_column, "column by column. .*ascontiguousarray"),
}
OF_TILE = {
    "a bound of -1": (put("config_feat", (1, 3), -1), r"config_feat\[1, 3\] is -1"),
    "a normalizer of 0": (put("config_runtime_normalizers", 1, 0), r"config_runtime_normalizers\[1\] is 0"),
    "a bound of NaN": (put("config_feat", (1, 3), np.nan), r"config_feat\[1, 3\] is nan"),
    "another sum of bounds": (put("config_feat", (1, 6), 9), r"config_feat\[1, 6\] is 9, the sum .*kernel"),
    "a hole in the bounds": (put("config_feat", (1, 8), 0), r"config_feat\[1, 1[45]\]"),
    "a product of no bounds": (put("config_feat", (1, 23), 1), r"config_feat\[1, 23\] is 1.*input"),
    "a bound beyond the tensors": (
        put("config_feat", (1, slice(0, 8)), [9000, 0, 0, 0, 0, 0, 9000, 9000]),
        r"config_feat\[1, 0\] is 9000, no more than the largest tensor .*kernel window",
    ),
    "bounds of 1e38": (put("config_feat", (1, slice(0, 8)), [1e38, 0, 0, 0, 0, 0, 1e38, 1e38]), r"1e\+38"),
    "a bound of infinity": (put("config_feat", (1, 3), np.inf), r"config_feat\[1, 3\] is inf"),
}
SAID = {
    "without": "key .* is missing .*make data",
    "one more row in": "has shape .* wanted",
    "text in": r"has type .* wanted\. Save it as \w+, for example with .*\.astype",
}

KINDS = {
    **{("layout", name): case for name, case in (OF_ANY_KIND | OF_LAYOUT).items()},
    **{("tile", name): case for name, case in OF_TILE.items()},
    **{("layout", f"node_feat as {t}"): (cast("node_feat", t), "node_feat") for t in TYPES},
    **{
        (kind, f"{what} {key}"): (change(key), SAID.get(what, key))
        for kind in SCHEMA
        for key in SCHEMA[kind]
        for what, change in (
            ("without", without),
            *(() if key == "node_splits" else (("one more row in", longer), ("one more axis in", deeper))),
            ("text in", lambda key: cast(key, "U3")),
        )
        # a longer edge list is one more edge
        if not (what == "one more row in" and key == "edge_index")
    },
}


@cases("kind, name", KINDS, workplace=workplace)
def test_a_competition_file_with_wrong_arrays_is_refused(good, workplace, kind, name):
    path = shutil.copy(good.root / f"{kind}.npz", workplace / "x.npz")
    change, said = KINDS[kind, name]
    change_arrays(path, change)
    refused(lambda: npz_program(path, kind, labelled=True), path, said)


@cases("order", [slice(None, None, -1), slice(1, None)], workplace=workplace)
@cases("key", ["node_feat", "node_opcode"])
@cases("kind", SCHEMA)
def test_rows_of_a_program_in_another_order_are_refused(workplace, kind, key, order):
    path = next((ROOT / "data" / "sample").rglob(f"{kind}/**/*.npz"))
    with np.load(path) as npz:
        arrays = dict(npz)
    arrays[key] = np.concatenate([arrays[key][order], arrays[key][: order.start or 0]])
    write_npz(workplace / "x.npz", arrays)
    refused(lambda: npz_program(workplace / "x.npz", kind), workplace / "x.npz")


BROKEN = {**BINARY, **absurd_members("node_feat")}


@cases("name", BROKEN, workplace=workplace)
def test_a_broken_competition_file_is_refused(good, workplace, name):
    path = shutil.copy(good.root / "layout.npz", workplace / "x.npz")
    BROKEN[name](path)
    refused(lambda: npz_program(path, "layout", labelled=True), path)


def dot_module(change):
    """A module of two parameters, their dot and a reshape of it, spoilt by a change of its instructions."""
    program = Program()
    one, two = (
        program.add("parameter", (2, 3), name=name, parameter_number=number)
        for number, name in enumerate("ab")
    )
    dot = program.add("dot", (2, 2), [one, two], name="d")
    program.computation.root_id = program.add("reshape", (4,), [dot], name="r")
    program.module.name = program.module.entry_computation_name = program.computation.name = "main"
    program.module.entry_computation_id = program.computation.id
    a, b, dot, reshape = program.computation.instructions
    dot.dot.lhs_contracting.append(1)
    dot.dot.rhs_contracting.append(1)
    change(dot, reshape, program.computation)
    return program.module.SerializeToString()


def opcode(name):
    return lambda dot, last, part: [setattr(inst, "opcode", name) for inst in part.instructions]


def last_is(name, **fields):
    """A change of the last instruction: its opcode and the values of lists."""

    def change(dot, last, part):
        last.opcode = name
        for field, values in fields.items():
            getattr(last, field)[:] = values

    return change


MODULES = {
    "a negation of two": (last_is("negate", operand_ids=[2, 2]), "negate r has 2 operands, 1 wanted"),
    "a negation of nothing": (last_is("negate", operand_ids=[]), "negate r has 0 operands, 1 wanted"),
    "a negation of other sizes": (last_is("negate"), r"negate r has the sizes \[4\], .*f32\[2,2\]"),
    "a transpose of no axes": (last_is("transpose"), r"transpose r has the axes \[\]"),
    "a transpose of an axis twice": (
        last_is("transpose", dimensions=[0, 0]),
        r"transpose r has the axes \[0, 0\]",
    ),
    "a broadcast to axis 9": (last_is("broadcast", dimensions=[0, 9]), r"names the axes \[0, 9\]"),
    "a reduce without computation": (last_is("reduce", operand_ids=[2, 2]), "calls 0 computations, 1 wanted"),
    "a loop without body": (last_is("while"), "while r calls 0 computations, 2 wanted"),
    "an element of a tensor": (last_is("get-tuple-element"), "takes element 0 of a tuple of 0"),
    "a pair of one": (
        lambda dot, last, part: (
            last_is("tuple")(dot, last, part)
            or last.shape.CopyFrom(type(last.shape)(element_type=13, tuple_shapes=[dot.shape] * 2))
        ),
        r"tuple r is \(f32\[2,2\], f32\[2,2\]\), its operands f32\[2,2\]\.",
    ),
    "a dot of another size": (
        lambda dot, last, part: dot.shape.dimensions.__setitem__(0, 20),
        r"dot d has the sizes \[20, 2\], \[2, 2\] wanted",
    ),
    "a dot over other sizes": (
        lambda dot, last, part: part.instructions[1].shape.dimensions.__setitem__(1, 7),
        r"contracts \[3\] with \[7\]",
    ),
    "element type 99": (
        lambda dot, last, part: setattr(last.shape, "element_type", 99),
        "reshape r has the element type 99",
    ),
    "element type tuple": (
        lambda dot, last, part: setattr(last.shape, "element_type", 13),
        "reshape r is a tuple with sizes",
    ),
    "tuple shapes in a tensor": (
        lambda dot, last, part: last.shape.tuple_shapes.add(element_type=11),
        "reshape r has 1 tuple_shapes",
    ),
    "a parameter of number 5": (
        lambda dot, last, part: setattr(part.instructions[1], "parameter_number", 5),
        r"parameters of computation main have the numbers \[0, 5\]",
    ),
    "a dot of one operand": (lambda dot, last, part: dot.operand_ids.pop(), "has 1 operand, 2 wanted"),
    "a reshape of nothing": (lambda dot, last, part: last.operand_ids.pop(), "has 0 operands, 1 wanted"),
    "an operand of itself": (lambda dot, last, part: dot.operand_ids.append(dot.id), "its own result"),
    "a cycle of two": (lambda dot, last, part: dot.operand_ids.append(last.id), "its own result"),
    "a recursive call": (lambda dot, last, part: dot.called_computation_ids.append(part.id), "calls itself"),
    "all dots": (opcode("dot"), "has 0 operands"),
    "all reshapes": (opcode("reshape"), "has 0 operands"),
    "a reshape of other size": (
        lambda dot, last, part: last.shape.dimensions.__setitem__(0, 12),
        "has 12 elements",
    ),
    "an axis beyond": (lambda dot, last, part: dot.dot.lhs_contracting.insert(0, 7), "axes|dimensions"),
    "a layout that is no order": (
        lambda dot, last, part: dot.shape.layout.minor_to_major.extend([1, 1]),
        r"dot d has the layout \[1, 0, 1, 1\], an order of 2 axes wanted",
    ),
}


@cases("name", MODULES, workplace=workplace)
def test_an_unsound_module_is_refused(workplace, name):
    change, said = MODULES[name]
    path = workplace / "x.pb"
    path.write_bytes(dot_module(lambda *_: None))
    assert len(read_hlo_modules(path)) == 1
    path.write_bytes(dot_module(change))
    refused(lambda: read_hlo_modules(path), path, said)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_module_of_any_references_is_refused_or_drawn(tmp_path_factory, data):
    """Whatever the reader lets pass has layouts and a picture."""
    path = tmp_path_factory.mktemp("any") / "x.pb"
    numbers = st.integers(-2, 4)

    def change(dot, last, part):
        for inst in (dot, last):
            inst.opcode = data.draw(st.sampled_from(["dot", "reshape", "convolution", "negate"]))
            for field in (inst.shape.dimensions, inst.dot.lhs_contracting, inst.dot.rhs_batch):
                field[:] = data.draw(st.lists(numbers, max_size=4))
            ids = st.sampled_from([each.id for each in part.instructions])
            inst.operand_ids[:] = data.draw(st.lists(ids, max_size=3))

    path.write_bytes(dot_module(change))
    try:
        (program,) = read_hlo_modules(path)
    except DataError as error:
        assert "x.pb" in str(error)
    else:
        configurable_nodes(program.module)
        assign_layers(graph_arrays(program.module)["edge_index"], 4)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-3])


HLO = {
    **ANY_FILE,
    "cut short": cut_short,
    "StableHLO": lambda path: path.write_text("module @jit_f {}"),
    "an npz": lambda path: np.savez(path.open("wb"), x=np.ones(3)),
    "nested messages": lambda path: path.write_bytes(b"\x0a\x7f" * 5000),
    **{repr(data[:5]): replace(data) for data in (b"\x00" * 100, b"PK\x03\x04", b"ML\xefR\x01", b"\x0a\xff")},
}


@cases("name", HLO, workplace=workplace)
def test_a_broken_hlo_file_is_refused(good, workplace, name):
    path = workplace / "x.pb"
    shutil.copy(good.root / "program.pb", path)
    assert len(read_hlo_modules(path)) == 1
    HLO[name](path)
    refused(lambda: read_hlo_modules(path), path)


NAMES = ["/etc/x", "../x", "a/../../x", "C:x", "C:\\x", "..\\x", "\\x", "//x", "a\\..\\..\\x", ".."]
LINKS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]


def _tar(path, name, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(path, "w") as archive:
        archive.addfile(info)


@cases("suffix", ["tar", "zip"])
@cases("name", NAMES, workplace=workplace)
def test_an_archive_writes_nothing_outside_its_folder(workplace, name, suffix):
    archive = workplace / f"x.{suffix}"
    if suffix == "tar":
        _tar(archive, name)
    else:
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("good", b"1")
            opened.writestr(name, b"2")
    inside = workplace / "a" / "b"
    before = {*workplace.rglob("*")}
    refused(lambda: unpack(archive, inside, lambda member: member), archive, "do not trust this archive")
    assert {*workplace.rglob("*")} == before


def _zip(path, method=zipfile.ZIP_STORED, members=1):
    with zipfile.ZipFile(path, "w", method) as archive:
        for number in range(members):
            archive.writestr(f"{number}", b"x" * 100)


ARCHIVES = {
    "a named pipe": ("x.zip", lambda path: os.mkfifo(path), "a named pipe"),
    "a pipe as tar": ("x.tar", lambda path: os.mkfifo(path), "a named pipe"),
    "/dev/zero": ("x.tar", lambda path: path.symlink_to("/dev/zero"), "a device"),
    "lzma": ("x.zip", lambda path: _zip(path, zipfile.ZIP_LZMA), "otherwise than by deflate"),
    "bzip2": ("x.zip", lambda path: _zip(path, zipfile.ZIP_BZIP2), "otherwise than by deflate"),
    "a name that is too long": ("x.tar", lambda path: _tar(path, "n" * 300), "no file can have"),
    "many members": ("x.zip", lambda path: _zip(path, members=12), "more than 10 members"),
    "a bomb": ("x.zip", lambda path: _zip(path, zipfile.ZIP_DEFLATED), "has 100 bytes, at most 50 are"),
}


@cases("name", ARCHIVES, workplace=workplace)
def test_an_archive_that_is_no_sound_file_is_refused(workplace, monkeypatch, name):
    monkeypatch.setattr("fastslow.kaggle.unpacking.MAX_MEMBERS", 10)
    monkeypatch.setattr("fastslow.kaggle.unpacking.MAX_MEMBER_BYTES", 50 if name == "a bomb" else 1000)
    file, make, said = ARCHIVES[name]
    make(workplace / file)
    refused(lambda: unpack(workplace / file, workplace / "in", lambda member: member), file, said)


@cases("kind", [*LINKS, "a link in a zip"], workplace=workplace)
def test_an_archive_makes_no_links_or_devices(workplace, kind):
    archive, inside = workplace / ("x.tar" if kind in LINKS else "x.zip"), workplace / "inside"
    if kind in LINKS:
        _tar(archive, "a", kind)
    else:
        info = zipfile.ZipInfo("a")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr(info, "/etc/passwd")
    refused(lambda: unpack(archive, inside, lambda member: member), archive, "a link or a device")
    assert not os.path.lexists(inside / "a")
