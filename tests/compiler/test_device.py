"""Measuring on this machine: what is bound, what is compared, what is decided, and what is loaded again."""

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.compiler.device import (
    TUNED,
    Bench,
    difference,
    draw_inputs,
    load_tuned,
    lower_function,
    write_signature,
)
from fastslow_programs.compiler.layout_choices import layouts_of, tie
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.target import read_local
from helpers.cases import cases

jax = pytest.importorskip("jax")


def predict(image, weights):
    """A convolution, a reshape and a dot; arguments and results are trees."""
    numbers = ("NHWC", "HWIO", "NHWC")
    hidden = jax.lax.conv_general_dilated(image, weights["kernel"], (1, 1), "SAME", dimension_numbers=numbers)
    return {"scores": jax.nn.relu(hidden).reshape(len(image), -1) @ weights["dense"], "sum": hidden.sum()}


def example():
    """Arguments of :func:`predict`."""
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 3, 4, 8), "dense": (8 * 8 * 8, 16)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return rng.standard_normal((2, 8, 8, 4)).astype(np.float32), weights


@pytest.fixture(scope="module")
def program():
    """The program as it is lowered here."""
    return lower_function(predict, example())


def other_layouts(program):
    """The program with every output in another layout than the default."""
    nodes = configurable_nodes(program.module)
    tied = tie(nodes)
    last = tuple(len(choice.options) - 1 if 0 in choice.roles else choice.default for choice in tied)
    default = tuple(choice.default for choice in tied)
    return [bind_differences(program.module, layouts_of(c, tied), nodes) for c in (default, last)]


def constraints(module):
    """The number of constraints of a module."""
    return sum(
        i.custom_call_target == "LayoutConstraint" for c in module.computations for i in c.instructions
    )


def test_a_function_in_memory_is_lowered_like_one_of_a_file(program):
    found = read_local(FunctionSource.of_function(predict, example()), seed=0)
    assert found.signature == program.signature
    assert all(map(np.array_equal, found.inputs, program.inputs))
    opcodes = [[i.opcode for c in p.module.computations for i in c.instructions] for p in (found, program)]
    assert opcodes[0] == opcodes[1]


def test_only_what_differs_from_the_default_is_bound(program):
    default, other = other_layouts(program)
    assert default.SerializeToString() == program.module.SerializeToString()
    assert constraints(other) == 3


def test_a_measured_program_and_a_refused_one(program):
    other, broken = other_layouts(program)[1], type(program.module)()
    with Bench(program, rounds=3, seconds=60).running() as times:
        found = times([other, broken])
        assert found.failures[0] == "" and found.failures[1].startswith("refused")
        assert np.isfinite(found.ratios[:, 0]).all() and np.isnan(found.ratios[:, 1]).all()


def test_a_program_that_does_not_run_here_is_refused(program):
    empty = type(program)(type(program.module)(), (), {})
    with (
        Bench(empty, rounds=1, seconds=60).running() as times,
        pytest.raises(SettingsError, match="does not run"),
    ):
        times([program.module])


@pytest.fixture
def tuned(program, tmp_path):
    """The program in other layouts, written and loaded again."""
    (tmp_path / TUNED).write_bytes(serialised(other_layouts(program)[1]))
    write_signature(tmp_path, program)
    return load_tuned(tmp_path)


def test_a_tuned_program_is_a_function_like_the_one_that_was_tuned(tuned):
    arguments = example()
    found, wanted = tuned(*arguments), predict(*arguments)
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["sum"], wanted["sum"], rtol=1e-4)
    with pytest.raises(TypeError, match="was tuned"):
        tuned(arguments[0])


def test_a_tuned_program_lives_in_a_program_and_checks_every_leaf(tuned):
    arguments = example()
    inside = jax.jit(lambda *own: tuned(*own)["scores"] * 2)
    np.testing.assert_allclose(inside(*arguments), 2 * predict(*arguments)["scores"], rtol=1e-4, atol=1e-4)
    assert inside.lower(*arguments).as_text().count("@LayoutConstraint") == 3
    leaves, tree = jax.tree.flatten(arguments)
    for change in (lambda x: x.astype(np.int32), lambda x: x[None], lambda x: x[:1], lambda x: x.T):
        for number, leaf in enumerate(leaves):
            if change(leaf).shape != leaf.shape or change(leaf).dtype != leaf.dtype:
                others = jax.tree.unflatten(tree, [*leaves[:number], change(leaf), *leaves[number + 1 :]])
                with pytest.raises(TypeError, match=r"arguments\[.* but float32\[.*\] was tuned"):
                    tuned(*others)
    with pytest.raises(ValueError, match="No VJP"):
        jax.grad(lambda *own: tuned(*own)["scores"].sum())(*arguments)
    with pytest.raises(NotImplementedError, match="[Bb]atching rule"):
        jax.vmap(tuned)(*jax.tree.map(lambda x: np.stack([x, x]), arguments))


def test_an_hlo_file_has_drawn_inputs_and_a_list_of_outputs(program, tmp_path):
    drawn = draw_inputs(program.module)
    assert [(v.shape, v.dtype) for v in drawn] == [(v.shape, v.dtype) for v in program.inputs]
    (tmp_path / TUNED).write_bytes(serialised(program.module))
    write_signature(tmp_path, type(program)(program.module, drawn, {}))
    assert len(load_tuned(tmp_path)(*drawn)) == 2


@cases("content", [None, b"", b"\xff\xff"])
def test_a_folder_without_a_tuned_program_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / TUNED).write_bytes(content)
    with pytest.raises(DataError, match=TUNED):
        load_tuned(tmp_path)


ONES = np.ones(3, np.float32)


@cases(
    ("one", "other", "agrees"),
    [
        (ONES, ONES * (1 + 1e-5), True),
        (ONES, ONES * (1 + 1e-3), False),
        (ONES, np.array([1, 1, np.nan], np.float32), False),
        (ONES * np.nan, ONES * np.nan, True),
        (ONES * np.inf, -ONES * np.inf, False),
        (ONES.astype(int), ONES.astype(int), True),
        (ONES.astype(int), ONES.astype(int) + 1, False),
        (ONES.astype(np.float16), (ONES * 1.005).astype(np.float16), True),
    ],
)
def test_outputs_are_compared_by_type(one, other, agrees):
    assert (difference([one], [other]) == "") is agrees
