"""Figures of a placed program: the memory limit, and a legend in which no name hides another."""

from types import SimpleNamespace

from fastslow_placement.figures import plot_learning, plot_memory
from fastslow_placement.programs.problems import PlacementProblem
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph


def placed(memory):
    problem = PlacementProblem(random_graph(3, count=6), 2, DEVICE, memory=memory)
    rule = SimpleNamespace(decision=problem.default, evaluations=1, history=(), cost=problem.baseline)
    search = SimpleNamespace(evaluations=9, history=[(1, problem.baseline)], cost=0.9 * problem.baseline)
    return SimpleNamespace(
        problem=problem, best="rule", found={"rule": rule, "other": rule, "search": search}
    )


@cases("memory", [400.0, 1e9])
def test_the_limit_of_a_device_is_drawn_or_named(memory):
    (axes,) = plot_memory(placed(memory)).axes
    *_, last = axes.get_legend().get_texts()
    lines = [line.get_ydata() for line in axes.lines if "limit" in line.get_label()]
    assert "limit of a device" in last.get_text() and len(lines) == 1
    if len(lines[0]):
        assert set(lines[0]) == {memory / 1e6}
    else:
        assert f"{memory / 1e6:,.0f} MB" in last.get_text()


def test_rules_are_in_the_legend_with_their_cost():
    figure = plot_learning(placed(1e9))
    assert not figure.axes[0].texts, "names at equal costs would be on top of each other"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["search", "rule: 1.000", "other: 1.000"]
