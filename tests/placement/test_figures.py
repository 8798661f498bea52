"""Figures and words of a placed program: the memory limit, names that do not collide, tables that add up."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from fastslow.core.tables import number_text
from fastslow_placement.explain import ONE_DEVICE, decision_table, device_table, explain, gains
from fastslow_placement.figures import _gantt, _join_bars, plot_memory, plot_search
from fastslow_placement.place import Placed
from fastslow_placement.programs.problems import PlacementProblem
from helpers.browser import check_page, open_page
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


def placed(memory):
    problem = PlacementProblem(random_graph(3, count=6), 2, DEVICE, memory=memory)
    rule = SimpleNamespace(decision=problem.default, evaluations=1, history=(), cost=problem.baseline)
    search = SimpleNamespace(evaluations=9, history=[(1, problem.baseline)], cost=0.9 * problem.baseline)
    found = {ONE_DEVICE: rule, "rule": rule, "other": rule, "search": search}
    return SimpleNamespace(problem=problem, best="rule", found=found, program=None, bounded="")


@cases("memory", [400.0, 1e9])
def test_the_limit_of_a_device_is_drawn_or_named(memory):
    (axes,) = plot_memory(placed(memory)).axes
    *_, last = axes.figure.legends[0].get_texts()
    assert "e+" not in axes.get_title("left"), "16,000 MB stood as 1.6e+04 MB"
    lines = [line.get_ydata() for line in axes.lines if "limit" in line.get_label()]
    assert "limit of a device" in last.get_text() and len(lines) == 1
    if len(lines[0]):
        assert set(lines[0]) == {memory / 1e6}
    else:
        assert f"{memory / 1e6:,.0f} MB" in last.get_text()


def test_the_words_and_tables_are_of_the_decision():
    placing = placed(400.0)
    problem, decision = placing.problem, placing.problem.default
    rows, devices = decision_table(problem, decision), device_table(problem, decision)
    assert rows["device"].tolist() == problem.place(decision).tolist() and rows["critical"].any()
    assert rows["finish ms"].max() == problem.baseline * 1e3
    assert devices["operators"].sum() == len(problem.graph) and (devices["limit MB"] == 0.0).all()
    text = explain(placing)
    assert "nothing ran on a device" in text and "critical path" in text and "The default" not in text


@cases(
    "alone, human, metis, said",
    [
        (2, 4, 3, "It gains 50.0 % over one test, and 66.7 % over the best simple split (METIS)."),
        (np.inf, 4, np.inf, "One test is too small for it, and 75.0 % over the best simple split (human)."),
        (2, np.inf, np.inf, "It gains 50.0 % over one test, and no simple split fits."),
        (1.005, 4, 3, "gain nothing worth having (0.5 %): use a single test, which takes {ms} ms."),
    ],
)
def test_what_is_gained_over_one_device_and_a_simple_split_is_said(alone, human, metis, said):
    placing = placed(1e9)
    cost = placing.problem.baseline
    for name, times in ((ONE_DEVICE, alone), ("human", human), ("METIS", metis)):
        placing.found[name] = SimpleNamespace(cost=times * cost)
    assert said.format(ms=number_text(1005 * cost)) in explain(placing)
    assert gains(placing)["human"] == (None if np.isinf(human) else 1 - 1 / human)


def found_by(cost, evaluations, history, decision):
    return SimpleNamespace(cost=cost, evaluations=evaluations, history=history, decision=decision)


def test_a_search_is_a_curve_and_every_method_has_its_cost():
    placing = placed(1e9)
    problem, decision = placing.problem, placing.problem.default
    cost = problem.baseline
    placing.found.update(
        {
            "learned": found_by(0.8 * cost, 10, [(1, cost), (7, 0.8 * cost)], decision),
            "annealing": found_by(0.5 * cost, 148, [(49, 0.8 * cost), (108, 0.5 * cost)], decision),
            "bad": found_by(9 * cost, 1, (), decision),
            "impossible": found_by(np.inf, 1, (), decision),
        }
    )
    placing.best = "annealing"
    upper, lower = plot_search(placing).axes
    lines = {line.get_label(): line for line in upper.lines if not line.get_label().startswith("_")}
    assert lines["annealing"].get_xdata().tolist() == [49, 108, 148]
    assert len({line.get_color() for line in lines.values()}) == len(lines) == 3
    assert len([tick for tick in upper.get_xticks() if tick >= 1]) <= 9, "so many names do not overlap"
    assert upper.get_title("left") == "The best is annealing: 50 % below the default's cost"
    names = [label.get_text() for label in lower.get_yticklabels()]
    assert sorted(names) == sorted({*placing.found} - {"bad", "impossible"})
    assert "not drawn: bad, impossible" in lower.get_xlabel()


def test_the_page_of_one_operator_says_so_once_and_draws_nothing(tmp_path):
    problem = PlacementProblem(random_graph(3, count=1), 4, DEVICE, memory=1e9)
    rules = {ONE_DEVICE: np.zeros(1, np.int64), "human": problem.default, "METIS": problem.default}
    found = {name: found_by(problem.baseline, 1, (), decision) for name, decision in rules.items()}
    shown = Placed(problem, found, dict.fromkeys(found, 0.0))
    path = tmp_path / "placement.html"
    path.write_text(shown.page("one"))
    page = check_page(path)
    assert page.text[3].startswith("The program is one operator (after fusion), which devices cannot share: ")
    assert "\n".join(shown.words()).count("takes") == 1 and "below the default" not in " ".join(page.text)
    assert "All methods end with the same cost" in page.text and "equal to the default" in page.text
    assert not shown.figures() and all(tag != "img" for tag, _ in page.elements)


@pytest.mark.parametrize("count", [3, 2000])
def test_of_many_bars_those_without_a_visible_gap_are_joined_and_the_axis_says_so(count):
    start = np.arange(count, dtype=float)
    spans = np.stack([start, np.full(count, 1.0)], 1)
    spans[: count // 2, 0] -= 0.01 * count  # one gap that can be seen
    timeline = SimpleNamespace(
        devices=1,
        placement=np.zeros(count, np.int64),
        start=spans[:, 0],
        finish=spans.sum(1),
        seconds=spans.sum(1).max(),
        transfers=(),
    )
    axes = Figure().add_subplot()
    _gantt(axes, timeline)
    bars = len(axes.collections[0].get_paths())
    assert (bars, "gaps below" in axes.get_xlabel()) == ((count, False) if count == 3 else (2, True))
    np.testing.assert_allclose(_join_bars(spans, 1e9), [[spans[0, 0], spans.sum(1)[-1] - spans[0, 0]]])


def test_a_placement_has_a_page(tmp_path):
    problem = PlacementProblem(random_graph(3, count=6), 2, DEVICE, memory=1e9)
    methods = {
        name: found_by(
            problem.baseline * share, 1 + 9 * (share < 1), [(1, problem.baseline)], problem.default
        )
        for name, share in ((ONE_DEVICE, 1.0), ("annealing", 0.9))
    }
    shown = Placed(problem, methods, dict.fromkeys(methods, 0.0))
    path = tmp_path / "placement.html"
    path.write_text(shown.page("<img src=x onerror=alert(1)>"))
    page = check_page(path)
    assert page.text[2] == "<img src=x onerror=alert(1)>" and page.text[3].startswith(
        "The best placement, found by annealing, takes "
    )
    assert "10 % below the default" in page.text and "What did each method find?" in page.text
    assert "cost, ms" in page.text and "cost, ms" in shown.first_rows()
    open_page(path)
