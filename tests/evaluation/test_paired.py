"""Paired differences: a program is the unit, and few of them give no verdict."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from fastslow.evaluation.paired import clustered_mean, paired_results, seed_deviation, verdict
from helpers.cases import cases

NAMES = ("a", "b")


def tables_of(differences, names=None):
    """Tables of two models whose difference is given, by collection."""
    return {
        collection: pd.DataFrame({"one": values, "other": 0.0}, index=names or range(len(values)))
        for collection, values in differences.items()
    }


def found(differences, names=None):
    """The verdict on the mean of collections."""
    return verdict(paired_results(tables_of(differences, names)).iloc[-1], NAMES, "competition")


@cases("size", [2, 9])
def test_a_single_collection_has_the_error_of_a_mean(size):
    values = np.random.default_rng(0).normal(size=size)
    facts = clustered_mean({"c": pd.Series(values)})
    assert facts["mean"] == pytest.approx(values.mean())
    assert facts["standard_error"] == pytest.approx(values.std(ddof=1) / math.sqrt(size))
    assert facts["freedom"] == pytest.approx(size - 1) and facts["programs"] == size
    p_value = paired_results(tables_of({"c": values})).loc["c", "p_value"]
    assert p_value == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_collections_of_other_programs_have_the_error_of_a_sum():
    """On average over draws of differences it is the one that their true spread gives."""
    rng = np.random.default_rng(0)
    sizes, spread = (4, 9, 30), (0.3, 0.1, 0.2)
    means, errors = [], []
    for _ in range(200):
        drawn = {
            f"c{size}": pd.Series(rng.normal(0.1, scale, size), [f"{size} {i}" for i in range(size)])
            for size, scale in zip(sizes, spread, strict=True)
        }
        facts = clustered_mean(drawn)
        means.append(facts["mean"])
        errors.append(facts["standard_error"] ** 2)
        assert min(sizes) - 1 <= facts["freedom"] + 1e-9 <= sum(sizes) - len(sizes) + 1e-6
        assert facts["programs"] == sum(sizes)
    assert np.mean(means) == pytest.approx(0.1, abs=0.01)
    true = sum(scale**2 / size for size, scale in zip(sizes, spread, strict=True)) / len(sizes) ** 2
    assert np.mean(errors) == pytest.approx(true, rel=0.1)


def test_both_searches_of_a_program_are_one_draw():
    """Counted as two the error was 0.7 of the true one where they agree."""
    values = pd.Series(np.random.default_rng(0).normal(size=21))
    once, twice = clustered_mean({"default": values}), clustered_mean({"default": values, "random": values})
    assert twice == pytest.approx(once)
    opposite = clustered_mean({"default": values, "random": -values})
    assert opposite["standard_error"] == pytest.approx(0, abs=1e-12) and opposite["mean"] == 0
    part = clustered_mean({"default": values, "random": values[:20]})
    assert part["programs"] == 21 and part["standard_error"] == pytest.approx(once["standard_error"], rel=0.2)


def test_a_verdict_is_wrong_in_one_of_twenty_cases_where_nothing_differs():
    """Both searches of a program agree by 0.9, as the sample's do; as two programs they gave one in six."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        of_program = rng.normal(size=21)
        searches = {s: of_program + 0.33 * rng.normal(size=21) for s in ("default", "random")}
        wrong += found(searches) != "no difference beyond chance"
    assert 0.02 <= wrong / 400 <= 0.08


@pytest.mark.parametrize(
    "differences, said",
    [
        ([0.5, 0.5], "too few programs for a verdict (2, 6 are needed)"),
        ([0.5] * 5, "too few programs for a verdict (5, 6 are needed)"),
        ([0.5] * 6, "a is better"),
        ([-0.5] * 6, "b is better"),
        ([0.0] * 9, "no difference beyond chance"),
        ([0.1, -0.1] * 5, "no difference beyond chance"),
        ([0.5], "too few programs for a verdict (1, 6 are needed)"),
    ],
)
def test_the_sentence_names_the_better_one_beyond_chance_only(differences, said):
    assert found({"c": differences}) == said


def test_of_an_error_the_lower_one_is_better():
    facts = paired_results(tables_of({"c": [0.5, 0.4, 0.5, 0.6, 0.5, 0.4]})).iloc[-1]
    assert verdict(facts, NAMES, "tau") == "a is better"
    assert verdict(facts, NAMES, "top_5_error") == "b is better"


@cases("program", ["other", 0])
def test_a_collection_of_one_program_leaves_the_error_unknown(program):
    """Also where the other collection has this program, number 0, too."""
    differences = {"many": pd.Series([0.5] * 7), "one": pd.Series([0.5], [program])}
    facts = clustered_mean(differences)
    assert math.isnan(facts["standard_error"]) and math.isnan(facts["freedom"])
    tables = {name: pd.DataFrame({"one": one, "other": 0.0}) for name, one in differences.items()}
    said = verdict(paired_results(tables).iloc[-1], NAMES, "tau")
    assert said == "too few programs of a collection for a verdict (1, 6 are needed)"


def test_the_numbers_of_a_comparison_agree_with_each_other():
    rng = np.random.default_rng(0)
    results = paired_results(tables_of({"c": rng.normal(0.3, 1, 12), "d": rng.normal(0.1, 1, 12)}))
    assert [*results.index] == ["c", "d", "mean of 2"] and results.loc["mean of 2", "programs"] == 12
    counted = results["higher"] + results["equal"] + results["lower"]
    assert (counted == results["programs"]).all()
    assert results["difference"].iloc[-1] == pytest.approx(results["difference"].iloc[:-1].mean())
    inside = (results["low"] < 0) & (results["high"] > 0)
    assert (inside == (results["p_value"] > 0.05)).all()
    assert ((results["low"] + results["high"]) / 2).to_numpy() == pytest.approx(results["difference"])


def test_the_deviation_over_seeds_is_the_one_of_their_means():
    assert seed_deviation([[1.0, 2.0], [3.0, 6.0]]) == pytest.approx(np.std([2, 4], ddof=1))
    assert seed_deviation([[1.0, 2.0], [3.0]]) == pytest.approx(np.std([2, 2.5], ddof=1))
    assert math.isnan(seed_deviation([[1.0]])) and math.isnan(seed_deviation([[1.0, 2.0], [1.0] * 3]))
