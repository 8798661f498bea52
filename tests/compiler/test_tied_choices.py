"""Tied choices of a program: which nodes share them, their defaults, and configurations drawn from them."""

import itertools
import random
from collections import Counter
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow_programs.compiler.layout_choices import (
    TiedChoice,
    default_configuration,
    draw_configuration,
    imposable,
    layouts_of,
    mutate,
    tie,
)
from fastslow_programs.compiler.layout_constraints import constrain, is_default
from fastslow_programs.compiler.layout_space import (
    INPUT,
    KERNEL,
    OUTPUT,
    ConfigurableNode,
    NodeChoice,
    configurable_nodes,
)
from helpers.cases import cases
from helpers.dot_module import rich_module, small_module

SEEDS = st.integers(0, 10**6)
TWO_WAYS = (((1, 0),), ((0, 1),))
PER_TENSOR = tuple(NodeChoice((role,), TWO_WAYS) for role in (OUTPUT, INPUT, KERNEL))
MATRICES = configurable_nodes(small_module())[0].choices
RESHAPE = (NodeChoice((OUTPUT, INPUT), (((1, 0), (2, 1, 0)), ((0, 1), (0, 2, 1)))),)
ROW_MAJOR = ((1, 0), (1, 0), (1, 0))


def classes(opcode, choices, defaults):
    """Return the nodes that share choices, of nodes with these defaults."""
    nodes = [ConfigurableNode(n, opcode, choices, default) for n, default in enumerate(defaults)]
    return list(dict.fromkeys(choice.nodes for choice in tie(nodes)))


def test_alike_nodes_share_a_choice_per_tensor():
    choices = tie(configurable_nodes(small_module(layers=3)))
    # dots are nodes 2, 6, 10; each is followed by a reshape to (2, 4, 4) and one back to (8, 4)
    assert [(c.nodes, c.roles) for c in choices] == [
        ((2, 6, 10), (OUTPUT,)),
        ((2, 6, 10), (INPUT, KERNEL)),
        ((3, 7, 11), (OUTPUT, INPUT)),
        ((4, 8, 12), (OUTPUT, INPUT)),
    ]
    assert [len(c.options) for c in choices] == [2, 5, 2, 2]


@cases("other", [("convolution", PER_TENSOR), ("dot", PER_TENSOR[:2])])
def test_nodes_that_differ_in_opcode_or_options_are_apart(other):
    kinds = [("dot", PER_TENSOR), other, ("dot", PER_TENSOR)]
    choices = tie([ConfigurableNode(n, *kind, ROW_MAJOR) for n, kind in enumerate(kinds)])
    assert {choice.nodes for choice in choices} == {(0, 2), (1,)}


LAST_AND_FIRST = (NodeChoice((OUTPUT,), (((3, 0),), ((0, 3),))),)


@cases(
    "opcode, choices, defaults, expected",
    [
        ("dot", PER_TENSOR, [ROW_MAJOR, ((1, 0), (1, 0), (0, 1)), ROW_MAJOR], [(0, 2), (1,)]),
        # it counts for operands that may be left to the compiler
        ("dot", MATRICES, [ROW_MAJOR, ((1, 0), (1, 0), (0, 1)), ROW_MAJOR], [(0, 2), (1,)]),
        # only dimensions that can be chosen count
        (
            "convolution",
            LAST_AND_FIRST,
            [((3, 0, 2, 1), (1, 0)), ((3, 2, 1, 0), (0, 1)), ((0, 3, 2, 1), (1, 0))],
            [(0, 1), (2,)],
        ),
        # reshapes are tied by their options alone
        ("reshape", RESHAPE, [((1, 0), (2, 1, 0)), ((0, 1), (0, 2, 1)), ()], [(0, 1, 2)]),
    ],
)
def test_nodes_of_another_default_are_apart(opcode, choices, defaults, expected):
    assert classes(opcode, choices, defaults) == expected


@cases(
    "choice, opcode, default, at",
    [
        (PER_TENSOR[0], "dot", ((0, 1), (1, 0), (1, 0)), 1),
        (PER_TENSOR[1], "dot", ((0, 1), (1, 0), (1, 0)), 0),
        (PER_TENSOR[2], "dot", (), 0),
        (LAST_AND_FIRST[0], "convolution", ((0, 3, 2, 1), (1, 0)), 1),
        (MATRICES[1], "dot", ((1, 0), (0, 1), (0, 1)), 0),
        (RESHAPE[0], "reshape", ((0, 1), (0, 2, 1)), 1),
        (RESHAPE[0], "reshape", ((0, 1), (1, 0, 2)), 0),
    ],
)
def test_the_default_option_is_the_compilers_own(choice, opcode, default, at):
    (tied,) = tie([ConfigurableNode(5, opcode, (choice,), default)])
    assert tied == TiedChoice(choice.roles, choice.options, (5,), at)
    assert tied.weights == choice.weights and default_configuration([tied]) == (at,)


def test_layouts_of_a_configuration_reach_every_node():
    nodes = configurable_nodes(small_module(layers=2))
    choices = tie(nodes)
    layouts = layouts_of((1, 0, 0, 1), choices)
    dot = ((0, 1), (), ())
    # (2, 4, 4) from (8, 4): the last dimension and the block of the others swap in the second option
    there, back = ((2, 1, 0), (1, 0), ()), ((0, 1), (1, 0, 2), ())
    assert layouts == {2: dot, 6: dot, 3: there, 7: there, 4: back, 8: back}
    assert layouts_of((1, 4, 0, 1), choices)[6] == ((0, 1), (0, 1), (0, 1))


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_drawn_configuration_gives_each_node_one_of_its_options(seed):
    nodes = configurable_nodes(rich_module())
    choices = tie(nodes)
    layouts = layouts_of(draw_configuration(choices, random.Random(seed)), choices)
    for node in nodes:
        node_layouts = layouts[node.node]
        for choice in node.choices:
            assert tuple(node_layouts[role] for role in choice.roles) in choice.options
        named = {role for choice in node.choices for role in choice.roles}
        assert all(node_layouts[role] == () for role in {OUTPUT, INPUT, KERNEL} - named)


def test_options_are_drawn_by_their_weights():
    choices, rng, count = tie(configurable_nodes(small_module(layers=2))), random.Random(0), 9000
    drawn = np.array([draw_configuration(choices, rng) for _ in range(count)])
    for choice, column in zip(choices, drawn.T, strict=True):
        shares = np.bincount(column, minlength=len(choice.options)) / count
        expected = np.full(len(choice.options), 1 / len(choice.options))
        if choice.roles == (INPUT, KERNEL):
            expected = np.array([4, 7, 7, 7, 7]) / 32  # both left to the compiler in one of eight
        # four standard deviations of a share
        assert (np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / count)).all()
    # one choice says nothing about another
    assert len(Counter(map(tuple, drawn.tolist()))) == 2 * 5 * 2 * 2


@settings(max_examples=30)
@given(seed=SEEDS)
def test_mutations_stay_in_the_space(seed):
    choices, rng = tie(configurable_nodes(rich_module())), random.Random(seed)
    one = draw_configuration(choices, rng)
    assert mutate(one, choices, rng, 0.0) == one
    for child in (mutate(one, choices, rng, 0.5), mutate(one, choices, rng, 1.0)):
        assert all(0 <= option < len(c.options) for option, c in zip(child, choices, strict=True))


def test_a_mutation_draws_each_choice_again_at_its_rate():
    choices, rng = tie(configurable_nodes(small_module(layers=2))), random.Random(0)
    one = default_configuration(choices)
    changed = np.array([mutate(one, choices, rng, 0.4) for _ in range(4000)]) != one
    # drawn again, a choice of n equal options stays as it is once in n; the operands' left option in one of 8
    expected = 0.4 * np.array([1 / 2, 7 / 8, 1 / 2, 1 / 2])
    assert np.abs(changed.mean(0) - expected).max() < 0.04


def every_configuration(choices):
    """Every configuration of choices."""
    return itertools.product(*(range(len(choice.options)) for choice in choices))


def known_defaults(module, seed):
    """Return the nodes of a module with the compiler's own layouts, drawn at random."""
    rng, names, defaults = random.Random(seed), operand_shapes(module), {}
    for name, ranks in names.items():
        defaults[name] = [rng.sample(range(rank), rank) for rank in ranks]
    return configurable_nodes(module, defaults)


def operand_shapes(module):
    """Return the ranks of output and operands of every instruction, by name."""
    found = {}
    for computation in module.computations:
        by_id = {i.id: i for i in computation.instructions}
        for i in computation.instructions:
            tensors = [i, *(by_id[number] for number in i.operand_ids)]
            found[i.name] = [len(tensor.shape.dimensions) for tensor in tensors]
    return found


@cases("seed", [None, 0, 1])
@cases("make", [rich_module, small_module])
def test_configurations_that_the_compiler_cannot_tell_apart_are_one(make, seed):
    """Against all configurations of the whole space, each put into the program for the compiler."""
    module = make()
    nodes = configurable_nodes(module) if seed is None else known_defaults(module, seed)

    @cache
    def constrained(taken):
        return constrain(module, dict(taken), nodes).SerializeToString(deterministic=True)

    def program(configuration, choices):
        layouts, taken = layouts_of(configuration, choices), []
        for node in nodes:  # a constraint on the compiler's own layout, without a barrier, changes nothing
            node_layouts = (*layouts.get(node.node, ()), (), ())
            roles = (0, 1) if node.opcode == "reshape" else (0,)
            same = all(is_default(node, role, node_layouts[role]) for role in roles)
            taken.append((node.node, () if same else tuple(node_layouts[role] for role in roles)))
        return constrained(tuple(taken))

    whole, left = tie(nodes), imposable(nodes)
    programs = {program(configuration, whole) for configuration in every_configuration(whole)}
    found = [program(configuration, left) for configuration in every_configuration(left)]
    assert len(found) == len(set(found)), "two configurations are two programs"
    assert set(found) == programs, "and none is lost"
    assert program(default_configuration(left), left) == program(default_configuration(whole), whole)
