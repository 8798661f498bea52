"""Copies between neighbours, held against a walk over every path and plain loops over every pair."""

from dataclasses import replace
from math import log1p, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.configs.copies import COPY_NAMES, ELEMENT_WISE, copy_features, copy_pairs
from helpers.cases import cases
from helpers.competition_files import SOME_LAYOUT_FILES, npz_program
from helpers.factorised import factorise
from helpers.hlo_message import Program, graph
from helpers.random_graphs import graph_of_tensors

LAYOUTS = np.array(
    [
        [*order, *[-1] * (6 - len(order))]
        for order in ([], [0], [1, 0], [0, 1], [1], [2, 0], [2, 0, 1], [2, 1, 0])
    ],
    dtype=np.int8,
)


def pairs_of(node_feat, node_opcode, edge_index, through):
    ids = np.flatnonzero(np.isin(node_opcode, (CONVOLUTION, DOT, RESHAPE)))
    tensors = config_tensors(node_feat, node_opcode, edge_index, ids)
    return copy_pairs(node_feat, node_opcode, edge_index, ids, tensors, through), ids, tensors


def with_pairs(tensor_graph, pairs, axes):
    return replace(tensor_graph, pairs=pairs, pair_axes=axes)


def as_set(pairs):
    return {tuple(pair) for pair in pairs.tolist()}


def walk(node_feat, node_opcode, edge_index, ids, tensors, through):
    """The pairs, by following every path from every consumer."""
    position = {int(node): index for index, node in enumerate(ids)}
    shape = node_feat[:, 21:27].tolist()
    operands = {}
    for user, operand in edge_index.tolist():
        operands.setdefault(user, []).append(operand)
    found = set()

    def follow(node, steps, consumer, role):
        if node in position:
            found.add((position[node], consumer, role))
        elif steps:
            for operand in operands.get(node, ()):
                same = node_opcode[node] in ELEMENT_WISE and shape[node] == shape[operand]
                if same or node_opcode[node] == OPCODES["transpose"]:
                    follow(operand, steps - 1, consumer, role)

    for consumer, role in np.ndindex(tensors.known.shape):
        if role and tensors.known[consumer, role] and tensors.rank[consumer, role] >= 2:
            follow(int(tensors.source_ids[consumer, role]), through, consumer, role)
    return found


def random_graph(seed):
    """A program of square dots, reshapes, transposes and element-wise nodes over few tensors."""
    rng, program = np.random.default_rng(seed), Program()
    tensors = [(program.add("parameter", dims), dims) for dims in ((4, 4), (2, 8), (4, 4))]
    for _ in range(25):
        node, dims = tensors[rng.integers(len(tensors))]
        other = [candidate for candidate, sizes in tensors if sizes == dims]
        second = other[rng.integers(len(other))]
        opcode = rng.choice(["dot", "reshape", "add", "tanh", "transpose", "select", "broadcast"])
        if opcode == "dot" and dims == (4, 4):
            tensors.append((program.add("dot", dims, [node, second]), dims))
        elif opcode in ("reshape", "broadcast"):
            dims = ((4, 4), (2, 8), (16,))[rng.integers(3)]
            tensors.append((program.add(opcode, dims, [node]), dims))
        elif opcode in ("add", "select"):
            tensors.append((program.add(opcode, dims, [node, second]), dims))
        elif opcode != "dot":
            tensors.append((program.add(opcode, dims, [node]), dims))
    return graph(program.module)


def reference(tensor_graph, settings):
    """The features of one configuration (K, 3) by the words of features/README.md."""
    copies = elements = size = both = half = 0
    for (first, second, role), axes in zip(
        tensor_graph.pairs.tolist(), tensor_graph.pair_axes.tolist(), strict=True
    ):
        producer = tensor_graph.layouts[settings[first, 0]].tolist()
        consumer = tensor_graph.layouts[settings[second, role]].tolist()
        producer = [axis for axis in producer if axis >= 0]
        consumer = [axes[axis] for axis in consumer if axis >= 0]
        if producer and consumer:
            both += 1
            if any(a != b for a, b in zip(producer, consumer, strict=False)):
                copies += 1
                volume = prod(length for length in tensor_graph.tensor_sizes[second, role].tolist() if length)
                elements += volume
                size += volume * int(tensor_graph.tensor_bytes[second, role])
        elif producer or consumer:
            half += 1
    return copies, log1p(elements), log1p(size), copies / both if both else 0, half


@pytest.mark.parametrize("through", [0, 1, 2, 30])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_pairs_of_random_programs_are_those_that_paths_join(through, seed):
    arrays = random_graph(seed)
    (pairs, _), ids, tensors = pairs_of(*arrays, through)
    assert as_set(pairs) == walk(*arrays, ids, tensors, through)
    assert len(as_set(pairs)) == len(pairs)


@cases("path", SOME_LAYOUT_FILES)
def test_files_give_the_pairs_and_features_of_plain_loops(path):
    file = npz_program(path, "layout", labelled=False)
    arrays = file.node_feat, file.node_opcode, file.edge_index
    (pairs, axes), ids, tensors = pairs_of(*arrays, through=3)
    assert (ids == np.sort(file.node_config_ids)).all()
    assert as_set(pairs) == walk(*arrays, ids, tensors, through=3)
    tensor_graph = graph_of_tensors(tensors.dims, tensors.element_bytes, file.layouts, file.choices)
    tensor_graph = with_pairs(tensor_graph, pairs, axes)
    codes = file.choices.layout_codes()
    wanted = [reference(tensor_graph, config) for config in codes[:10]]
    np.testing.assert_allclose(copy_features(tensor_graph)[0][:10], wanted, rtol=1e-6)


def random_pairs(rng, count):
    pairs = np.column_stack([rng.integers(0, 6, (count, 2)), rng.integers(1, 3, count)])
    return pairs, rng.permuted(np.tile(np.arange(6), (count, 1)), axis=1)


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_features_are_those_of_plain_loops_whatever_the_order(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(LAYOUTS), (9, 6, 3)).astype(np.uint8)
    codes[7] = codes[1]
    sizes, element_bytes = rng.integers(1, 15, (6, 3, 6)), rng.integers(1, 5, (6, 3))
    tensor_graph = graph_of_tensors(sizes, element_bytes, LAYOUTS, factorise(codes))
    tensor_graph = with_pairs(tensor_graph, *random_pairs(rng, int(rng.integers(0, 20))))
    values, names = copy_features(tensor_graph)
    assert names == list(COPY_NAMES)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [reference(tensor_graph, config) for config in codes], rtol=1e-6)
    assert (values[7] == values[1]).all()
    order = rng.permutation(len(codes))
    assert (copy_features(replace(tensor_graph, choices=factorise(codes[order])))[0] == values[order]).all()


def test_a_transpose_renames_the_axes():
    program = Program()
    producer = program.add("reshape", (2, 3, 4), [program.add("parameter", (24,))])
    turned = program.add("transpose", (4, 2, 3), [producer], dimensions=[2, 0, 1])
    again = program.add("transpose", (2, 4, 3), [turned], dimensions=[1, 0, 2])
    program.add("reshape", (24,), [program.add("tanh", (2, 4, 3), [again])])
    (pairs, axes), _, tensors = pairs_of(*graph(program.module), 3)
    assert axes[:, :3].tolist() == [[0, 2, 1]]
    layouts = np.array([[2, 0], [1, 0], [2, 1]], np.int8)
    layouts = np.pad(layouts, ((0, 0), (0, 4)), constant_values=-1)
    copied = []
    for first, second in ((0, 1), (0, 0), (1, 0), (2, 0)):
        choices = factorise(np.array([[[first, 0, 0], [0, second, 0]]]))
        tensor_graph = graph_of_tensors(tensors.dims, tensors.element_bytes, layouts, choices)
        copied.append(copy_features(with_pairs(tensor_graph, pairs, axes))[0][0, 0])
    assert copied == [0, 1, 0, 1]  # the consumer's axes 1, 0 are the producer's 2, 0
