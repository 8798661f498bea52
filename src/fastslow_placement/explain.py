"""A decision in words and tables: the device of each operator, and the reasons for its runtime."""

import numpy as np
import pandas as pd

from fastslow.core.errors import counted
from fastslow.core.tables import number_text, percent
from fastslow_placement.base.problem import Problem
from fastslow_placement.baselines import BEST_START
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.problems import PlacementProblem, SchedulingProblem
from fastslow_placement.programs.schedule import Timeline, peak_memory
from fastslow_placement.staged import stage_numbers

ONE_DEVICE = "one device"
SIMPLE = ("human", "METIS")
"""Rules that only split the program: into runs of layers, and into balanced parts."""
_WORTH = 0.01  # share of the runtime: a smaller gain is none
_CALL = 3e-4  # seconds in which Python starts a stage: 0.28 to 0.40 ms on two busy cores
_EXACT = 1e-9  # of the runtime: times closer than this are alike


def decision_table(problem: Problem, decision: np.ndarray) -> pd.DataFrame:
    """Return a row for each operator: device, start, finish, resident weights, whether it is critical.

    For a problem without a schedule the rows are units and their options.
    """
    if not isinstance(problem, (PlacementProblem, SchedulingProblem)):
        return pd.DataFrame({"unit": problem.unit_names(), "option": decision})
    graph = problem.graph
    timeline = problem.timeline(decision)
    slack = timeline.latest[0] - timeline.start
    return pd.DataFrame(
        {
            "operator": graph.names,
            "opcode": graph.opcodes,
            "shape": ["x".join(str(d) for d in shape if d) for shape in graph.shapes.tolist()],
            "device": timeline.placement,
            "start ms": timeline.start * 1e3,
            "finish ms": timeline.finish * 1e3,
            "weights MB": graph.parameter_bytes / 1e6,
            "critical": slack <= _EXACT * timeline.seconds,
        }
    )


def device_table(problem: PlacementProblem | SchedulingProblem, decision: np.ndarray) -> pd.DataFrame:
    """Return a row for each device: operators, share of the time that it computes, memory, bytes sent.

    Args:
        problem: The placement problem.
        decision: (U,) the device of each unit.
    """
    graph = problem.graph
    timeline = problem.timeline(decision)
    count = problem.scheduler.devices
    sent = np.zeros(count)
    for transfer in timeline.transfers:
        sent[transfer.source] += graph.output_bytes[transfer.producer]
    place = timeline.placement
    return pd.DataFrame(
        {
            "device": range(count),
            "operators": np.bincount(place, minlength=count),
            "busy %": 100 * np.bincount(place, graph.seconds, count) / timeline.seconds,
            "weights MB": np.bincount(place, graph.parameter_bytes, count) / 1e6,
            "peak MB": peak_memory(timeline) / 1e6,
            "limit MB": getattr(problem, "memory", problem.device.memory) / 1e6,
            "sent MB": sent / 1e6,
        }
    ).round(1)


def critical_path(timeline: Timeline) -> tuple[list[int], list[int]]:
    """Return a chain of operators and transfers that fills the runtime.

    Args:
        timeline: The schedule of a placement.

    Returns:
        Numbers of the operators, and positions of the transfers in the timeline.
    """
    latest, end = timeline.latest, timeline.seconds
    begins = timeline.start, timeline.times[:, 0]
    ends = timeline.finish, timeline.times[:, 1]
    chain: tuple[list[int], list[int]] = ([], [])
    items = [
        (float(ends[kind][i]), float(begins[kind][i]), kind, int(i))
        for kind in (0, 1)
        for i in np.flatnonzero(latest[kind] - begins[kind] <= _EXACT * end)
    ]
    now = end
    for finish, begin, kind, number in sorted(items, reverse=True):
        if abs(finish - now) <= _EXACT * end:
            chain[kind].append(number)
            now = begin
    return chain


def _ms(seconds: float) -> str:
    """Return a time as the tables have it."""
    return f"{number_text(1e3 * seconds)} ms"


def explain(placed) -> str:
    """Return a paragraph on the best decision, one claim a sentence.

    Args:
        placed: A :class:`fastslow_placement.place.Placed`.
    """
    problem, best = placed.problem, placed.found[placed.best]
    if not isinstance(problem, (PlacementProblem, SchedulingProblem)):
        changed = int((np.asarray(best.decision) != problem.default).sum())
        over = f"{best.cost / problem.baseline:.3f} of the default"
        if BEST_START in placed.found:
            over += f" and {best.cost / placed.found[BEST_START].cost:.3f} of the {BEST_START}"
        counts = _loop_words(problem.graph)
        text = f"The best decision, found by {placed.best}, takes {_ms(best.cost)}, {over}."
        options = f"{changed} of {len(problem.choices)} units take another option than the default."
        return "\n".join([text, options, *counts])
    hand, name = problem.default, problem.device.name
    table = device_table(problem, best.decision)
    device, peak, limit = table.loc[table["peak MB"].idxmax(), ["device", "peak MB", "limit MB"]]
    takes = f"The best placement, found by {placed.best}, takes {_ms(best.cost)}."
    lines = [
        # where one device is the best, what it takes stands in the advice
        *([takes] if placed.best != ONE_DEVICE else ()),
        *_gain_words(placed),
        f"Times are a model's (roofline and links of {name}): nothing ran on a device.",
        *_loop_words(problem.graph),
        *_schedule_words(problem, "It", best.decision),
        *(_schedule_words(problem, "The default", hand) if (hand != best.decision).any() else ()),
        *_stage_words(placed),
        f"Device {device:.0f} needs most memory: {number_text(peak)} MB of {number_text(limit)} MB.",
        *([placed.bounded] if placed.bounded else ()),
    ]
    return "\n".join(lines)


def _loop_words(graph: CostGraph) -> list[str]:
    """Return a sentence on the loops whose trip count is not known, none where there are none."""
    count = graph.uncounted_loops
    if count == 1:
        return ["1 loop has no known count; it is counted once."]
    return [f"{count} loops have no known count; each is counted once."] if count else []


def gains(placed) -> dict[str, float | None]:
    """Return by method, one device and the simple splits, the share of its runtime that the best one saves.

    None where the method's placement does not fit into the memory.
    """
    methods, best = placed.found, placed.found[placed.best].cost
    costs = {name: methods[name].cost for name in (ONE_DEVICE, *SIMPLE) if name in methods}
    return {name: 1 - best / cost if np.isfinite(cost) else None for name, cost in costs.items()}


def _gain_words(placed) -> list[str]:
    """Return a sentence on what the best decision gains: over one device and a split, or over the default."""
    problem, best = placed.problem, placed.found[placed.best].cost
    if not isinstance(problem, PlacementProblem):
        return [f"It takes {best / problem.baseline:.3f} of the default."]
    gain = gains(placed)
    device = problem.device.name
    splits = {name: gain[name] for name in SIMPLE if gain.get(name) is not None}
    split = min(splits, key=splits.__getitem__, default="")
    alone = gain[ONE_DEVICE]
    if alone is not None and alone < _WORTH:
        seconds = placed.found[ONE_DEVICE].cost
        words = f"{counted(problem.devices, 'device')} gain nothing worth having ({percent(alone, 1)})"
        if problem.devices == 1:
            words = "There is one device"
        elif len(problem.graph) == 1:
            words = "The program is one operator (after fusion), which devices cannot share"
        elif placed.best == ONE_DEVICE:
            words = f"No placement on {counted(problem.devices, 'device')} is faster than one device"
        return [f"{words}: use a single {device}, which takes {_ms(seconds)}."]
    words = f"One {device} is too small for it"
    if alone:
        words = f"It gains {percent(alone, 1)} over one {device}"
    over = "no simple split fits"
    if split:
        over = f"{percent(splits[split], 1)} over the best simple split ({split})"
    return [f"{words}, and {over}."]


def _stage_words(placed) -> list[str]:
    """Return how many stages a function has, and whether starting them takes longer than it runs."""
    if placed.program is None:
        return []
    problem, best = placed.problem, placed.found[placed.best]
    count = int(stage_numbers(problem.timeline(best.decision), problem.graph).max()) + 1
    late = ": longer than it computes, so it gains only with more work (a larger batch)"
    words = f"It runs in {counted(count, 'stage')}, which Python starts in about {count * _CALL * 1e3:.1f} ms"
    return [f"{words}{late if count * _CALL > best.cost else ''}."]


def _schedule_words(problem, subject: str, decision: np.ndarray) -> list[str]:
    """Return sentences on the critical path, the transfers and the work of a decision."""
    graph = problem.graph
    timeline = problem.timeline(decision)
    operators, numbers = critical_path(timeline)
    waits = [timeline.transfers[number] for number in numbers]
    moved = sum(graph.output_bytes[t.producer] for t in timeline.transfers) / 1e6
    busy = graph.seconds.sum() / timeline.seconds / timeline.devices
    work = graph.seconds[operators].sum()
    waited = sum(t.finish - t.start for t in waits)
    sent = f"{counted(len(timeline.transfers), 'tensor')}, {moved:,.1f} MB"
    lines = [
        f"{subject} sends {sent}, and its devices compute {percent(busy)} of the time.",
        f"Its critical path is {_ms(work)} of {counted(len(operators), 'operator')} and {_ms(waited)} of"
        f" {counted(len(waits), 'transfer')}.",
    ]
    if waits:
        longest = max(waits, key=lambda t: t.finish - t.start)
        name = graph.names[longest.producer]
        lines.append(
            f"The longest of these sends {name} from device {longest.source} to"
            f" {longest.target} in {_ms(longest.finish - longest.start)}."
        )
    return lines
