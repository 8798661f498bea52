"""The TPU compiler where it is installed, and the error message where it is not."""

import importlib.util
import random

import pytest

from fastslow.core.errors import ConfigError
from fastslow.xla.cycle_estimates import estimate
from fastslow.xla.layout_space import configurable_nodes, constrain, draw
from fastslow.xla.libtpu import TOPOLOGIES, Compiler, CompilerError, lower, require_compiler, topology_of
from fastslow.xla.messages import Module

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
def before(compiler, lowered):
    return compiler.before_layout_assignment(lowered)


def cycles(compiler, module):
    return estimate(compiler.compile(module.SerializeToString(deterministic=True))).cycles


@needs_compiler
def test_the_program_before_layouts_is_the_same_every_time(compiler, lowered, before):
    again = compiler.before_layout_assignment(lowered)
    assert again.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
    instructions = [i for c in before.computations for i in c.instructions]
    assert {"dot", "reshape", "tanh"} <= {i.opcode for i in instructions}
    assert not any(i.opcode in ("fusion", "copy") or i.metadata for i in instructions)
    assert [node.opcode for node in configurable_nodes(before)] == ["dot", "reshape"]


@needs_compiler
def test_a_layout_constraint_is_obeyed_and_costs_cycles(compiler, before):
    dot, reshape = configurable_nodes(before)
    default = cycles(compiler, before)
    assert default > 0 and cycles(compiler, before) == default
    natural = constrain(before, {dot.node: ((1, 0), (1, 0), (1, 0))})
    against = constrain(before, {dot.node: ((0, 1), (0, 1), (0, 1))})
    assert cycles(compiler, natural) == default < cycles(compiler, against)


@needs_compiler
def test_every_configuration_drawn_is_one_that_the_compiler_takes(compiler, before):
    nodes, rng = configurable_nodes(before), random.Random(0)
    assert all(cycles(compiler, constrain(before, draw(nodes, rng, 1.0))) > 0 for _ in range(3))


@needs_compiler
@pytest.mark.parametrize("module", [b"not HLO", b"", Module(name="empty").SerializeToString()])
def test_what_is_no_program_is_refused(compiler, module):
    with pytest.raises(CompilerError, match=r"\w+"):
        compiler.compile(module)


@needs_compiler
def test_an_unknown_option_is_refused(compiler, lowered):
    with pytest.raises(CompilerError, match="xla_no_such_option"):
        compiler.compile(lowered, {"xla_no_such_option": True})


def test_an_unknown_generation_is_refused():
    assert topology_of("v3") == "v3:2x2" and "v3" in TOPOLOGIES
    with pytest.raises(ConfigError, match="generation: unknown TPU generation 'h100'; one of v2, v3"):
        Compiler("h100")


@pytest.mark.parametrize("use", [require_compiler, Compiler, Compiler.version])
def test_a_missing_libtpu_is_said_with_what_to_install(monkeypatch, use):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"libtpu, the TPU compiler, is not .*pip install -e '.\[compiler\]'"
    ):
        use()


def test_a_missing_jax_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"jax is not installed: pip install -e '.\[compiler\]'"):
        lower(abs, ())
