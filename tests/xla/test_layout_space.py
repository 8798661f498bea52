"""The layout space of a module: options, sampling, encoding, and configurations imposed on the module."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.xla.layout_space import (
    ConfigurableNode,
    configurable_nodes,
    constrain,
    cross,
    draw,
    encode,
    mutate,
)
from fastslow.xla.messages import Module
from helpers.dot_module import add, small_module

RATES = st.sampled_from([0.0, 0.3, 1.0])


def rich_module():
    """Two computations: a loop's body with a dot, and a convolution, reshapes and a batched dot around it."""
    module = Module(name="rich", entry_computation_name="main", entry_computation_id=2)
    body = module.computations.add(name="body", id=1)
    state = add(body, "parameter", (8, 4))
    weight = add(body, "constant", (4, 4))
    contract = {"lhs_contracting": [1], "rhs_contracting": [0]}
    body.root_id = add(body, "dot", (8, 4), state, weight, dot=contract)
    main = module.computations.add(name="main", id=2)
    image = add(main, "parameter", (2, 6, 6, 3))
    kernel = add(main, "parameter", (3, 3, 3, 5), parameter_number=1)
    numbers = {
        "input_batch": 0,
        "input_spatial": [1, 2],
        "input_feature": 3,
        "kernel_spatial": [0, 1],
        "kernel_input_feature": 2,
        "kernel_output_feature": 3,
        "output_batch": 1,
        "output_spatial": [2, 3],
        "output_feature": 0,
    }
    found = add(main, "convolution", (5, 2, 4, 4), image, kernel, convolution=numbers)
    flat = add(main, "reshape", (2, 5, 16), found)
    batched = {"lhs_contracting": [2], "rhs_contracting": [2], "lhs_batch": [0], "rhs_batch": [0]}
    product = add(main, "dot", (2, 5, 5), flat, flat, dot=batched)
    scalar = add(main, "constant", ())
    vector = add(main, "reshape", (1,), scalar)
    called = {"called_computation_ids": [1, 1]}
    add(main, "while", (8, 4), vector, **called)
    main.root_id = add(main, "reshape", (50,), product)
    return module


@pytest.fixture(params=[small_module, rich_module])
def module(request):
    return request.param()


def instructions(module):
    """Return every instruction with its computation, in the order of the graph's nodes."""
    return [(c, i) for c in module.computations for i in c.instructions]


def options_read_plainly(computation, instruction):
    """Return the options as sets, from the description in TpuGraphs."""
    shapes = {i.id: list(i.shape.dimensions) for i in computation.instructions}
    if instruction.opcode == "reshape":
        tensors = [list(instruction.shape.dimensions), shapes[instruction.operand_ids[0]]]
        return [set(itertools.permutations(range(len(dims)))) if dims else set() for dims in tensors] + [
            set()
        ]
    if instruction.opcode == "convolution":
        c = instruction.convolution
        pairs = [
            {c.output_feature, c.output_batch},
            {c.input_feature, c.input_batch},
            {c.kernel_output_feature, c.kernel_input_feature},
        ]
    else:
        d = instruction.dot
        left, right = (range(len(shapes[i])) for i in instruction.operand_ids)
        lhs = [x for x in left if x not in d.lhs_batch and x not in d.lhs_contracting]
        rhs = [x for x in right if x not in d.rhs_batch and x not in d.rhs_contracting]
        # the output of a dot is batch dimensions, then the left's free ones, then the right's
        output = [("batch", x) for x in d.lhs_batch] + [("l", x) for x in lhs] + [("r", x) for x in rhs]
        pairs = [
            {output.index(("l", lhs[-1])), output.index(("r", rhs[-1]))} if lhs and rhs else set(),
            {lhs[-1], max(d.lhs_contracting)} if lhs else set(),
            {rhs[-1], max(d.rhs_contracting)} if rhs else set(),
        ]
    return [set(itertools.permutations(pair)) if pair else set() for pair in pairs]


def test_options_are_those_of_a_plain_reading(module):
    found = {node.node: node for node in configurable_nodes(module)}
    for number, (computation, instruction) in enumerate(instructions(module)):
        if instruction.opcode not in ("convolution", "dot", "reshape"):
            assert number not in found
            continue
        node = found.pop(number)
        assert node.opcode == instruction.opcode
        assert [set(options) for options in node.options] == options_read_plainly(computation, instruction)
        assert all(len(options) == len(set(options)) for options in node.options)
    assert not found


def test_a_dot_with_a_vector_has_no_pair_of_its_output():
    module = small_module()
    main = module.computations[0]
    vector = add(main, "parameter", (4,), parameter_number=9)
    add(main, "dot", (8,), 1, vector, dot={"lhs_contracting": [1], "rhs_contracting": [0]})
    assert configurable_nodes(module)[-1].options == ((), ((0, 1), (1, 0)), ())


@pytest.mark.parametrize("rank, count", [(0, 0), (1, 1), (4, 24), (5, 24), (6, 24), (7, 0)])
def test_a_reshape_has_at_most_24_orders_of_a_tensor(rank, count):
    module = small_module()
    main = module.computations[0]
    source = add(main, "parameter", (1,) * rank, parameter_number=9)
    add(main, "reshape", (1,), source)
    output, operand, kernel = configurable_nodes(module)[-1].options
    assert (len(output), len(operand), len(kernel)) == (1, count, 0)
    if operand:
        assert operand[0] == tuple(range(rank))[::-1], "row-major comes first"


def test_drawing_configures_each_node_with_the_given_probability_and_evenly():
    nodes = configurable_nodes(small_module(layers=2))
    rng = random.Random(0)
    drawn = [draw(nodes, rng, 0.3) for _ in range(2000)]
    dot = nodes[0]
    chosen = [c[dot.node] for c in drawn if dot.node in c]
    assert 0.25 < len(chosen) / len(drawn) < 0.35
    choices = set(itertools.product(*dot.options))
    assert set(chosen) == choices
    shares = np.array([chosen.count(choice) for choice in choices]) / len(chosen)
    assert np.abs(shares - 1 / len(choices)).max() < 0.06
    assert draw(nodes, rng, 0.0) == {} and len(draw(nodes, rng, 1.0)) == len(nodes)


def is_legal(configuration, nodes):
    """Assert that every configured tensor has one of its options, and a tensor without options none."""
    by_number = {node.node: node for node in nodes}
    return all(
        layout in options if options else layout == ()
        for number, layouts in configuration.items()
        for layout, options in zip(layouts, by_number[number].options, strict=True)
    )


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), rate=RATES, change=RATES)
def test_draws_mutations_and_crossings_stay_in_the_space(seed, rate, change):
    nodes, rng = configurable_nodes(rich_module()), random.Random(seed)
    one, other = draw(nodes, rng, rate), draw(nodes, rng, rate)
    before = dict(one)
    changed, child = mutate(one, nodes, rng, change), cross(one, other, rng)
    assert one == before, "a parent stays as it is"
    assert all(is_legal(c, nodes) for c in (one, other, changed, child))
    touched = {n.node for n in nodes if one.get(n.node) != changed.get(n.node)}
    assert len(touched) <= 1 + change * (len(nodes) - 1)
    for node in nodes:
        assert child.get(node.node) in (one.get(node.node), other.get(node.node))
    assert set(child) <= set(one) | set(other)


def test_equal_seeds_draw_equal_configurations():
    nodes = configurable_nodes(rich_module())

    def sequence(seed):
        rng = random.Random(seed)
        first, second = (draw(nodes, rng, 0.5) for _ in range(2))
        return first, second, mutate(first, nodes, rng, 0.5), cross(first, second, rng)

    assert sequence("a") == sequence("a") != sequence("b")


def test_features_are_minor_to_major_padded_with_minus_one():
    nodes = [
        ConfigurableNode(3, "dot", (((0, 1), (1, 0)), ((0, 1), (1, 0)), ())),
        ConfigurableNode(7, "reshape", (((2, 1, 0),), ((0,),), ())),
    ]
    features = encode({7: ((2, 1, 0), (0,), ())}, nodes)
    assert features.dtype == np.float32 and features.shape == (2, 18)
    assert (features[0] == -1).all()
    assert features[1].tolist() == [2, 1, 0, -1, -1, -1, 0, *[-1] * 11]


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_features_tell_configurations_apart(seed):
    nodes, rng = configurable_nodes(small_module(layers=2)), random.Random(seed)
    one, other = draw(nodes, rng, 0.5), draw(nodes, rng, 0.5)
    assert np.array_equal(encode(one, nodes), encode(other, nodes)) == (one == other)


def test_the_empty_configuration_changes_nothing(module):
    assert constrain(module, {}) == module


def constrained_pieces(computation):
    """Return the constraints by id, and the other instructions in order."""
    kept, constraints = [], {}
    for instruction in computation.instructions:
        if instruction.custom_call_target == "LayoutConstraint":
            constraints[instruction.id] = instruction
        else:
            kept.append(instruction)
    return kept, constraints


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), rate=RATES, rich=st.booleans())
def test_a_constrained_module_is_valid(seed, rate, rich):
    module = (rich_module if rich else small_module)()
    untouched = module.SerializeToString(deterministic=True)
    nodes = configurable_nodes(module)
    configuration = draw(nodes, random.Random(seed), rate)
    constrained = constrain(module, configuration)
    assert module.SerializeToString(deterministic=True) == untouched
    numbers = itertools.count()
    for before, after in zip(module.computations, constrained.computations, strict=True):
        ids = [i.id for i in after.instructions]
        assert len(ids) == len(set(ids))
        position = {new_id: place for place, new_id in enumerate(ids)}
        for place, instruction in enumerate(after.instructions):
            assert all(position[operand] < place for operand in instruction.operand_ids)
        kept, constraints = constrained_pieces(after)
        assert [i.id for i in kept] == [i.id for i in before.instructions]
        source_of = {i: c.operand_ids[0] for i, c in constraints.items()}

        def original(new_id, source_of=source_of):
            while new_id in source_of:
                new_id = source_of[new_id]
            return new_id

        asked = 0
        for old, new in zip(before.instructions, kept, strict=True):
            assert [original(i) for i in new.operand_ids] == list(old.operand_ids)
            output, *inputs = configuration.get(next(numbers), ((),))
            for layout, operand in zip(inputs, new.operand_ids, strict=False):
                if layout:
                    assert is_imposed(constraints[operand], layout)
            if output:
                of_output = [c for c in constraints.values() if c.operand_ids[0] == new.id]
                assert any(is_imposed(c, output) for c in of_output)
            asked += bool(output) + sum(map(bool, inputs))
            restored = type(new)()
            restored.CopyFrom(new)
            restored.operand_ids[:] = old.operand_ids
            assert restored == old, "nothing but operands changed"
        assert len(constraints) == asked
        assert original(after.root_id) == before.root_id


def is_imposed(constraint, layout):
    """Return whether a constraint begins with the layout and has a complete order for operand and result."""
    order = tuple(constraint.shape.layout.minor_to_major)
    rank = len(constraint.shape.dimensions)
    return (
        constraint.opcode == "custom-call"
        and constraint.constrain_layout
        and order[: len(layout)] == layout
        and sorted(order) == list(range(rank))
        and list(constraint.operand_shapes_with_layout) == [constraint.shape]
    )


def test_the_root_is_the_constrained_value():
    module = rich_module()
    root = configurable_nodes(module)[-1]
    constrained = constrain(module, {root.node: ((0,), (2, 0, 1), ())})
    main = constrained.computations[1]
    by_id = {i.id: i for i in main.instructions}
    assert by_id[main.root_id].custom_call_target == "LayoutConstraint"
    assert by_id[main.root_id].operand_ids == [module.computations[1].root_id]


def test_consumers_of_a_configured_value_read_the_constrained_one():
    module = rich_module()
    convolution = configurable_nodes(module)[1]
    constrained = constrain(module, {convolution.node: ((1, 0), (0, 3), (2, 3))})
    main = constrained.computations[1]
    by_id = {i.id: i for i in main.instructions}
    reshape = next(i for i in main.instructions if i.opcode == "reshape")
    value = by_id[reshape.operand_ids[0]]
    assert value.custom_call_target == "LayoutConstraint"
    # of the dimensions that the layout does not name, the last comes first
    assert list(value.shape.layout.minor_to_major) == [1, 0, 3, 2]


def test_unknown_fields_survive():
    module = small_module()
    unknown_string = bytes([0x82, 0x7D, 3]) + b"abc"  # field 2000, which the message does not know
    main = module.computations[0]
    main.instructions[2].MergeFromString(unknown_string)
    main.MergeFromString(unknown_string)
    module.MergeFromString(unknown_string)
    constrained = constrain(module, draw(configurable_nodes(module), random.Random(0), 1.0))
    dot = next(i for i in constrained.computations[0].instructions if i.opcode == "dot")
    for message in (constrained, constrained.computations[0], dot):
        assert unknown_string in message.SerializeToString()
    assert constrained.SerializeToString().count(unknown_string) == 3


def test_equal_configurations_give_equal_bytes():
    module, configuration = rich_module(), draw(configurable_nodes(rich_module()), random.Random(1), 0.8)
    one, other = (constrain(module, configuration).SerializeToString(deterministic=True) for _ in range(2))
    assert one == other
