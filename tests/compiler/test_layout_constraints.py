"""Layouts imposed on a module: what is bound, where barriers keep it, and what stays as it was."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow_programs.compiler.layout_choices import draw_configuration, layouts_of, tie
from fastslow_programs.compiler.layout_constraints import constrain, default_layout, is_default
from fastslow_programs.compiler.layout_space import (
    INPUT,
    KERNEL,
    OUTPUT,
    ConfigurableNode,
    configurable_nodes,
)
from helpers.cases import cases
from helpers.dot_module import rich_module, small_module

CONSTRAINT, BARRIER = "LayoutConstraint", ["tuple", "opt-barrier", "get-tuple-element"]
ADDED = {CONSTRAINT, *BARRIER}


def kind(instruction):
    """Return the opcode, of a constraint its target."""
    return instruction.custom_call_target or instruction.opcode


def order(instruction):
    return tuple(instruction.shape.layout.minor_to_major)


def upstream(computation, instruction):
    """Return the added instructions between an operand and its original producer, producer first."""
    by_id = {i.id: i for i in computation.instructions}
    chain = []
    while kind(instruction) in ADDED:
        chain.append(instruction)
        (operand,) = instruction.operand_ids
        instruction = by_id[operand]
    return [instruction, *reversed(chain)]


def chain_of(chain):
    """Return added instructions in short: constraints by their layout, the parts of a barrier as one."""
    short = [order(i) if kind(i) == CONSTRAINT else kind(i) for i in chain]
    for at in range(len(short) - len(BARRIER), -1, -1):
        if short[at : at + len(BARRIER)] == BARRIER:
            short[at : at + len(BARRIER)] = ["barrier"]
    return short


def imposed(layouts, defaults):
    """Constrain a dot and two reshapes; return what was added before the dot and after each of the three."""
    module = small_module()
    names = [i.name for i in module.computations[0].instructions]
    nodes = configurable_nodes(module, {names[node]: default for node, default in defaults.items()})
    (main,) = constrain(module, layouts, nodes).computations
    by_id = {i.id: i for i in main.instructions}
    dot, there, back, last = (i for i in main.instructions if i.id in (3, 4, 5, 6))
    assert [i.opcode for i in (dot, there, back, last)] == ["dot", "reshape", "reshape", "tanh"]
    return {
        name: chain_of(upstream(main, by_id[user.operand_ids[0]])[1:])
        for name, user in (("dot in", dot), ("dot out", there), ("there out", back), ("back out", last))
    }


DOT, THERE, BACK = 2, 3, 4  # numbers of the nodes
KNOWN = {DOT: [[1, 0], [1, 0], [1, 0]], THERE: [[2, 1, 0], [1, 0]], BACK: [[1, 0], [2, 1, 0]]}
NOTHING = {"dot in": [], "dot out": [], "there out": [], "back out": []}


@cases(
    "layouts, defaults, added",
    [
        # a default output is bound without a barrier, nor is the operand bound
        ({DOT: ((1, 0), (), ())}, KNOWN, {"dot out": [(1, 0)]}),
        ({THERE: ((2, 1, 0), (1, 0), ())}, KNOWN, {"there out": [(2, 1, 0)]}),
        # a barrier keeps another one; what is the default is the compiler's to say
        ({DOT: ((0, 1), (), ())}, KNOWN, {"dot out": [(0, 1), "barrier"]}),
        ({DOT: ((0, 1), (), ())}, {}, {"dot out": [(0, 1), "barrier"]}),
        ({DOT: ((0, 1), (), ())}, {DOT: [[0, 1], [1, 0], [1, 0]]}, {"dot out": [(0, 1)]}),
        ({DOT: ((1, 0), (), ())}, {DOT: [[0, 1], [1, 0], [1, 0]]}, {"dot out": [(1, 0), "barrier"]}),
        # operands of a dot are not bound
        ({DOT: ((0, 1), (0, 1), (0, 1))}, KNOWN, {"dot out": [(0, 1), "barrier"]}),
        # a reshape that is not the default lies between barriers and default layouts
        (
            {THERE: ((1, 0, 2), (0, 1), ())},
            KNOWN,
            {"dot out": [(1, 0), "barrier", (0, 1)], "there out": [(1, 0, 2), "barrier", (2, 1, 0)]},
        ),
    ],
)
def test_constraints_and_barriers_around_a_node(layouts, defaults, added):
    assert imposed(layouts, defaults) == NOTHING | added


def test_the_neighbours_of_a_reshape_have_the_compilers_layouts():
    defaults = KNOWN | {THERE: [[0, 2, 1], [0, 1]]}
    found = imposed({THERE: ((2, 1, 0), (1, 0), ())}, defaults)
    assert found["dot out"] == [(0, 1), "barrier", (1, 0)]
    assert found["there out"] == [(2, 1, 0), "barrier", (0, 2, 1)]
    found = imposed({THERE: ((1, 0, 2), (0, 1), ())}, {})
    assert (found["dot out"][0], found["there out"][-1]) == ((1, 0), (2, 1, 0)), "row-major if unknown"


def test_neighbouring_nodes_are_bound_one_after_the_other():
    found = imposed({DOT: ((0, 1), (), ()), THERE: ((1, 0, 2), (0, 1), ())}, KNOWN)
    assert found["dot out"] == [(0, 1), "barrier", (1, 0), "barrier", (0, 1)]


def test_a_scalar_side_of_a_reshape_has_no_constraint_of_its_output():
    module = rich_module()
    vector = configurable_nodes(module)[4]
    assert [list(o) for o in vector.choices[0].options] == [[(), ()], [(0,), ()]]
    (_, main, _) = constrain(module, {vector.node: ((0,), (), ())}, configurable_nodes(module)).computations
    assert [kind(i) for i in main.instructions].count(CONSTRAINT) == 1


@cases(
    "default, role, layout, expected",
    [
        (((0, 1), (3, 0, 2, 1), (1, 0)), INPUT, (3, 0), True),
        (((0, 1), (3, 0, 2, 1), (1, 0)), INPUT, (0, 3), False),
        (((0, 1), (3, 0, 2, 1), (1, 0)), OUTPUT, (0, 1), True),
        (((0, 1), (3, 0, 2, 1), (1, 0)), KERNEL, (), True),
        ((), OUTPUT, (3, 0), True),
        ((), OUTPUT, (0, 3), False),
        ((), OUTPUT, (), True),
    ],
)
def test_a_layout_is_the_default_where_its_dimensions_are_in_that_order(default, role, layout, expected):
    node = ConfigurableNode(0, "convolution", (), default)
    assert is_default(node, role, layout) == expected
    assert default_layout(node, role) == (default[role] if default else ())


def drawn(module, seed):
    """Return the layouts of a random configuration, and the module constrained to it."""
    nodes, rng = configurable_nodes(module), random.Random(seed)
    choices = tie(nodes)
    layouts = layouts_of(draw_configuration(choices, rng), choices)
    return layouts, constrain(module, layouts, nodes)


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), rich=st.booleans())
def test_a_constrained_module_is_valid(seed, rich):
    module = (rich_module if rich else small_module)()
    untouched = module.SerializeToString(deterministic=True)
    layouts, constrained = drawn(module, seed)
    assert (
        constrained == drawn(module, seed)[1] and constrain(module, {}, configurable_nodes(module)) == module
    )
    assert module.SerializeToString(deterministic=True) == untouched
    number = 0
    for before, after in zip(module.computations, constrained.computations, strict=True):
        place = {i.id: n for n, i in enumerate(after.instructions)}
        assert len(place) == len(after.instructions), "ids are unique"
        assert len({i.name for i in after.instructions}) == len(place), "so are names"
        by_id = {i.id: i for i in after.instructions}
        for instruction in after.instructions:
            assert all(place[operand] < place[instruction.id] for operand in instruction.operand_ids)
            if kind(instruction) == CONSTRAINT:
                check_constraint(instruction, by_id[instruction.operand_ids[0]])
        kept = [i for i in after.instructions if kind(i) not in ADDED]
        assert [i.id for i in kept] == [i.id for i in before.instructions]
        bound = {i.operand_ids[0]: i for i in after.instructions if kind(i) == CONSTRAINT}
        for old, new in zip(before.instructions, kept, strict=True):
            sources = [upstream(after, by_id[i])[0].id for i in new.operand_ids]
            assert sources == list(old.operand_ids)
            if output := layouts.get(number, ((),))[OUTPUT]:
                named, rest = order(bound[new.id])[: len(output)], order(bound[new.id])[len(output) :]
                assert named == output and list(rest) == sorted(rest, reverse=True), "then row-major"
            restored = type(new)()
            restored.CopyFrom(new)
            restored.operand_ids[:] = old.operand_ids
            assert restored == old, "nothing but operands changed"
            number += 1
        assert upstream(after, by_id[after.root_id])[0].id == before.root_id


def check_constraint(constraint, source):
    """Assert that a constraint has a complete order, and the same for its operand."""
    assert constraint.opcode == "custom-call" and constraint.constrain_layout
    assert sorted(order(constraint)) == list(range(len(constraint.shape.dimensions)))
    assert list(constraint.operand_shapes_with_layout) == [constraint.shape]
    assert list(constraint.shape.dimensions) == list(source.shape.dimensions)


def test_the_root_of_a_program_and_of_a_loops_body_is_the_bound_value():
    module = rich_module()
    nodes = configurable_nodes(module)
    body_dot, root = nodes[0], nodes[-1]
    layouts = {body_dot.node: ((0, 1), (), ()), root.node: ((0,), (2, 1, 0), ())}
    constrained = constrain(module, layouts, nodes)
    chains = []
    for computation in constrained.computations:
        (value,) = (i for i in computation.instructions if i.id == computation.root_id)
        chains.append(chain_of(upstream(computation, value)[1:]))
    assert chains == [[(0, 1), "barrier"], [(0,)], []]


def test_every_user_of_a_bound_value_reads_the_bound_one():
    module = rich_module()
    nodes = configurable_nodes(module)
    (_, main, _) = constrain(module, {nodes[2].node: ((2, 1, 0), (3, 2, 1, 0), ())}, nodes).computations
    by_id = {i.id: i for i in main.instructions}
    batched = next(i for i in main.instructions if i.opcode == "dot")
    assert [kind(by_id[i]) for i in batched.operand_ids] == [CONSTRAINT, CONSTRAINT], "both operands"


def test_a_barrier_passes_a_tuple_on():
    module = small_module()
    nodes = configurable_nodes(module)
    (main,) = constrain(module, {DOT: ((0, 1), (), ())}, nodes).computations
    packed, barrier, result = (next(i for i in main.instructions if i.opcode == part) for part in BARRIER)
    (inner,) = packed.shape.tuple_shapes
    assert barrier.shape == packed.shape and result.shape == inner
    assert list(inner.dimensions) == [8, 4] and list(inner.layout.minor_to_major) == [0, 1]
    assert result.tuple_index == 0


def test_unknown_fields_survive():
    module = small_module()
    unknown_string = bytes([0x82, 0x7D, 3]) + b"abc"  # field 2000, which the message does not know
    main = module.computations[0]
    main.instructions[2].MergeFromString(unknown_string)
    main.MergeFromString(unknown_string)
    module.MergeFromString(unknown_string)
    _, constrained = drawn(module, 0)
    dot = next(i for i in constrained.computations[0].instructions if i.opcode == "dot")
    for message in (constrained, constrained.computations[0], dot):
        assert unknown_string in message.SerializeToString()
    assert constrained.SerializeToString().count(unknown_string) == 3


def test_new_instructions_have_names_that_no_computation_has():
    """As XLA demands: ids of computations that were rewritten before may reach into each other's."""
    module = small_module()
    module.computations.add().CopyFrom(module.computations[0])
    module.computations[1].name = "other"
    module.computations[0].instructions[0].name = "custom-call.11"
    nodes = configurable_nodes(module)
    layouts = {node.node: ((0, 1), (), ()) for node in nodes if node.opcode == "dot"}
    constrained = constrain(module, layouts, nodes)
    known = {i.name for part in module.computations for i in part.instructions}
    added = [i.name for part in constrained.computations for i in part.instructions if i.name not in known]
    assert len(added) == len({*added}) == 8 and len(layouts) == 2
