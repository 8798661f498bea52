"""Copies between neighbours, held against a walk over every path and plain loops over every pair."""

from math import log1p, prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE
from fastslow.competition.tied_choices import factorise
from fastslow.features.configs.config_tensors import config_tensors
from fastslow.features.configs.copies import COPY_NAMES, ELEMENT_WISE, CopyPairs, copy_features, copy_pairs
from helpers.cases import cases
from helpers.competition_files import REAL, ROOT, npz_program
from helpers.hlo_message import Program, graph

LAYOUT = Path("npz_all", "npz", "layout")
PUBLISHED = sorted((REAL / LAYOUT).rglob("*.npz"))
SAMPLE = sorted((ROOT / "data" / "sample" / LAYOUT).rglob("*.npz"))
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


def as_set(pairs):
    index = zip(pairs.producer_index, pairs.consumer_index, pairs.consumer_role, strict=True)
    return {tuple(int(part) for part in pair) for pair in index}


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


def reference(pairs, layouts, settings):
    """The features of one configuration (K, 3) by the words of features/README.md."""
    copies = elements = size = both = half = 0
    for index in range(len(pairs.elements)):
        producer = layouts[settings[pairs.producer_index[index], 0]].tolist()
        consumer = layouts[settings[pairs.consumer_index[index], pairs.consumer_role[index]]].tolist()
        producer = [axis for axis in producer if axis >= 0]
        consumer = [pairs.axes[index, axis] for axis in consumer if axis >= 0]
        if producer and consumer:
            both += 1
            if any(a != b for a, b in zip(producer, consumer, strict=False)):
                copies += 1
                elements += int(pairs.elements[index])
                size += int(pairs.elements[index] * pairs.element_bytes[index])
        elif producer or consumer:
            half += 1
    return copies, log1p(elements), log1p(size), copies / both if both else 0, half


@pytest.mark.parametrize("through", [0, 1, 2, 30])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_pairs_of_random_programs_are_those_that_paths_join(through, seed):
    arrays = random_graph(seed)
    pairs, ids, tensors = pairs_of(*arrays, through)
    assert as_set(pairs) == walk(*arrays, ids, tensors, through)
    assert len(as_set(pairs)) == len(pairs.elements)
    for index, role, elements in zip(pairs.consumer_index, pairs.consumer_role, pairs.elements, strict=True):
        assert elements == prod(size for size in tensors.dims[index, role].tolist() if size)


@pytest.mark.skipif(not SAMPLE, reason="no data/sample")
@cases("path", SAMPLE[::28] + PUBLISHED[-1:])
def test_files_give_the_pairs_and_features_of_plain_loops(path):
    file = npz_program(path, "layout", labelled=False)
    arrays = file.node_feat, file.node_opcode, file.edge_index
    pairs, ids, tensors = pairs_of(*arrays, through=3)
    assert (ids == np.sort(file.node_config_ids)).all()
    assert as_set(pairs) == walk(*arrays, ids, tensors, through=3)
    codes = file.choices.layout_codes()
    values, _ = copy_features(pairs, file.layouts, file.choices)
    wanted = [reference(pairs, file.layouts, config) for config in codes[:10]]
    np.testing.assert_allclose(values[:10], wanted, rtol=1e-6)


@pytest.mark.skipif(not PUBLISHED, reason="no ../shared/real")
def test_pairs_of_the_largest_real_program_stay_few():
    with np.load(PUBLISHED[0]) as npz:
        arrays = npz["node_feat"], npz["node_opcode"], npz["edge_index"]
    assert len(arrays[1]) > 20_000
    assert len(pairs_of(*arrays, through=8)[0].elements) < 3 * 848


def chain(*opcodes, dims=(4, 8), element_wise_dims=None):
    """Two reshapes with these nodes in between; the second one is what reads the tensor."""
    program = Program()
    node = producer = program.add("reshape", dims, [program.add("parameter", (32,))])
    for opcode in opcodes:
        node = program.add(opcode, element_wise_dims or dims, [node])
    consumer = program.add("reshape", (32,), [node])
    assert producer < consumer
    return graph(program.module)


def test_direct_neighbours_and_those_through_element_wise_nodes():
    for opcodes, through, pairs in [
        ((), 0, 1),
        (("tanh",), 0, 0),
        (("tanh",), 1, 1),
        (("tanh", "convert"), 1, 0),
        (("tanh", "convert"), 2, 1),
        (("transpose",), 0, 0),
        (("transpose",), 5, 1),
        (("tanh", "transpose"), 1, 0),
        (("tanh", "transpose"), 2, 1),
    ]:
        assert as_set(pairs_of(*chain(*opcodes), through)[0]) == ({(0, 1, 1)} if pairs else set()), opcodes
    assert not as_set(pairs_of(*chain("broadcast", dims=(4, 4)), 5)[0])
    assert not as_set(pairs_of(*chain("tanh", element_wise_dims=(8, 4)), 5)[0])


def test_a_node_that_reads_one_tensor_twice_forms_two_pairs():
    program = Program()
    square = program.add("reshape", (4, 4), [program.add("parameter", (16,))])
    program.add("dot", (4, 4), [square, square])
    pairs, _, _ = pairs_of(*graph(program.module), 0)
    assert as_set(pairs) == {(0, 1, 1), (0, 1, 2)}
    assert pairs.elements.tolist() == [16, 16]
    assert pairs.element_bytes.tolist() == [4, 4]


def random_pairs(rng, count):
    producer, consumer = rng.integers(0, 6, (2, count))
    return CopyPairs(
        producer,
        consumer,
        rng.integers(1, 3, count),
        rng.integers(1, 10**7, count),
        rng.integers(1, 5, count),
        rng.permuted(np.tile(np.arange(6), (count, 1)), axis=1),
    )


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_features_are_those_of_plain_loops_whatever_the_order(seed):
    rng = np.random.default_rng(seed)
    pairs = random_pairs(rng, int(rng.integers(0, 20)))
    codes = rng.integers(0, len(LAYOUTS), (9, 6, 3)).astype(np.uint8)
    codes[7] = codes[1]
    values, names = copy_features(pairs, LAYOUTS, factorise(codes))
    assert names == list(COPY_NAMES)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [reference(pairs, LAYOUTS, config) for config in codes], rtol=1e-6)
    assert (values[7] == values[1]).all()
    order = rng.permutation(len(codes))
    assert (copy_features(pairs, LAYOUTS, factorise(codes[order]))[0] == values[order]).all()


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_node_numbers_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    node_feat, node_opcode, edge_index = random_graph(seed)
    pairs, ids, tensors = pairs_of(node_feat, node_opcode, edge_index, 2)
    # Where the operands' order is ambiguous it is the node numbers that decide.
    decided = {index for index in range(len(ids)) if not tensors.ambiguous[index]}
    number = rng.permutation(len(node_opcode))
    order = np.argsort(number)
    moved, moved_ids, _ = pairs_of(
        node_feat[order], node_opcode[order], rng.permutation(number[edge_index]), 2
    )
    place = {int(node): index for index, node in enumerate(moved_ids)}
    to_new = [place[int(number[node])] for node in ids]
    wanted = {(to_new[p], to_new[c], role) for p, c, role in as_set(pairs) if c in decided}
    kept = {to_new[index] for index in decided}
    assert {pair for pair in as_set(moved) if pair[1] in kept} == wanted


def test_a_transpose_renames_the_axes():
    program = Program()
    producer = program.add("reshape", (2, 3, 4), [program.add("parameter", (24,))])
    turned = program.add("transpose", (4, 2, 3), [producer], dimensions=[2, 0, 1])
    again = program.add("transpose", (2, 4, 3), [turned], dimensions=[1, 0, 2])
    program.add("reshape", (24,), [program.add("tanh", (2, 4, 3), [again])])
    pairs, _, _ = pairs_of(*graph(program.module), 3)
    assert pairs.axes[:, :3].tolist() == [[0, 2, 1]]
    layouts = np.array([[2, 0], [1, 0], [2, 1]], np.int8)
    layouts = np.pad(layouts, ((0, 0), (0, 4)), constant_values=-1)
    copied = [
        copy_features(pairs, layouts, factorise(np.array([[[first, 0, 0], [0, second, 0]]])))[0][0, 0]
        for first, second in ((0, 1), (0, 0), (1, 0), (2, 0))
    ]
    assert copied == [0, 1, 0, 1]  # the consumer's axes 1, 0 are the producer's 2, 0
