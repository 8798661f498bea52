"""The page of a ranking: the verdict first, whole HTML, and names that cannot break it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fastslow.steps.finished_run import AppliedRule
from fastslow_programs.program.configurations import Default
from fastslow_programs.ranking.choices import NamedChoice
from fastslow_programs.ranking.result import Ranking, make_table
from fastslow_programs.ranking.trust import Trust, advise
from helpers.browser import check_page, open_page
from helpers.cases import cases
from helpers.competition_files import graph_arrays, layout_arrays

pytestmark = pytest.mark.usefixtures("undrawn")

IMAGE = "<img src=x onerror=alert(1)>"


def ranking(runtime=None, arrays=None, names=("first", "second"), program="mine", count=80, **more):
    """Return a ranking of all combinations of two choices, the first of which decides."""
    arrays = layout_arrays(dots=4) if arrays is None else arrays
    values = np.array([(a, b) for a in (0, 1) for b in (0, 1)] * 20)[:count]
    prediction = -4.0 * values[:, 0] - values[:, 1] + np.arange(count) / 1000
    ids = arrays["node_config_ids"].tolist()
    choices = [
        NamedChoice(
            name, 0, ("output",), ("{1,0}", "{0,1}"), values[:, place], 0, known=True, nodes=(ids[place],)
        )
        for place, name in enumerate(names)
    ]
    members = {"gnn-x-s0": prediction, "ranker-x-s0": np.roll(prediction, 1)}
    runtime = np.zeros(count) if runtime is None else runtime
    table = make_table(np.arange(count), prediction, members, runtime, {})
    weights = {"gnn-x-s0": 0.5, "ranker-x-s0": 0.5}
    rule = AppliedRule("copies, ascending", 0.7, 0.8, -prediction)
    default = Default(0, "configuration 0")
    parts = (program, "r", "m", table, weights, choices, default, arrays)
    return Ranking(*parts, find_rule=lambda: rule, **more)


def checked(shown, tmp_path, browser=False):
    """Return the texts of a ranking's page, which is sound."""
    path = tmp_path / "ranking.html"
    path.write_text(shown.page(shown.program))
    page = check_page(path)
    if browser:
        open_page(path)
    return page.text


def test_a_file_with_runtimes_is_told_how_slow_the_first_is(tmp_path):
    runtime = 100 + np.arange(80) % 7
    shown = ranking(runtime)
    first, fastest = runtime[shown.table["config"].iloc[0]], runtime.min()
    text = checked(shown, tmp_path, browser=True)
    slower = 100 * (first / fastest - 1)
    assert text[3].startswith(f"The first of the ranking, configuration {shown.table['config'].iloc[0]}, is ")
    assert f"{slower:.2g} % slower than the fastest of the file" in text[3]
    assert "How slow is each place?" in text and "Where in the program do choices matter?" in text
    place = (runtime < first).sum() + 1
    assert f"place {place} of 80 by runtime" in text
    assert "first: output {0,1} instead of {1,0}; second: output {0,1} instead of {1,0}" in text


def test_configurations_that_are_one_program_share_a_row():
    """A published file repeats configurations; ten rows of its page can be one program."""
    shown = ranking()
    alike = replace(shown, rows=shown.rows.assign(id=np.repeat(["a", "b", "c", "d"], [1, 2, 5, 72])))
    rows = alike.first_rows()
    first = shown.table["config"].tolist()
    assert rows["place"].tolist() == [1, 2, 4, 9]
    assert rows["config"].tolist()[:2] == [f"{first[0]}", f"{first[1]}, {first[2]}"]
    assert rows["config"].tolist()[3].endswith(" and 69 more")


def test_a_repeated_configuration_is_not_faster_than_itself():
    """The first of a published tile was called 4.6 % slower than the fastest, its own second run."""
    runtime = 2000.0 + np.arange(80)
    runtime[[3, 7]] = 1046, 1000
    shown = ranking(runtime)
    assert "4.6 % slower" in shown.verdict() and "repeats" not in shown.summary()
    rows = shown.rows.assign(id=shown.rows["config"].replace(7, 3))
    repeated = replace(shown, rows=rows)
    first = repeated.table["config"].iloc[0]
    assert first == 3 and f"configuration {first}, is the fastest of the file" in repeated.verdict()
    assert repeated.first_rows()["slower than the fastest"].iloc[0] == "0 %"
    assert repeated.scores()["top_1_error"] == 0 and repeated.numbers()[1].value == "the same"
    assert repeated.plot_places().axes[0].get_title(loc="left").startswith("The first is the fastest")
    facts = repeated.summary()
    assert facts["repeats"].startswith("runs of one configuration differ by 4.6 %")
    assert repeated.scores()["tau"] == shown.scores()["tau"], "of all rows, as the competition counts"
    assert facts["Kendall's tau with runtime"].endswith(" of all 80 rows, repeated ones included")
    tile = replace(repeated, rows=rows.assign(over_default=rows["runtime"] / 1046))
    assert tile.summary()["1 - slowdown of the top 1"] == "1.000"
    assert tile.summary()["slowdown against the fastest"].startswith("the first: 0 %,")


def test_a_tiny_difference_is_no_headline():
    """The page of a published file began with "0.00081 % faster"."""
    runtime = 10**6 + np.arange(80)
    first, fastest, _ = ranking(runtime).numbers()
    assert fastest.value == "the same to 0.1 %" and first.value in ("the same", "the same to 0.1 %")
    assert re.match(r"0\.000\d+ % slower, place \d+ of 80 by runtime$", fastest.note), fastest.note


def test_a_probability_is_called_one(monkeypatch):
    """97 % below "faster than the default" reads as a speed."""
    monkeypatch.setattr(Ranking, "faster", lambda self, than: np.full(80, 0.97))
    rows = ranking().first_rows()
    name = next(name for name in rows if name.startswith("probability of being faster than "))
    assert set(rows[name]) == {"97 %"} and not any(name.startswith("faster than") for name in rows)


def test_a_file_of_one_program_has_nothing_to_choose(tmp_path):
    """A published file has 20 configurations without a difference; advice to measure eight helped nobody."""
    for runtime in (None, 1000 + np.arange(80) % 2):
        shown = ranking(runtime, advice=advise("How: measure."))
        one = replace(shown, rows=shown.rows.assign(id="a"))
        assert checked(one, tmp_path)[3] == "All 80 configurations are one program: any will do."
        words = " ".join(one.words())
        assert "to change: nothing. All 80" in words and "to gain" not in words and one.scores() == {}
    assert [(n.name, n.value, n.note) for n in one.numbers()][:1] == [
        ("slowest against the fastest", "0.1 % slower", "by chance")
    ]


def test_while_nothing_is_known_the_default_is_to_be_kept_and_the_members_are_shown(tmp_path):
    trust = Trust("layout", 0.1, np.linspace(0.5, 1, 39), np.full(39, 2.0), np.ones(39), [], [], False, False)
    shown = ranking(advice=advise("How: measure."), judge=lambda: trust)
    text = checked(shown, tmp_path, browser=True)
    keep = "The compiler's default is the choice to keep while no runtime is known."
    assert text[3] == f"{keep} To gain, measure 8 configurations and rank again."
    assert "Do the models agree?" in text and "How slow is each place?" not in text
    assert "10 %" in text and "0.54 to 0.96" in text and " % likely faster" in " ".join(text)


def test_a_change_is_advised_where_the_estimates_confirm_it(tmp_path):
    shown = ranking(default_cycles=1000)
    rows = shown.rows.assign(estimated_cycles=np.where(shown.rows["rank"] == 1, 981, 1000))
    better = Ranking(**{**vars_of(shown), "rows": rows})
    said = "Measure configuration 3 first: 1.9 % fewer cycles by the compiler's estimate. It changes first: "
    change = "second: output {0,1} instead of {1,0}"
    assert better.verdict().startswith(said) and better.verdict().endswith(f"{change}.")
    first, *others = [line for line in better.words() if line.startswith(("to measure", "to change"))]
    assert first.startswith(
        "to measure first: configuration 3, 0.981 of the default's cycles by the compiler's "
    )
    assert first.endswith(change) and not any("nothing" in other for other in others)
    worse = Ranking(**{**vars_of(shown), "rows": rows.assign(estimated_cycles=1001.0)})
    assert worse.verdict() == "The default is the choice to keep: no estimate is below its cycles."
    program = replace(better, cycles_as_compiled=900)
    keep = "Keep the program as compiled, without constraints: no estimate is below its cycles."
    assert checked(program, tmp_path)[3] == program.verdict() == keep
    assert program.first_rows()["of the cycles as compiled"].iloc[0] == 981 / 900
    assert not any(line.startswith("to measure first: configuration") for line in program.words())
    of_program = replace(better, default_cycles=1100, cycles_as_compiled=1000)
    assert of_program.verdict() == better.verdict(), "the percentage is of the fewer cycles"
    assert "0.981 of the cycles of the program as compiled" in " ".join(of_program.words())


def vars_of(shown):
    return {name: getattr(shown, name) for name in Ranking.__dataclass_fields__}


def learnt_of(tau=0.4, neighbours=False, chance=0.5):
    """What a ranking reads of known runtimes."""
    expected = None if neighbours else tau
    return SimpleNamespace(
        words=lambda: "known runtimes: 8",
        faster=lambda than: np.full(80, 1 - chance) if (expected or 0) > 0 else None,
        measurements=8,
        has_order=tau > 0,
        are_neighbours=neighbours,
        knows_all=False,
        expected_tau=expected,
    )


def measured(known, learnt=None, repeats=()):
    """Return a ranking of some known runtimes, by configuration; its first is configuration 3."""
    shown = ranking(learnt=learnt or learnt_of())
    rows = shown.rows.assign(known=shown.rows["config"].map(known))
    values = [(config, value) for config, value in known.items()] + [*repeats]
    return replace(shown, rows=rows, known=pd.DataFrame(values, columns=["id", "runtime"]))


@pytest.mark.parametrize("chance", [0.3, 0.9])
def test_known_runtimes_decide_whether_the_first_is_taken(chance):
    shown = measured({3: 1.0}, learnt_of(chance=chance))
    first = shown.table["config"].iloc[0]
    said = f"onfiguration {first}: it is faster" if chance > 0.8 else f"configuration {first} is faster"
    assert said in shown.verdict() and shown.verdict().endswith(f"a probability of {100 * chance:.0f} %.")
    assert [number.value for number in shown.numbers()] == [
        f"{100 * chance:.0f} % likely faster",
        "8",
        "0.40",
    ]


@cases(
    "known, said",
    [
        ({9: 1.0, 3: 2.0}, "Measure the default too, to compare it with configuration 9, the fastest"),
        (
            {9: 1.0, 3: 2.0, 0: 2.0},
            "Measure the default and configuration 9, the fastest that was measured, again",
        ),
        ({9: 2.0, 3: 2.0, 0: 1.0}, "Keep the default: it is the fastest that was measured."),
        ({9: 1.0}, "Measure configuration 3 next, the first of the ranking; the fastest"),
    ],
)
def test_what_was_measured_comes_before_what_is_predicted(known, said):
    """The first is configuration 3: measured, and slower than 9; or not measured yet."""
    assert measured(known).table["config"].iloc[0] == 3
    assert measured(known).verdict().startswith(said)


def test_of_runs_that_were_not_repeated_no_probability_says_take():
    """Runtimes 1 % apart, or 0.1 %, gave a probability of 98 %: ranks count, and the noise is a guess."""
    shown = measured({3: 1.0, 9: 1.01, 0: 1.02}, learnt_of(chance=0.98))
    assert shown.verdict() == (
        "Measure the default and configuration 3, the fastest that was measured, again: no run was repeated."
    )


@cases("noise, said", [(0.1, "Keep the default: configuration 9,"), (0.001, "Take configuration 9,")])
def test_a_configuration_is_taken_only_if_it_is_faster_than_the_default_beyond_noise(noise, said):
    """`rank` said "Take configuration 9" of noise, of which `measure` said "Keep the default"."""
    repeats = [(config, 1 + noise * n) for n in (1, 2) for config in (0, 3)]
    shown = measured({9: 0.98, 3: 1.0, 0: 1.0}, repeats=repeats)
    assert shown.verdict().startswith(f"{said} the fastest that was measured"), shown.verdict()
    assert shown.verdict().endswith("beyond noise." if noise < 0.1 else "is not faster beyond noise.")


def test_of_a_table_of_measure_its_result_decides():
    """`rank` said "Take" of a table whose default is bound; `measure` keeps the program as compiled."""
    shown = measured({9: 0.9, 3: 1.0, 0: 1.0}, repeats=[(config, 1.001) for config in (0, 3)])
    rounds = pd.DataFrame({"config": [0, 9] * 3, "round": [0, 0, 1, 1, 2, 2]})
    rounds["runtime"] = [1.0, 0.9, 1.01, 0.9, 1.02, 0.92]
    ids = shown.rows.set_index("config")["id"]
    verdict = replace(shown, known=rounds.assign(id=ids[rounds["config"]].to_numpy())).verdict()
    assert verdict == (
        "Take configuration 9, the fastest that was measured, where the result of `measure` is to take it "
        "too: it is faster than the default, bound like it, beyond noise."
    )


def test_an_estimate_of_the_compiler_has_no_noise():
    shown = replace(measured({9: 1.0, 3: 2.0, 0: 2.0}), known_from="data/a.json, compiler v3 1")
    assert shown.verdict() == "Take configuration 9, the fastest by an estimate."
    assert "known estimate, cycles" in shown.first_rows() and "known runtime" not in shown.first_rows()
    assert shown.numbers()[1].name == "known estimates" and "compiler" in shown.numbers()[1].note
    assert "measured" not in " ".join(number.note for number in shown.numbers()[:2])
    assert "learned" not in shown.numbers()[0].note, "known values decide"


@cases("as_compiled, said", [(1, "Keep the program as compiled"), (2, "Take configuration 9,")])
def test_an_estimate_that_is_known_is_taken_only_below_the_program_as_compiled(as_compiled, said):
    """Constraints that bind the default cost cycles: `rank` after `tune` said "Take" of a loss of 35 %."""
    known = replace(measured({9: 1.0, 3: 2.0, 0: 2.0}), known_from="data/a.json, compiler v3 1")
    shown = replace(known, default_cycles=2, cycles_as_compiled=as_compiled)
    assert shown.verdict().startswith(said), shown.verdict()
    assert shown.summary()["as compiled"].startswith(f"{as_compiled} cycles, without constraints")
    assert shown.estimates().empty


def test_without_a_default_the_fastest_that_was_measured_is_taken():
    shown = replace(measured({9: 1.0, 3: 2.0}), compared_with=Default(None, "not known", known=False))
    assert shown.verdict() == "Take configuration 9, the fastest that was measured."


def test_measurements_that_support_no_order_send_nobody_to_the_first():
    shown = measured({9: 1.0, 0: 2.0}, learnt_of(tau=-0.1))
    assert shown.verdict().startswith("Measure the default and configuration 9, the fastest")
    assert not any(said.startswith("sure: ") for said in shown.words())
    assert "faster" not in shown.table and shown.numbers()[0].value == "not known"


def test_no_tau_is_expected_of_others_where_there_are_none():
    learnt = learnt_of()
    learnt.knows_all = True
    number = measured({9: 1.0}, learnt).numbers()[2]
    assert (number.value, number.note) == ("not defined", "all configurations are known")


def test_no_tau_is_expected_of_others_where_only_neighbours_of_the_default_are_known():
    number = measured({9: 1.0}, learnt_of(neighbours=True)).numbers()[2]
    assert number.value == "not known" and "nearer to the default" in number.note


@cases("name", [IMAGE, "x" * 300, "a$b^{c}$ & 'd' \"e\"", "-->{}{0}%s"])
def test_names_do_not_break_the_page(name, tmp_path):
    runtime = 100 + np.arange(80) % 7
    text = checked(ranking(runtime, names=(name, "other"), program=name), tmp_path, browser=name == IMAGE)
    assert text[2] == name and any(name in part for part in text[4:])


@cases("count, runtime", [(1, None), (2, None), (80, np.full(80, 5)), (1, np.array([7]))])
def test_one_configuration_or_equal_runtimes_have_a_page(count, runtime, tmp_path):
    text = checked(ranking(runtime, count=count), tmp_path)
    assert (text[3] == "There is one configuration: nothing is left to choose.") == (count == 1)
    said = " ".join(text)
    assert ("80 configurations have the same runtime: any will do." in said) == (count == 80)
    assert "1 configurations" not in said and "nan" not in said


def test_the_graph_of_a_large_program_is_thinned_and_says_so(tmp_path):
    count = 40_000
    nodes = [("parameter", (8, 8))] + [("dot", (8, 8)) if n % 2 else ("add", (8, 8)) for n in range(1, count)]
    edges = [(n, n - 1) for n in range(1, count)]
    arrays = graph_arrays(nodes, edges) | {"node_config_ids": np.arange(1, count, 2)}
    shown = ranking(100 + np.arange(80) % 7, arrays=arrays, program="x" * 300)
    checked(shown, tmp_path, browser=True)
    figures = shown.figures()
    alt = [figure.axes[0].get_title() for figure in figures]
    figures[1].draw_without_rendering()
    title, whole = figures[1].axes[0].title.get_window_extent(), figures[1].bbox
    assert title.x0 >= 0 and title.x1 <= whole.x1 and title.y1 <= whole.y1, "the title is not cut"
    assert "the 2 of 40,000 nodes whose choices matter most" in " ".join(alt[1].split())
