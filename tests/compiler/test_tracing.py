"""Functions that JAX cannot trace: one error names the cause and the remedy at every door."""

import dataclasses
import functools
import sys

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import DataError, SettingsError
from fastslow_programs.compiler.lowering import lower_function, options_of
from helpers.cases import cases

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
from helpers.device_programs import failures  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")
MATRIX = np.ones((8, 8), np.float32)


def product(x, y):
    return x @ y


def power(x, times):
    return x @ x if times > 1 else x


WRONG = {
    "no argument": (product, (), "with 0 arguments .*missing 2 required"),
    "one too few": (product, (MATRIX,), "with 1 argument .*missing 1 required"),
    "one too many": (product, (MATRIX,) * 3, "with 3 arguments .*takes 2 positional"),
    "a text": (product, (MATRIX, "a"), "with 2 arguments .*and 'str'"),
    "other shapes": (product, (MATRIX, MATRIX[:3, :3]), "contracting dimensions"),
    "a branch on a value": (power, (MATRIX, 2), "TracerBoolConversionError.*static_argnums"),
    "a result that is a text": (lambda x: (x, "a"), (MATRIX,), "with 1 argument .*not a valid JAX type"),
    "an error of its own": (lambda x: 1 / 0, (MATRIX,), "ZeroDivisionError"),
}


@cases(("function", "arguments", "said"), WRONG.values())
@cases("door", ["tune", "rank", "convert"])
def test_what_cannot_be_traced_is_refused_with_the_remedy(door, function, arguments, said):
    if door != "tune":
        pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    settings = {"evaluator": "device", "models": "none"} if door == "tune" else {}
    with pytest.raises(SettingsError, match=f"source: .* cannot be traced {said}|{said}") as caught:
        getattr(fastslow, door)(function, *arguments, **settings)
    assert "Give each argument that the function takes" in str(caught.value)
    assert caught.value.__cause__ is not None, "the traceback of the function's own line"


def ends(x):
    return sys.exit(0) if x.ndim == 2 else x


@cases("function", [ends, jax.jit(ends)])
@cases("door", ["tune", "rank", "place"])
def test_a_function_that_ends_python_is_refused_by_name(door, function):
    """Else the command would end at once, with the status of success and nothing written."""
    if door == "rank":
        pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    settings = {"tune": {"evaluator": "device", "models": "none"}, "place": {"devices": 2, "device": "h100"}}
    line = ends.__code__.co_firstlineno + 1
    said = rf"^ends: ends Python \(sys.exit, line {line}\). Take it out of the function$"
    with pytest.raises(DataError, match=said):
        getattr(fastslow, door)(function, MATRIX, **settings.get(door, {}))


def test_what_jax_compiled_or_staged_is_refused_by_name():
    device = {"evaluator": "device", "models": "none"}
    lowered = jax.jit(product).lower(MATRIX, MATRIX)
    with pytest.raises(SettingsError, match="Compiled is compiled already; give the function"):
        fastslow.tune(lowered.compile(), **device)
    with pytest.raises(SettingsError, match="arguments: 2 given, but a Lowered has its arguments already"):
        fastslow.tune(lowered, MATRIX, MATRIX, **device)


@cases("staged", ["Traced", "Lowered", "Exported"])
@cases("door", ["tune", "measure", "place"])
def test_what_jax_staged_cannot_be_run_and_every_door_says_what_can(door, staged):
    traced = jax.jit(product).trace(MATRIX, MATRIX)
    made = {
        "Traced": traced,
        "Lowered": traced.lower(),
        "Exported": jax.export.export(jax.jit(product))(MATRIX, MATRIX),
    }
    settings = {"evaluator": "device", "models": "none"} if door == "tune" else {}
    with pytest.raises(SettingsError, match=f"an? {staged} has no arguments.*give the function and its arg"):
        getattr(fastslow, door)(made[staged], **settings)


def test_an_exported_function_of_any_size_is_refused_before_the_compiler_sees_it():
    pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    (size,) = jax.export.symbolic_shape("size")
    rows = jax.ShapeDtypeStruct((size, 8), np.float32)
    exported = jax.export.export(jax.jit(product))(rows, MATRIX)
    for door in ("rank", "convert"):
        with pytest.raises(DataError, match=r"dynamic shape \(size, 8\).*Give every dimension a fixed size"):
            getattr(fastslow, door)(exported)


def test_a_function_that_returns_no_array_has_nothing_to_run():
    with pytest.raises(SettingsError, match="returns no array, so there is nothing to run. Return what it"):
        fastslow.tune(lambda x: None, MATRIX, evaluator="device", models="none")


class Model:
    """A model without a hash, as equinox's with arrays are, that is called itself."""

    __hash__ = None

    def __call__(self, x, when=None):
        return x @ MATRIX


def test_a_model_without_a_hash_and_an_argument_that_is_a_time_are_part_of_the_program():
    for arguments in ((MATRIX,), (MATRIX, np.datetime64("2026-11-28"))):
        local = lower_function(Model(), arguments)
        assert [*local.signature.arrays] == ["arguments[0]"]


OPTIONS = {"xla_backend_optimization_level": 1}


class Scaled:
    """An object that is a static argument of its jitted method, which has options of the compiler."""

    @functools.partial(jax.jit, static_argnums=(0, 2), compiler_options=OPTIONS)
    def power(self, x, times):
        """As :func:`power`."""
        return power(x, times)

    @functools.partial(jax.jit, static_argnums=0)
    def outer(self, x):
        """Another jitted method around it."""
        return self.power(x, 2)


def test_a_jitted_method_keeps_its_options_and_those_within_another_are_refused():
    local = lower_function(Scaled().power, (MATRIX, 2))
    assert options_of(local.module.SerializeToString()) == OPTIONS
    assert [*local.signature.arrays] == ["arguments[0]"] and failures(local, local.module) == [""]
    with pytest.raises(SettingsError, match="top-level.*Take compiler_options out of the function within"):
        lower_function(Scaled().outer, (MATRIX,))


def test_a_function_that_wraps_a_jitted_one_is_no_jitted_one():
    @functools.wraps(jax.jit(product))
    def wrapped(*arguments):
        return jax.jit(product)(*arguments)

    local = lower_function(wrapped, (MATRIX, MATRIX))
    assert failures(local, local.module) == [""]


def test_a_value_of_a_program_around_it_is_refused():
    with pytest.raises(SettingsError, match="uses a value that JAX traces around it.*Give it as an argument"):
        jax.jit(lambda x: lower_function(lambda y: y @ x, (MATRIX,)))(MATRIX)


def test_an_iterator_among_the_arguments_is_refused():
    with pytest.raises(SettingsError, match=r"arguments\[0\] is an iterator, which can be read once"):
        lower_function(sum, (iter([MATRIX, MATRIX]),))


def test_a_dict_whose_keys_have_no_order_is_refused():
    doors = (("tune", {"evaluator": "device", "models": "none"}), ("measure", {}), ("place", {}))
    for door, settings in doors:
        with pytest.raises(SettingsError, match="no tree that JAX can read .*Give a dict keys of one type"):
            getattr(fastslow, door)(product, {1: MATRIX, "a": MATRIX}, MATRIX, **settings)


def said(x):
    jax.debug.print("{}", x)
    return x @ x


def asked(x):
    return jax.lax.map(lambda row: jax.pure_callback(np.sin, row, row), x)


@cases(("function", "name"), [(said, "said calls .*debug_print"), (asked, "asked calls .*pure_callback")])
def test_a_function_that_calls_python_while_it_runs_is_refused(function, name):
    for door, settings in (("tune", {"evaluator": "device", "models": "none"}), ("measure", {})):
        with pytest.raises(SettingsError, match=f"{name}.*Leave jax.debug.print and callbacks out"):
            getattr(fastslow, door)(function, MATRIX, **settings)
    pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    for source, arguments in ((function, (MATRIX,)), (jax.jit(function).trace(MATRIX), ())):
        with pytest.raises(SettingsError, match="which HLO cannot keep"):
            fastslow.rank(source, *arguments)


def test_static_arguments_are_part_of_a_converted_program():
    pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    static = jax.jit(power, static_argnums=1)
    found = fastslow.convert(static, MATRIX, 2, configs=3)
    same = fastslow.convert(lambda x: x @ x, MATRIX, configs=3)
    assert np.array_equal(found.arrays["node_opcode"], same.arrays["node_opcode"])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    """Weights that a step may change in place."""

    first: np.ndarray


def in_place(weights, x):
    weights.first = weights.first - x
    return weights.first.sum()


def of_nnx():
    """A module of flax.nnx, a training step that changes it, and a forward pass under ``nnx.jit``."""
    nnx = pytest.importorskip("flax.nnx", reason="flax, an optional requirement, is not installed")
    model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))

    @nnx.jit
    def step(model, x):
        model.kernel[...] = model.kernel[...] - x
        return model(x)

    return model, step, nnx.jit(nnx.jit(lambda model, x: model(x)))


@cases("static", [(), ("a text",)])
def test_a_function_that_changes_an_object_in_place_is_refused(static):
    model, step, forward = of_nnx()
    for changing, given in ((in_place, Weights(MATRIX)), (step, model)):

        def around(*arguments, changing=changing):
            return changing(*arguments[:2])

        said = rf"around changes arguments\[0\] in place, a {type(given).__name__}. .* take and return it"
        with pytest.raises(SettingsError, match=said):
            lower_function(around, (given, MATRIX, *static))
    local = lower_function(lambda *arguments: forward(*arguments[:2]), (model, MATRIX, *static))
    assert len(local.inputs) == 3, "nnx.jit returns a module whose arrays are as they were"


def test_a_dict_that_a_function_changes_is_its_own():
    def popped(weights, x):
        weights["second"] = weights.pop("first") @ x
        return weights

    assert lower_function(popped, ({"first": MATRIX}, MATRIX)).signature.results["facts"] == "['second']"
