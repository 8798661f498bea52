"""Options of the compiler: searched, refused before the search, kept with the study and loaded again."""

import json

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import SettingsError
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.tuning.compiler_options import OPTIONS, list_options
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import read_target

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
from fastslow_programs.compiler.lowering import options_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
MAKE = """
import jax, numpy as np
def make(level="3"):
    function = jax.jit(lambda x: x * 2, compiler_options={"xla_backend_optimization_level": int(level)})
    return function, (np.ones(8, np.float32),)
"""


def product(x):
    return (jax.numpy.tanh(x @ x)).reshape(4, 16)


def target_of(**settings):
    """The target of :func:`product`, measured here."""
    source = FunctionSource.of_function(product, (X,))
    return read_target(TuneSettings(run="none", **settings).of(source))


def options_in(module):
    return options_of(module.SerializeToString())


def test_every_option_has_a_source_and_what_it_changes():
    for options in OPTIONS.values():
        assert len({option.name for option in options}) == len(options) <= 12
        assert all(option.values and option.changes and option.source for option in options)
        assert any(option.numerics for option in options)


def test_options_that_change_numerics_are_searched_only_if_asked_for():
    (quiet, unknown), (loud, _) = list_options("cpu"), list_options("cpu", numerics=True)
    assert not unknown and not [option for option in quiet if option.numerics]
    assert {option.name for option in loud} - {option.name for option in quiet} == {
        option.name for option in OPTIONS["cpu"] if option.numerics
    }


def test_an_option_of_another_backend_is_named_and_left_out(monkeypatch, capsys):
    monkeypatch.setitem(OPTIONS, "cpu", (*OPTIONS["cpu"][:1], OPTIONS["tpu"][0]))
    target = target_of(options="auto")
    assert [choice.where for choice in target.space.choices] == [OPTIONS["cpu"][0].name]
    assert f"does not know them: {OPTIONS['tpu'][0].name}" in capsys.readouterr().err
    monkeypatch.setitem(OPTIONS, "cpu", (OPTIONS["tpu"][0],))
    with pytest.raises(SettingsError, match="options: no list for a device of the kind cpu"):
        target_of(options="auto")


def test_another_search_and_another_evaluator_than_the_default_have_another_name(tmp_path):
    (tmp_path / "model.py").write_text("")
    function = FunctionSource.of_function(product, (X,))
    source = {"source": f"{tmp_path}/model.py:make", "evaluator": "device"}
    ends = {"": "-device", "layouts": "-device", "options": "-options", "both": "-both"}
    for space, end in ends.items():
        settings = TuneSettings(**source, space=space)
        assert settings.program == f"model-make{end}"
        assert TuneSettings(evaluator="device", space=space).of(function).program == f"product{end}"
        assert settings.replace(name="mine").program == "mine"
    assert TuneSettings(source=source["source"]).program == "model-make"
    assert TuneSettings(source=source["source"], evaluator="compiler").program == "model-make"
    assert TuneSettings(source=source["source"], evaluator="command", command="true").program.endswith(
        "-command"
    )
    (tmp_path / "space.json").write_text('{"choices": {"tile": [1, 2]}}')
    of_space = TuneSettings(source=f"{tmp_path}/space.json", evaluator="device")
    assert of_space.program == "space", "the default of a space"


def test_layouts_options_and_both_are_one_space():
    sizes = {
        space: len(target_of(space=space, evaluator="device").space.choices)
        for space in ("layouts", "options")
    }
    both = target_of(space="both", evaluator="device")
    assert len(both.space.choices) == sum(sizes.values()) and min(sizes.values()) > 0
    codes = np.array(both.space.default)
    assert options_in(both.module_of(tuple(codes))) == {}
    assert both.module_of(tuple(codes)).SerializeToString() == both.local.module.SerializeToString()
    codes[0] = 1 - codes[0]
    codes[-1] = 1
    module = both.module_of(tuple(codes))
    name = both.space.choices[-1].where
    assert options_in(module) == both.values_of(tuple(codes)) == {name: OPTIONS["cpu"][-3].values[0]}
    assert b"LayoutConstraint" in module.SerializeToString()


def test_options_are_searched_confirmed_kept_and_loaded(tmp_path):
    tuned = fastslow.tune(product, X, options="auto", evaluations=7, batch=2, out=tmp_path)
    assert set(tuned.best["candidate"]["values"]) <= {option.name for option in OPTIONS["cpu"]}
    folder = tmp_path / "tuned" / "product-options"
    assert json.loads((folder / "best.json").read_text())["values"] == tuned.best["values"]
    np.testing.assert_allclose(fastslow.load_tuned(folder)(X), product(X), rtol=1e-4, atol=1e-4)


def test_a_space_whose_make_sets_options_is_tuned(tmp_path):
    (tmp_path / "kernel.py").write_text(MAKE)
    space = {"choices": {"level": ["3", "0"]}, "function": "kernel.py:make"}
    (tmp_path / "space.json").write_text(json.dumps(space))
    tuned = fastslow.tune(tmp_path / "space.json", evaluations=7, out=tmp_path)
    assert not tuned.table["failure"].any() and set(tuned.table["configuration"]) > {"level 0 instead of 3"}


def test_what_cannot_be_searched_is_refused_before_the_search(tmp_path):
    wrong = jax.jit(product, compiler_options={"xla_no_such_option": 1})
    with pytest.raises(SettingsError, match=r"refuses compiler_options: xla_no_such_option .*Take them out"):
        fastslow.tune(wrong, X, evaluator="device", models="none")
    with pytest.raises(SettingsError, match=r"refuses compiler_options: xla_no_such_option .*Take them out"):
        fastslow.measure(wrong, X)
    (tmp_path / "model.py").write_text(MAKE)
    model = f"{tmp_path}/model.py:make"
    command = {"evaluator": "command", "command": "true"}
    for settings in ({"options": "auto", "evaluator": "compiler"}, {"space": "options", **command}):
        with pytest.raises(SettingsError, match="(options|space): .* has no effect with evaluator="):
            TuneSettings(source=model, **settings)
    others = ({"options": "auto", "cache": False}, {"options": "auto", "space": "layouts"}, {"run": "mine"})
    for settings in others:
        with pytest.raises(SettingsError, match="has no effect where|no models guide among options"):
            TuneSettings(source=model, **{"space": "options"} | {"evaluator": "device"} | settings)
    (tmp_path / "space.json").write_text('{"choices": {"a": [1, 2]}, "function": "k.py:make"}')
    with pytest.raises(SettingsError, match="options: .* has no effect on a space of yours"):
        TuneSettings(source=str(tmp_path / "space.json"), options="auto")
