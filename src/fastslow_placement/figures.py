"""Figures of a placed program: devices and links over time, memory over time, learning."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastslow_placement.programs.problems import PlacementProblem, SchedulingProblem
from fastslow_placement.programs.schedule import Timeline, memory_profile

_BUSY, _LINK = "#3b6ea5", "#c77d3a"
_ROW = 0.24  # inches of a device or link, so that its name has a line of its own


def plot_decision(placed, method: str = "") -> Figure:
    """Plot the decision of a method: a Gantt chart, or how often each option was taken.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
        method: Name of the method; by default the best.
    """
    problem = placed.problem
    method = method or placed.best
    decision = placed.found[method].decision
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        rows = _gantt(axes, problem.timeline(decision))
        figure.set_figheight(max(3, 1.2 + _ROW * rows))
    else:
        counts = np.bincount(decision)
        axes.bar(range(len(counts)), counts, color=_BUSY)
        axes.set(xlabel="option", ylabel="units that take it")
    axes.set_title(f"{problem.name}, {problem.task}: {method}")
    return figure


def _gantt(axes: Axes, timeline: Timeline) -> int:
    """Draw a bar for every operator on its device and every transfer on its link; return the rows."""
    rows = {}
    for device in range(timeline.devices):
        on_device = timeline.placement == device
        spans = np.stack([timeline.start[on_device], (timeline.finish - timeline.start)[on_device]], 1)
        rows[f"device {device}"] = spans, {"facecolor": _BUSY, "edgecolor": "white", "linewidth": 0.2}
    links: dict[tuple[int, int], list] = {}
    for t in timeline.transfers:
        links.setdefault((t.source, t.target), []).append((t.start, t.finish - t.start))
    for (source, target), spans in sorted(links.items()):
        rows[f"{source} to {target}"] = np.array(spans), {"facecolor": _LINK}
    for place, (spans, style) in enumerate(rows.values()):
        axes.broken_barh((spans * 1e3).tolist(), (place - 0.4, 0.8), **style)
    axes.set_yticks(range(len(rows)), [*rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("ms")
    return len(rows)


def plot_memory(placed, method: str = "") -> Figure:
    """Plot the memory in use over time on each device, and its limit.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
        method: Name of the method; by default the best.
    """
    problem = placed.problem
    decision = placed.found[method or placed.best].decision
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        for device, (times, sizes) in enumerate(memory_profile(problem.timeline(decision))):
            axes.step(times * 1e3, sizes / 1e6, where="post", label=f"device {device}")
        axes.set(xlabel="ms", ylabel="MB")
        limit = getattr(problem, "memory", problem.device.memory)
    else:
        axes.text(0.5, 0.5, "the task has no memory over time", ha="center", transform=axes.transAxes)
        return figure
    _draw_limit(axes, limit / 1e6)
    axes.legend(fontsize=8)
    return figure


def _draw_limit(axes: Axes, limit: float) -> None:
    """Draw the memory limit of a device, or name it where a line would flatten the curves; limit in MB."""
    if limit < 3 * axes.get_ylim()[1]:
        axes.axhline(limit, color=_LINK, label="limit of a device")
    else:
        axes.plot([], [], color=_LINK, label=f"limit of a device: {limit:,.0f} MB, above this axis")


def plot_learning(placed) -> Figure:
    """Plot the best cost over the number of evaluations of the policy and the searches.

    Rules, which evaluate once, are horizontal lines, in the legend with their cost.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    baseline, methods = placed.problem.baseline, placed.found
    curves = {name: one for name, one in methods.items() if one.evaluations > 1 and one.history}
    rest = {name: one.cost / baseline for name, one in methods.items() if name not in curves}
    rules = {name: cost for name, cost in rest.items() if cost < 2}
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="evaluations", ylabel="best cost / default's")
    for name, one in curves.items():
        counts, costs = zip(*one.history, (one.evaluations, one.cost), strict=True)
        axes.step(counts, np.array(costs) / baseline, where="post", label=name)
    for place, name in enumerate(sorted(rules, key=rules.get)):
        style = {"linestyle": ("--", ":", "-.")[place % 3], "linewidth": 1, "color": f"C{(place + 3) % 10}"}
        axes.axhline(rules[name], label=f"{name}: {rules[name]:.3f}", **style)
    figure.legend(loc="outside right upper", fontsize=7)  # names at the lines would collide
    return figure
