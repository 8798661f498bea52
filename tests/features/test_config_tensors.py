"""Operand order found again from shapes, held against made-up programs, a protobuf and real files."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.opcodes import RESHAPE
from fastslow.features.configs.config_tensors import config_tensors, dot_fit
from fastslow.hlo.messages import ModuleTuningData
from helpers.competition_files import (
    LAYOUT_FILES,
    PUBLISHED_GRAPH,
    PUBLISHED_LAYOUT_FILES,
    PUBLISHED_MODULE,
    needs_pair,
)
from helpers.hlo_message import Program, graph


def tensors_of(program, nodes):
    """Tensors of the given nodes, and the operands that the program really has there (nodes, 2)."""
    node_feat, node_opcode, edge_index = graph(program.module)
    instructions = program.computation.instructions
    truth = [[*instructions[node].operand_ids, -1, -1][:2] for node in nodes]
    return config_tensors(node_feat, node_opcode, edge_index, np.array(nodes)), np.array(truth)


def add_operands(rng, program, lhs, rhs):
    """Append parameters of these sizes, in any order; return their nodes, lhs first."""
    nodes = {side: program.add("parameter", (lhs, rhs)[side]) for side in rng.permutation(2)}
    return [nodes[0], nodes[1]]


def dot_shape(rng, lhs, rhs_free_rank):
    """Operand and output sizes of a random dot with the given lhs; axes are chosen anywhere."""
    roles = rng.choice(["batch", "contracting", "free"], len(lhs))
    free = rng.integers(1, 4, rhs_free_rank).tolist()
    rhs = [("free", axis) for axis in range(len(free))]
    for axis in np.flatnonzero(roles != "free"):
        rhs.insert(rng.integers(len(rhs) + 1), ("lhs", axis))
    batch = [lhs[axis] for axis in rng.permutation(np.flatnonzero(roles == "batch"))]
    output = batch + [size for size, role in zip(lhs, roles, strict=True) if role == "free"] + free
    return output, [free[axis] if kind == "free" else lhs[axis] for kind, axis in rhs]


def convolved(lhs, rhs, window, axes, groups, batch_groups):
    """Batch, feature and spatial sizes of a convolution's output; None where HLO refuses the operands.

    Args:
        lhs: Sizes of the input.
        rhs: Sizes of the kernel.
        window: Attributes by spatial dimension.
        axes: Axis of (batch, feature, spatial ...) in lhs, and of (input, output, spatial ...) in rhs.
        groups: Feature group count.
        batch_groups: Batch group count.
    """
    batch, feature, *sizes = (lhs[axis] for axis in axes[0])
    kernel_input, kernel_output, *kernel_sizes = (rhs[axis] for axis in axes[1])
    if kernel_sizes != [part["size"] for part in window]:
        return None
    if kernel_input * groups != feature or kernel_output % (groups * batch_groups) or batch % batch_groups:
        return None
    spatial = []
    for size, part in zip(sizes, window, strict=True):
        dilated = (size - 1) * part["base_dilation"] + 1 + part["padding_low"] + part["padding_high"]
        spare = dilated - (part["size"] - 1) * part["window_dilation"] - 1
        spatial.append(max(0, spare // part["stride"] + 1))
    return [batch // batch_groups, kernel_output, *spatial]


def convolution(rng, program, largest=9):
    """Append two operands, in any order, and a random convolution of them.

    Returns:
        Its node, and whether HLO would take the operands the other way round for the same output.
    """
    rank = 2 + int(rng.integers(0, 4))
    names = ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")
    values = rng.integers([1, 1, 0, 0, 1, 1], [4, 4, 3, 3, 3, 3], (rank - 2, 6)).tolist()
    window = [dict(zip(names, row, strict=True)) for row in values]
    groups, kernel_input, per_group, batch = rng.integers(1, 4, 4).tolist()
    batch_groups = 1 if groups > 1 else int(rng.integers(1, 3))
    axes = rng.permuted(np.tile(np.arange(rank), (3, 1)), axis=1).tolist()
    lhs, rhs, output = [0] * rank, [0] * rank, [0] * rank
    for axis, size in zip(axes[0][:2], (batch * batch_groups, kernel_input * groups), strict=True):
        lhs[axis] = size
    for axis, size in zip(axes[1][:2], (kernel_input, groups * per_group * batch_groups), strict=True):
        rhs[axis] = size
    for input_axis, kernel_axis, part in zip(axes[0][2:], axes[1][2:], window, strict=True):
        rhs[kernel_axis] = part["size"]
        lhs[input_axis] = part["size"] * part["window_dilation"] + int(rng.integers(0, largest))
    sizes = convolved(lhs, rhs, window, axes, groups, batch_groups)
    for axis, size in zip(axes[2], sizes, strict=True):
        output[axis] = size
    node = program.add(
        "convolution",
        output,
        add_operands(rng, program, lhs, rhs),
        window={"dimensions": window},
        convolution={
            "input_batch": axes[0][0],
            "input_feature": axes[0][1],
            "input_spatial": axes[0][2:],
            "kernel_input_feature": axes[1][0],
            "kernel_output_feature": axes[1][1],
            "kernel_spatial": axes[1][2:],
            "output_batch": axes[2][0],
            "output_feature": axes[2][1],
        },
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )
    swapped = convolved(rhs, lhs, window, axes, groups, batch_groups)
    # Which of the output's spatial axes is which is not in the features.
    return node, swapped is not None and swapped[:2] == sizes[:2] and sorted(swapped) == sorted(sizes)


def all_dots(lhs, rhs):
    """Outputs that a dot of these operands can have, and whether a choice of axes is the usual form."""
    outputs = {}
    for batch in range(min(len(lhs), len(rhs)) + 1):
        for contracting in range(min(len(lhs), len(rhs)) - batch + 1):
            shared = batch + contracting
            for left, right in itertools.product(
                itertools.permutations(range(len(lhs)), shared),
                itertools.permutations(range(len(rhs)), shared),
            ):
                if [lhs[axis] for axis in left] != [rhs[axis] for axis in right]:
                    continue
                free = [axis for axis in range(len(rhs)) if axis not in right]
                output = [lhs[axis] for axis in left[:batch]]
                output += [size for axis, size in enumerate(lhs) if axis not in left]
                usual = set(left[batch:]) == set(range(len(lhs) - contracting, len(lhs)))
                usual &= free == list(range(shared, len(rhs)))
                key = tuple(output + [rhs[axis] for axis in free])
                outputs[key] = outputs.get(key, False) or usual
    return outputs


def test_dot_fit_finds_exactly_the_outputs_that_a_choice_of_axes_gives():
    shapes = [shape for rank in range(4) for shape in itertools.product((2, 3), repeat=rank)]
    for lhs, rhs in itertools.product(shapes, shapes):
        outputs = all_dots(lhs, rhs)
        for output in {*shapes, *outputs}:
            wanted = 0 if output not in outputs else 1 + outputs[output]
            assert dot_fit(output, lhs, rhs) == wanted, (output, lhs, rhs)


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_operands_of_random_dots_are_told_apart(seed):
    rng, program, nodes = np.random.default_rng(seed), Program(), []
    for _ in range(10):
        lhs = rng.integers(1, 4, rng.integers(1, 5)).tolist()
        output, rhs = dot_shape(rng, lhs, int(rng.integers(0, 3)))
        nodes.append(program.add("dot", output, add_operands(rng, program, lhs, rhs)))
    tensors, truth = tensors_of(program, nodes)
    assert tensors.known.all()
    right = (tensors.source_ids[:, 1:] == truth).all(1)
    assert (right | tensors.ambiguous).all()
    assert (np.sort(tensors.source_ids[:, 1:]) == np.sort(truth)).all()


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=40)
def test_operands_of_random_convolutions_are_told_apart(seed, largest):
    rng, program = np.random.default_rng(seed), Program()
    nodes, both_ways = zip(*(convolution(rng, program, largest) for _ in range(40)), strict=True)
    tensors, truth = tensors_of(program, nodes)
    assert tensors.known.all()
    assert tensors.ambiguous.tolist() == list(both_ways)
    assert (tensors.source_ids[:, 1:] == truth).all(1)[~tensors.ambiguous].all()


def test_shapes_and_sources_of_a_small_program():
    program = Program()
    weight = program.add("parameter", (64, 128))
    data = program.add("parameter", (8, 4, 64))
    dot = program.add("dot", (8, 4, 128), [data, weight])
    flat = program.add("reshape", (32, 128), [dot])
    scalar = program.add("reshape", (), [program.add("parameter", (1, 1))])
    square = program.add("dot", (32, 32), [flat, flat])
    tensors, _ = tensors_of(program, [dot, flat, scalar, square])
    assert tensors.source_ids.tolist() == [
        [dot, data, weight],
        [flat, dot, -1],
        [scalar, scalar - 1, -1],
        [square, flat, flat],
    ]
    assert tensors.dims[0].tolist() == [[8, 4, 128, 0, 0, 0], [8, 4, 64, 0, 0, 0], [64, 128, 0, 0, 0, 0]]
    assert tensors.rank.tolist() == [[3, 3, 2], [2, 3, 0], [0, 2, 0], [2, 2, 2]]
    assert tensors.element_bytes.tolist() == [[4, 4, 4], [4, 4, 0], [4, 4, 0], [4, 4, 4]]
    assert tensors.known.tolist() == [[True] * 3, [True, True, False], [True, True, False], [True] * 3]
    assert not tensors.ambiguous.any()


def test_where_both_orders_fit_the_usual_form_wins_then_the_lower_node():
    program = Program()
    kernel = program.add("parameter", (3, 5))
    data = program.add("parameter", (5, 3))
    usual = program.add("dot", (5, 5), [data, kernel])
    first, second = (program.add("parameter", (4, 4)) for _ in range(2))
    tie = program.add("dot", (4, 4), [second, first])
    tensors, _ = tensors_of(program, [usual, tie])
    assert tensors.source_ids.tolist() == [[usual, data, kernel], [tie, first, second]]
    assert tensors.ambiguous.tolist() == [True, True]


def test_shapes_that_cannot_be_told_are_not_known():
    program = Program()
    square = program.add("parameter", (4, 4))
    alone = [program.add("dot", (4, 4)), program.add("reshape", (16,))]
    two = [program.add("parameter", (2, 3)), program.add("parameter", (5, 7))]
    misfit = program.add("dot", (11, 13), two)
    flat_and_deep = [program.add("parameter", (2, 4)), program.add("parameter", (4, 3, 1))]
    numbers = {"input_feature": 1, "kernel_output_feature": 1, "output_feature": 1}
    ranks = program.add("convolution", (2, 3), flat_and_deep, convolution=numbers)
    parts = program.add("tuple", elements=2)
    with_tuple = program.add("dot", (4, 4), [square, parts])
    of_tuple = program.add("reshape", (4,), [parts])
    seven = program.add("reshape", (1, 2, 1, 2, 1, 2, 1), [program.add("parameter", (8,))])
    empty = program.add("reshape", (0, 4), [program.add("parameter", (4, 0))])
    tensors, _ = tensors_of(program, [*alone, misfit, ranks, with_tuple, of_tuple, seven, empty])
    assert tensors.known.tolist() == [
        *[[True, False, False]] * 6,
        [False, True, False],
        [False, False, False],
    ]
    assert not tensors.dims[~tensors.known].any()
    assert (tensors.source_ids[:5, 1:] == -1).all()


def test_sizes_that_float32_rounds_are_still_known():
    program = Program()
    node = program.add("reshape", (2**24 + 1, 3), [program.add("parameter", (3, 2**24 + 1))])
    assert tensors_of(program, [node])[0].known.tolist() == [[True, True, False]]


def test_a_dimension_beyond_int32_makes_a_tensor_unknown():
    """Graphs hold sizes as int32, in which 2**31 was negative."""
    for size, known in ((2**31 - 128, True), (2**31, False), (2**40, False)):
        program = Program()
        operand = program.add("parameter", [size])
        node = program.add("reshape", [size, 1], [operand])
        tensors, _ = tensors_of(program, [node])
        assert tensors.known[0, :2].tolist() == [known, known]
        assert (tensors.dims == tensors.dims.astype(np.int32)).all()


@needs_pair
def test_operands_of_the_published_module():
    module = ModuleTuningData.FromString(PUBLISHED_MODULE.read_bytes()).module
    nodes = [(part, instruction) for part in module.computations for instruction in part.instructions]
    number = {(part.id, instruction.id): node for node, (part, instruction) in enumerate(nodes)}
    with np.load(PUBLISHED_GRAPH) as npz:
        ids = npz["node_config_ids"]
        tensors = config_tensors(npz["node_feat"], npz["node_opcode"], npz["edge_index"], ids)
    for node, sources, known in zip(ids, tensors.source_ids, tensors.known, strict=True):
        part, instruction = nodes[node]
        operands = [number[part.id, operand] for operand in instruction.operand_ids]
        assert sources[1:].tolist() == [*operands, -1][:2], (instruction.opcode, node)
        assert known.tolist() == [True, True, len(operands) == 2]


def test_layouts_of_files_fit_the_shapes_found():
    for path in PUBLISHED_LAYOUT_FILES + LAYOUT_FILES[::5]:
        with np.load(path) as npz:
            kinds = npz["node_opcode"][npz["node_config_ids"]]
            tensors = config_tensors(
                npz["node_feat"], npz["node_opcode"], npz["edge_index"], npz["node_config_ids"]
            )
            largest = npz["node_config_feat"][:50].reshape(-1, len(kinds), 3, 6).max(axis=(0, 3))
        wanted = np.ones_like(tensors.known)
        wanted[kinds == RESHAPE, 2] = False
        assert (tensors.known == wanted).all(), path
        told = wanted & ~tensors.ambiguous[:, None]
        assert (largest < tensors.rank)[told].all(), path
