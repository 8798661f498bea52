"""Tune many programs with one budget: the next evaluations go where they are expected to save most per cost.

The saving of a program is weight x (default - tuned). The defaults come first, the heaviest program's before
the others. Then the model's expected improvement gives the expected saving of a batch; without a model the
budget is split evenly. Of noisy values a share of the budget is kept, divided equally, to confirm savings.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, write_json
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow_programs.tuning.confirmation import Confirming
from fastslow_programs.tuning.result import BEST
from fastslow_programs.tuning.search.strategies import GUIDED, Strategy
from fastslow_programs.tuning.settings import FleetSettings
from fastslow_programs.tuning.target import read_target
from fastslow_programs.tuning.tune import Study, advance, open_tuning

PROGRAMS = "programs.csv"
_FEW, _HOPED = 4, 0.1  # without a run: values before the model is asked, and the share hoped for until then


@dataclass
class Member:
    """A program of a fleet: its study, and the sum of the weights of all rows of its content."""

    study: Study
    weight: float = 0.0
    _gain: tuple[int, float] = (0, 0.0)  # number of evaluations that it rests on; expected share

    @property
    def saved(self) -> float:
        """Weight x (default - best), 0 where either is not known, or the default is faster and kept."""
        best, default = self.study.best, self.study.default
        return self.weight * max(default - best[1], 0.0) if best and default else 0.0

    def expected_saving(self, batch: int, rng: np.random.Generator) -> float:
        """Return what a batch of a guided search is expected to save per second; infinite before any."""
        history = self.study.history
        if not history.best:
            return 0.0 if len(history) else np.inf
        if not self.study.guide.pretrained and len(history.values) < _FEW:
            self._gain = len(history), _HOPED
        elif self._gain[0] != len(history):  # otherwise nothing is new
            gain = self.study.strategy.ranked(history, batch, rng)[1]
            self._gain = len(history), float(-np.expm1(-gain).mean()) if len(gain) else 0.0
        seconds = float(np.mean([evaluation.seconds for _, evaluation in history.done]))
        return self.weight * history.best[1] * self._gain[1] / (seconds or 1.0)


def spend(members: Sequence[Member], settings: FleetSettings, go_on: Callable[[Study, int], int]) -> None:
    """Spend the budget of evaluations, or of seconds.

    Args:
        members: The programs.
        settings: Settings.
        go_on: Called with a study and a number of evaluations to make; returns how many it made.
    """
    rng, began = np.random.default_rng(settings.seed), time.monotonic()
    left = settings.evaluations - sum(m.study.reserved + len(m.study.history) for m in members)
    while left > 0 and (waiting := [member for member in members if not member.study.exhausted]):
        if 0 < settings.budget_seconds <= time.monotonic() - began:
            break
        if settings.strategy == GUIDED:
            chosen = max(waiting, key=lambda m: m.expected_saving(settings.batch, rng))
            # 1, 1, 2, 4 up to a batch: the first proposals bring most, and tell whether more are worth while
            count = min(settings.batch, max(1, len(chosen.study.history)))
        else:
            chosen, count = min(waiting, key=lambda m: len(m.study.history)), settings.batch
        done = go_on(chosen.study, min(left, count))
        chosen.study.exhausted = done == 0
        left -= done


def tune_fleet(settings: FleetSettings) -> list[Member]:
    """Tune a fleet, resuming the studies that are there; rows of equal content become one program.

    Args:
        settings: The list of programs with their weights, the budget, and the settings of each study.

    Returns:
        The members, heaviest first, with their studies.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The list, a program, its run or a study cannot be used, or all evaluations failed.
    """
    found: dict[tuple[str, str], Member] = {}
    with contextlib.ExitStack() as stack:
        for own, weight in settings.read():
            target = read_target(own)
            key = target.digest, target.evaluator.identity
            if key not in found:
                found[key] = Member(stack.enter_context(open_tuning(own, target)))
            found[key].weight += weight
        members = sorted(found.values(), key=lambda member: -member.weight)
        bar = stack.enter_context(progress(total=settings.evaluations, desc=settings.fleet_name))

        def show() -> None:
            bar.n = min(bar.total, sum(len(m.study.history) for m in members))
            bar.set_postfix_str(f"saved {sum(m.saved for m in members):.4g}")

        def go_on(study: Study, count: int, strategy: Strategy | None = None) -> int:
            with study.target.evaluator.running() as evaluate:
                return advance(study.kept, strategy or study.strategy, evaluate, count, settings.seed, show)

        spend(members, settings, go_on)
        for study in (member.study for member in members if member.study.reserved):
            while (left := study.reserved - study.confirmations) > 0:
                if not go_on(study, left, Confirming(study.reserved)):
                    break
    histories = [member.study.history for member in members]
    settings.require(any(map(len, histories)), "budget_seconds", "enough for one evaluation")
    if not any(history.best for history in histories):
        failed = next(failure for history in histories for failure in history.failures)
        remedy = "The studies are kept: correct the cause, then use another name="
        raise DataError(resolve(settings.fleet), f"all evaluations failed, the first one: {failed}", remedy)
    return members


def fleet_table(members: Sequence[Member]) -> pd.DataFrame:
    """Return a row per program of a fleet, the largest saving first.

    Columns: ``program``, ``weight``, values ``default``, ``best`` and ``saved``, numbers ``evaluations`` and
    ``failed``, ``seconds`` of evaluations.
    """
    rows = [
        {
            "program": member.study.target.name,
            "weight": member.weight,
            "default": member.study.default,
            "best": member.study.best[1] if member.study.best else None,
            "saved": member.saved,
            "evaluations": len(member.study.history),
            "failed": len(member.study.history.failures),
            "seconds": sum(evaluation.seconds for _, evaluation in member.study.history.done),
        }
        for member in members
    ]
    return pd.DataFrame(rows).sort_values("saved", ascending=False, ignore_index=True)


def write_fleet(members: Sequence[Member], settings: FleetSettings) -> Path:
    """Write the table of programs, the best configuration of each, and what was saved; return the folder."""
    folder, table, studies = resolve(settings.folder), fleet_table(members), [m.study for m in members]
    with atomic_path(folder / PROGRAMS) as temporary:
        table.to_csv(temporary, index=False)
    write_json(folder / BEST, [s.target.as_json(s.best[0].codes) for s in studies if s.best])
    saved, total = table["saved"].sum(), (table["weight"] * table["default"]).sum()
    summary = {
        "programs": f"{len(table)} different ones",
        "value": "; ".join(dict.fromkeys(study.target.evaluator.identity for study in studies)),
        "evaluations": f"{table['evaluations'].sum()}, {table['failed'].sum()} of them failed",
        "saved": f"{saved:.6g}, {saved / total:.2%} of all defaults" if total else "0",
    }
    write_json(folder / MANIFEST, {"settings": settings.asdict(), "commit": commit(), "summary": summary})
    return folder
