"""Functions that JAX cannot trace: one error names the cause and the remedy at every door."""

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import SettingsError
from helpers.cases import cases

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")

pytestmark = pytest.mark.usefixtures("undrawn")
MATRIX = np.ones((8, 8), np.float32)


def product(x, y):
    return x @ y


def power(x, times):
    return x @ x if times > 1 else x


WRONG = {
    "no argument": (product, (), "with 0 arguments .*missing 2 required"),
    "one too few": (product, (MATRIX,), "with 1 arguments .*missing 1 required"),
    "one too many": (product, (MATRIX,) * 3, "with 3 arguments .*takes 2 positional"),
    "a text": (product, (MATRIX, "a"), "with 2 arguments .*and 'str'"),
    "other shapes": (product, (MATRIX, MATRIX[:3, :3]), "contracting dimensions"),
    "a branch on a value": (power, (MATRIX, 2), "TracerBoolConversionError.*static_argnums"),
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


def test_what_jax_compiled_or_staged_is_refused_by_name():
    device = {"evaluator": "device", "models": "none"}
    lowered = jax.jit(product).lower(MATRIX, MATRIX)
    with pytest.raises(SettingsError, match="Compiled is compiled already; give the function"):
        fastslow.tune(lowered.compile(), **device)
    with pytest.raises(SettingsError, match="arguments: 2 given, but a Lowered has its arguments already"):
        fastslow.tune(lowered, MATRIX, MATRIX, **device)


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
