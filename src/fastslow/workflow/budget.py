"""A budget of hours: seeds, epochs and segments are chosen so that a run ends in time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fastslow.core.memory import STEP_CORES, STEP_MEMORY
from fastslow.core.tables import table_text
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.job_plan import machine_resources, share_cores
from fastslow.workflow.settings.presets import RULES
from fastslow.workflow.speed import SEGMENTS, Speed, measure
from fastslow.workflow.steps import ROUNDS, Plan, Step

_MARGIN, _LATE = 0.8, 1.1  # of the time that is left, planned with; of its planned time, a model's limit
_MEASURING = 0.15  # of the time that is left may be spent on one measurement
_LEAST = 0.05  # of a model's epochs or trees; with fewer it is left out


@dataclass(frozen=True)
class Model:
    """A model of a group of collections as its seeds are trained.

    Args:
        section: Its section of the command line, such as ``gnn.layout-xla-default``.
        rounds: Epochs or trees, at most.
        speeds: Speed on whole graphs (False) and on segments (True), see
            :func:`fastslow.workflow.speed.measure`.
    """

    section: str
    rounds: int
    speeds: Mapping[bool, Speed]

    def on_segments(self, cut: bool) -> bool:
        """Return whether segments are trained on; always where whole graphs did not fit.

        Args:
            cut: Whether networks learn from segments, if these are faster.
        """
        return True in self.speeds and (cut or False not in self.speeds)

    def speed(self, cut: bool) -> Speed:
        """Return the speed on segments or on whole graphs, see :meth:`on_segments`."""
        return self.speeds[self.on_segments(cut)]

    def seconds(self, share: float = 1.0, cut: bool = False) -> float:
        """Return the seconds that the training of one seed takes.

        Args:
            share: Share of the epochs or trees that are trained, above 0, at most 1.
            cut: As for :meth:`on_segments`.
        """
        speed = self.speed(cut)
        return speed.once + speed.each * self.part(share)

    def part(self, share: float) -> int:
        """Return a share of the rounds, at least one."""
        return max(1, int(share * self.rounds))


@dataclass(frozen=True)
class Choice:
    """What is trained: seeds, the share of the epochs and trees, and whether networks learn from segments."""

    seeds: int
    share: float
    cut: bool

    def trained(self, seeds: Mapping[str, int], section: str) -> int:
        """Return the number of seeds of a section: its own, or where there are fewer, the same for all."""
        return seeds[section] if self.seeds == max(seeds.values()) else self.seeds


def choose(models: Sequence[Model], seeds: Mapping[str, int], seconds: float, together: int) -> Choice | None:
    """Choose the most that fits into some seconds.

    First fewer seeds are trained, each on whole graphs where that fits and else on segments. Where a
    single seed does not fit, epochs and trees are cut.

    Args:
        models: The models.
        seeds: Number of seeds of each section, at most.
        seconds: Time for all of them.
        together: Number of trainings that run side by side.

    Returns:
        None where a twentieth of the epochs and trees of one seed does not fit.
    """

    def takes(choice: Choice) -> float:
        each = {model.section: model.seconds(choice.share, choice.cut) for model in models}
        total = sum(one * choice.trained(seeds, section) for section, one in each.items())
        return max(total / together, *each.values())

    whole = [Choice(n, 1.0, cut) for n in range(max(seeds.values()), 0, -1) for cut in (False, True)]
    shares = [Choice(1, n / 100, True) for n in range(99, 0, -1) if n / 100 >= _LEAST]
    return next((choice for choice in (*whole, *shares) if takes(choice) <= seconds), None)


def plan_hours(plan: Plan, seconds: float) -> tuple[dict[str, Any], str]:
    """Choose seeds, epochs, trees and segments so that the trainings of a plan take at most some seconds.

    Args:
        plan: The plan, whose features are built. Its own seeds, epochs and trees are the most.
        seconds: Seconds that are left for training.

    Returns:
        The chosen settings of the command, a step's by its dotted name; and what was measured, in words.
    """
    steps = {step.section: step for step in reversed(plan.steps("train")) if step.stage == "train"}
    seeds = {name: sum(step.section == name for step in plan.steps("train")) for name in steps}
    began = time.monotonic()
    resources = machine_resources()
    long = sum(isinstance(step.settings, TrainSettings) for step in steps.values())
    most = min(plan.jobs or resources.cores, resources.cores)
    shared = share_cores(resources.cores, most, long, len(steps) - long)
    together = min(len(resources.gpus), most) or shared.together
    cores = max(1, resources.cores // together)
    memory = resources.memory // together
    share = {STEP_CORES: str(cores), STEP_MEMORY: str(memory), "OMP_NUM_THREADS": str(cores)}
    speeds = measure(steps.values(), together, share, seconds * _MEASURING) if seconds > 0 else {}
    left = (seconds - (time.monotonic() - began)) * _MARGIN
    models = [Model(name, _rounds(step), speeds[name]) for name, step in steps.items() if name in speeds]
    for chosen in ("", "ranker"):
        measured = [model for model in models if model.section.startswith(chosen)]
        planned = [section for section in steps if section.startswith(chosen)]
        if not planned or len(measured) < len(planned):
            continue
        if choice := choose(measured, seeds, left, together):
            return _settings(measured, seeds, choice, chosen), _words(measured, seeds, choice, together)
    said = f"{max(left, 0) / 3600:.2g} h are left for training: too little for any model"
    return {"models": RULES}, f"{said}; ridge regression on the configurations' features is submitted"


def _rounds(step: Step) -> int:
    rounds: int = getattr(step.settings, _rounds_of(step.section))
    return rounds


def _rounds_of(section: str) -> str:
    """Return the setting of a section, such as ``gnn.layout-xla-default``, that has its epochs or trees."""
    return ROUNDS[section.partition(".")[0]]


def _settings(
    models: Sequence[Model], seeds: Mapping[str, int], choice: Choice, chosen: str
) -> dict[str, Any]:
    settings: dict[str, Any] = {"models": chosen} if chosen else {}
    if choice.seeds < max(seeds.values()):
        settings["seeds"] = choice.seeds
    for model in models:
        network = model.section.startswith("gnn")
        if choice.share < 1:
            settings[f"{model.section}.{_rounds_of(model.section)}"] = model.part(choice.share)
        if network:
            segments = SEGMENTS if model.on_segments(choice.cut) else {}
            settings |= {f"{model.section}.{name}": value for name, value in segments.items()}
        hours = _LATE * model.seconds(choice.share, choice.cut) / 3600
        settings[f"{model.section}.hours"] = float(f"{hours:.3g}")
    return settings


def _words(models: Sequence[Model], seeds: Mapping[str, int], choice: Choice, together: int) -> str:
    rows = [
        {
            "model": model.section,
            "seeds": choice.trained(seeds, model.section),
            "rounds": f"{model.part(choice.share)}/{model.rounds}",
            "graphs": "segments" if model.on_segments(choice.cut) else "whole",
            "seconds a round": f"{model.speed(choice.cut).each:.2g}",
            "minutes a seed": f"{model.seconds(choice.share, choice.cut) / 60:.2g}",
        }
        for model in models
    ]
    table = table_text(pd.DataFrame(rows))
    return f"epochs (networks) and trees (rankers) that fit, {together} at a time:\n\n{table}\n"
