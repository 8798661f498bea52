"""What options of the compiler gain: the script runs, and has ten functions that JAX takes."""

import json

import pytest

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
options_gain = pytest.importorskip("options_gain")


def test_every_function_is_traced():
    assert len(options_gain.FUNCTIONS) >= 10
    for function, arguments in options_gain.FUNCTIONS.values():
        assert jax.eval_shape(function, *arguments) is not None


def test_a_row_has_the_default_itself_beside_the_searches(monkeypatch, capsys):
    monkeypatch.setattr(options_gain, "SPACES", ("options",))
    assert options_gain.main(["--quick"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row.keys() == {"function", "the default itself", "options"} and "to" in row["options"]
