"""Figures of a placed program: devices and links over time, memory over time, learning."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastslow_placement.programs.compiler_problems import PlacementProblem, SchedulingProblem
from fastslow_placement.programs.schedule import Timeline, memory_profile
from fastslow_placement.public.public_problems import PartitionProblem, ShardingProblem

_BUSY, _LINK = "#3b6ea5", "#c77d3a"


def plot_decision(placed, method: str = "") -> Figure:
    """Plot what a method decided: a Gantt chart, loads of devices, or how often each option was taken.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
        method: Name of the method; by default the best.
    """
    problem, method = placed.problem, method or placed.best
    decision = placed.found[method].decision
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        _gantt(axes, problem.timeline(decision))
    elif isinstance(problem, PartitionProblem):
        loads, _ = problem.loads.loads(problem.split(decision)[None])
        axes.bar(range(loads.shape[1]), loads[0], color=_BUSY)
        axes.set(xlabel="device (accelerators, then CPUs)", ylabel="load")
    else:
        counts = np.bincount(decision)
        axes.bar(range(len(counts)), counts, color=_BUSY)
        axes.set(xlabel="option", ylabel="units that take it")
    axes.set_title(f"{problem.name}, {problem.task}: {method}")
    return figure


def _gantt(axes: Axes, timeline: Timeline) -> None:
    """Draw a bar for every operator on its device and for every transfer on its link."""
    scale = 1e3
    for device in range(timeline.devices):
        own = timeline.placement == device
        spans = np.stack([timeline.start[own], (timeline.finish - timeline.start)[own]], 1) * scale
        axes.broken_barh(
            spans.tolist(), (device - 0.4, 0.8), facecolor=_BUSY, edgecolor="white", linewidth=0.2
        )
    links = sorted({(t.source, t.target) for t in timeline.transfers})
    for place, link in enumerate(links, timeline.devices):
        spans = [
            (t.start * scale, (t.finish - t.start) * scale)
            for t in timeline.transfers
            if (t.source, t.target) == link
        ]
        axes.broken_barh(spans, (place - 0.3, 0.6), facecolor=_LINK)
    names = [f"device {d}" for d in range(timeline.devices)] + [f"{a} to {b}" for a, b in links]
    axes.set_yticks(range(len(names)), names, fontsize=max(4, 9 - len(names) // 8))
    axes.invert_yaxis()
    axes.set_xlabel("ms")


def plot_memory(placed, method: str = "") -> Figure:
    """Plot the memory in use over time and its limit.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
        method: Name of the method; by default the best.
    """
    problem = placed.problem
    decision = placed.found[method or placed.best].decision
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        timeline = problem.timeline(decision)
        for device, (times, sizes) in enumerate(memory_profile(problem.graph, timeline)):
            axes.step(times * 1e3, sizes / 1e6, where="post", label=f"device {device}")
        axes.set(xlabel="ms", ylabel="MB")
        if isinstance(problem, PlacementProblem):
            _draw_limit(axes, problem.memory / 1e6)
        axes.legend(fontsize=8)
    elif isinstance(problem, ShardingProblem):
        sharding = problem.sharding
        axes.step(sharding.times, sharding.usage(decision[None])[0] / 1e6, where="post", color=_BUSY)
        axes.axhline(sharding.limit / 1e6, color=_LINK, label="limit")
        axes.set(xlabel="time of the instance", ylabel="MB")
        axes.legend(fontsize=8)
    elif isinstance(problem, PartitionProblem):
        _, memory = problem.loads.loads(problem.split(decision)[None])
        axes.bar(range(memory.shape[1]), memory[0] / 1e6, color=_BUSY)
        axes.axhline(problem.workload.memory / 1e6, color=_LINK, label="limit")
        axes.set(xlabel="accelerator", ylabel="MB")
        axes.legend(fontsize=8)
    else:
        axes.text(0.5, 0.5, "the task has no memory over time", ha="center", transform=axes.transAxes)
    return figure


def _draw_limit(axes: Axes, limit: float) -> None:
    """Draw the memory limit of a device, or name it where a line would flatten the curves; limit in MB."""
    top = axes.get_ylim()[1]
    if limit < 3 * top:
        axes.axhline(limit, color=_LINK, label="limit of a device")
    else:
        axes.plot([], [], color=_LINK, label=f"limit of a device: {limit:,.0f} MB, above this axis")


def plot_learning(placed) -> Figure:
    """Plot the best cost over the number of evaluations of the policy and the searches.

    Rules, which evaluate once, are horizontal lines, in the legend with their cost.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    problem = placed.problem
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    rules = {}
    for name, found in placed.found.items():
        if found.evaluations > 1 and found.history:
            counts, costs = zip(*found.history, strict=True)
            last = [*counts, found.evaluations], [*costs, found.cost]
            axes.step(last[0], np.array(last[1]) / problem.baseline, where="post", label=name)
        elif np.isfinite(found.cost) and found.cost < 2 * problem.baseline:
            rules[name] = found.cost / problem.baseline
    for place, name in enumerate(sorted(rules, key=rules.get)):
        style = {"linestyle": ("--", ":", "-.")[place % 3], "linewidth": 1, "color": f"C{(place + 3) % 10}"}
        axes.axhline(rules[name], label=f"{name}: {rules[name]:.3f}", **style)
    axes.set(xscale="log", xlabel="evaluations", ylabel="best cost / default's")
    figure.legend(loc="outside right upper", fontsize=7)  # names at the lines would collide
    return figure


def plot_training(trained) -> Figure:
    """Plot the best cost of each program over its evaluations.

    Args:
        trained: A :class:`fastslow_placement.train_placer.Trained`.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for problem, found in zip(trained.problems, trained.found, strict=True):
        counts, costs = zip(*found.history, strict=True)
        axes.step(
            [*counts, found.evaluations],
            np.array([*costs, found.cost]) / problem.baseline,
            where="post",
            label=problem.name,
        )
    axes.axhline(1, color="0.7", linewidth=0.8)
    axes.set(xscale="log", xlabel="evaluations", ylabel="best runtime / split by layers")
    axes.legend(fontsize=8)
    return figure
