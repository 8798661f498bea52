"""The layout space of a module: the choices of each configurable node, and their encoding."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.hlo.messages import Module
from fastslow_programs.compiler.layout_space import (
    INPUT,
    KERNEL,
    OUTPUT,
    ConfigurableNode,
    NodeChoice,
    configurable_nodes,
    encode,
)
from helpers.cases import cases
from helpers.dot_module import add, rich_module, small_module

BOTH = (OUTPUT, INPUT)


@pytest.fixture(params=[small_module, rich_module])
def module(request):
    return request.param()


def instructions(module):
    """Return every instruction with its computation, in the order of the graph's nodes."""
    return [(c, i) for c in module.computations for i in c.instructions]


def pairs_read_plainly(computation, instruction):
    """Return the two dimensions that output, input and kernel order, from the description in TpuGraphs."""
    shapes = {i.id: list(i.shape.dimensions) for i in computation.instructions}
    if instruction.opcode == "convolution":
        c = instruction.convolution
        return [
            {c.output_feature, c.output_batch},
            {c.input_feature, c.input_batch},
            {c.kernel_output_feature, c.kernel_input_feature},
        ]
    d = instruction.dot
    left, right = (range(len(shapes[i])) for i in instruction.operand_ids)
    lhs = [x for x in left if x not in d.lhs_batch and x not in d.lhs_contracting]
    rhs = [x for x in right if x not in d.rhs_batch and x not in d.rhs_contracting]
    # the output of a dot is batch dimensions, then the left's free ones, then the right's
    output = [("batch", x) for x in d.lhs_batch] + [("l", x) for x in lhs] + [("r", x) for x in rhs]
    return [
        {output.index(("l", lhs[-1])), output.index(("r", rhs[-1]))} if lhs and rhs else set(),
        {lhs[-1], max(d.lhs_contracting)} if lhs else set(),
        {rhs[-1], max(d.rhs_contracting)} if rhs else set(),
    ]


def test_configurable_are_reshapes_and_two_dimensions_of_tensors_of_convolutions_and_dots(module):
    placed, nodes = instructions(module), configurable_nodes(module)
    wanted = [n for n, (_, i) in enumerate(placed) if i.opcode in ("convolution", "dot", "reshape")]
    assert [node.node for node in nodes] == wanted
    assert [node.opcode for node in nodes] == [placed[n][1].opcode for n in wanted]
    for node in (node for node in nodes if node.opcode != "reshape"):
        layouts = {role: set() for role in (OUTPUT, INPUT, KERNEL)}
        for choice in node.choices:
            for option in choice.options:
                for role, layout in zip(choice.roles, option, strict=True):
                    layouts[role] |= {layout} - {()}
        pairs = pairs_read_plainly(*placed[node.node])
        assert list(layouts.values()) == [set(itertools.permutations(p)) if p else set() for p in pairs]


def test_row_major_is_the_first_option_and_each_tensor_of_a_batched_dot_is_ordered_on_its_own():
    _, convolution, _, batched, *_ = configurable_nodes(rich_module())
    assert (convolution.opcode, batched.opcode) == ("convolution", "dot")
    assert [c.roles for c in convolution.choices] == [(OUTPUT,), (INPUT,), (KERNEL,)]
    # the output's batch is dimension 1, its feature dimension 0
    assert [c.options for c in convolution.choices] == [
        (((1, 0),), ((0, 1),)),
        (((3, 0),), ((0, 3),)),
        (((3, 2),), ((2, 3),)),
    ]
    assert all(c.weights == (7, 7) for c in convolution.choices)
    assert [c.roles for c in batched.choices] == [(OUTPUT,), (INPUT,), (KERNEL,)]
    assert [c.options for c in batched.choices] == [(((2, 1),), ((1, 2),))] * 3


def test_a_dot_of_matrices_may_leave_both_operands_to_the_compiler_but_never_its_output():
    output, operands = configurable_nodes(small_module())[0].choices
    assert output == NodeChoice((OUTPUT,), (((1, 0),), ((0, 1),)))
    assert operands.roles == (INPUT, KERNEL)
    assert operands.options[:2] == (((), ()), ((1, 0), (1, 0)))
    assert set(operands.options[1:]) == set(itertools.product([(1, 0), (0, 1)], repeat=2))
    assert len(operands.options) == 5 and operands.weights == (4, 7, 7, 7, 7), "left in one of eight"


def test_the_groups_of_a_ragged_dot_are_a_batch():
    module = Module()
    main = module.computations.add(id=1)
    operands = [add(main, "parameter", dims) for dims in ((64, 128), (4, 128, 32), (4,))]
    numbers = {"dot": {"lhs_contracting": [1], "rhs_contracting": [1]}, "rhs_group": [0]}
    add(main, "ragged-dot", (64, 32), *operands, ragged_dot=numbers)
    (node,) = configurable_nodes(module)
    rows = [(((1, 0),), ((0, 1),)), (((1, 0),), ((0, 1),)), (((2, 1),), ((1, 2),))]
    assert node.opcode == "dot" and [choice.options for choice in node.choices] == rows


def test_a_dot_with_a_vector_has_no_pair_of_its_output():
    module = small_module()
    main = module.computations[0]
    vector = add(main, "parameter", (4,), parameter_number=9)
    add(main, "dot", (8,), 1, vector, dot={"lhs_contracting": [1], "rhs_contracting": [0]})
    assert configurable_nodes(module)[-1].choices == (NodeChoice((INPUT,), (((1, 0),), ((0, 1),))),)


def reshape(output, operand):
    """Return the node of a reshape."""
    module = small_module()
    main = module.computations[0]
    source = add(main, "parameter", operand, parameter_number=9)
    add(main, "reshape", output, source)
    node = configurable_nodes(module)[-1]
    assert node.opcode == "reshape"
    return node


def addresses(sizes, layout):
    """Return the address of each element of a row-major enumeration, in a tensor of that layout."""
    places = np.arange(math.prod(sizes)).reshape([sizes[d] for d in reversed(layout)])
    return places.transpose([layout[::-1].index(d) for d in range(len(sizes))]).ravel()


def orders(sizes):
    """Return all layouts in which dimensions of size 1 are major-most."""
    ones = tuple(d for d in reversed(range(len(sizes))) if sizes[d] == 1)
    long = [d for d in reversed(range(len(sizes))) if sizes[d] > 1]
    return [order + ones for order in itertools.permutations(long)]


def reshapes_that_move_nothing(output, operand):
    """Return every pair of layouts of output and operand under which each element keeps its address."""
    pairs = itertools.product(orders(output), orders(operand))
    return {(a, b) for a, b in pairs if np.array_equal(addresses(output, a), addresses(operand, b))}


def shapes_of_size(primes, rank):
    """Return a strategy of shapes whose size is the product of primes; each is a factor of one dimension."""

    def shape(primes, dimensions):
        sizes = [1] * rank
        for prime, dimension in zip(primes, dimensions, strict=True):
            sizes[dimension] *= prime
        return tuple(sizes)

    dimensions = st.lists(st.integers(0, rank - 1), min_size=len(primes), max_size=len(primes))
    return st.builds(shape, st.permutations(primes), dimensions)


@settings(max_examples=150)
@given(data=st.data())
def test_a_reshape_offers_exactly_the_layouts_under_which_no_element_moves(data):
    primes = data.draw(st.lists(st.sampled_from([2, 2, 3]), min_size=1, max_size=4))
    output, operand = (data.draw(shapes_of_size(primes, data.draw(st.integers(1, 5)))) for _ in range(2))
    (choice,) = reshape(output, operand).choices
    assert choice.roles == BOTH and len(choice.options) == len(set(choice.options))
    left = [((), ())] if min(len(output), len(operand)) == 1 else []
    assert list(choice.options[: len(left)]) == left, "left to the compiler comes first"
    offered = choice.options[len(left) :]
    assert set(offered) == reshapes_that_move_nothing(output, operand)
    assert offered[0] == (orders(output)[0], orders(operand)[0]), "then row-major, sizes of 1 aside"
    assert len(set(choice.weights)) == 1, "every option is equally likely"


@cases("rank, count", [(1, 2), (2, 2), (4, 24), (5, 24), (6, 24)])
def test_a_reshape_has_at_most_24_orders_of_its_blocks(rank, count):
    sizes = (2, 3, 5, 7, 11, 13)[:rank]
    (choice,) = reshape(sizes, sizes).choices
    assert len(choice.options) == count == len(set(choice.options))
    assert all(output == operand for output, operand in choice.options)


def test_reshapes_to_fewer_dimensions_than_two_may_be_left_to_the_compiler():
    assert reshape((24,), (2, 3, 4)).choices == (NodeChoice(BOTH, (((), ()), ((0,), (2, 1, 0)))),)
    assert reshape((1, 1), ()).choices == (NodeChoice(BOTH, (((), ()), ((1, 0), ()))),)
    assert reshape((), ()).choices == (NodeChoice(BOTH, (((), ()),)),), "no option twice"


@cases("output, operand", [((2,) * 7, (2, 64)), ((128,), (2,) * 7), ((0, 3), (3, 0)), ((0,), (4, 0))])
def test_a_reshape_that_the_format_cannot_hold_or_without_elements_has_no_choice(output, operand):
    assert reshape(output, operand).choices == ()


def test_defaults_are_taken_by_the_name_of_the_instruction():
    module = small_module(layers=2)
    names = [i.name for _, i in instructions(module)]
    dot, first, *others = configurable_nodes(module, {names[2]: [[0, 1], [1, 0], [1, 0]], "other.1": [[0]]})
    assert (names[2], dot.node, dot.default) == ("dot.3", 2, ((0, 1), (1, 0), (1, 0)))
    assert not any(node.default for node in [first, *others, *configurable_nodes(module)])
    hash(dot)


def test_features_are_minor_to_major_padded_with_minus_one():
    nodes = [ConfigurableNode(3, "dot", ()), ConfigurableNode(7, "reshape", ())]
    features = encode({7: ((2, 1, 0), (0,), ())}, nodes)
    assert features.dtype == np.float32
    assert features.tolist() == [[-1] * 18, [2, 1, 0, -1, -1, -1, 0, *[-1] * 11]]
