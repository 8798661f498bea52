"""Figures and words of a placed program: the memory limit, names that do not collide, tables that add up."""

import copy
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow_placement.explain import LEARNED, ONE_DEVICE, decision_table, device_table, explain, jax_sketch
from fastslow_placement.figures import plot_memory
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


def test_the_words_and_tables_are_of_the_decision():
    placing = placed(400.0)
    problem, decision = placing.problem, placing.problem.default
    rows, devices = decision_table(problem, decision), device_table(problem, decision)
    assert rows["device"].tolist() == problem.place(decision).tolist() and rows["critical"].any()
    assert rows["finish ms"].max() == problem.baseline * 1e3
    assert devices["operators"].sum() == len(problem.graph) and (devices["limit MB"] == 0.0).all()
    text = explain(placing)
    assert "list scheduler" not in text
    learned = {LEARNED: SimpleNamespace(cost=0.75 * problem.baseline), **placing.found}
    told = explain(SimpleNamespace(problem=problem, best=placing.best, found=learned))
    assert "The list scheduler with" in told and f"takes {750 * problem.baseline:.3f} ms." in told
    one = {ONE_DEVICE: SimpleNamespace(cost=2 * problem.baseline), **placing.found}
    assert "1.000 of the default, 0.500 of one device." in explain(
        SimpleNamespace(problem=problem, best=placing.best, found=one)
    )
    tight = copy.copy(problem)
    tight.memory = -1.0
    assert "ms, and the default does not fit." in explain(
        SimpleNamespace(problem=tight, best=placing.best, found=placing.found)
    )
    assert "nothing ran on a device" in text and "critical path" in text and "The default" not in text


def test_the_sketch_puts_arguments_where_their_first_reader_is():
    jax = pytest.importorskip("jax")
    graph = random_graph(3, count=6)
    problem = PlacementProblem(dataclasses.replace(graph, inputs=np.array([4, -1, 0])), 2, DEVICE)
    decision = 1 - problem.default
    sketch: dict = {}
    exec(jax_sketch(problem, decision), sketch)  # noqa: S102 (it is what a user runs)
    place = problem.place(decision)
    assert sketch["DEVICES"] == {0: place[4], 2: place[0]}
    crossing = {(graph.names[u], place[u], place[v]) for u, v in graph.edges if place[u] != place[v]}
    assert {*sketch["SENT"]} == crossing
    arguments = {"a": np.ones(2), "b": [np.zeros(3), 4.0]}
    put = sketch["put"](arguments, jax.devices() * 2)
    assert jax.tree.structure(put) == jax.tree.structure(arguments) and put["b"][1].devices() == {
        *jax.devices()
    }
