"""The decorator: one search for shapes and types, kept for later processes; the default where it is off."""

import functools
import inspect

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import write_json
from fastslow.core.settings import resolve
from fastslow_programs.tuning import decorator
from fastslow_programs.tuning.history import Proposal
from fastslow_programs.tuning.result import BEST
from fastslow_programs.tuning.tune import Study
from helpers.cases import cases

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")

pytestmark = pytest.mark.usefixtures("undrawn")
X, W = np.ones((32, 64), np.float32), np.full((64, 32), 0.5, np.float32)
CALLS = []


def product(x, w, tile=32, unroll=1):
    """A product in tiles; it counts how often it is traced."""
    CALLS.append((x.shape, tile, unroll))
    parts = x.reshape(x.shape[0], -1, tile).transpose(1, 0, 2), w.reshape(-1, tile, w.shape[1])
    start = jax.numpy.zeros((x.shape[0], w.shape[1]))
    return jax.lax.scan(lambda c, part: (c + part[0] @ part[1], None), start, parts, unroll=unroll)[0]


@pytest.fixture
def searches(monkeypatch):
    """The names of the studies that were made."""
    made = []
    complete = decorator.complete_study
    monkeypatch.setattr(decorator, "complete_study", lambda s, t: made.append(s.program) or complete(s, t))
    return made


def decorated(out, function=product, **options):
    return fastslow.tuned(tile=[16, 32, 64], unroll=[1, 2], evaluations=7, out=out, **options)(function)


def test_one_search_for_shapes_and_types_is_kept_for_later_processes(tmp_path, searches):
    function = decorated(tmp_path, constraints=["tile * unroll <= 64"])
    for _ in range(2):
        np.testing.assert_allclose(function(X, W), X @ W, rtol=1e-5)
    np.testing.assert_allclose(function(w=W, x=X), X @ W, rtol=1e-5)
    assert len(searches) == 1, "arguments by name are the same call"
    np.testing.assert_allclose(function(X[:16], W), X[:16] @ W, rtol=1e-5)
    assert len(searches) == 2 and len({*searches}) == 2
    again = decorated(tmp_path, constraints=["tile * unroll <= 64"])
    np.testing.assert_allclose(again(X, W), X @ W, rtol=1e-5)
    assert len(searches) == 2, "a later process reads what was found"
    assert all(tile * unroll <= 64 for _, tile, unroll in CALLS)
    assert inspect.signature(function) == inspect.signature(product) and function.__name__ == "product"


def test_the_studies_are_under_the_folder_that_is_named_from_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))
    function = decorated("mine")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_allclose(function(X, W), X @ W, rtol=1e-5)
    assert [*(tmp_path / "work" / "mine").rglob("best.json")]
    assert not (tmp_path / "home").exists() and not (tmp_path / "mine").exists()


def test_parameters_without_a_default_and_functions_without_a_name_are_searched(
    tmp_path, searches, monkeypatch
):
    def keyword_only(x, *, tile, w):
        return product(x, w, tile)

    settings = {"tile": [32, 16], "evaluations": 7, "out": tmp_path}
    for function in (keyword_only, functools.partial(product)):
        wrapped = fastslow.tuned(**settings)(function)
        np.testing.assert_allclose(wrapped(X, w=W), X @ W, rtol=1e-5)
    assert len(searches) == 2 and searches[1].startswith("partial-")
    monkeypatch.setenv("FASTSLOW_TUNE", "0")
    np.testing.assert_allclose(fastslow.tuned(**settings)(keyword_only)(X, w=W), X @ W, rtol=1e-5)
    monkeypatch.delenv("FASTSLOW_TUNE")
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        fastslow.tuned(**settings)(product)()
    with pytest.raises(DataError, match=r"^<lambda>: with {'tile': 32}: ZeroDiv.* This is the default"):
        fastslow.tuned(**settings)(lambda x, tile: 1 / 0)(X)


def test_a_decorated_function_has_derivatives_and_lives_under_jit(tmp_path, searches):
    function = decorated(tmp_path)
    gradient = jax.jit(jax.grad(lambda x: function(x, W).sum()))(X)
    np.testing.assert_allclose(gradient, np.broadcast_to(W.sum(1), X.shape), rtol=1e-5)
    stacked = jax.vmap(function, (0, None))(np.stack([X, 2 * X]), W)
    np.testing.assert_allclose(stacked[1], 2 * X @ W, rtol=1e-5)
    assert len(searches) == 1


def test_the_switch_and_a_named_parameter_leave_the_search_out(tmp_path, searches, monkeypatch):
    CALLS.clear()
    function = decorated(tmp_path, jax.jit(product, static_argnames=("tile", "unroll")))
    np.testing.assert_allclose(function(X, W, tile=16), X @ W, rtol=1e-5)
    monkeypatch.setenv("FASTSLOW_TUNE", "0")
    np.testing.assert_allclose(function(X, W), X @ W, rtol=1e-5)
    assert [call[1:] for call in CALLS] == [(16, 1), (32, 1)] and not searches and not [*tmp_path.iterdir()]


class Scaled:
    """An object whose method is decorated; it may change."""

    scale = 2.0

    def __call__(self, x, w, tile=32):
        """As :func:`product`."""
        return self.scale * product(x, w, tile)


@cases("switch", ["0", "1"])
def test_a_method_is_searched_and_sees_later_changes_of_its_object(tmp_path, monkeypatch, switch):
    """It runs as it is, since it was compiled for one state of its object otherwise."""
    monkeypatch.setenv("FASTSLOW_TUNE", switch)
    monkeypatch.setattr(decorator, "complete_study", lambda settings, target: settings)
    monkeypatch.setattr(
        decorator,
        "write_result",
        lambda settings: write_json(resolve(settings.folder) / BEST, {"values": {"tile": 64}}),
    )
    CALLS.clear()
    method = fastslow.tuned(tile=[32, 64], out=tmp_path)(Scaled.__call__)
    scaled = Scaled()
    for scale in (2.0, 3.0):
        scaled.scale = scale
        np.testing.assert_allclose(method(scaled, X, W), scale * X @ W, rtol=1e-5)
        np.testing.assert_allclose(jax.jit(functools.partial(method, scaled))(X, W), scale * X @ W, rtol=1e-5)
    assert CALLS[-1][1] == (32 if switch == "0" else 64)


def test_a_parameter_that_cannot_be_searched_is_refused_by_its_name():
    with pytest.raises(SettingsError, match="tile is not static in the jax.jit of product; add it: jax.jit"):
        fastslow.tuned(tile=[16, 32])(jax.jit(product))
    with pytest.raises(SettingsError, match="choices: tile must be accepted by name; it is positional-only"):
        fastslow.tuned(tile=[16, 32])(lambda x, tile=32, /: x)
    function = fastslow.tuned(tile=[16, 32])(lambda x, tile, w: product(x, w, tile))
    with pytest.raises(TypeError, match="missing a required argument: 'w'"):
        function(X, W)


def branches(added):
    """A function of which one option runs other code, as an edit leaves it."""

    def edited(x, w, tile=32):
        return product(x, w, tile) + (0.0 if tile == 32 else added)

    return edited


def test_code_of_another_option_than_the_default_is_another_search(tmp_path, searches, monkeypatch):
    monkeypatch.setattr(Study, "best", property(lambda study: (Proposal((1,), "test"), 0.5)))
    for added in (1.0, 2.0, 1.0):
        function = fastslow.tuned(branches(added), tile=[32, 64], evaluations=7, out=tmp_path)
        np.testing.assert_allclose(function(X, W), X @ W + added, rtol=1e-5)
    first, second = searches
    assert second == f"{first}-2", "what was found for the first code is found again"
    for folder in (tmp_path / "tuned").iterdir():
        (folder / BEST).unlink()  # as of a process that was killed within its search
    function = fastslow.tuned(branches(3.0), tile=[32, 64], evaluations=7, out=tmp_path)
    np.testing.assert_allclose(function(X, W), X @ W + 3.0, rtol=1e-5)
    assert searches[2:] == [first, second, f"{first}-3"]


@cases(
    "choices, kind, said",
    [
        ({"size": [1, 2]}, SettingsError, "product has no parameter size"),
        (
            {"tile": [16, 64]},
            SettingsError,
            r"choices: tile=32, the default of product, is not in \[16, 64\]: add it",
        ),
        ({"tile": [16, 32.0]}, SettingsError, r"tile=32, the default of product, is not in \[16, 32.0\]"),
        ({"tile": []}, SettingsError, r"tile: \[\] is no list of options; name parameters with"),
        ({"tile": 32}, SettingsError, "tile: 32 is no list of options"),
        ({"tile": "ab"}, SettingsError, "tile: 'ab' is no list of options"),
        ({"tile": [(16, 32), 32]}, SettingsError, r"tile: the option \(16, 32\) is not a number, a text"),
        ({}, SettingsError, "choices: none given; name parameters with their options, such as @fastslow"),
        ({"tile": [16, 32], "evaluations": 3}, SettingsError, "evaluations: .* give 7 or more"),
        ({"tile": [16, 32], "evaluations": "many"}, SettingsError, "evaluations: "),
        ({"tile": [16, 32], "constraints": "tile > 9"}, SettingsError, r"is no list; write \['tile > 9'\]"),
        ({"tile": [16, 32], "constraints": 9}, SettingsError, "constraints: 9 is no list"),
        ({"tile": [16, 32], "out": 9}, SettingsError, "out: an int is no path"),
        ({"tile": [32, 32]}, DataError, "has an option twice"),
        ({"tile": [16, 32], "constraints": ["tile > 99"]}, DataError, "nothing fulfils constraint"),
    ],
)
def test_what_cannot_be_searched_is_refused_where_it_is_written(choices, kind, said):
    with pytest.raises(kind, match=said):
        fastslow.tuned(**choices)(product)
    with pytest.raises(kind, match=said):
        fastslow.tuned(product, **choices)


def test_it_is_applied_without_parentheses_where_parameters_are_named(tmp_path, searches):
    with pytest.raises(
        SettingsError,
        match="function: a list is given, a function is wanted; name parameters with their options",
    ):
        fastslow.tuned([16, 32])
    function = fastslow.tuned(product, tile=[16, 32], evaluations=7, out=tmp_path)
    np.testing.assert_allclose(function(X, W), X @ W, rtol=1e-5)
    assert len(searches) == 1
