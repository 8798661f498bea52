"""Whole training steps of optax, flax and equinox, tuned or placed, train as they do alone."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.compiler.signature import CallError
from fastslow_programs.compiler.tuned import TUNED, load_tuned, write_signature
from fastslow_programs.tuning.evaluators import serialised
from helpers.cases import cases

jax = pytest.importorskip("jax")
from helpers.device_programs import failures  # noqa: E402
from helpers.training_steps import STEPS, UNSAVED  # noqa: E402

LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import jax
from helpers.training_steps import STEPS
from fastslow_programs.compiler.tuned import load_tuned
for name, folder in zip(sys.argv[2::2], sys.argv[3::2]):
    step, state, batch = STEPS[name]()
    tuned = load_tuned(folder)

    def arrays():
        return [leaf for leaf in jax.tree.leaves(tuned(*state, *batch)) if hasattr(leaf, "dtype")]

    print(len(jax.eval_shape(arrays)))
"""


def save(folder, function, *arguments):
    """Measure a function once, and write it as a study does."""
    local = lower_function(function, arguments)
    assert failures(local, local.module) == [""]
    (folder / TUNED).write_bytes(serialised(local.module))
    write_signature(folder, local)


def numbers(tree):
    """The arrays of a tree; of a random key its numbers."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    is_key = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [jax.random.key_data(leaf) if key else leaf for leaf, key in zip(leaves, is_key, strict=True)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that returns a step, its state, a batch and the folder where it is saved, measured once."""

    @cache
    def save_step(name):
        folder = tmp_path_factory.mktemp(name)
        step, state, batch = STEPS[name]()
        save(folder, step, *state, *batch)
        return step, state, batch, folder

    return save_step


@pytest.fixture(scope="module")
def trained(saved):
    """A function that returns the state after ten steps, and their losses."""

    @cache
    def train(name):
        step, state, batch, _ = saved(name)
        losses = []
        for _ in range(10):
            *state, loss = step(*state, *batch)
            losses.append(loss)
        return state, losses

    return train


@cases("name", STEPS)
def test_a_tuned_step_trains_as_the_untuned_one(saved, trained, name):
    _, state, batch, folder = saved(name)
    tuned = load_tuned(folder)
    untuned_state, losses = trained(name)
    for loss in losses:
        *state, tuned_loss = tuned(*state, *batch)
        np.testing.assert_allclose(tuned_loss, loss, rtol=1e-5)
    assert jax.tree.structure(state) == jax.tree.structure(untuned_state)
    for one, other in zip(numbers(state), numbers(untuned_state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_second_step_is_not_compiled_again(saved, caplog):
    """Its state is a result of the first one, on whose device JAX keeps it."""
    _, state, batch, folder = saved("optax")
    tuned = load_tuned(folder)
    *state, _ = tuned(*state, *batch)
    with jax.log_compiles():
        tuned(*state, *batch)
    assert not [line for line in caplog.messages if line.startswith("Compiling")]


@cases("name", STEPS)
def test_a_tuned_step_lives_in_a_loop_under_jit(saved, trained, name):
    _, state, batch, folder = saved(name)
    tuned = load_tuned(folder)
    leaves, tree = jax.tree.flatten(tuple(state))
    is_array = [hasattr(leaf, "dtype") or type(leaf) is int for leaf in leaves]

    def take_step(arrays, _):
        arrays = iter(arrays)
        given = [next(arrays) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
        *given, loss = tuned(*tree.unflatten(given), *batch)
        return [leaf for leaf, array in zip(jax.tree.leaves(given), is_array, strict=True) if array], loss

    arrays = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
    _, losses = jax.jit(lambda *arrays: jax.lax.scan(take_step, [*arrays], length=10))(*arrays)
    np.testing.assert_allclose(losses, trained(name)[1], rtol=1e-5)


def test_another_process_loads_steps_with_functions_in_their_states(saved):
    """Whose addresses are others there."""
    names = ("flax", "equinox")
    folders = [word for name in names for word in (name, str(saved(name)[-1]))]
    words = [sys.executable, "-c", LOAD, str(Path(__file__).parents[1]), *folders]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert [int(line) >= 2 for line in printed.splitlines()] == [True] * len(names)


def test_another_activation_or_flag_is_refused_by_its_path(saved):
    import equinox

    _, (model, optimiser, *rest), batch, folder = saved("equinox")
    other = equinox.tree_at(lambda m: m.layers.activation, model, jax.nn.silu)
    for changed, said in (
        (other, "layers.activation is .* but .*"),
        (equinox.nn.inference_mode(model, False), "dropout.inference is False, but True"),
    ):
        with pytest.raises(CallError, match=rf"arguments\[0\].{said} was tuned"):
            load_tuned(folder)(changed, optimiser, *rest, *batch)


@pytest.mark.usefixtures("undrawn")
@cases("name", STEPS)
def test_a_placed_training_step_takes_and_returns_what_the_step_does(saved, name):
    step, state, batch, _ = saved(name)
    staged = fastslow.place(step, *state, *batch, devices=1, search=0).staged()
    *found, loss = staged(*state, *batch)
    *wanted, wanted_loss = step(*state, *batch)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)


@cases("name", UNSAVED)
def test_what_could_not_be_returned_is_said_before_the_search(name):
    function, arguments, said = UNSAVED[name]
    with pytest.raises(SettingsError, match=said):
        lower_function(function, arguments)
