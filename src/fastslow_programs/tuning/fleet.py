"""Tune many programs with one budget, shared by the time that each one takes: weight x default.

The default of each program is evaluated first. The saving of a program is weight x (baseline - best), where
the baseline is the default, or the program without constraints if that is faster. What cannot be tuned is
left out, and named with the reason.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.errors import DataError, SettingsError, counted
from fastslow.core.figures import (
    DEFAULT,
    ENSEMBLE,
    WIDTH,
    in_style,
    name_in_colours,
    say_shortened,
    shortened_names,
)
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow.core.shown import Number, Section, make_page, picture
from fastslow.core.tables import number_text, percent, table_html
from fastslow_programs.tuning.result import BEST, best_facts, conclusion, time_text
from fastslow_programs.tuning.settings import FleetSettings, TuneSettings
from fastslow_programs.tuning.target import Target, read_target
from fastslow_programs.tuning.tune import Study, complete_study

PROGRAMS, PAGE = "programs.csv", "fleet.html"
_ALL = "the time of all programs"
_WEIGHED = "weight x time untuned"
_BARS, _NAME = 20, 40  # programs of the figure, and characters of their names
_VALUES = {"replay": "the labels of the files"}
"""Words for identities of evaluators."""


@dataclass
class Member:
    """A program of a fleet, and the sum of the weights of all rows of its content.

    Where it cannot be tuned, ``left_out`` is the reason, and it has no times.
    """

    settings: TuneSettings
    target: Target | None = None
    weight: float = 0.0
    study: Study | None = None
    left_out: str = ""

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.settings.program

    @property
    def default(self) -> float:
        """Time of the default that ``tune`` compares with, in ns on a device, else in the evaluator's unit.

        A device and a tile give ratios to the default; here they are times again.
        """
        return self._time_of(self.study.default)

    @property
    def as_compiled(self) -> float | None:
        """Time of the program without constraints; None where the evaluator tells none."""
        as_compiled = self.study.as_compiled
        return None if as_compiled is None else self._time_of(as_compiled)

    @property
    def baseline(self) -> float:
        """Time before the search: the default's, or the program's without constraints if that is less."""
        return self._time_of(self.study.baseline)

    @property
    def best(self) -> float:
        """Time of what is to be used, a configuration or the program without constraints."""
        return self._time_of(self.study.best[1])

    def _time_of(self, value: float) -> float:
        return value * self.target.evaluator.unit

    @property
    def time(self) -> float:
        """Weight x baseline: the time that the program takes in the fleet, in the same unit."""
        return self.weight * self.baseline

    @property
    def claim(self) -> float:
        """Weight x the default's first value, by which the budget is shared.

        Paired rounds measure the default again; a resumed fleet has the shares that it had before them.
        """
        default = tuple(map(int, self.target.space.default))
        values = (e.value for p, e in self.study.history.done if p.codes == default and e.value is not None)
        return self.weight * (self.target.default_value or next(values)) * self.target.evaluator.unit

    @property
    def saved(self) -> float:
        """Weight x (baseline - best), 0 where the baseline is faster and kept."""
        return self.weight * max(self.baseline - self.best, 0.0)


def tune_fleet(settings: FleetSettings) -> list[Member]:
    """Tune a fleet, resuming the studies that are there; rows of equal content become one program.

    Args:
        settings: The list of programs with their weights, the budget, and the settings of each study.

    Returns:
        The members, in the order of their claim, with their studies; then those that are left out.

    Raises:
        SettingsError: A setting is wrong, or something is not installed.
        DataError: The list cannot be used, or no program can be tuned: the error is the first one's.
    """
    began = time.monotonic()
    by_content: dict[tuple[str, str], Member] = {}
    left_out: list[Member] = []
    errors: list[Exception] = []

    @contextlib.contextmanager
    def leaving_out(member: Member) -> Iterator[None]:
        try:
            yield
        except (DataError, SettingsError) as error:
            if isinstance(error, SettingsError) and error.name == "budget_seconds":
                raise
            member.left_out = str(error)
            left_out.append(member)
            errors.append(error)
            print(f"left out: {member.name}: {error}", file=sys.stderr, flush=True)

    for program, weight in settings.read():
        member = Member(program, weight=weight)
        with leaving_out(member):
            member.target = read_target(program)
            key = member.target.digest, member.target.evaluator.identity
            same = by_content.setdefault(key, member)
            if same is not member:
                same.weight += weight
    if not by_content:
        raise errors[0]
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
        with leaving_out(member):
            tune(member, evaluations=1, **({"confirm": 0.0} if member.settings.plan else {}))
    members = sorted(_tuned(by_content.values()), key=lambda member: -member.claim)
    if not members:
        raise errors[0]
    left = settings.evaluations - enough
    # a failed default is one evaluation
    left += sum(member.settings.smallest - 1 for member in by_content.values() if member.left_out)
    in_turn = _least_need_first(members, left)
    for place, member in enumerate(in_turn):
        share = round(left * member.claim / sum(other.claim for other in in_turn[place:]))
        with leaving_out(member):
            tune(member, evaluations=member.settings.smallest + share)
        left -= member.study.history.spent - member.settings.smallest
    if not _tuned(members):
        raise errors[0]
    return [*_tuned(members), *left_out]


def _least_need_first(members: Iterable[Member], evaluations: int) -> list[Member]:
    """Return the members by their space over their claim: what a small one leaves is for those after it."""
    # of a larger space no more is evaluated; its size may be no float
    return sorted(members, key=lambda member: min(member.target.space.size, evaluations) / member.claim)


def _tuned(members: Iterable[Member]) -> list[Member]:
    """Return the members that are not left out."""
    return [member for member in members if not member.left_out]


def fleet_table(members: Sequence[Member]) -> pd.DataFrame:
    """Return a row per program of a fleet, the largest saving first.

    Columns: ``program``, ``weight``, times ``default``, ``as_compiled``, ``baseline``, ``best`` and
    ``saved``, numbers ``evaluations`` and ``failed``, ``seconds`` of evaluations; ``left_out``, the reason
    for which a program at the end of the table has no values.
    """
    rows = [
        {
            "program": member.name,
            "weight": member.weight,
            "default": member.default,
            "as_compiled": member.as_compiled,
            "baseline": member.baseline,
            "best": member.best,
            "saved": member.saved,
            "evaluations": member.study.history.spent,
            "failed": len(member.study.history.failures),
            "seconds": sum(evaluation.seconds for _, evaluation in member.study.history.done),
            "left_out": "",
        }
        for member in _tuned(members)
    ]
    rows += [
        {"program": member.name, "weight": member.weight, "left_out": member.left_out}
        for member in members
        if member.left_out
    ]
    may_miss = {"as_compiled": float, "evaluations": "Int64", "failed": "Int64"}
    table = pd.DataFrame(rows).astype(may_miss)
    return table.sort_values("saved", ascending=False, ignore_index=True)


def _summary(members: Sequence[Member], table: pd.DataFrame) -> dict[str, str]:
    """Return what was tuned and saved, one value per fact."""
    studies = [member.study for member in _tuned(members)]
    values = dict.fromkeys(study.target.evaluator.identity for study in studies)
    saved = table["saved"].sum()
    left_out = {f"left out {member.name}": member.left_out for member in members if member.left_out}
    return {
        "programs": counted(len(studies), "different program"),
        "value": "; ".join(_VALUES.get(value, value) for value in values),
        "evaluations": f"{table['evaluations'].sum()}, {table['failed'].sum()} of them failed",
        "saved": f"{_share_text(_saved_share(members))} of {_ALL}, {time_text(saved, studies[0])}",
        **left_out,
    }


def _saved_share(members: Sequence[Member]) -> float:
    """Return the share of weight x baseline of all programs that is saved."""
    tuned = _tuned(members)
    return sum(member.saved for member in tuned) / sum(member.time for member in tuned)


def _share_text(share: float) -> str:
    """Return a share as percent with three significant digits."""
    return f"{number_text(100 * share)} %" if share else "0 %"


def fleet_page(members: Sequence[Member], name: str) -> str:
    """Return a page of HTML: how much is saved, by which programs, and whether each gain is confirmed."""
    whole = fleet_table(members)
    facts = _summary(members, whole)
    left_out = whole[whole["left_out"] != ""]
    table = whole[whole["left_out"] == ""]
    share = _share_text(_saved_share(members))
    gains = table[table["saved"] > 0]
    verdict = f"Nothing is saved: keep {counted(len(table), 'program')} untuned."
    if len(gains):
        largest = percent(gains["saved"].iloc[0] / gains["saved"].sum()) if len(gains) > 1 else "all"
        verdict = f"{share} of {_ALL} is saved, {largest} of it by {gains['program'].iloc[0]}."
    failed = f"{table['failed'].sum()} of them failed"
    numbers = [
        Number("saved", share, f"of {_ALL}, {_WEIGHED}"),
        Number("programs with a gain", f"{len(gains)} of {len(table)}"),
        Number("evaluations", f"{table['evaluations'].sum()}", failed),
    ]
    saved = [Section("Where is the time, and what is saved?", picture(plot_savings(table)))]
    missing = [Section("Programs that are left out", table_html(left_out[["program", "weight", "left_out"]]))]
    parts = [
        Section("Programs, the largest saving first", table_html(_readable(members, table))),
        *(saved if len(gains) else ()),
        *(missing if len(left_out) else ()),
        Section("Facts", table_html(pd.Series(facts)), folded=True),
    ]
    return make_page(name, "Search of many programs", verdict, numbers, parts)


def _readable(members: Sequence[Member], table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of programs for a reader, with what each study concluded."""
    results = {member.name: conclusion(member.study) for member in _tuned(members)}
    time = table["weight"] * table["baseline"]
    return pd.DataFrame(
        {
            "program": table["program"],
            "weight": [f"{weight:g}" for weight in table["weight"]],
            "share of the time": [percent(share) for share in time / time.sum()],
            "saved of it": [percent(share, 1) for share in table["saved"] / time],
            "evaluations": table["evaluations"],
            "result": table["program"].map(results),
        }
    )


@in_style
def plot_savings(table: pd.DataFrame) -> Figure:
    """Draw weight x baseline of the programs that save most, and how much of it is saved.

    Args:
        table: What :func:`fleet_table` returned.
    """
    shown = table.head(_BARS)
    time = table["weight"] * table["baseline"]
    names = shortened_names(shown["program"].tolist(), _NAME)
    figure = Figure(figsize=(WIDTH, 1.4 + 0.25 * len(shown)), layout="constrained")
    axes = figure.subplots()
    rows = range(len(shown))
    axes.barh(rows, 100 * time.head(_BARS) / time.sum(), color=DEFAULT, alpha=0.35)
    axes.barh(rows, 100 * shown["saved"] / time.sum(), color=ENSEMBLE)
    axes.set_yticks(rows, names)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the largest saving on top
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"percent of {_ALL}, {_WEIGHED}" + say_shortened(shown["program"].tolist(), _NAME))
    saved = _share_text(table["saved"].sum() / time.sum())
    of_them = f", {len(shown)} of {len(table)} programs" if len(shown) < len(table) else ""
    axes.set_title(f"{saved} of {_ALL} is saved{of_them}")
    name_in_colours(figure, [("untuned", DEFAULT), ("saved", ENSEMBLE)])
    return figure


def write_fleet(members: Sequence[Member], settings: FleetSettings) -> Path:
    """Write a page, the table of programs, and the best configuration of each; return the folder."""
    folder = resolve(settings.folder)
    table = fleet_table(members)
    studies = [member.study for member in _tuned(members)]
    with atomic_path(folder / PROGRAMS) as temporary:
        table.to_csv(temporary, index=False)
    write_json(folder / BEST, [best_facts(study) for study in studies])
    summary = _summary(members, table)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text(fleet_page(members, Path(settings.folder).name))
    write_json(folder / MANIFEST, {"settings": settings.asdict(), "commit": commit(), "summary": summary})
    return folder
