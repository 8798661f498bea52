"""Whole training steps of optax, flax and equinox, tuned and loaded, train as the untuned ones do."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.bench import Bench
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.compiler.signature import CallError
from fastslow_programs.compiler.tuned import TUNED, load_tuned, write_signature
from fastslow_programs.tuning.evaluators import serialised
from helpers.cases import cases

jax = pytest.importorskip("jax")
from helpers.training_steps import STEPS, UNSAVED  # noqa: E402

LOAD = """
import sys
sys.path.insert(0, sys.argv[2])
from helpers.training_steps import STEPS
from fastslow_programs.compiler.tuned import load_tuned
step, state, batch = STEPS[sys.argv[3]]()
print(len(load_tuned(sys.argv[1])(*state, *batch)))
"""


def save(folder, function, *arguments):
    """Measure a function once, and write it as a study does."""
    local = lower_function(function, arguments)
    with Bench(local, rounds=1, seconds=120).running() as times:
        assert times([local.module]).failures == [""]
    (folder / TUNED).write_bytes(serialised(local.module))
    write_signature(folder, local)


def numbers(tree):
    """The arrays of a tree; of a random key its numbers."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    is_key = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [jax.random.key_data(leaf) if key else leaf for leaf, key in zip(leaves, is_key, strict=True)]


@cases("name", STEPS)
def test_a_tuned_step_trains_as_the_untuned_one(name, tmp_path):
    step, state, batch = STEPS[name]()
    save(tmp_path, step, *state, *batch)
    tuned = load_tuned(tmp_path)
    states = {"untuned": state, "tuned": state}
    for _ in range(10):
        *states["untuned"], loss = step(*states["untuned"], *batch)
        *states["tuned"], tuned_loss = tuned(*states["tuned"], *batch)
        np.testing.assert_allclose(tuned_loss, loss, rtol=1e-5)
    assert jax.tree.structure(states["tuned"]) == jax.tree.structure(states["untuned"])
    pairs = zip(numbers(states["tuned"]), numbers(states["untuned"]), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@cases("name", STEPS)
def test_a_tuned_step_lives_in_a_loop_under_jit(name, tmp_path):
    step, state, batch = STEPS[name]()
    save(tmp_path, step, *state, *batch)
    tuned = load_tuned(tmp_path)
    arrays, rest = jax.tree.flatten(tuple(state))
    is_array = [hasattr(leaf, "dtype") or isinstance(leaf, int) for leaf in arrays]

    def ten(function, *given):
        given = iter(given)
        leaves = [next(given) if ok else leaf for leaf, ok in zip(arrays, is_array, strict=True)]
        current = rest.unflatten(leaves)
        for _ in range(10):
            *current, loss = function(*current, *batch)
        return loss

    inputs = [leaf for leaf, ok in zip(arrays, is_array, strict=True) if ok]
    found, wanted = (jax.jit(ten, static_argnums=0)(function, *inputs) for function in (tuned, step))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_another_process_loads_a_step_with_functions_in_its_state(tmp_path):
    """Whose addresses are others there."""
    for name in ("flax", "equinox"):
        folder = tmp_path / name
        folder.mkdir()
        step, state, batch = STEPS[name]()
        save(folder, step, *state, *batch)
        words = [sys.executable, "-c", LOAD, str(folder), str(Path(__file__).parents[1]), name]
        assert int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) >= 2


def test_another_activation_is_refused_by_its_path(tmp_path):
    import equinox

    step, (model, optimiser, *rest), batch = STEPS["equinox"]()
    save(tmp_path, step, model, optimiser, *rest, *batch)
    other = equinox.tree_at(lambda m: m.activation, model, jax.nn.silu)
    with pytest.raises(CallError, match=r"arguments\[0\].activation is .* but .* was tuned"):
        load_tuned(tmp_path)(other, optimiser, *rest, *batch)


@cases("name", UNSAVED)
def test_what_could_not_be_returned_is_said_before_the_search(name):
    function, arguments, said = UNSAVED[name]
    with pytest.raises(SettingsError, match=said):
        lower_function(function, arguments)
