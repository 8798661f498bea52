"""Nodes that no program has: every node of a sample file, changed in every way that its opcode forbids."""

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fastslow.competition.catalog import TRAIN, ProgramFile, get_collection
from fastslow.competition.node_columns import COLUMN_NAMES, ELEMENT_TYPES, LAYOUT, SHAPE
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import program_of
from fastslow.competition.rules.node_rules import first_fault
from fastslow.competition.rules.program_rules import check_graph, check_program
from fastslow.competition.schema import GRAPH
from fastslow.core.errors import DataError
from helpers.cases import cases
from helpers.workspace import SAMPLE

FILES = sorted(SAMPLE.glob("npz_all/npz/layout/*/default/train/*.npz"))
COLUMN = {name: number for number, name in enumerate(COLUMN_NAMES)}
PREFIX = COLUMN["element_type_invalid"]


@cache
def stored(path):
    with np.load(path) as npz:
        return {key: npz[key] for key in GRAPH}


def graph(path):
    return {key: array.copy() for key, array in stored(path).items()}


def check_nodes(arrays):
    check_graph(Path("x.npz"), *(arrays[key] for key in GRAPH))


def nodes_of(arrays, names):
    return np.flatnonzero(np.isin(arrays["node_opcode"], [OPCODES[name] for name in names.split()]))


def set_sizes(arrays, node, sizes):
    feat = arrays["node_feat"]
    feat[node, SHAPE] = [*sizes, *[0] * (6 - len(sizes))]
    feat[node, COLUMN["shape_sum"]], feat[node, COLUMN["shape_product"]] = sum(sizes), np.prod(sizes)
    order = range(len(sizes))[::-1]
    feat[node, LAYOUT] = [*order, *[0] * (6 - len(sizes))]


def sizes_of(arrays, node):
    return [int(size) for size in arrays["node_feat"][node, SHAPE] if size]


def larger(arrays, node):
    sizes = sizes_of(arrays, node)
    set_sizes(arrays, node, [*sizes[:-1], sizes[-1] + 1])


def typed(kind):
    def change(arrays, node):
        arrays["node_feat"][node, PREFIX : PREFIX + len(ELEMENT_TYPES)] = 0
        arrays["node_feat"][node, COLUMN[f"element_type_{kind}"]] = 1

    return change


def column(name, value):
    def change(arrays, node):
        arrays["node_feat"][node, COLUMN[name]] = value

    return change


def more_operands(arrays, node, count=5):
    edges = arrays["edge_index"]
    others = np.setdiff1d(np.arange(node), edges[edges[:, 0] == node, 1])[:count]
    edges = np.concatenate([edges, np.stack([np.full_like(others, node), others], 1)])
    arrays["edge_index"] = edges[np.lexsort(edges.T[::-1])]


def all_operands_lost(arrays, node):
    arrays["edge_index"] = arrays["edge_index"][arrays["edge_index"][:, 0] != node]


def called(arrays, node):
    """Whether the node is the root of a computation that a reduction calls."""
    users = arrays["edge_index"][arrays["edge_index"][:, 1] == node, 0]
    return any(arrays["node_opcode"][users] == OPCODES["reduce"])


def one_operand_more(arrays, node):
    more_operands(arrays, node, 1)


def one_operand_lost(arrays, node):
    row = np.flatnonzero(arrays["edge_index"][:, 0] == node)[0]
    arrays["edge_index"] = np.delete(arrays["edge_index"], row, 0)


def starts_lost(arrays, node):
    for _ in range(np.count_nonzero(arrays["edge_index"][:, 0] == node) - 1):
        one_operand_lost(arrays, node)


def as_opcode(name):
    def change(arrays, node):
        arrays["node_opcode"][node] = OPCODES[name]

    return change


def as_cholesky(arrays, node):
    sizes = sizes_of(arrays, node)
    if len(set(sizes[-2:])) == 2:
        as_opcode("cholesky")(arrays, node)


def more_ranks(arrays, node):
    set_sizes(arrays, node, [*sizes_of(arrays, node), 1])


def longer_strides(arrays, node):
    start = COLUMN["window_stride_0"]
    strides = arrays["node_feat"][node, start : start + 6]
    strides[strides > 0] += 1
    arrays["node_feat"][node, start + 6 : start + 8] = strides.sum(), np.prod(strides[strides > 0])


def an_axis_twice(arrays, node):
    arrays["node_feat"][node, COLUMN["dimensions_0"] : COLUMN["dimensions_2"]] = 1


def in_a_tuple(arrays, node):
    set_sizes(arrays, node, [])
    typed("tuple")(arrays, node)
    arrays["node_feat"][node, COLUMN["tuple_shapes"]] = 1


CHANGES = {
    "a tuple without its elements": ("tuple", all_operands_lost),
    "a product of three tensors": ("dot", one_operand_more),
    "a product that is a tuple": ("tuple", as_opcode("dot")),
    "a convolution of no dimensions": ("add maximum", as_opcode("convolution")),
    "a root of what is no square": ("exponential rsqrt", as_cholesky),
    "random numbers between tensors": ("dot", as_opcode("rng")),
    "a choice of tuples that is a tensor": ("select", as_opcode("tuple-select")),
    "a dependency on no token": ("add multiply", as_opcode("add-dependency")),
    "sizes that are no whole numbers": ("multiply", as_opcode("dynamic-reshape")),
    "a map of tensors of other sizes": ("reduce", as_opcode("map")),
    "a reduction in a tuple of one": ("reduce reduce-window scatter", in_a_tuple),
    "a number in the column that is always 0": ("add dot parameter", column("constant", 1)),
    "a slice with another sum of ends": ("slice", column("slice_limit_sum", 1)),
    "a slice with another product of strides": ("slice", column("slice_stride_product", 7)),
    "a part with another product of sizes": ("dynamic-slice", column("dynamic_slice_size_product", 7)),
    "a padding with another product": ("pad", column("edge_padding_low_product", 7)),
    "a reversal of an axis after the last": ("reverse", column("dimensions_5", 1)),
    "a selection without a start or a computation": ("select-and-scatter", one_operand_lost),
    "an element that its loop has not": ("get-tuple-element", larger),
    "a parameter whose number no other precedes": ("parameter", column("parameter_number", 3)),
    "what ends a copy that nothing began": ("get-tuple-element", as_opcode("copy-done")),
    "an infeed of other parts": ("while", as_opcode("infeed")),
    "a scatter of other sizes": ("scatter", larger),
    "a tensor that its update makes larger": ("dynamic-update-slice", larger),
    "a selection that scatters to other sizes": ("select-and-scatter", larger),
    "a selection in fewer windows": ("select-and-scatter", longer_strides),
    "a part of more dimensions than the whole": ("dynamic-slice", more_ranks),
    "a loop of fewer parts": ("while", column("tuple_shapes", 1)),
    "a reduction in windows of another type": ("reduce-window", typed("u8")),
    "a padding of other sizes": ("pad", column("edge_padding_high_0", 999)),
    "a reversal of an axis twice": ("reverse", an_axis_twice),
    "a concatenation of two axes": ("concatenate", column("dimensions_1", 1)),
    "a count along two axes": ("iota", column("dimensions_1", 1)),
    "numbers taken as others of another width": ("broadcast", as_opcode("bitcast-convert")),
    "a parameter of the number of another": ("parameter", column("parameter_number", 1)),
    "a reduction of one operand more": ("reduce", one_operand_more),
    "a reduction of one operand less": ("reduce", one_operand_lost),
    "a padding without a number": ("pad", one_operand_lost),
    "a part of a tensor from nowhere": ("dynamic-slice", starts_lost),
    "a called computation without a root": ("add maximum", column("is_root", 0)),
    "a map without a computation": ("add multiply", as_opcode("map")),
    "an after-all that is a number": ("add multiply", as_opcode("after-all")),
    "a copy-start that is no tuple": ("tanh convert", as_opcode("copy-start")),
    "a done of what is no tuple": ("tanh convert", as_opcode("async-done")),
    "a complex number of other type": ("add multiply", as_opcode("complex")),
    "positions that are no whole numbers": ("dot", as_opcode("gather")),
    "a larger elementwise output": ("add multiply tanh convert compare", larger),
    "an elementwise output of another type": ("add multiply tanh", typed("u8")),
    "a comparison that is a number": ("compare", typed("f32")),
    "an invalid element type": ("parameter dot add", typed("invalid")),
    "a tuple with sizes": ("add dot parameter", typed("tuple")),
    "more operands": ("add tanh convert reshape compare broadcast transpose", more_operands),
    "no operands": ("add dot reshape reduce", all_operands_lost),
    "a broadcast over axes that are none": ("broadcast", column("dimensions_0", 5)),
    "a broadcast over one axis too many": ("broadcast", column("dimensions_5", 5)),
    "a reduction of axes that are none": ("reduce", column("dimensions_0", 5)),
    "a larger reduction": ("reduce", larger),
    "a transpose of an axis twice": ("transpose", column("dimensions_1", 0)),
    "a larger reshape": ("reshape", larger),
    "a larger product": ("dot", larger),
    "a larger convolution": ("convolution", larger),
    "a convolution of other axes": ("convolution", column("input_batch", 2)),
    "a convolution of 7 groups": ("convolution", column("feature_group_count", 7)),
    "a convolution with a larger window": ("convolution", column("window_size_2", 3)),
    "a parameter of number 10^6": ("parameter", column("parameter_number", 10**6)),
    "a larger slice": ("slice", larger),
    "a larger concatenation of another axis": ("concatenate", column("dimensions_0", 5)),
}


@cases("name", CHANGES)
def test_a_node_that_no_program_has_is_refused(name):
    names, change = CHANGES[name]
    seen = 0
    for path in FILES[::7]:
        if seen > 12:
            return  # of five programs or more
        arrays = graph(path)
        for node in nodes_of(arrays, names)[:3]:
            changed = {key: array.copy() for key, array in arrays.items()}
            if sizes_of(arrays, node) or change is not larger:
                change(changed, node)
            if all(np.array_equal(changed[key], arrays[key]) for key in arrays):
                continue
            if name == "a called computation without a root" and not called(arrays, node):
                continue
            if name == "a transpose of an axis twice" and arrays["node_feat"][node, COLUMN["dimensions_0"]]:
                continue  # it is a transpose of fewer axes, or the same one
            with pytest.raises(DataError, match=r"node|edge_index"):
                check_nodes(changed)
            seen += 1
    assert seen


def test_an_operand_lost_where_nothing_else_uses_it_is_refused():
    refused = 0
    for path in FILES[::7]:
        arrays = graph(path)
        edges = arrays["edge_index"]
        once = np.bincount(edges[:, 1], minlength=len(arrays["node_opcode"])) == 1
        lost = np.isin(edges[:, 0], nodes_of(arrays, "add subtract maximum dot")) & once[edges[:, 1]]
        lost &= np.isin(edges[:, 1], nodes_of(arrays, "add multiply broadcast dot reshape constant"))
        for row in np.flatnonzero(lost)[:3]:
            with pytest.raises(DataError, match=r"nothing uses node|sizes|dimensions"):
                check_nodes(arrays | {"edge_index": np.delete(edges, row, 0)})
            refused += 1
    assert refused > 9


def test_an_operand_taken_twice_and_code_that_nothing_uses_are_no_faults():
    arrays = graph(FILES[0])
    edges = arrays["edge_index"]
    used = np.bincount(edges[:, 1], minlength=len(arrays["node_opcode"]))
    twice = np.isin(edges[:, 0], nodes_of(arrays, "add multiply")) & (used[edges[:, 1]] > 1)
    row = np.flatnonzero(twice)[-1]
    check_nodes(arrays | {"edge_index": np.delete(edges, row, 0)})
    more = {key: np.append(arrays[key], arrays[key][-1:], axis=0) for key in ("node_feat", "node_opcode")}
    again = edges[edges[:, 0] == len(used) - 1]
    again[:, 0] += 1
    more["node_feat"][-1, COLUMN["is_root"]] = 0
    check_nodes(more | {"edge_index": np.concatenate([edges, again])})


def test_all_sample_programs_can_exist():
    for path in FILES:
        arrays = graph(path)
        assert first_fault(*(arrays[key] for key in GRAPH)) is None


def test_two_swapped_rows_lost_edges_and_roots_everywhere_are_refused():
    refused = 0
    arrays = graph(FILES[0])
    nodes = nodes_of(arrays, "add multiply dot broadcast reshape reduce")
    pairs = [*itertools.pairwise(nodes)][:40]
    for one, two in pairs:
        changed = {key: array.copy() for key, array in arrays.items()}
        changed["node_feat"][[one, two]] = changed["node_feat"][[two, one]]
        if np.array_equal(changed["node_feat"], arrays["node_feat"]):
            refused += 1
            continue
        try:
            check_nodes(changed)
        except DataError:
            refused += 1
    assert refused > 0.8 * len(pairs), "rows of nodes of one shape may change places"
    without = arrays | {"edge_index": arrays["edge_index"][:0]}
    with pytest.raises(DataError, match="has 0 operands"):
        check_nodes(without)
    everywhere = {key: array.copy() for key, array in arrays.items()}
    everywhere["node_feat"][:, 0] = 1
    with pytest.raises(DataError, match="root"):
        check_nodes(everywhere)


def test_a_kernel_gives_its_computation_what_it_takes():
    refused = 0
    for path in sorted(SAMPLE.glob("npz_all/npz/tile/xla/train/*.npz"))[::9]:
        arrays = graph(path)
        fusions = nodes_of(arrays, "fusion")
        outside = arrays["edge_index"][np.isin(arrays["edge_index"][:, 0], fusions), 1]
        for node in np.intersect1d(outside, nodes_of(arrays, "parameter")):
            changed = {key: array.copy() for key, array in arrays.items()}
            if sizes_of(arrays, node):
                larger(changed, node)
                with pytest.raises(DataError, match=r"parameter|sizes"):
                    check_nodes(changed)
                refused += 1
    assert refused > 9


def test_a_kernel_gives_its_computation_no_more_than_it_takes():
    refused = 0
    for path in sorted(SAMPLE.glob("npz_all/npz/tile/xla/train/*.npz"))[::9]:
        arrays = graph(path)
        numbers = arrays["node_feat"][:, COLUMN["parameter_number"]]
        roots = np.flatnonzero(arrays["node_feat"][:, COLUMN["is_root"]])
        inside = nodes_of(arrays, "parameter")
        inside = inside[(inside > max([-1, *roots[:-2]])) & (inside < roots[-2])]  # of what the kernel calls
        last = inside[np.argmax(numbers[inside])]
        if numbers[last]:
            arrays["node_opcode"][last] = OPCODES["constant"]
            numbers[last] = 0
            with pytest.raises(DataError, match="no parameter|more operands"):
                check_nodes(arrays)
            refused += 1
    assert refused > 9


def test_a_reduction_to_a_tuple_calls_what_gives_as_many_parts():
    refused = 0
    for path in sorted(SAMPLE.glob("npz_all/npz/tile/xla/train/*.npz")):
        arrays = graph(path)
        for node in np.setdiff1d(nodes_of(arrays, "reduce"), arrays["edge_index"][:, 1]):
            set_sizes(arrays, node, [])
            typed("tuple")(arrays, node)
            arrays["node_feat"][node, COLUMN["tuple_shapes"]] = 2
            with pytest.raises(DataError, match="has sizes or an element type of none of what it reads or"):
                check_nodes(arrays)
            refused += 1
    assert refused > 3


@cases(
    "given, sizes, made, into, is_right",
    [
        ("bf16", (16, 160), "u8", (16, 160), False),
        ("u8", (16, 160), "bf16", (16, 160), False),
        ("u8", (16, 160), "bf16", (16, 40), True),  # of numbers of four bits, which are written as bytes
        ("bf16", (16, 40), "u8", (16, 160), True),
        ("f32", (16,), "u8", (16, 4), True),
        ("f32", (16,), "u8", (16, 2), False),
        ("u8", (16, 2), "pred", (16,), False),
        ("f32", (16,), "bf16", (16,), False),
    ],
)
def test_a_bitcast_keeps_the_bytes(given, sizes, made, into, is_right):
    opcodes = np.array([OPCODES["parameter"], OPCODES["bitcast"]])
    arrays = {"node_feat": np.zeros((2, len(COLUMN)), np.float32), "node_opcode": opcodes}
    arrays["edge_index"] = np.array([[1, 0]])
    for node, (kind, shape) in enumerate([(given, sizes), (made, into)]):
        set_sizes(arrays, node, shape)
        typed(kind)(arrays, node)
    arrays["node_feat"][1, COLUMN["is_root"]] = 1
    fault = None if is_right else (1, "has more or fewer bytes than its operand")
    assert first_fault(*(arrays[key] for key in GRAPH)) == fault


def test_a_reshape_has_no_kernel_and_the_input_that_its_edge_names():
    with np.load(FILES[0]) as npz:
        arrays = {key: npz[key].copy() for key in npz.files}
    file = ProgramFile(get_collection("layout:nlp:default"), TRAIN, FILES[0])
    check_program(program_of(file, arrays, labelled=True))
    place = int(np.flatnonzero(arrays["node_opcode"][arrays["node_config_ids"]] == OPCODES["reshape"])[0])
    (operand,) = arrays["edge_index"][arrays["edge_index"][:, 0] == arrays["node_config_ids"][place], 1]
    rank = len(sizes_of(arrays, operand))
    for column, axis, said in ((12, 0, "kernel has 0 dimensions"), (6, rank, f"input has {rank} dimension")):
        layouts = arrays["node_config_feat"].copy()
        layouts[-1, place, column : column + 6] = [axis, *[-1] * 5]
        with pytest.raises(DataError, match=rf"{place}, {column}\] is {axis}, but the node's {said}"):
            check_program(program_of(file, arrays | {"node_config_feat": layouts}, labelled=True))


def test_a_hole_in_a_list_of_six_is_refused():
    arrays = graph(FILES[0])
    node = int(nodes_of(arrays, "parameter")[0])
    set_sizes(arrays, node, [2, 3, 4, 5, 6, 7])
    arrays["node_feat"][node, SHAPE.start + 2] = 0
    with pytest.raises(DataError, match="the sum and the product"):
        check_nodes(arrays)


def test_normalizers_of_a_kernel_differ_only_as_machines_do():
    path = next(SAMPLE.glob("npz_all/npz/tile/xla/train/*.npz"))
    file = ProgramFile(get_collection("tile:xla"), TRAIN, path)
    with np.load(path) as npz:
        arrays = {key: npz[key].copy() for key in npz.files}
    check_program(program_of(file, arrays, labelled=True))
    arrays["config_runtime_normalizers"][-1] = arrays["config_runtime_normalizers"][0] * 1.3
    check_program(program_of(file, arrays, labelled=True))
    arrays["config_runtime_normalizers"][-1] = arrays["config_runtime_normalizers"][0] * 3
    with pytest.raises(DataError, match="config_runtime_normalizers.*at most 2 times the smallest"):
        check_program(program_of(file, arrays, labelled=True))
