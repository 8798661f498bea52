"""Measuring on this machine: what is bound, what is compared, what is decided, and what is loaded again."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from fnmatch import fnmatch
from typing import NamedTuple

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.compiler import device
from fastslow_programs.compiler.device import (
    SIGNATURE,
    TUNED,
    Bench,
    difference,
    draw_inputs,
    load_tuned,
    lower_function,
    options_of,
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


class Pair(NamedTuple):
    """A tree of the user's."""

    weights: object
    bias: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """Another one, with a fact that is no array."""

    weights: object
    slope: float = dataclasses.field(metadata={"static": True}, default=0.1)


def step(pair, image):
    """A training step, whose state has the types of its arguments."""
    return {"state": Pair(pair.weights - (image.T @ image), None), "loss": image.sum()}


def of_layer(layer, image):
    return Layer(image @ layer.weights, layer.slope)


def draw(key, image):
    return image @ jax.random.normal(key, (8, 4)), jax.random.split(key)


def repeated(image, weights, times):
    for _ in range(times):
        image = image @ weights
    return image


def small_floats(image):
    return image.astype(np.float32) @ image.astype(np.float32).T, image.reshape(2, 2, 8)


IMAGE = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
EIGHT = jax.numpy.eye(8)
OF_USERS = {
    "a named tuple": (step, (Pair(EIGHT, None), IMAGE)),
    "a dataclass": (of_layer, (Layer(EIGHT, 0.3), IMAGE)),
    "a random key": (draw, (jax.random.key(3), IMAGE)),
    "static": (jax.jit(repeated, static_argnums=2), (IMAGE, EIGHT * 2, 3)),
    "donated": (jax.jit(lambda x: x + 1.0, donate_argnums=0), (jax.numpy.ones(3),)),
    "options": (jax.jit(lambda x: x * 2, compiler_options={"xla_backend_optimization_level": 0}), (IMAGE,)),
    "float8": (small_floats, (jax.numpy.asarray(IMAGE, jax.numpy.float8_e4m3fn),)),
    "an argument that is not used": (lambda x, y: x + 1, (IMAGE, EIGHT)),
}


@cases("name", OF_USERS)
def test_functions_as_users_write_them_run_and_are_loaded_again(name, tmp_path):
    function, arguments = OF_USERS[name]
    wanted = function(*jax.tree.map(jax.numpy.copy, arguments) if name == "donated" else arguments)
    local = lower_function(function, arguments)
    with Bench(local, rounds=2, seconds=60).running() as times:
        assert times([local.module]).failures == [""]
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    found = load_tuned(tmp_path)(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        one, other = (
            jax.random.key_data(own) if jax.numpy.issubdtype(own.dtype, jax.dtypes.prng_key) else own
            for own in (one, other)
        )
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-5, atol=1e-5
        )


def test_what_a_user_gives_otherwise_than_tuned_is_refused(tmp_path):
    for name, others, said in (
        ("a named tuple", ((EIGHT, None), IMAGE), "Pair"),
        ("a dataclass", (Layer(EIGHT, 0.4), IMAGE), "0.4.*but .*0.3.* was tuned"),
        ("a random key", (np.zeros(2, np.uint32), IMAGE), "no random key, but threefry2x32 was tuned"),
        ("static", (IMAGE, EIGHT, 4), "static .* is 4, but 3 was tuned"),
    ):
        local = lower_function(*OF_USERS[name])
        (tmp_path / TUNED).write_bytes(serialised(local.module))
        write_signature(tmp_path, local)
        with pytest.raises(TypeError, match=said):
            load_tuned(tmp_path)(*others)
    (tmp_path / SIGNATURE).write_text('{"arguments": "ab", "results": "ab"}')
    with pytest.raises(DataError, match="older version.*Run fastslow tune again"):
        load_tuned(tmp_path)
    image, weights, _ = OF_USERS["static"][1]
    local = lower_function(*OF_USERS["static"])
    write_signature(tmp_path, local)
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    assert load_tuned(tmp_path)(image, weights).shape == image.shape, "without what is static, as JAX has it"


def test_options_of_the_compiler_stay_with_the_module(tmp_path):
    function, arguments = OF_USERS["options"]
    local = lower_function(function, arguments)
    bound = bind_differences(local.module, {}, configurable_nodes(local.module))
    for module in (local.module, bound):
        assert options_of(module.SerializeToString()) == {"xla_backend_optimization_level": 0}
    wrong = jax.jit(lambda x: x * 2, compiler_options={"xla_no_such_option": 1})
    broken = lower_function(wrong, arguments).module
    with Bench(local, rounds=1, seconds=60).running() as times:
        assert times([broken]).failures[0].startswith("refused: ")
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    inside = jax.jit(lambda x: load_tuned(tmp_path)(x) + 1)  # which has options of its own
    np.testing.assert_allclose(inside(*arguments), 2 * IMAGE + 1)


def test_a_program_for_a_mesh_is_refused_by_name(tmp_path):
    """In a process of its own, as the number of devices is set before JAX starts."""
    code = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from fastslow_programs.compiler.device import lower_function
rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d"))
image = np.ones((8, 8), np.float32)
for function in (
    jax.jit(lambda x: x @ x, in_shardings=rows),
    lambda x: jax.lax.with_sharding_constraint(x @ x, rows),
):
    try:
        lower_function(function, (image,))
    except Exception as error:
        print(type(error).__name__, error)
"""
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == 2 and all("SettingsError evaluator: " in own and "a mesh of 4" in own for own in said)


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


@cases(
    "variables, files, plugin, platform",
    [
        ({}, [], False, "cpu"),
        ({"JAX_PLATFORMS": "tpu"}, [], False, "tpu"),
        ({"JAX_PLATFORMS": ""}, [], False, ""),
        ({"TPU_NAME": "mine"}, [], False, None),
        ({}, ["/dev/accel0"], False, None),
        ({}, [], True, None),
    ],
)
def test_jax_is_kept_from_libtpu_where_no_tpu_can_be(variables, files, plugin, platform, monkeypatch):
    installed = {"jax", "libtpu", *["jax_plugins"] * plugin}
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: name in installed or None)
    monkeypatch.setattr(device.glob, "glob", lambda pattern: [f for f in files if fnmatch(f, pattern)])
    for name in ("JAX_PLATFORMS", "TPU_NAME", "TPU_WORKER_ID", "COLAB_TPU_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    device.require_jax()
    assert os.environ.pop("JAX_PLATFORMS", None) == platform


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs the compiler's extra")
def test_jax_says_nothing_of_a_tpu_that_is_not_there():
    script = "from fastslow_programs.compiler.device import device_name; print(device_name())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TPU_"))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("cpu\n", "") or device._may_have_tpu()
