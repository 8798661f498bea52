"""Padding told from the npz alone, held against a protobuf, made-up programs and real files."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition import node_columns
from fastslow.competition.node_columns import LISTS
from fastslow.competition.opcodes import OPCODES, opcode_name
from fastslow.features.nodes.node_encodings import PADDING, UNKNOWN, list_lengths, pad
from fastslow.hlo.messages import ModuleTuningData
from helpers.cases import cases
from helpers.competition_files import PUBLISHED_GRAPH, PUBLISHED_MODULE, needs_pair
from helpers.hlo_message import Program, graph, random_program, window


def differing(program, exempt=()):
    """(opcode, column) where the padded features differ from the truth, but for the opcodes exempt."""
    node_feat, node_opcode, edge_index = graph(program.module)
    rows, cols = np.nonzero(pad(node_feat, node_opcode, edge_index) != graph(program.module, PADDING)[0])
    names = {
        (opcode_name(node_opcode[row]), node_columns.COLUMN_NAMES[col])
        for row, col in zip(rows, cols, strict=True)
    }
    return sorted(name for name in names if name[0] not in exempt)


def dimensions_length(program, node):
    """Length that :func:`list_lengths` gives for the ``dimensions`` of a node."""
    return int(list_lengths(*graph(program.module))["dimensions"][node])


@cases("dims", [(0,), (0, 3), (3, 0), (0, 0), (4, 0, 0), (0, 2, 0)])
def test_dimension_of_size_0_is_told_by_the_layout(dims):
    program = Program()
    program.add("slice", dims, [program.add("parameter", dims)], slice_dimensions=[{}] * len(dims))
    assert differing(program) == []


def test_more_dimensions_than_columns():
    dims = (2, 3, 1, 1, 1, 1, 1)
    program = Program()
    tensor = program.add("parameter", dims)
    program.add("transpose", dims, [tensor], dimensions=[1, 2, 3, 4, 5, 6, 0])
    program.add("broadcast", (*dims, 4), [tensor], dimensions=range(7))
    reduces = [program.reduce(dims[:6], [tensor], [6]), program.reduce(dims[1:5], [tensor], [5, 6, 0])]
    assert [dimensions_length(program, node) for node in reduces] == [UNKNOWN, UNKNOWN]
    for name, length in list_lengths(*graph(program.module)).items():
        assert length.max() <= LISTS[name][0].stop - LISTS[name][0].start, "counts columns, not dimensions"
    assert differing(program, exempt=["reduce"]) == []


def test_attributes_of_each_opcode():
    program = Program()
    cube = program.add("parameter", (4, 5, 6), parameter_number=0)
    image = program.add("parameter", (8, 9, 9, 4), parameter_number=1)
    numbers = {
        "input_feature": 3,
        "output_feature": 3,
        "kernel_input_feature": 2,
        "kernel_output_feature": 3,
        "input_spatial": [1, 2],
        "kernel_spatial": [0, 1],
    }
    groups = {"feature_group_count": 1, "batch_group_count": 1}
    program.add("convolution", (8, 9, 9, 4), [image], window=window(2), convolution=numbers, **groups)
    product = {"input_feature": 1, "output_feature": 1, "kernel_output_feature": 1}
    program.add("convolution", (4, 5), [cube], convolution=product, **groups)
    program.add(
        "reduce-window", (8, 8, 8, 4), [image], window=window(4, padding_low=-2, window_reversal=True)
    )
    program.add("custom-call", (3,), [cube], feature_group_count=1)
    program.add("slice", (1, 5, 6), [cube], slice_dimensions=[{"limit": 1, "stride": 1}] * 3)
    program.add("slice", (1,), [program.add("iota", (9,), dimensions=[0])], slice_dimensions=[{"limit": 1}])
    program.add("dynamic-slice", (1, 5, 6), [cube], dynamic_slice_sizes=[1, 5, 6])
    program.add("dynamic-slice", (0,), [cube], dynamic_slice_sizes=[0])
    program.add("pad", (4, 5, 6), [cube], padding_config={"dimensions": [{"low": 1, "high": -1}, {}, {}]})
    program.add("transpose", (6, 5, 4), [cube], dimensions=[2, 1, 0])
    program.add("map", (4, 5, 6), [cube], dimensions=[0, 1, 2])
    for axis in (0, 1):
        program.add("broadcast", (7, 7), [program.add("constant", (7,))], dimensions=[axis])
        program.add("concatenate", (4, 5, 12), [cube, cube], dimensions=[axis])
        program.add("all-gather", (4, 5, 6), [cube], dimensions=[axis])
        program.add("all-gather-start", (), [cube], elements=2, dimensions=[axis])
        program.add("reduce-scatter", (4, 5, 6), [cube], dimensions=[axis])
        program.add("all-to-all", (4, 5, 6), [cube], dimensions=[axis])
        program.add("get-dimension-size", (), [cube], dimensions=[axis])
        program.add("set-dimension-size", (4, 5, 6), [cube], dimensions=[axis])
        program.add("sort", (4, 5, 6), [cube], dimensions=[axis], is_stable=bool(axis))
    program.add("broadcast", (3, 4), [program.add("constant")])
    program.add("all-to-all", (), [cube, image], elements=2)
    program.add("gather", (4, 5), [cube, image])
    assert differing(program) == []


@cases(
    "dims, axes, length",
    [
        ((7,), [0], 1),
        ((4, 5), [0, 1], 2),
        ((4, 5, 6), [0, 2], 2),
        ((4, 5), [1], UNKNOWN),
        ((4, 5, 6), [1, 0], UNKNOWN),
    ],
)
@cases("opcode", ["reverse", "reduce"])
def test_axes_told_by_their_values_alone(opcode, dims, axes, length):
    program = Program()
    tensor = program.add("parameter", dims)
    if opcode == "reverse":
        node = program.add(opcode, dims, [tensor], dimensions=axes)
    else:
        node = program.reduce((), [tensor, tensor], axes, elements=2)
    assert dimensions_length(program, node) == length
    if length == UNKNOWN:
        node_feat = graph(program.module)[0]
        padded = pad(*graph(program.module))
        assert np.array_equal(padded[node, node_columns.DIMENSIONS], node_feat[node, node_columns.DIMENSIONS])
    assert differing(program, exempt=[opcode] if length == UNKNOWN else []) == []


def test_unknown_opcode_and_missing_operand_leave_dimensions_as_they_are():
    program = Program()
    unheard = program.add("ragged-all-to-all", (4,), dimensions=[0])
    orphan = program.add("broadcast", (4, 5), dimensions=[0])
    assert dimensions_length(program, unheard) == dimensions_length(program, orphan) == UNKNOWN
    assert np.all(pad(*graph(program.module))[:, node_columns.DIMENSIONS] == 0)


def test_value_beyond_the_length_is_kept():
    node_feat = np.zeros((1, 140), dtype=np.float32)
    node_feat[0, node_columns.DIMENSIONS] = (0, 0, 3, 0, 0, 0)
    arrays = node_feat, np.array([OPCODES["concatenate"]], dtype=np.uint8), np.empty((0, 2), dtype=np.int64)
    assert list_lengths(*arrays)["dimensions"] == UNKNOWN
    assert pad(*arrays)[0, node_columns.DIMENSIONS].tolist() == [0, 0, 3, 0, 0, 0]


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_random_program_agrees_with_the_truth(seed):
    assert differing(random_program(seed)) == []


@needs_pair
def test_published_protobuf_agrees_on_every_list_of_every_node():
    module = ModuleTuningData.FromString(PUBLISHED_MODULE.read_bytes()).module
    with np.load(PUBLISHED_GRAPH, allow_pickle=False) as npz:
        arrays = npz["node_feat"], npz["node_opcode"], npz["edge_index"]
    for ours, published in zip(graph(module), arrays, strict=True):
        assert np.array_equal(ours, published), "the reference extractor does not reproduce the npz"
    truth, padded = graph(module, PADDING)[0], pad(*arrays)
    for name, length in list_lengths(*arrays).items():
        assert (length != UNKNOWN).all(), name
        for block in LISTS[name]:
            assert np.array_equal(padded[:, block], truth[:, block]), name
    assert np.array_equal(padded, truth)
