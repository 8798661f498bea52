"""LightGBM's text is refused where LightGBM would end, and predicts as before where it is sound."""

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.rankers.model_text import read_booster_text
from helpers.cases import cases

RNG = np.random.default_rng(0)
ROWS = np.where(RNG.random((500, 4)) < 0.1, np.nan, RNG.standard_normal((500, 4)))
SETTINGS = {
    "objective": "regression",
    "verbosity": -1,
    "num_leaves": 7,
    "num_threads": 1,
    "deterministic": True,
}
BOOSTER = lightgbm.train(SETTINGS, lightgbm.Dataset(ROWS, np.nan_to_num(ROWS[:, 0] + ROWS[:, 1])), 4)
TEXT = BOOSTER.model_to_string()


def test_a_sound_text_predicts_and_explains_as_before():
    read = read_booster_text(TEXT)
    for options in ({"raw_score": True}, {"pred_contrib": True}):
        np.testing.assert_array_equal(read.predict(ROWS, **options), BOOSTER.predict(ROWS, **options))
    np.testing.assert_array_equal(read.feature_importance("gain"), BOOSTER.feature_importance("gain"))


@cases(
    "old, new",
    [
        ("num_leaves=7", "num_leaves=9"),
        ("num_leaves=7", "num_leaves=100000000"),
        ("threshold=", "threshold=nan "),
        ("left_child=1", "left_child=0"),
        ("left_child=", "left_child=9"),
        ("split_feature=", "split_feature=9"),
        ("tree_sizes=", "tree_sizes=1"),
        ("max_feature_idx=3", "max_feature_idx=2"),
        ("num_cat=0", "num_cat=1"),
        ("leaf_value=", "leaf_value=x"),
        ("end of trees", ""),
    ],
)
def test_a_text_of_no_trees_is_refused(old, new):
    assert old in TEXT
    with pytest.raises(ValueError, match=r"\w+"):
        read_booster_text(TEXT.replace(old, new, 1))


@given(st.integers(0, len(TEXT) - 1), st.sampled_from("0123456789-. =e\nx"), st.booleans())
@settings(max_examples=200)
def test_any_edit_is_refused_or_predicts(place, letter, inserts):
    """Whatever is accepted neither ends the process nor returns something that is not finite."""
    try:
        booster = read_booster_text(TEXT[:place] + letter + TEXT[place + (not inserts) :])
    except ValueError:
        return
    assert np.isfinite(booster.predict(ROWS[:20], raw_score=True)).all()
