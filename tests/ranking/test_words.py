"""The sentences of a ranking: changes that are sure and possible, sorted effects, and probabilities."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json
from fastslow.steps.finished_run import AppliedRule, best_rule
from fastslow_programs.program.configurations import Default
from fastslow_programs.ranking import trust as trust_module
from fastslow_programs.ranking.choices import NamedChoice
from fastslow_programs.ranking.result import Ranking, _with_probability, make_table
from fastslow_programs.ranking.trust import FIGURES, Trust, advise


def ranking(known=True, **more):
    """All combinations of three choices: the first decides, the second helps, the third does not."""
    values = np.array([(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)] * 20)
    rng = np.random.default_rng(0)
    prediction = -4.0 * values[:, 0] - 1.5 * values[:, 1] + rng.normal(0, 0.1, len(values))
    choices = [
        NamedChoice(name, 0, ("output",), ("{1,0}", "{0,1}"), values[:, place], 0, known=known)
        for place, name in enumerate(("first", "second", "third"))
    ]
    members = {"gnn-x-s0": prediction, "ranker-x-s0": -prediction}
    table = make_table(np.arange(len(prediction)), prediction, members, np.zeros(len(values)), {})
    weights = {"gnn-x-s0": 0.5, "ranker-x-s0": 0.5}
    rule = AppliedRule("copies, ascending", 0.7, 0.8, prediction)
    default = Default(0, "configuration 0")
    return Ranking("p", "r", "m", table, weights, choices, default, find_rule=lambda: rule, **more)


def test_changes_are_the_sure_ones_fastest_first():
    assert ranking().changes()["where"].tolist() == ["first: output", "second: output"]
    words = ranking().words()
    change = [sentence for sentence in words if sentence.startswith("to change: ")]
    assert change[0].startswith("to change: first: output {0,1} instead of {1,0}, 50 of 100 places faster")
    rows = ranking().rows.assign(prediction=1.0)
    same = replace(ranking(), rows=rows)
    assert [w for w in same.words() if w.startswith("to change")][0].startswith("to change: nothing")
    assert "to change: no advice, since the compiler's default is not known" in ranking(known=False).words()


@pytest.mark.parametrize(
    ("cycles", "left"), [({}, [0, 1]), ({0: 101, 4: 101}, [1]), ({6: 99, 7: 101}, [0, 1])]
)
def test_advice_that_the_estimates_refute_is_withdrawn(cycles, left):
    """Configurations 4 to 7 take the first option, 2, 3, 6 and 7 the second; the default has 100 cycles."""
    ranked = ranking()
    rows = ranked.table["config"].map(cycles) if cycles else np.nan
    estimated = replace(ranked, rows=ranked.rows.assign(estimated_cycles=rows), default_cycles=100)
    assert estimated.changes()["choice"].tolist() == left
    # 99 cycles are no gain where the program without constraints has 98
    of_program = replace(estimated, cycles_as_compiled=98).changes()["choice"].tolist()
    assert of_program == [choice for choice in left if 6 not in cycles]


@pytest.mark.parametrize(("column", "left"), [("runtime", [1]), ("known", [1]), ("no option", [0, 1])])
def test_advice_that_measured_runtimes_refute_is_withdrawn(column, left):
    """Of a published file an option was advised whose median runtime is 2 % above the default's."""
    ranked = ranking()
    first, second, _ = (choice.values[ranked.rows["config"]] for choice in ranked.choices)
    runtime = 100.0 + 2 * first - second
    if column == "known":
        runtime[ranked.rows["config"] >= 80] = np.nan
    if column == "no option":
        runtime[first + second > 0] = np.nan
    rows = ranked.rows.assign(**{"runtime" if column == "runtime" else "known": runtime})
    assert replace(ranked, rows=rows).changes()["choice"].tolist() == left


def test_facts_are_numbers_that_agree_with_the_table():
    ranked = replace(ranking(), default_cycles=100)
    facts = ranked.facts()
    table = ranked.table.set_index("config")["rank"]
    alike = [c for c in table.index if all(choice.values[c] == choice.values[0] for choice in ranked.choices)]
    assert len(alike) == 20 and facts["compared_with_rank"] == table[alike].min() < table[0]
    assert (facts["configurations"], facts["choices"], facts["fastest"]) == (160, 3, table.idxmin())
    assert (facts["default"], facts["compared_with"], facts["default_cycles"]) == (0, 0, 100)
    assert facts["cycles_as_compiled"] is facts["trust"] is None and facts["scores"] == {}
    without = replace(ranked, compared_with=Default(None, "not known", known=False)).facts()
    assert without["default"] is without["compared_with"] is without["compared_with_rank"] is None


def test_nothing_is_to_change_where_the_default_is_the_first_and_the_fastest_that_was_measured():
    ranked = ranking()
    first = int(ranked.rows["config"].iloc[0])
    known = ranked.rows["config"].map({first: 1.0, 1: 2.0})
    best = replace(ranked, rows=ranked.rows.assign(known=known), compared_with=Default(first, "it"))
    assert best.changes().empty
    said = "to change: nothing; the default is the first, and the fastest that was measured"
    assert said in best.words()
    other = replace(best, compared_with=Default(1, "another"))
    assert not other.changes().empty


def test_how_sure_the_fastest_is_is_told_of_the_default_and_of_all_others():
    trust = Trust("layout", 0.1, np.linspace(0.5, 1, 39), np.full(39, 2.0), np.ones(39), [], [], False, False)
    ranked = replace(ranking(), judge=lambda: trust)
    first = int(ranked.table["config"].iloc[0])
    slower = ranked.faster(first)
    for than in (-1, len(ranked.rows), None, True, "0"):
        with pytest.raises(SettingsError, match=f"than: {than!r} is no position from 0 to {len(slower) - 1}"):
            ranked.faster(than)

    def sure(**changed):
        return [w for w in replace(ranked, **changed).words() if w.startswith("sure: ")]

    count = f"{(slower < 0.2).sum()} of 159 others"
    others = f"than {count} with a probability of at least 80 %. Equal runtimes count as half"
    chance = f"{_with_probability(1 - slower[0])}. It is faster"
    assert sure() == [f"sure: configuration {first} is faster than the default {chance} {others}"]
    unknown = sure(compared_with=Default(0, "x", known=False))
    assert unknown == [sure()[0].replace("the default", "configuration 0")]
    for default in (Default(first, "it"), Default(None, "none", known=False)):
        assert sure(compared_with=default) == [f"sure: configuration {first} is faster {others}"]
    assert sure(judge=lambda: replace(trust, unlike=["it is large"])) == sure(judge=lambda: None) == []


@pytest.mark.parametrize(
    ("probability", "said"),
    [(1, "over 99 %"), (0.995, "over 99 %"), (0.9949, "of 99 %"), (0.5, "of 50 %"), (0.0049, "under 1 %")],
)
def test_no_probability_is_told_as_0_or_100_percent(probability, said):
    assert _with_probability(probability) == f"with a probability {said}"


def test_the_rule_is_compared_with_the_ranking():
    words = " ".join(ranking().words())
    assert "copies, ascending (valid programs: 0.700, models 0.800) agrees" in words
    assert "by Kendall's tau 1.00; its first is in place 1 here" in words
    strongest = [w for w in ranking().words() if w.startswith("effect: ")]
    assert "first" in strongest[0] and "second" in strongest[1] and len(strongest) == 3


def test_a_rule_that_is_tied_lists_the_first_of_the_file_first():
    """As the picture marks it: the place of one of many equal configurations in our ranking is ours."""
    ranked = ranking()
    tied = ranked.rule._replace(prediction=np.zeros(len(ranked.table)))
    place = ranked.table.loc[ranked.table["config"] == 0, "rank"].iloc[0]
    words = " ".join(replace(ranked, find_rule=lambda: tied).words())
    assert f"its first is in place {place} here" in words and place > 1


def test_where_there_is_nothing_to_choose_nothing_is_sure():
    ranked = ranking()
    rows = ranked.rows[ranked.rows["config"] == 0].assign(rank=1)
    one = replace(ranked, rows=rows, choices=[], compared_with=Default(0, "it"))
    assert not any(words.startswith(("sure: ", "trivial rule: ")) for words in one.words())


def test_where_runtimes_are_known_the_rule_is_judged_by_them():
    ranked = ranking()
    known = ranked.rule.prediction[ranked.table["config"]] * np.where(ranked.table["rank"] <= 4, -1, np.nan)
    learnt = SimpleNamespace(
        words=lambda: "known runtimes: 4", faster=lambda than: np.full(160, 0.5), has_order=True
    )
    words = " ".join(replace(ranked, rows=ranked.rows.assign(known=known), learnt=learnt).words())
    assert "copies, ascending (Kendall's tau -1.00 on the known runtimes) agrees" in words
    equal = known * 0 + 5  # no order is right or wrong, also of a single one
    words = " ".join(replace(ranked, rows=ranked.rows.assign(known=equal), learnt=learnt).words())
    assert "copies, ascending (the known runtimes do not differ) agrees" in words


def test_the_rule_is_read_from_the_records_of_a_manifest_and_not_from_its_words():
    values = np.arange(12.0).reshape(4, 3) * [1, -1, 1]
    graph = SimpleNamespace(config_feat=values, expand=lambda prediction: prediction)
    graphs = SimpleNamespace(config_columns=["a", "b", "c"], graph=lambda split, name: graph)
    good = {"valid": 0.7, "chosen": "whatever it says", "columns": ["a", "b"], "sign": -1}
    bad = {"valid": 0.6, "chosen": "c, ascending", "columns": ["c"], "sign": 1}
    ridge = {"valid": 0.9, "chosen": "a + b, ascending"}
    run = SimpleNamespace(manifest={"valid": {"mean": 0.8}, "baselines": {"x": bad, "y": good, "z": ridge}})
    rule = best_rule(run, graphs, "p")
    assert rule[:3] == ("a + b, descending", 0.7, 0.8)
    np.testing.assert_array_equal(rule.prediction, -(values[:, 0] + values[:, 1]))
    run.manifest["baselines"] = {"z": ridge}
    assert best_rule(run, graphs, "p") is None
    del bad["sign"]
    run.manifest["baselines"] = {"x": bad}
    assert best_rule(run, graphs, "p") is None, "its order is not known"
    run.folder, run.manifest["baselines"] = Path("x"), {"y": {**good, "columns": ["a", "d"]}}
    with pytest.raises(DataError, match=r"x.manifest\.json: .*the column 'd', which its features"):
        best_rule(run, graphs, "p")


def test_what_is_advised_while_nothing_is_known_is_not_contradicted():
    """The figures are those of the package's file, and no sentence says to change what is to be kept."""
    figures = read_json(FIGURES)
    ranked = ranking(advice=advise("How: measure."))
    keep, gain = ranked.words()[2:4]
    assert keep.startswith("to keep: the compiler's default, while no runtime is known. On ")
    for name in ("default", "first", "rule"):
        assert f"{100 * figures[name]:.1f} %" in keep
    assert f"measure {figures['measured']} configurations" in gain and gain.endswith(" How: measure.")
    for name in ("first_learnt", "first_at_random"):
        assert f"{100 * figures[name]:.1f} %" in gain
    assert not any(said.startswith("to change: first") for said in ranked.words())
    assert any(said.startswith("to measure first: first: output {0,1} instead") for said in ranked.words())
    trust = Trust("layout", 0.1, np.linspace(0.5, 1, 39), np.full(39, 2.0), np.ones(39), [], [], False, False)
    (sure,) = [said for said in replace(ranked, judge=lambda: trust).words() if said.startswith("sure: ")]
    assert sure.endswith("count as half; runtimes are labels like those that the models learned")


def test_a_lead_within_its_error_is_no_gain(monkeypatch):
    figures = read_json(FIGURES) | {"gain_over_random": 0.03, "gain_over_random_error": 0.014}
    figures |= {"first_over_default": -0.03, "gain_over_default": 0.02, "gain_over_default_error": 0.011}
    monkeypatch.setattr(trust_module, "read_json", lambda path: figures)
    keep, gain = advise("")
    assert keep.endswith("default and ranking do not differ beyond chance")
    assert gain.endswith("It is not ahead of the default beyond chance. ")
    figures |= {"first_over_default": 0.1, "first_over_default_error": 0.04, "gain_over_default_error": 0.009}
    assert not any("chance" in said for said in advise(""))


def test_no_more_measurements_are_advised_than_there_are_configurations():
    _, gain = advise("How: measure.", 2)
    assert gain == "to gain: measure all 2 configurations, and take the fastest. How: measure."


def test_the_scores_of_a_file_with_runtimes_are_those_of_every_pair_and_every_k():
    rng = np.random.default_rng(5)
    runtime, prediction = rng.integers(50, 90, 150), rng.permutation(150).astype(float)
    table = make_table(np.arange(len(prediction)), prediction, {}, runtime, {})
    ranked = replace(ranking(), rows=table, choices=[])
    order = sorted(range(150), key=lambda config: prediction[config])
    pairs = [(a, b) for a in range(150) for b in range(150) if runtime[a] < runtime[b]]
    right = sum(prediction[a] < prediction[b] for a, b in pairs)
    scores = ranked.scores()
    assert scores["opa"] == pytest.approx(right / len(pairs))
    every = 150 * 149 / 2
    assert scores["tau"] == pytest.approx((2 * right - len(pairs)) / (len(pairs) * every) ** 0.5)
    slower = [min(runtime[c] for c in order[:k]) / min(runtime) - 1 for k in (1, 5, 10, 100)]
    assert [scores[f"top_{k}_error"] for k in (1, 5, 10, 100)] == pytest.approx(slower)
    firsts = ["the first", *(f"the best of the first {k}" for k in (5, 10, 100))]
    said = ", ".join(f"{first}: {100 * s:.2g} %" for s, first in zip(slower, firsts, strict=True))
    few = replace(
        ranked, rows=make_table(np.arange(len(prediction[:7])), prediction[:7], {}, runtime[:7], {})
    )
    last = few.summary()["slowdown against the fastest"].split(", ")[-1]
    assert last.startswith("the best of the first 5:"), "of all seven the fastest is the fastest"
    assert ranked.words()[2] == ranked.verdict() and ranked.verdict().startswith("The first of the ranking")
    assert (
        f"slowdown against the fastest: {said}" in ranked.words()
        and f"ordered pair accuracy: {scores['opa']:.3f}" in ranked.words()
    )
    assert ranking().scores() == {} and not any("slowdown" in said for said in ranking().words())
