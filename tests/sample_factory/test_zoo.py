"""The zoo of JAX programs: tables that do not import JAX, and networks that compute what their names say."""

import subprocess
import sys
from collections import Counter
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from fastslow.competition.catalog import SPLITS, TRAIN
from fastslow.core.settings import PROJECT
from helpers.cases import cases
from make_sample.zoo import FAMILIES, FAMILY_SPLIT, PROGRAMS
from make_sample.zoo.families import HELD_OUT

SOURCES = ("xla", "nlp")
SMALLEST = {"xla": 8, "nlp": 15}
"""Convolutions and dots that a small program traces to at least; the compiler adds reshapes."""


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")


@pytest.fixture
def apply(jax):
    """A function that runs a network in float32 on inputs, with random weights of a fixed seed."""
    from make_sample.zoo.layers import Parameters, parameter_shapes

    @cache
    def compiled(network):
        return jax.jit(lambda weights, *inputs: network(Parameters(weights), *inputs))

    def apply(network, *inputs):
        rng = np.random.default_rng(0)
        shapes = parameter_shapes(network, *inputs, dtype="float32")
        weights = [jax.numpy.asarray(rng.normal(0, 0.3, s.shape), s.dtype) for s in shapes]
        return compiled(network)(weights, *inputs)

    return apply


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


def test_names_tell_programs_apart():
    assert len(PROGRAMS) == sum(len(family.small) + len(family.large) for family in FAMILIES)
    assert all(name == program.name for name, program in PROGRAMS.items())


def test_every_family_is_in_one_split():
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names)) == len(FAMILY_SPLIT)
    assert {(program.source, program.family) for program in PROGRAMS.values()} == set(FAMILY_SPLIT)
    assert not set(HELD_OUT["valid"]) & set(HELD_OUT["test"])
    assert {*HELD_OUT["valid"], *HELD_OUT["test"]} <= set(names)


@cases("source", SOURCES)
def test_there_are_enough_programs_of_each_split(source):
    counts = Counter({split: len(programs(source, split=split)) for split in SPLITS})
    assert 0.58 <= counts["train"] / counts.total() <= 0.67
    assert min(counts["valid"], counts["test"]) >= max(12, 0.165 * counts.total())
    assert len(programs(source, "large")) >= 2.2 * counts.total()
    for split, size in product(SPLITS, ("small", "large")):
        steps = Counter("_forward_" not in program.name for program in programs(source, size, split))
        assert min(steps[True], steps[False]) >= 2, f"{split}, {size}: forward and train steps"


def test_there_are_enough_programs_and_families():
    small = [program for program in PROGRAMS.values() if program.size == "small"]
    assert len(small) >= 140 and len({(program.source, program.family) for program in small}) >= 80
    assert sum("_forward_" not in program.name for program in small) >= len(small) / 2
    assert 0.15 <= sum(program.name.endswith("_f32") for program in small) / len(small) <= 0.5


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


@cases("number, family", [*enumerate(FAMILIES)])
def test_the_programs_of_a_family_trace(jax, number, family):
    """The first variant; of every sixth family the last too, a larger training step.

    Every fifth family where the TPU compiler is not installed: nobody makes a sample there.
    """
    if number % 5 and not find_spec("libtpu"):
        return

    def types(tree):
        return [(array.shape, array.dtype) for array in tree]

    first, *_, last = family.small + family.large
    for variant in (first, last) if number % 6 == 0 else (first,):
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


def test_the_type_in_the_name_is_the_type_of_the_weights(jax):
    for name, dtype in (("linear_forward_w96_d5_b8", "bfloat16"), ("linear_train_w72_d1_b8_f32", "float32")):
        assert {str(weights.dtype) for weights in PROGRAMS[name].build()[1][0]} == {dtype}


@cases("name", ["vgg_train_w16_d3_b2_f32", "deep_autoencoder_adam_w48_d2_b32_f32"])
def test_a_training_step_lowers_the_loss(jax, name):
    function, (weights, *others) = PROGRAMS[name].build()
    rng = np.random.default_rng(0)
    fans = [np.prod(w.shape[:-1], initial=2) for w in weights]
    weights = [
        (rng.normal(size=w.shape) / fan**0.5).astype(w.dtype) for w, fan in zip(weights, fans, strict=True)
    ]
    *moments, inputs = others
    moments = [[np.zeros(w.shape, w.dtype) for w in moment] for moment in moments]
    inputs = rng.normal(size=inputs.shape).astype(inputs.dtype)
    step, losses = jax.jit(function), []
    for _ in range(3):
        loss, weights, *moments = step(weights, *moments, inputs)
        losses.append(float(loss))
    assert losses[0] > losses[1] > losses[2]


def test_attention_equals_a_loop_over_heads_and_positions(jax):
    from make_sample.zoo.layers import attend

    q, k, v = normal(3, 2, 5, 3, 4)
    expected = np.zeros((2, 5, 3, 4))
    for example, time, head in np.ndindex(2, 5, 3):
        weights = np.exp(k[example, : time + 1, head] @ q[example, time, head] / 2)
        expected[example, time, head] = weights / weights.sum() @ v[example, : time + 1, head]
    mask = np.tril(np.ones((5, 5), bool))
    np.testing.assert_allclose(attend(q, k, v, mask), expected, rtol=1e-4, atol=1e-5)


def test_normalisation_has_zero_mean_and_unit_variance(jax):
    from make_sample.zoo.layers import Parameters, instance_norm

    x = 3 + 2 * normal(2, 6, 5, 4)
    scale, shift = np.ones(4, np.float32), np.zeros(4, np.float32)
    y = instance_norm(Parameters([scale, shift]), x)
    np.testing.assert_allclose(y.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(y.std((1, 2)), 1, atol=1e-3)


def test_linear_attention_equals_the_quadratic_form(jax, apply):
    from make_sample.zoo.language import linear_attention
    from make_sample.zoo.layers import from_heads, to_heads

    def quadratic(p, x, heads):
        q, k, v = (to_heads(p, x, heads, 8) for _ in range(3))
        weights = jax.numpy.einsum("bthd,bshd->bhts", jax.nn.elu(q) + 1, jax.nn.elu(k) + 1)
        weights /= weights.sum(-1, keepdims=True)
        return from_heads(p, jax.numpy.einsum("bhts,bshd->bthd", weights, v), 8)

    x = normal(2, 6, 8)
    expected = apply(partial(quadratic, heads=2), x)
    np.testing.assert_allclose(apply(partial(linear_attention, heads=2), x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name, settings",
    [
        ("language.gpt", {}),
        ("language.llama", {}),
        ("language.scanned_decoder", {}),
        ("language.transformer", {"kind": "multi_query"}),
        ("language.transformer", {"kind": "relative"}),
        ("language.transformer", {"kind": "retention"}),
        ("language.transformer", {"kind": "state_space"}),
        ("language.parallel_decoder", {}),
        ("language.rwkv", {}),
        ("language.cached_decoder", {}),
    ],
    ids=lambda value: str(value),
)
def test_a_decoder_does_not_look_ahead(apply, name, settings):
    module, function = name.split(".")
    network = getattr(import_module(f"make_sample.zoo.{module}"), function)
    network = partial(network, width=16, depth=1, **settings)
    tokens = np.arange(20, dtype=np.int32).reshape(2, 10)
    changed = tokens.copy()
    changed[:, 6] = 77
    before, after = apply(network, tokens), apply(network, changed)
    np.testing.assert_allclose(before[:, :6], after[:, :6], rtol=1e-4, atol=1e-4)
    assert not np.allclose(before[:, 6:], after[:, 6:], rtol=1e-2)


@pytest.mark.parametrize("name", ["wavenet", "temporal"])
def test_a_causal_convolution_does_not_look_ahead(apply, name):
    from make_sample.zoo.sequences import causal_conv, wavenet

    network = {"wavenet": partial(wavenet, width=8, depth=3), "temporal": temporal_stack(causal_conv)}[name]
    x = normal(2, 20, 4)
    changed = x.copy()
    changed[:, 12] += 1
    before, after = apply(network, x), apply(network, changed)
    np.testing.assert_allclose(before[:, :12], after[:, :12], rtol=1e-4, atol=1e-4)
    assert not np.allclose(before[:, 12], after[:, 12], rtol=1e-2)


def temporal_stack(causal_conv):
    return lambda p, x: causal_conv(p, causal_conv(p, x[:, :, None], 6, 3, 2), 6, 3, 1)[:, :, 0]


def test_a_masked_convolution_sees_pixels_above_and_to_the_left_only(apply):
    from make_sample.zoo.images import masked_conv

    x = normal(1, 6, 6, 2)
    changed = x.copy()
    changed[:, 3, 3] += 1
    network = partial(masked_conv, features=3)
    difference = apply(network, changed) - apply(network, x)
    seen = np.abs(np.asarray(difference)).max((0, 3)) > 1e-6
    assert {*zip(*np.nonzero(seen), strict=True)} == {(3, 4), (4, 2), (4, 3), (4, 4)}


def test_shared_layers_request_their_weights_once(apply):
    from make_sample.zoo.images import siamese

    x, y = normal(2, 8, 8, 3), normal(2, 8, 8, 3)
    network = partial(siamese, width=4, depth=1)
    distance, first, second = apply(network, x, x)
    np.testing.assert_allclose(first, second)
    swapped = apply(network, y, x)
    np.testing.assert_allclose(swapped[2], first, rtol=1e-5)


def test_the_shift_of_relative_attention_turns_distances_into_positions(jax):
    """Position s of row t must hold the entry of distance t - s, counted from the right."""
    from make_sample.zoo.language import shift_distances

    time = 5
    by_distance = np.arange(time)[::-1] * np.ones((1, 1, time, 1), np.float32)
    shifted = np.asarray(shift_distances(by_distance))[0, 0]
    rows, columns = np.tril_indices(time)
    np.testing.assert_array_equal(shifted[rows, columns], rows - columns)


def test_depth_shares_weights_in_albert_and_stacks_them_in_a_scan(jax):
    from make_sample.zoo.language import albert, scanned_decoder
    from make_sample.zoo.layers import parameter_shapes

    tokens = jax.ShapeDtypeStruct((2, 8), "int32")

    def shapes(network, depth):
        shapes = parameter_shapes(partial(network, width=16, depth=depth), tokens, dtype="float32")
        return [s.shape for s in shapes]

    assert shapes(albert, 1) == shapes(albert, 3)
    stacked = shapes(scanned_decoder, 3)[1:]
    assert stacked == [(4, *shape[1:]) for shape in shapes(scanned_decoder, 1)[1:]]


def test_windows_are_cut_and_joined(jax):
    from make_sample.zoo.classifiers import cut_windows, join_windows

    x = normal(2, 8, 12, 3)
    cut = cut_windows(x, 4)
    assert cut.shape == (12, 16, 3)
    np.testing.assert_array_equal(cut[1], x[0, :4, 4:8].reshape(16, 3))
    np.testing.assert_array_equal(join_windows(cut, x.shape, 4), x)
