"""A JAX program of a convolution, a reshape and a dot, and its module in other layouts."""

import pickle
from functools import cache

import jax
import numpy as np
import pytest

from fastslow_programs.compiler import bench
from fastslow_programs.compiler.layout_choices import layouts_of, tie
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import configurable_nodes


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


def failures(program, module):
    """Why a module is no candidate for a program, empty if it is one: what a bench's process answers.

    Here, as each process would import JAX again; what it is given is pickled, as on its way there. Equal
    modules are compiled once.
    """
    codes = [each.SerializeToString(deterministic=True) for each in (program.module, module)]
    given = pickle.loads(pickle.dumps((codes, program.inputs, 1, 0, program.devices)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "LoadedProgram", cache(bench.LoadedProgram))
        return bench.run_rounds(*given)[1]
