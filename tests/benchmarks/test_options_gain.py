"""What options of the compiler gain: the script runs, and has ten functions that can be measured here."""

import json

import numpy as np
import pytest

from fastslow_programs.compiler.tracing import Call, trace
from fastslow_programs.tuning import target
from fastslow_programs.tuning.compiler_options import OPTIONS

jax = pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def options_gain():
    """The script, which imports equinox and optax: every worker of pytest imports this module."""
    return pytest.importorskip("options_gain")


def test_every_function_is_traced(options_gain):
    assert len(options_gain.FUNCTIONS) >= 10
    for make in (*options_gain.FUNCTIONS, options_gain.part_of_the_layer):
        assert jax.tree.leaves(trace(Call(*make())).results), make.__name__


def test_a_search_has_a_row_beside_the_default_itself(options_gain, monkeypatch, capsys):
    monkeypatch.setattr(options_gain, "SPACES", ("options",))
    monkeypatch.setattr(target, "list_options", lambda *_: (OPTIONS["cpu"][:3], []))  # without a process
    assert options_gain.main(["--quick"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    itself, options = results["rows"]
    assert itself.keys() == {"function", "searched", "over the default", "seconds"}
    assert options.keys() == {*itself, "gain", "changes"} and " to " in options["over the default"]
    names = {"function", "known", "rank", "rule", "none", "fastest", "seconds"}
    assert [row["known"] for row in results["known"]] == [0, 3] and results["known"][0].keys() == names


def test_a_function_without_layouts_says_so(options_gain):
    row = options_gain.searched(options_gain.elementwise_chain, "layouts", 7)
    assert row == {"over the default": "no choice"}
    assert options_gain.known(options_gain.elementwise_chain, 3) == []


def test_the_fastest_of_the_known_ones_is_taken_or_the_default(options_gain):
    chooses, scores = np.array([1.2, 0.9, 0.8]), np.array([1.1, 0.95, 0.85])
    taken = [([0], False), ([0], True), ([0, 1], True), ([], True), ([1, 2, 0], True)]
    cells = [options_gain._taken(picks, chooses, scores, measured) for picks, measured in taken]
    assert cells == ["1.100", "1.000", "0.950", "1.000", "0.850"]
    rows = [
        {"known": 8, **dict.fromkeys(("rank", "rule", "none", "fastest"), cell), "seconds": 4}
        for cell in ("0.500", "2.000")
    ]
    (mean,) = options_gain.mean_rows(rows)
    assert mean["known"] == "up to 8" and mean["rank"] == mean["fastest"] == "1.000" and mean["seconds"] == 4


def test_totals_count_what_was_confirmed(options_gain):
    facts = {"searched": "layouts", "seconds": 2, "over the default": "0.800 (0.700 to 0.900)"}
    rows = [facts | {"gain": "confirmed"}, facts | {"gain": "not confirmed", "seconds": 4}, facts]
    counts = {"functions": 2, "confirmed gains": 1, "the largest": "0.800", "seconds, mean": 3}
    assert options_gain.totals(rows)[1] == {"searched": "layouts", **counts}


def test_a_confirmed_candidate_has_a_row_that_says_what_it_changes(options_gain):
    facts = {"function": "product", "searched": "options", "changes": "unroll 4 instead of 1", "seconds": 2}
    rows = [facts | {"gain": "confirmed"}, facts | {"gain": "not confirmed"}, {"function": "product"}]
    said = {"function": "product", "searched": "options", "changes": "unroll 4 instead of 1"}
    assert options_gain.changes(rows) == [said]
