"""The TPU compiler where it is installed, and the error message where it is not."""

import importlib.util
import signal
import subprocess
import sys

import pytest

from fastslow.core.errors import SettingsError
from fastslow.hlo.messages import Module
from fastslow_programs.compiler import libtpu
from fastslow_programs.compiler.cycle_estimates import estimate
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.compiler.libtpu import Compiler, CompilerError, lower, require_compiler
from helpers.cases import cases
from helpers.dot_module import small_module

INSTALLED = all(importlib.util.find_spec(name) for name in ("jax", "libtpu"))
needs_compiler = pytest.mark.skipif(
    not INSTALLED, reason="jax and libtpu, optional requirements, are not installed"
)


@pytest.fixture(scope="module")
def compiler():
    return Compiler("v3")


@pytest.fixture(scope="module")
def lowered():
    """Return a dot, a reshape and a tanh, lowered by JAX."""
    import jax
    import jax.numpy as jnp

    shapes = [jax.ShapeDtypeStruct(dims, "float32") for dims in ((256, 512), (512, 384))]
    return lower(lambda x, w: jnp.tanh((x @ w).reshape(8, 32, 384)), shapes)


@pytest.fixture(scope="module")
def assigned(compiler, lowered):
    return compiler.layout_assignment(lowered)


@pytest.fixture(scope="module")
def before(assigned):
    return assigned[0]


@pytest.fixture(scope="module")
def nodes(assigned):
    return configurable_nodes(*assigned)


def cycles(compiler, module):
    return estimate(compiler.compile(module.SerializeToString(deterministic=True))).cycles


@needs_compiler
def test_the_program_before_layouts_is_the_same_every_time(compiler, lowered, assigned):
    before, layouts = assigned
    again, layouts_again = compiler.layout_assignment(lowered)
    assert again.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
    assert layouts_again == layouts
    instructions = [i for c in before.computations for i in c.instructions]
    assert {"dot", "reshape", "tanh"} <= {i.opcode for i in instructions}
    assert not any(i.opcode in ("fusion", "copy") or i.metadata for i in instructions)


@needs_compiler
def test_the_compilers_own_layouts_of_every_configurable_instruction(assigned, nodes):
    before, layouts = assigned
    by_name = {i.name: i.opcode for c in before.computations for i in c.instructions}
    assert {by_name[name]: [len(order) for order in orders] for name, orders in layouts.items()} == {
        "dot": [2, 2, 2],
        "reshape": [3, 2],
    }
    assert all(sorted(order) == list(range(len(order))) for orders in layouts.values() for order in orders)
    assert [node.opcode for node in nodes] == ["dot", "reshape"] and all(node.default for node in nodes)
    dot, reshape = nodes
    assert dot.default[1:] == ((1, 0), (1, 0)), "its operands are parameters"
    assert dot.default[0] == reshape.default[1], "the reshape reads what the dot writes"


def test_layouts_are_read_from_operands_and_a_parameter_is_row_major():
    module = small_module(layers=1)
    parameter, _, dot, *_ = module.computations[0].instructions
    for instruction in (parameter, dot):
        instruction.shape.layout.minor_to_major[:] = [0, 1]
    assert libtpu._layouts(module) == {
        "dot.3": [[0, 1], [1, 0], [1, 0]],
        "reshape.4": [[2, 1, 0], [0, 1]],
        "reshape.5": [[1, 0], [2, 1, 0]],
    }


@needs_compiler
def test_a_constrained_layout_is_obeyed_and_costs_cycles(compiler, before, nodes):
    dot = nodes[0]
    default = cycles(compiler, before)
    assert default > 0 and cycles(compiler, before) == default
    order = dot.default[0]
    natural, against = (constrain(before, {dot.node: (o, (), ())}, nodes) for o in (order, order[::-1]))
    assert cycles(compiler, natural) == default < cycles(compiler, against)


@needs_compiler
@cases("module", [b"not HLO", b"", Module(name="empty").SerializeToString()])
def test_what_is_no_program_is_refused(compiler, module):
    with pytest.raises(CompilerError, match=r"\w+"):
        compiler.compile(module)


@needs_compiler
def test_a_process_that_lowered_a_program_ends_without_a_stack_trace():
    code = """
import os, signal, jax, jax.numpy as jnp
from fastslow_programs.compiler.libtpu import lower
lower(jnp.square, [jax.ShapeDtypeStruct((8,), jnp.float32)])
os.kill(os.getpid(), signal.SIGTERM)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")


@cases("use", [require_compiler, Compiler, Compiler.version])
def test_a_missing_libtpu_is_said_with_what_to_install(monkeypatch, use):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = r"libtpu, the TPU compiler, is not .*pip install -e '.\[compiler\]'"
    with pytest.raises(SettingsError, match=said):
        use()
