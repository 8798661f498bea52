"""The zoo of JAX programs: tables that do not import JAX, and networks that compute what their names say."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from fastslow.competition.catalog import SPLITS, TRAIN
from fastslow.core.settings import PROJECT
from helpers.cases import cases
from make_sample.zoo import FAMILIES, FAMILY_SPLIT, MORE, PROGRAMS
from make_sample.zoo.families import HELD_OUT

SOURCES = ("xla", "nlp")
SMALLEST = {"xla": 8, "nlp": 15}
"""Convolutions and dots that a small program traces to at least; the compiler adds reshapes."""


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")


def normal(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def programs(source, size="small", split=None):
    return [
        program
        for program in PROGRAMS.values()
        if program.source == source
        and program.size == size
        and split in (None, FAMILY_SPLIT[source, program.family])
    ]


def test_every_family_is_in_one_split():
    names = [family.name for family in FAMILIES + MORE]
    assert len(names) == len(set(names)) == len(FAMILY_SPLIT)
    assert {(program.source, program.family) for program in PROGRAMS.values()} == set(FAMILY_SPLIT)
    assert not set(HELD_OUT["valid"]) & set(HELD_OUT["test"])
    assert {*HELD_OUT["valid"], *HELD_OUT["test"]} <= set(names)


@cases("source", SOURCES)
def test_there_are_enough_programs_of_each_split(source):
    counts = Counter({split: len(programs(source, split=split)) for split in SPLITS})
    assert 0.58 <= counts["train"] / counts.total() <= 0.67
    assert min(counts["valid"], counts["test"]) >= max(11, 0.165 * counts.total())
    assert len(programs(source, "large")) >= 2.2 * counts.total()
    for split, size in product(SPLITS, ("small", "large")):
        steps = Counter("_forward_" not in program.name for program in programs(source, size, split))
        assert min(steps[True], steps[False]) >= 2, f"{split}, {size}: forward and train steps"


def test_families_of_a_kind_of_network_are_held_out():
    """Every module of networks has families in train, and in valid or test."""
    splits = {}
    for family in FAMILIES:
        splits.setdefault(family.network.split(".")[0], set()).add(FAMILY_SPLIT[family.source, family.name])
    assert all(TRAIN in found and len(found) >= 2 for found in splits.values()), splits


def test_neither_fastslow_nor_the_tables_of_the_zoo_import_jax():
    code = "import sys, make_sample.zoo, fastslow.workflow.run; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT / "data").returncode == 0


def products(jaxpr):
    """Count the shapes of the results of convolutions and dots, loop bodies included."""
    counts = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("conv_general_dilated", "dot_general"):
            counts[equation.outvars[0].aval.shape] += 1
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    counts += products(inner)
    return counts


@cases("number, family", [*enumerate(FAMILIES + MORE)])
def test_the_network_of_a_family_traces(jax, monkeypatch, number, family):
    """The first variant, without the gradient; a training step has up to three products for each of its own.

    Every tenth of the committed sample where the TPU compiler is not installed: JAX traces an unrolled
    network of a family in a second or more.
    """
    from make_sample.zoo.layers import STEPS, Parameters

    if number % 10 and family in FAMILIES and not find_spec("libtpu"):
        return

    def network_alone(network, inputs, dtype):
        return partial(network, Parameters(dtype=dtype)), inputs

    variant = family.small[0]
    monkeypatch.setitem(STEPS, "network", network_alone)
    network, inputs = family.build(replace(variant, step="network"))
    jaxpr, outputs = jax.make_jaxpr(network, return_shape=True)(*inputs)
    assert all(len(output) == variant.batch for output in jax.tree.leaves(outputs))
    if not family.name.startswith("large_"):  # few layers, as each compiles for seconds
        least, alike = (SMALLEST[family.source], 3) if variant.step == "forward" else (5, 2)
        shapes = products(jaxpr.jaxpr)
        assert shapes.total() >= least and max(shapes.values()) >= alike


@cases("family", [f for n, f in enumerate(FAMILIES + MORE) if n % 12 == 0 or f.small[0].step == "adam"])
def test_the_programs_of_a_family_trace(jax, family):
    """The first variant and the last, a larger training step."""

    def types(tree):
        return [(array.shape, array.dtype) for array in tree]

    first, *_, last = family.small + family.small if family in MORE else family.small + family.large
    for variant in (first, last):
        function, arguments = PROGRAMS[f"{family.name}_{variant.label}"].build()
        jaxpr, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
        if variant.step == "forward":
            assert all(len(output) == variant.batch for output in jax.tree.leaves(outputs))
        else:
            loss, *weights = outputs
            assert loss.shape == () and [types(w) for w in weights] == [
                types(a) for a in arguments[: len(weights)]
            ]
        if variant in family.small:  # layers of equal shapes, as TpuGraphs' networks have them
            shapes = products(jaxpr.jaxpr)
            assert shapes.total() >= SMALLEST[family.source] and max(shapes.values()) >= 3


def test_attention_equals_a_loop_over_heads_and_positions(jax):
    from make_sample.zoo.layers import attend

    q, k, v = normal(3, 2, 5, 3, 4)
    expected = np.zeros((2, 5, 3, 4))
    for example, time, head in np.ndindex(2, 5, 3):
        weights = np.exp(k[example, : time + 1, head] @ q[example, time, head] / 2)
        expected[example, time, head] = weights / weights.sum() @ v[example, : time + 1, head]
    mask = np.tril(np.ones((5, 5), bool))
    np.testing.assert_allclose(attend(q, k, v, mask), expected, rtol=1e-4, atol=1e-5)


def test_squares_of_pixels_move_into_features_and_back(jax):
    from make_sample.zoo.reshaped import depth_to_space, space_to_depth

    x = normal(2, 4, 6, 3)
    assert np.array_equal(space_to_depth(x)[1, 1, 2], x[1, 2:4, 4:6].ravel())
    assert np.array_equal(depth_to_space(space_to_depth(x)), x)


def test_a_network_computes_the_same_with_its_weights_in_one_vector(jax):
    from make_sample.zoo.classifiers import mixer
    from make_sample.zoo.layers import Parameters, parameter_shapes
    from make_sample.zoo.reshaped import one_vector

    x, size = normal(1, 32, 32, 3), {"width": 8, "depth": 1}
    weights = [normal(*s.shape) for s in parameter_shapes(lambda p, x: mixer(p, x, **size), x, dtype=x.dtype)]
    vector = np.concatenate([weight.ravel() for weight in weights])

    @jax.jit
    def of_vector(vector, x):
        return one_vector(Parameters([vector]), x, inner="classifiers.mixer", **size)

    @jax.jit
    def of_weights(weights, x):
        return mixer(Parameters(weights), x, **size)

    np.testing.assert_allclose(of_vector(vector, x), of_weights(weights, x), rtol=1e-5)
