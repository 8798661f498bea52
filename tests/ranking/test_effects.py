"""Marginal effects against plain loops, and what must not change them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow_programs.ranking.choices import EFFECT_COLUMNS, NamedChoice, effects
from fastslow_programs.ranking.plots import plot_effects, plot_slowdown


def choice(values, options=2, default=0, node="dot 1"):
    words = tuple(f"option {i}" for i in range(options))
    return NamedChoice(node, 0, ("output",), words, np.asarray(values), default)


def test_against_plain_loops(rng):
    values, prediction = rng.integers(3, size=40), rng.permutation(40).astype(float)
    table = effects([choice(values, options=3, default=1)], prediction)
    assert tuple(table.columns) == EFFECT_COLUMNS and table["option"].tolist() != table["default"].tolist()
    for row in table.itertuples():
        option = int(row.option.split()[1])
        percents = [100 * p / 39 for v, p in zip(values, prediction, strict=True) if v == option]
        default = [100 * p / 39 for v, p in zip(values, prediction, strict=True) if v == 1]
        assert row.configs == len(percents) and row.nodes == 1
        assert row.effect == pytest.approx(np.mean(percents) - np.mean(default))
        variance = np.var(percents, ddof=1) / len(percents) + np.var(default, ddof=1) / len(default)
        assert row.standard_error == pytest.approx(np.sqrt(variance))


def test_the_choice_that_decides_comes_first(rng):
    decides, noise = np.arange(60) % 2, rng.integers(2, size=60)
    prediction = 5.0 * decides + rng.random(60)
    table = effects([choice(noise, node="dot 1"), choice(decides, node="dot 2")], prediction)
    assert table["where"].tolist() == ["dot 2: output", "dot 1: output"]
    first, second = table.itertuples()
    assert first.explained > 0.7 > 0.1 > second.explained and first.effect > 0
    assert abs(second.effect) < 3 * second.standard_error


def test_one_configuration_more_than_options_is_enough_to_explain():
    assert effects([choice([0, 0, 1])], np.arange(3.0))["explained"].tolist() == [pytest.approx(0.5)]


def test_equal_choices_are_in_order_and_their_options_from_fast_to_slow(rng):
    same = choice(rng.integers(3, size=40), options=3)
    table = effects([same, same], rng.permutation(40).astype(float))
    rows = [*zip(table["choice"], table["effect"], strict=True)]
    assert rows == sorted(rows) and len({*rows}) == 4


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-1e3, 1e3)), min_size=1, max_size=30))
def test_only_the_order_of_predictions_counts(pairs):
    values, prediction = (np.array(part) for part in zip(*pairs, strict=True))
    table = effects([choice(values, options=3, default=int(values[0]))], prediction)
    again = effects([choice(values, options=3, default=int(values[0]))], np.cbrt(prediction) * 7 - 3)
    if len(np.unique(np.cbrt(prediction) * 7 - 3)) == len(np.unique(prediction)):  # rounding may tie
        np.testing.assert_allclose(table["effect"], again["effect"], atol=1e-9)
    assert table["effect"].abs().max() <= 100 or table.empty
    assert table["explained"].between(0, 1).all()


def test_without_choices_or_with_equal_predictions():
    assert effects([], np.arange(3.0)).empty
    table = effects([choice([0, 1, 1])], np.zeros(3))
    assert table["effect"].tolist() == [0] and table["explained"].tolist() == [0]
    assert np.isnan(effects([choice([0, 1])], np.arange(2.0))["standard_error"]).all()
    assert np.isfinite(effects([choice([0, 0, 1, 1])], np.arange(4.0))["standard_error"]).all()


def test_the_figure_is_sorted_by_the_bars_that_it_shows(rng):
    choices = [choice(rng.integers(2, size=50), node=f"dot {i} of a long name " * 5) for i in range(30)]
    (axes,) = plot_effects(effects(choices, rng.permutation(50).astype(float))).axes
    lengths = [abs(bar.get_width()) for bar in axes.patches]
    assert len(lengths) == 12 and lengths == sorted(lengths, reverse=True)
    assert all("\n" in label.get_text() for label in axes.get_yticklabels()), "long labels are wrapped"


def test_the_explained_share_is_adjusted_for_the_number_of_options(rng):
    """Epsilon squared, written out: of random choices it is 0 on the mean, however many options there are."""
    values, prediction = rng.integers(4, size=30), rng.permutation(30).astype(float)
    prediction = prediction + 8.25 * values  # none is equal to another
    place = 100 * np.argsort(np.argsort(prediction)) / 29
    within = sum(((place[values == v] - place[values == v].mean()) ** 2).sum() for v in range(4)) / (30 - 4)
    expected = 1 - within / place.var(ddof=1)
    (explained,) = set(effects([choice(values, options=4)], prediction)["explained"])
    assert explained == pytest.approx(expected) and 0.1 < expected < 0.99


def test_two_marks_at_one_place_are_both_seen():
    table = pd.DataFrame({"rank": [1, 2], "config": [0, 1], "runtime": [2.0, 1.0]})
    (axes,) = plot_slowdown(table, {"the default": 1, "first of the trivial rule": 1}).axes
    first, second = (line for line in axes.lines if line.get_marker() == "D")
    assert first.get_xdata() == second.get_xdata() and first.get_color() != second.get_color()
    assert first.get_markersize() > second.get_markersize()
