"""Tune many programs with one budget, shared by the time that each one takes: weight x default.

The default of each program is evaluated first. The saving of a program is weight x (default - tuned).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.errors import counted
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow.core.tables import percent
from fastslow_programs.tuning.result import BEST, value_text
from fastslow_programs.tuning.settings import FleetSettings, TuneSettings
from fastslow_programs.tuning.target import Target, read_target
from fastslow_programs.tuning.tune import Study, complete_study

PROGRAMS = "programs.csv"
_VALUES = {"replay": "the labels of the files"}
"""Words for identities of evaluators."""


@dataclass
class Member:
    """A program of a fleet, and the sum of the weights of all rows of its content."""

    settings: TuneSettings
    target: Target
    weight: float = 0.0
    study: Study | None = None

    @property
    def time(self) -> float:
        """Weight x default."""
        return self.weight * self.study.default

    @property
    def saved(self) -> float:
        """Weight x (default - best), 0 where the default is faster and kept."""
        return self.weight * max(self.study.default - self.study.best[1], 0.0)


def tune_fleet(settings: FleetSettings) -> list[Member]:
    """Tune a fleet, resuming the studies that are there; rows of equal content become one program.

    Args:
        settings: The list of programs with their weights, the budget, and the settings of each study.

    Returns:
        The members, in the order of their time, with their studies.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The list, a program, its run or a study cannot be used, or all evaluations of one failed.
    """
    began = time.monotonic()
    by_content: dict[tuple[str, str], Member] = {}
    for program, weight in settings.read():
        target = read_target(program)
        key = target.digest, target.evaluator.identity
        by_content.setdefault(key, Member(program, target)).weight += weight
    enough = sum(member.settings.smallest for member in by_content.values())
    enough_is = "one for each program"
    if enough > len(by_content):
        enough_is = f"enough for a verdict on each program: give {enough} or more, or confirm=0"
    settings.require(settings.evaluations >= enough, "evaluations", enough_is)

    def tune(member: Member, **budget) -> None:
        # 0 would be no limit
        seconds = settings.budget_seconds and max(1e-6, settings.budget_seconds + began - time.monotonic())
        limited = member.settings.replace(budget_seconds=seconds, **budget)
        member.study = complete_study(limited, member.target)

    for member in by_content.values():  # the default, whose single value is believed
        tune(member, evaluations=1, **({"confirm": 0.0} if member.settings.plan else {}))
    members = sorted(by_content.values(), key=lambda member: -member.time)
    left = settings.evaluations - enough
    for place, member in enumerate(members):
        share = round(left * member.time / sum(other.time for other in members[place:]))
        tune(member, evaluations=member.settings.smallest + share)
        # what a small space leaves is for the others
        left -= member.study.history.spent - member.settings.smallest
    return members


def fleet_table(members: Sequence[Member]) -> pd.DataFrame:
    """Return a row per program of a fleet, the largest saving first.

    Columns: ``program``, ``weight``, values ``default``, ``best`` and ``saved``, numbers ``evaluations`` and
    ``failed``, ``seconds`` of evaluations.
    """
    rows = [
        {
            "program": member.target.name,
            "weight": member.weight,
            "default": member.study.default,
            "best": member.study.best[1],
            "saved": member.saved,
            "evaluations": member.study.history.spent,
            "failed": len(member.study.history.failures),
            "seconds": sum(evaluation.seconds for _, evaluation in member.study.history.done),
        }
        for member in members
    ]
    return pd.DataFrame(rows).sort_values("saved", ascending=False, ignore_index=True)


def write_fleet(members: Sequence[Member], settings: FleetSettings) -> Path:
    """Write the table of programs, the best configuration of each, and what was saved; return the folder."""
    folder = resolve(settings.folder)
    table = fleet_table(members)
    studies = [member.study for member in members]
    with atomic_path(folder / PROGRAMS) as temporary:
        table.to_csv(temporary, index=False)
    write_json(folder / BEST, [study.target.as_json(study.best[0].codes) for study in studies])
    saved = table["saved"].sum()
    total = sum(member.time for member in members)
    values = dict.fromkeys(study.target.evaluator.identity for study in studies)
    share = f"{percent(saved / total, 2)} of weight x value of all defaults"
    summary = {
        "programs": counted(len(table), "different program"),
        "value": "; ".join(_VALUES.get(value, value) for value in values),
        "evaluations": f"{table['evaluations'].sum()}, {table['failed'].sum()} of them failed",
        "saved": f"{share}, {value_text(saved, studies[0])}",
    }
    write_json(folder / MANIFEST, {"settings": settings.asdict(), "commit": commit(), "summary": summary})
    return folder
