"""Figures of a placed program: devices and links over time, memory over time, the search."""

from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fastslow.core.figures import (
    DEFAULT,
    FURTHER,
    RULE,
    WIDTH,
    in_style,
    label_ends,
    shortened,
)
from fastslow.core.tables import number_text, percent
from fastslow_placement.programs.problems import PlacementProblem, SchedulingProblem
from fastslow_placement.programs.schedule import Timeline, memory_profile

_BUSY, _LINK = FURTHER[0], FURTHER[1]
_DEVICES = (*FURTHER[:2], "#332288", "#999933", FURTHER[2])
_LINE = 80  # characters below a figure
_WORST = 2.0  # times the default's cost; a worse rule is named and not drawn
_MANY_DECADES = 1e3  # last over first evaluation, from which a tick a decade has room
_MANY_BARS = 1000  # of a row; more are joined where the gap between them cannot be seen
_VISIBLE = 1 / 2000  # of the axis: about half a pixel
_ROW = 0.24  # inches of a device or link, so that its name has a line of its own


@in_style
def plot_decision(placed) -> Figure:
    """Plot the best decision: a Gantt chart, or how often each option was taken.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    problem = placed.problem
    decision = placed.found[placed.best].decision
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        timeline = problem.timeline(decision)
        rows = _gantt(axes, timeline)
        figure.set_figheight(max(3, 1.2 + _ROW * rows))
        last = timeline.finish.max()
        share = (timeline.finish - timeline.start).sum() / (last * timeline.devices) if last else 0.0
        said = f"{timeline.devices} devices work {percent(share)} of {number_text(1e3 * last)} ms"
    else:
        counts = np.bincount(decision)
        axes.bar(range(len(counts)), counts, color=_BUSY)
        axes.set(xlabel="option", ylabel="units that take it")
        said = f"{(decision != problem.default).sum()} of {len(decision)} units leave the default"
    axes.set_title(f"{shortened(problem.name, 30)}, {placed.best}: {said}")
    return figure


def _gantt(axes: Axes, timeline: Timeline) -> int:
    """Draw a bar for every operator on its device and every transfer on its link; return the rows."""
    rows = {}
    for device in range(timeline.devices):
        on_device = timeline.placement == device
        spans = np.stack([timeline.start[on_device], (timeline.finish - timeline.start)[on_device]], 1)
        edge = {"edgecolor": "white", "linewidth": 0.2} if len(spans) <= _MANY_BARS else {}
        rows[f"device {device}"] = spans, {"facecolor": _BUSY, **edge}
    links: dict[tuple[int, int], list] = {}
    for t in timeline.transfers:
        links.setdefault((t.source, t.target), []).append((t.start, t.finish - t.start))
    for (source, target), spans in sorted(links.items()):
        rows[f"link {source} to {target}"] = np.array(spans), {"facecolor": _LINK}
    least = _VISIBLE * float(timeline.seconds)
    thinned = False
    for place, (spans, style) in enumerate(rows.values()):
        if len(spans) > _MANY_BARS:
            spans = _join_bars(spans, least)
            thinned = True
        axes.broken_barh((spans * 1e3).tolist(), (place - 0.4, 0.8), **style)
    axes.set_yticks(range(len(rows)), [*rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    said = f" (gaps below {number_text(1e3 * least)} ms are not drawn)" if thinned else ""
    axes.set_xlabel(f"time, ms{said}")
    return len(rows)


def _join_bars(spans: np.ndarray, least: float) -> np.ndarray:
    """Return bars as (start, length), those joined that follow one another within a gap.

    Args:
        spans: (B, 2) start and length of each bar in seconds; none overlaps another.
        least: Seconds of the smallest gap that is kept.
    """
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = spans.sum(1)
    first = np.append(0, 1 + np.flatnonzero(spans[1:, 0] - ends[:-1] >= least))
    last = np.append(first[1:] - 1, len(spans) - 1)
    return np.stack([spans[first, 0], ends[last] - spans[first, 0]], 1)


@in_style
def plot_memory(placed) -> Figure:
    """Plot the memory that the best decision uses over time on each device, and its limit.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    problem = placed.problem
    decision = placed.found[placed.best].decision
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(problem, (PlacementProblem, SchedulingProblem)):
        peak = 0.0
        for device, (times, sizes) in enumerate(memory_profile(problem.timeline(decision))):
            peak = max(peak, float(sizes.max(initial=0.0)))
            colour = _DEVICES[device % len(_DEVICES)]
            axes.step(times * 1e3, sizes / 1e6, where="post", label=f"device {device}", color=colour)
        axes.set(xlabel="time, ms", ylabel="memory in use, MB")
        limit = getattr(problem, "memory", problem.device.memory)
    else:
        axes.text(0.5, 0.5, "the task has no memory over time", ha="center", transform=axes.transAxes)
        return figure
    _draw_limit(axes, limit / 1e6)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    axes.set_title(f"A device needs at most {number_text(peak / 1e6)} of {number_text(limit / 1e6)} MB")
    return figure


def _draw_limit(axes: Axes, limit: float) -> None:
    """Draw the memory limit of a device, or name it where a line would flatten the curves; limit in MB."""
    if limit < 3 * axes.get_ylim()[1]:
        axes.axhline(limit, color=DEFAULT, linestyle="--", label="limit of a device")
    else:
        axes.plot(
            [],
            [],
            color=DEFAULT,
            linestyle="--",
            label=f"limit of a device: {limit:,.0f} MB, above this axis",
        )


@in_style
def plot_search(placed) -> Figure:
    """Plot the best cost over the number of evaluations of the search, and of all methods.

    Rules evaluate once: they are dots in the lower panel, beside the final cost of the search.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    baseline, methods = placed.problem.baseline, placed.found
    costs = {name: one.cost / baseline for name, one in methods.items()}
    curves = {name: one for name, one in methods.items() if one.evaluations > 1 and one.history}
    colours = {name: FURTHER[place % len(FURTHER)] for place, name in enumerate(curves)}
    drawn = {name: cost for name, cost in costs.items() if name in curves or cost <= _WORST}
    figure = Figure(figsize=(WIDTH, 3.4 + 0.2 * len(drawn)), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(3, 0.5 + 0.2 * len(drawn)))
    ends = {}
    for name, one in curves.items():
        counts, values = zip(*one.history, (one.evaluations, one.cost), strict=True)
        upper.step(
            counts,
            np.array(values) / baseline,
            "o-",
            where="post",
            markevery=[0],
            markersize=4,
            label=name,
            color=colours[name],
        )
        ends[name] = (counts[-1], costs[name], colours[name])
    upper.axhline(1, color=DEFAULT, linestyle="--")
    default = "default (human)" if "human" in methods else "default"
    upper.set(xscale="log", ylabel=f"best cost / {default}", xlabel="evaluations")
    first, last = upper.get_xlim()
    steps = (1,) if last / first > _MANY_DECADES else (1, 2, 5)
    upper.xaxis.set_major_locator(LogLocator(subs=steps))
    upper.xaxis.set_major_formatter("{x:,.0f}")
    upper.xaxis.set_minor_formatter(NullFormatter())
    upper.set_title(_gained(placed.best, costs[placed.best]))
    label_ends(upper, ends | {default: (1, 1.0, DEFAULT)})
    _draw_costs(lower, drawn, colours)
    left_out = sorted(costs.keys() - drawn.keys())
    absent = f"; not drawn: {', '.join(left_out)}" if left_out else ""
    lower.set_xlabel(fill(f"cost / {default}{absent}", _LINE))
    return figure


def _draw_costs(axes: Axes, costs: dict[str, float], colours: dict[str, str]) -> None:
    """Draw a row for each method, the best on top."""
    order = sorted(costs, key=costs.__getitem__, reverse=True)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    words = {"textcoords": "offset points", "va": "center", "fontsize": 8, "bbox": box}
    for place, name in enumerate(order):
        colour = colours.get(name, RULE)
        axes.plot(costs[name], place, "o", color=colour)
        # a dashed line through a number would make it illegible
        axes.annotate(f"{costs[name]:.3f}", (costs[name], place), (6, 0), color=colour, zorder=4, **words)
    axes.axvline(1, color=DEFAULT, linestyle="--")
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)


def _gained(name: str, ratio: float) -> str:
    """Return what the best method gains, as a title."""
    if ratio < 1:
        return f"The best is {name}: {100 * (1 - ratio):.2g} % below the default's cost"
    return f"No method is below the default's cost; {name} is the nearest"
