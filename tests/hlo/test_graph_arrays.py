"""Equality of the extractor with the reference in ``hlo_message`` and with a published pair of files."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.opcodes import OPCODES
from fastslow.hlo.graph_arrays import EXTRA_NAMES, graph_arrays, operand_nodes
from fastslow.hlo.reader import read_hlo
from helpers.cases import cases
from helpers.competition_files import PUBLISHED_GRAPH, PUBLISHED_MODULE, needs_pair
from helpers.hlo_message import PRIMITIVE_TYPES, Module, Program, graph, random_program, window


def assert_equals_reference(module):
    for fill in (0, -1):
        arrays = graph_arrays(module, fill)
        for key, wanted in zip(("node_feat", "node_opcode", "edge_index"), graph(module, fill), strict=True):
            assert arrays[key].dtype == wanted.dtype, key
            assert np.array_equal(arrays[key], wanted), (fill, key)


def extra_of(program, node, fill=0):
    """Return the extra features of one node by column name."""
    return dict(
        zip(EXTRA_NAMES, graph_arrays(program.module, fill, extra=True)["node_extra_feat"][node], strict=True)
    )


def named(name, values, width=6, fill=0):
    """Return the columns of a list by name."""
    return {
        f"{name}_{entry}": value for entry, value in enumerate([*values, *[fill] * (width - len(values))])
    }


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_random_programs_equal_the_reference(seed):
    assert_equals_reference(random_program(seed).module)


def test_every_attribute_of_the_140_equals_the_reference():
    program = Program()
    image = program.add("parameter", (8, 32, 32, 3), parameter_number=3)
    kernel = program.add("parameter", (3, 3, 3, 16))
    numbers = {
        "input_batch": 0,
        "input_feature": 3,
        "input_spatial": [1, 2],
        "kernel_input_feature": 2,
        "kernel_output_feature": 3,
        "kernel_spatial": [0, 1],
        "output_batch": 0,
        "output_feature": 3,
        "output_spatial": [1, 2],
    }
    windows = window(2, padding_low=-1, padding_high=2, window_reversal=True)
    windows["dimensions"][1]["window_reversal"] = False
    groups = {"feature_group_count": 4, "batch_group_count": 1}
    program.add(
        "convolution", (8, 32, 32, 16), [image, kernel], window=windows, convolution=numbers, **groups
    )
    program.add("sort", (8,), [program.add("parameter", (8,))], dimensions=[0], is_stable=True)
    program.add("sort", elements=2, operands=[kernel, image, kernel], dimensions=[0])
    program.add("dynamic-slice", (1, 2, 2, 3), [image], dynamic_slice_sizes=[1, 2, 2, 3])
    edges = [{"low": -1, "high": 3}, {"low": 0, "high": 0}, {"low": 2, "high": 1}, {}]
    program.add("pad", (9, 32, 35, 3), [image], padding_config={"dimensions": edges})
    bounds = [{"start": 1, "limit": 8, "stride": 2}] * 4
    program.add("slice", (4, 4, 4, 3), [image], slice_dimensions=bounds)
    program.add("add", (2**31, 2**31, 2**31), layout=(0, 1, 2))  # the product passes int64 and wraps
    program.add("broadcast", (2, 3, 4, 5, 6, 7, 8), [kernel], dimensions=[0, 1, 2, 3, 4, 5, 6])
    program.reduce((), [image], [0, 1, 2, 3])
    for part in program.module.computations:
        part.root_id = part.instructions[-1].id
    assert_equals_reference(program.module)


@cases("name", PRIMITIVE_TYPES)
def test_element_types(name):
    module = Module()
    module.computations.add(id=1).instructions.add(
        opcode="parameter", shape={"element_type": PRIMITIVE_TYPES[name]}
    )
    arrays = graph_arrays(module)
    (hot,) = np.flatnonzero(arrays["node_feat"][0, node_columns.ELEMENT_TYPE])
    assert node_columns.ELEMENT_TYPES[hot] == name
    assert_equals_reference(module)


def test_an_element_type_without_a_column_is_of_a_byte_and_an_opcode_without_a_number_0():
    module = Module()
    module.computations.add(id=1).instructions.add(opcode="magic", shape={"element_type": 23})
    arrays = graph_arrays(module)
    assert arrays["node_feat"][0, node_columns.ELEMENT_TYPE].tolist() == [0, 0, 1] + [0] * 16
    assert arrays["node_opcode"].tolist() == [0]


def test_edges_are_sorted_and_single_and_reach_the_root_of_a_called_computation():
    program = Program()
    a, b = program.add("parameter", (2,)), program.add("parameter", (2,), parameter_number=1)
    total = program.add("add", (2,), [b, a])
    program.add("multiply", (2,), [total, total])
    total = program.reduce((), [b], [0])
    edges = graph_arrays(program.module)["edge_index"].tolist()
    reducer = len(program.computation.instructions)
    assert edges == sorted([[2, 0], [2, 1], [3, 2], [total, 1], [total, total - 1], [total, reducer]])
    assert operand_nodes(program.module)[2:4] == [[1, 0], [2, 2]]


def test_the_root_of_a_called_computation_is_found_by_its_id():
    program = Program()
    total = program.reduce((), [program.add("parameter", (2,))], [0])
    (reducer,) = program.reducers.values()
    reducer.instructions.add(opcode="negate", id=7)
    reducer.root_id = 7
    assert [total, total + 3] in graph_arrays(program.module)["edge_index"].tolist()
    assert graph_arrays(program.module)["node_feat"][:, node_columns.IS_ROOT].tolist() == [1, 0, 0, 0, 0, 1]
    assert_equals_reference(program.module)


def test_splits_end_the_computations_that_tpugraphs_calls_major():
    module = Module()
    sizes = {"add": 2, "while_body.3": 3, "region": 1, "cond.1": 4, "fused_cluster": 2, "main": 5}
    for number, (name, size) in enumerate(sizes.items()):
        part = module.computations.add(id=number, name=name)
        for node in range(size):
            part.instructions.add(opcode="constant", id=node)
    assert graph_arrays(module)["node_splits"].tolist() == [[0, 5, 10, 12, 17]]
    del module.computations[-1]
    assert graph_arrays(module)["node_splits"].tolist() == [[0, 5, 10, 12]]


def test_same_ids_in_two_computations_are_two_nodes():
    module = Module()
    for number in (1, 2):
        part = module.computations.add(id=number)
        part.instructions.add(opcode="constant", id=0)
        part.instructions.add(opcode="negate", id=1, operand_ids=[0])
    assert graph_arrays(module)["edge_index"].tolist() == [[1, 0], [3, 2]]


def test_only_the_entry_root_is_one():
    program = Program()
    program.reduce((), [program.add("parameter", (2,))], [0])
    program.module.entry_computation_id = program.computation.id
    program.computation.root_id = 2
    column = EXTRA_NAMES.index("is_entry_root")
    arrays = graph_arrays(program.module, -1, extra=True)
    assert arrays["node_extra_feat"][:, column].tolist() == [0, 0, 1, 0, 0]
    assert arrays["node_feat"][:, node_columns.IS_ROOT].tolist() == [0, 0, 1, 1, 0], (
        "each computation has a root"
    )


@needs_pair
def test_every_array_of_the_published_npz_is_equal():
    program = read_hlo(PUBLISHED_MODULE)
    with np.load(PUBLISHED_GRAPH, allow_pickle=False) as npz:
        for key, ours in graph_arrays(program.module).items():
            assert ours.dtype == npz[key].dtype, key
            assert np.array_equal(ours, npz[key]), key
    assert_equals_reference(program.module)
    assert set(graph_arrays(program.module)["node_opcode"]) <= set(OPCODES.values())


TABLE, ROWS, LEFT, RIGHT = (10, 4), (6, 1), (5, 3, 7), (5, 7, 2)
DOT = {"lhs_contracting": [2], "rhs_contracting": [1], "lhs_batch": [0], "rhs_batch": [0]}
GATHER = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
SCATTER = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}


@cases(
    "opcode, dims, operands, fields, more",
    [
        ("dot", (5, 3, 2), [LEFT, RIGHT], {"dot": DOT}, {}),
        ("gather", (6, 4), [TABLE, ROWS], {"gather": GATHER}, {"gather_slice_sizes": [1, 4]}),
        ("scatter", TABLE, [TABLE, ROWS, (6, 4)], {"scatter": {**SCATTER, "index_vector_dim": 1}}, {}),
        ("dynamic-slice", (1, 2, 3, 4), [TABLE], {}, {"dynamic_slice_sizes": [1, 2, 3, 4]}),
    ],
)
@cases("fill", [0, -1])
def test_dimension_numbers_and_operands_in_the_extra_features(fill, opcode, dims, operands, fields, more):
    program = Program()
    nodes = [program.add("parameter", operand_dims) for operand_dims in operands]
    row = extra_of(program, program.add(opcode, dims, nodes, **fields, **more), fill)
    lists = {
        f"{kind}_{name}": dimensions
        for kind, numbers in fields.items()
        for name, dimensions in numbers.items()
    } | more
    lists |= {f"operand_{n}_shape": shape for n, shape in enumerate([*operands, (), ()][:3])}
    if opcode != "gather":
        lists |= {"gather_offset_dims": [], "gather_index_vector_dim": fill}
    for name, values in lists.items():
        wanted = named(name, values, fill=fill) if isinstance(values, list | tuple) else {name: values}
        assert wanted.items() <= row.items(), name
    assert row["operands"] == len(operands)
