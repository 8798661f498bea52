"""The result of a ranking: its table, the ends in words, the effects of the choices, and its page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.competition.metrics import (
    ALL_METRICS,
    TOP_K,
    fastest_first,
    kendall_tau,
    ranking_tau,
    tile_score,
)
from fastslow.core.errors import SettingsError, counted, listed
from fastslow.core.shown import Number, Section, Shown, picture, sentences
from fastslow.core.tables import percent, probability_text, table_html, two_digits
from fastslow.steps.finished_run import AppliedRule
from fastslow_programs.compiler.layout_constraints import AS_COMPILED
from fastslow_programs.program.configurations import Default
from fastslow_programs.program.convert import count_failures
from fastslow_programs.ranking.choices import (
    NamedChoice,
    change_in_words,
    describe_differences,
    differences,
    effects,
)
from fastslow_programs.ranking.known_runtimes import Learnt, are_estimates, is_faster
from fastslow_programs.ranking.trust import TOLD, Trust, describe_estimates

_SENTENCES = 5  # of effects, and of changes
_SURE = 2  # standard errors
_FIRST = 1, 5, 10, 100  # configurations whose fastest is compared with the fastest of all
_ON_PAGE = 10  # configurations on the page
_ROWS_OF_EFFECTS = 30
_LEVEL = 0.8  # of the band that the page shows
_TINY = 0.0005  # a smaller difference is 0.0 % in one decimal, and less than most repeated runs differ
_LIKELY = 0.8  # the least probability of being faster at which a change is advised


def _nothing() -> None:
    """Give nothing."""


@dataclass(frozen=True, repr=False)
class RankingFacts:
    """The ranking of the configurations of a program: tables, probabilities and numbers.

    Args:
        program: Name of the program.
        run: Name of the run that ranked it.
        models: Which models ranked it, in words.
        rows: One row per configuration of the file, fastest first: ``rank`` from 1, ``config`` (position in
            the file), ``prediction`` (lower = faster) and the prediction of each member by its name.
            ``runtime`` is there where the file has it, ``over_default`` for a tile, and ``estimated_cycles``
            where the compiler was asked. ``id`` names a configuration in any draw of the program.
        weights: Weight by member.
        choices: What the configurations choose.
        arrays: Arrays of its competition file, for the picture of its graph; None for none.
        compared_with: The configuration that others are compared with, and whether it is the default.
        default_cycles: The compiler's estimate of its own default, bound by constraints as each configuration
            is. None where it was not asked.
        cycles_as_compiled: Its estimate of the program without constraints; None where it gave none.
        failures: Why the compiler gave no estimate, an entry for each configuration without one.
        defaults_remedy: Advice to make the compiler's own layouts known, where models read them and the
            program names none.
        advice: What to do while no runtime is known, in sentences; none otherwise.
        learnt: What measured runtimes added, None without any.
        known: These measurements: ``id``, ``runtime`` and, where it is given, ``round``.
        known_from: Where these were kept and who measured them, empty where the user gave them.
        find_rule: Gives the best trivial rule and its ranking, None for a single model.
        judge: Gives how far to trust the ranking, None where the run's features are not known.
    """

    program: str
    run: str
    models: str
    rows: pd.DataFrame
    weights: Mapping[str, float]
    choices: list[NamedChoice]
    compared_with: Default
    arrays: Mapping[str, Any] | None = None
    default_cycles: int | None = None
    cycles_as_compiled: int | None = None
    failures: Sequence[str] = ()
    defaults_remedy: str = ""
    advice: Sequence[str] = ()
    learnt: Learnt | None = None
    known: pd.DataFrame | None = None
    known_from: str = ""
    find_rule: Callable[[], AppliedRule | None] = _nothing
    judge: Callable[[], Trust | None] = _nothing

    @cached_property
    def table(self) -> pd.DataFrame:
        """The rows; ``faster`` is the probability to be faster than ``compared_with``, where there is one."""
        config = self.compared_with.config
        faster = None if config is None else self.faster(config)
        return self.rows if faster is None else self.rows.assign(faster=faster[self.rows["config"]])

    @cached_property
    def effects(self) -> pd.DataFrame:
        """What each option does, see :func:`fastslow_programs.ranking.choices.effects`."""
        return effects(self.choices, self._in_file_order)

    @cached_property
    def rule(self) -> AppliedRule | None:
        """The best trivial rule and its ranking, None for a single model."""
        return self.find_rule()

    @cached_property
    def trust(self) -> Trust | None:
        """How far to trust the ranking; None where the run's features are not known, or where it learnt."""
        return self.judge()

    @property
    def _in_file_order(self) -> np.ndarray:
        """Predictions ``(C,)`` in the order of the file."""
        prediction: np.ndarray = self.rows.sort_values("config")["prediction"].to_numpy()
        return prediction

    @property
    def default(self) -> int | None:
        """Position of the compiler's default, or of the one that is set; None where it is not known."""
        return self.compared_with.config if self.compared_with.known else None

    @property
    def _is_one_program(self) -> bool:
        return self.rows["id"].nunique() == 1

    @property
    def all_alike(self) -> bool:
        """Whether no order is better than another: all configurations are one program, or equally fast."""
        return self._is_one_program or ("runtime" in self.rows and self._judged_by.nunique() == 1)

    @property
    def _judged_column(self) -> str:
        """Name of the column by which a ranking is judged."""
        return "over_default" if "over_default" in self.rows else "runtime"

    @property
    def _judged_by(self) -> pd.Series:
        """Runtimes of the file, of a tile over the default's; of repeated configurations their mean."""
        return self.rows.groupby("id")[self._judged_column].transform("mean")

    def scores(self) -> dict[str, float]:
        """Return how well the ranking agrees with the file's runtimes; nothing if none differ.

        Returns:
            Every metric of :data:`fastslow.competition.metrics.ALL_METRICS` by name; of a tile of its
            runtimes over the default's. ``tau`` and ``opa`` count all rows of the file, as the competition
            does; slowdowns such as ``top_1_error`` take the mean of each distinct configuration, as the
            fastest of many repeats is so by luck.
        """
        if "runtime" not in self.table or self.all_alike:
            return {}
        rows, means = self.rows[self._judged_column].to_numpy(), self._judged_by.to_numpy()
        prediction = self.table["prediction"].to_numpy()
        return {
            name: metric(means if name.startswith("top_") else rows, prediction)
            for name, metric in ALL_METRICS.items()
        }

    def _noise(self) -> float:
        """Return by how much repeated configurations of the file differ, the median as a fraction."""
        runtimes = self.rows.groupby("id")["runtime"]
        apart = (runtimes.max() / runtimes.min() - 1)[runtimes.size() > 1]
        return float(apart.median()) if len(apart) else 0.0

    def faster(self, than: int) -> np.ndarray | None:
        """Return the probability ``(C,)`` that each configuration is faster than one; equal ones count half.

        Configurations are named by their position in the file. It is None where it is not known, and where
        no score is expected of what measured runtimes tell.

        Raises:
            SettingsError: There is no configuration at this position.
        """
        is_position = isinstance(than, Integral) and not isinstance(than, bool) and 0 <= than < len(self.rows)
        if not is_position:
            raise SettingsError("than", f"{than!r} is no position from 0 to {len(self.rows) - 1}")
        if self.all_alike:
            return np.full(len(self.rows), 0.5)
        if self.learnt:
            return self.learnt.faster(than)
        return self.trust.faster(self._in_file_order, than) if self.trust else None

    @property
    def _measured(self) -> pd.Series:
        """Runtime of each configuration that was measured, by its position; known (median), or the file's."""
        by_id = self.rows.set_index("config").groupby("id")
        for name, middle in (("known", "median"), ("runtime", "mean")):  # the file's as its scores take them
            if name in self.rows:
                return by_id[name].transform(middle).dropna()
        return pd.Series(dtype=float)

    @property
    def _by_compiler(self) -> bool:
        """Whether the known runtimes are the compiler's estimates."""
        return are_estimates(self.known_from)

    def _is_faster_than_default(self, config: int) -> bool | None:
        """Return whether a configuration was measured below the default beyond noise; None: not known."""
        if self.known is None or self.compared_with.config is None:
            return None
        ids = self.rows.set_index("config")["id"]
        return is_faster(self.known, ids[config], ids[self.compared_with.config])

    @property
    def _is_default_best(self) -> bool:
        """Whether the default is the first of the ranking and the fastest that was measured."""
        first = self.compared_with.config
        measured = self._measured
        if first != self.table["config"].iloc[0] or first not in measured:
            return False
        return bool(measured[first] == measured.min())

    def changes(self) -> pd.DataFrame:
        """Return the options that are faster than the default's by more than two standard errors.

        Returns:
            Rows of ``effects``, the fastest first, one per choice, only of choices whose default is known. An
            option is left out if the compiler estimates no configuration that takes it below the cycles of
            the default and of the program without constraints, or if the median of its measured runtimes is
            not below the default's option's. None is left where the default is the first of the ranking and
            the fastest that was measured.
        """
        if self._is_default_best:
            return self.effects.head(0)
        known = [number for number, choice in enumerate(self.choices) if choice.known]
        sure = self.effects[self.effects["choice"].isin(known)]
        rows = sure[sure["effect"] + _SURE * sure["standard_error"] < 0].sort_values("effect", kind="stable")
        refuted = [self._is_refuted(row.choice, row.option) for row in rows.itertuples()]
        rows = rows[~np.array(refuted, bool)]
        return rows.drop_duplicates("choice").reset_index(drop=True)

    def _is_refuted(self, number: int, option: str) -> bool:
        """Return whether no estimate of an option is below the baseline, or its runtimes are not lower."""
        choice = self.choices[number]
        position = choice.options.index(option)
        estimates = self.estimates()
        taken = choice.values[estimates["config"].to_numpy(int)] == position
        by_estimates = taken.any() and estimates["vs_baseline"][taken].min() >= 1
        medians = self._measured.groupby(choice.values[self._measured.index]).median()
        are_measured = {position, choice.default} <= {*medians.index}
        by_runtimes = are_measured and medians[position] >= medians[choice.default]
        return bool(by_estimates or by_runtimes)

    def differences(self, count: int = 10) -> pd.DataFrame:
        """Return the choices in which the ``count`` fastest and as many slowest differ from the default.

        Returns:
            One row per difference: ``rank``, ``config``, ``node``, ``tied`` (number of further nodes that
            choose alike), ``tensor``, ``layout`` (of a tile: bound) and ``default``.
        """
        total = len(self.table)
        ends = self.table.iloc[[*range(min(count, total)), *range(max(count, total - count), total)]]
        rows = [
            (rank, config, c.node, c.tied, c.tensor, c.options[c.values[config]], c.options[c.default])
            for rank, config in ends[["rank", "config"]].itertuples(index=False)
            for c in differences(self.choices, config)
        ]
        return pd.DataFrame(rows, columns=["rank", "config", "node", "tied", "tensor", "layout", "default"])

    def estimates(self) -> pd.DataFrame:
        """Return the configurations that the compiler estimated, fewest cycles first; empty if none.

        ``vs_default`` is the estimate as a multiple of the estimate of the compiler's own default,
        ``vs_baseline`` of that or of the program's without constraints, whichever is less.
        """
        columns = ["rank", "config", "prediction", "estimated_cycles", "vs_default", "vs_baseline"]
        if not self.default_cycles or "estimated_cycles" not in self.table:
            return pd.DataFrame(columns=columns)
        cycles = self.table["estimated_cycles"]
        ratios = {"vs_default": cycles / self.default_cycles, "vs_baseline": cycles / self._baseline_cycles}
        rows = self.table.assign(**ratios)[columns].dropna()
        return rows.sort_values("estimated_cycles", kind="stable", ignore_index=True)

    @property
    def _baseline_cycles(self) -> int | None:
        """Cycles that an estimate must be below to be worth a measurement."""
        known = [cycles for cycles in (self.default_cycles, self.cycles_as_compiled) if cycles is not None]
        return min(known, default=None)

    @property
    def _keeps_program(self) -> bool:
        """Whether the program without constraints has fewer cycles than the default that they bind."""
        return self._baseline_cycles != self.default_cycles

    def _rank_of(self, config: int) -> int:
        """Return the lowest rank of the configurations that choose as one does."""
        equal = [choice.values == choice.values[config] for choice in self.choices]
        same = np.all(equal, axis=0) if equal else np.arange(len(self.rows)) == config
        return int(self.rows.loc[same[self.rows["config"]], "rank"].min())

    def facts(self) -> dict[str, Any]:
        """Return the facts that another program can read, beside the table: numbers, names and None.

        Returns:
            ``program`` and ``run``, names; ``configurations`` and ``choices``, their numbers. ``fastest`` is
            the position of the first configuration, ``default`` the default's, None where it is not known.
            ``compared_with`` is the position of the default, or of the configuration in its part, and
            ``compared_with_rank`` its rank; both are None where there is none. ``default_cycles`` and
            ``cycles_as_compiled`` are the compiler's estimates, None where it gave none. ``scores`` is the
            dict of :meth:`scores`. ``trust`` has the facts of the attribute ``trust``, or is None.
        """
        config = self.compared_with.config
        return {
            "program": self.program,
            "run": self.run,
            "configurations": len(self.rows),
            "choices": len(self.choices),
            "fastest": int(self.rows["config"].iloc[0]),
            "default": self.default,
            "compared_with": config,
            "compared_with_rank": None if config is None else self._rank_of(config),
            "default_cycles": self.default_cycles,
            "cycles_as_compiled": self.cycles_as_compiled,
            "scores": self.scores(),
            "trust": self.trust and self.trust.facts(),
        }


class Ranking(RankingFacts, Shown):
    """The ranking of the configurations of a program: its facts in words, as figures and as a page."""

    kind = "Ranking of configurations"

    def words(self) -> list[str]:
        """Return the findings: the verdict, changes, effects, the trivial rule, and how far to trust it."""
        facts = self.summary()
        size = f"{counted(len(self.table), 'configuration')} of {counted(facts['choices'], 'choice')}"
        start = f"{self.program}: {size}"
        lines = [
            f"models: {self.models}",
            f"{start}; default: {facts['default']}",
            *([] if self.advice or self.all_alike else [self.verdict()]),  # which say it themselves
            *([self.learnt.words()] if self.learnt else []),
            *([] if self.all_alike else self.advice),
            *self._changes(),
            *self._largest_effects(),
        ]
        if self.rule and len(self.table) > 1:
            lines.append(self._beside_the_rule(self.rule))
        lines += (self.trust.words() if self.trust else []) + self._sureness
        told = ("run", "members", "configurations", "choices", "fastest", "default")
        return lines + [f"{name}: {fact}" for name, fact in facts.items() if name not in told]

    def verdict(self) -> str:
        """Return in one line which configuration to take."""
        first = int(self.table["config"].iloc[0])
        if len(self.table) == 1:
            return "There is one configuration: nothing is left to choose."
        if self.all_alike:
            same = "are one program" if self._is_one_program else "have the same runtime"
            return f"All {len(self.table):,} configurations {same}: any will do."
        scores = self.scores()
        if scores:
            slower = "the fastest of the file"
            if scores["top_1_error"]:
                slower = f"{two_digits(100 * scores['top_1_error'])} % slower than {slower}"
            return f"The first of the ranking, configuration {first}, is {slower}{self._default_slower()}."
        if self.learnt:
            return self._measured_verdict(first)
        best = self.estimates().head(1)
        if len(best) and best["vs_baseline"].iloc[0] < 1:
            config = int(best["config"].iloc[0])
            fewer = f"{two_digits(100 * (1 - best['vs_baseline'].iloc[0]))} % fewer cycles"
            said = f"Measure configuration {config} first: {fewer} by the compiler's estimate"
            return f"{said}. It changes {self._in_words(config)}."
        if len(best) and self._keeps_program:
            return f"Keep {AS_COMPILED}, without constraints: no estimate is below its cycles."
        if len(best):
            return "The default is the choice to keep: no estimate is below its cycles."
        if self.advice:
            return f"The compiler's default is the choice to keep while no runtime is known. {self._gain()}"
        return f"Configuration {first} is predicted the fastest of {len(self.table):,}."

    def _measured_verdict(self, first: int) -> str:
        """Return which configuration to take, or to measure, where some runtimes are known."""
        assert self.learnt is not None, "it is asked where some runtimes are known"
        measured = self._measured
        fastest = int(measured.idxmin()) if len(measured) else first
        if (
            len(measured)
            and self._by_compiler
            and self._keeps_program
            and measured[fastest] >= self._baseline_cycles
        ):
            return f"Keep {AS_COMPILED}, without constraints: no estimate is below its cycles."
        fastest_is = self._fastest_is
        if len(measured) and first not in measured and self.learnt.has_order:
            known = f"{fastest_is} is configuration {fastest}"
            return f"Measure configuration {first} next, the first of the ranking; {known}."
        default = self.compared_with.config
        if default in measured and measured[default] == measured[fastest]:
            return f"Keep {self._compared}: it is {fastest_is}."
        best = f"configuration {fastest}, {fastest_is}"
        beyond_noise = self._is_faster_than_default(fastest)
        if beyond_noise and "round" in self.known:  # its default is bound, and measure has timed more
            agreed = "where the result of `measure` is to take it too"
            return f"Take {best}, {agreed}: it is faster than {self._compared}, bound like it, beyond noise."
        if beyond_noise:
            return f"Take {best}: it is faster than {self._compared} beyond noise."
        if beyond_noise is False:
            return f"Keep {self._compared}: {best}, is not faster beyond noise."
        if default is None or (self._by_compiler and default in measured):  # an estimate has no noise
            return f"Take {best}."
        if default in measured:
            return f"Measure {self._compared} and {best}, again: no run was repeated."
        slower = self.faster(first) if measured.get(first) == measured.min() else None
        if slower is None:
            return f"Measure {self._compared} too, to compare it with {best}."
        than = f"faster than {self._compared} {_with_probability(1 - slower[default])}"
        if 1 - slower[default] >= _LIKELY:
            return f"Take configuration {first}: it is {than}."
        return f"Keep {self._compared}, or measure more: configuration {first} is {than}."

    @property
    def _fastest_is(self) -> str:
        """What the fastest of the known configurations is called."""
        return f"the fastest {'by an estimate' if self._by_compiler else 'that was measured'}"

    def _gain(self) -> str:
        gains = [line.removeprefix("to gain: ") for line in self.advice if line.startswith("to gain: ")]
        return f"To gain, {gains[0].split('. ')[0]}." if gains else ""

    def _default_slower(self) -> str:
        """Return how much slower than the fastest the default is, as a part of a sentence; or nothing."""
        config = self.compared_with.config
        if config is None:
            return ""
        if config == self.table["config"].iloc[0]:
            return f"; it is {self._compared}"
        runtime = self._judged_by
        excess = runtime[self.table["config"] == config].iloc[0] / runtime.min() - 1
        if not excess:
            return f"; so is {self._compared}"
        return f"; {self._compared} is {two_digits(100 * excess)} % slower"

    def _in_words(self, config: int) -> str:
        """Return what a configuration changes in the default, the choices that matter most first."""
        order = self.effects["choice"].drop_duplicates().tolist()
        chosen = [self.choices[number] for number in order]
        chosen += [choice for number, choice in enumerate(self.choices) if number not in order]
        return describe_differences(chosen, config)

    def _changes(self) -> list[str]:
        if self.all_alike:
            return [f"to change: nothing. {self.verdict()}"]
        rows = self.changes()
        estimated = self._estimated_faster()
        if estimated and rows.empty:
            return estimated
        if self.choices and not any(choice.known for choice in self.choices):
            is_tile_without = self.compared_with.config is None and "over_default" in self.rows
            no_default = "no configuration of the file is the compiler's default"
            why = no_default if is_tile_without else "the compiler's default is not known"
            return [f"to change: no advice, since {why}"]
        if rows.empty:
            if self._is_default_best:
                return [f"to change: nothing; the default is the first, and {self._fastest_is}"]
            against = ["the compiler's estimates refute it"] if len(self.estimates()) else []
            if len(self._measured):
                known = "known estimates" if self._by_compiler else "measured runtimes"
                against.append(f"the {known} refute it")
            also = "".join(f", or {refuted}" for refuted in against)
            none = "no option is predicted faster than the default's by more than two standard errors"
            return [f"to change: nothing; {none}{also}"]
        to_do = "to measure first" if self.advice else "to change"
        likely = [f"{to_do}: {_effect_in_words(row)}" for row in rows.head(_SENTENCES).itertuples()]
        return estimated + likely

    def _estimated_faster(self) -> list[str]:
        """Return the best estimate and what it changes in words; nothing where the default is as good.

        Where the program without constraints is as good, say so: those that bind the default cost cycles.
        """
        estimates = self.estimates()
        if estimates.empty:
            return []
        config = int(estimates["config"].iloc[0])
        ratio = f"{estimates['vs_baseline'].iloc[0]:.3f}"
        if estimates["vs_baseline"].iloc[0] < 1:
            cycles = f"{ratio} of {self._baseline_is} by the compiler's estimate"
            return [f"to measure first: configuration {config}, {cycles}: {self._in_words(config)}"]
        if not self._keeps_program:
            return []
        none = f"none of {counted(len(estimates), 'estimated configuration')} is below {AS_COMPILED}"
        return [f"to measure first: nothing; {none}, and the best one, {config}, has {ratio} of its cycles"]

    def _largest_effects(self) -> list[str]:
        order = (-self.effects["effect"].abs()).sort_values(kind="stable").index[:_SENTENCES]
        return [f"effect: {_effect_in_words(row)}" for row in self.effects.loc[order].itertuples()]

    def _beside_the_rule(self, rule: AppliedRule) -> str:
        predicted = self.table["prediction"].to_numpy()
        prediction = rule.prediction[self.table["config"]]
        # of equal ones a rule lists the first of the file first
        alike = self.table[prediction == prediction.min()]
        first = alike.loc[alike["config"].idxmin(), "rank"]
        scores = f"valid programs: {rule.valid:.3f}, models {rule.models:.3f}"
        if self.learnt:
            known = self.table.dropna(subset="known")
            scores = "the known runtimes do not differ"
            if known["known"].nunique() > 1:
                tau = ranking_tau(known["known"], rule.prediction[known["config"]])
                scores = f"Kendall's tau {tau:.2f} on the known runtimes"
        return (
            f"trivial rule: {rule.name} ({scores}) agrees with the ranking by Kendall's tau "
            f"{kendall_tau(predicted, prediction):.2f}; "
            f"its first is in place {first} here"
        )

    @cached_property
    def _sureness(self) -> list[str]:
        """Say how sure it is that the first configuration is faster than the default and than the others."""
        first = int(self.table["config"].iloc[0])
        other = self.compared_with.config
        slower = self.faster(first)
        if slower is None or self.all_alike or len(slower) == 1:
            return []
        others = counted(len(slower) - 1, "other")
        told = f"than {(slower <= 1 - TOLD).sum()} of {others} with a probability of at least {percent(TOLD)}"
        if other not in (None, first):
            name = "the default" if self.compared_with.known else f"configuration {other}"
            told = f"than {name} {_with_probability(1 - slower[other])}. It is faster {told}"
        of = "; runtimes are labels like those that the models learned" if self.advice else ""
        return [f"sure: configuration {first} is faster {told}. Equal runtimes count as half{of}"]

    def summary(self) -> pd.Series:
        """Return the facts of the ranking in words, by name; :meth:`facts` has them as numbers."""
        table = self.table
        facts = {
            "run": self.run,
            "members": f"{sum(w > 0 for w in self.weights.values())} of {len(self.weights)} with a weight",
            "configurations": len(table),
            "choices": len(self.choices),
            "fastest": f"configuration {table['config'].iloc[0]}",
        }
        facts["default"] = self.compared_with.words
        if (config := self.compared_with.config) is not None:
            words, mark, more = self.compared_with.words.partition(";")
            facts["default"] = f"{words}, place {self._rank_of(config)}{mark}{more}"
        if self.known_from:
            facts["known from"] = f"{self.known_from}; cache=False ranks without them"
        if self.defaults_remedy:
            remedy = self.defaults_remedy
            facts["compiler's own layouts"] = f"not known, which makes the ranking worse; {remedy}"
        if "over_default" in table:
            for k in (TOP_K, 1):
                score = tile_score(self._judged_by.to_numpy(), table["prediction"].to_numpy(), k)
                facts[f"1 - slowdown of the top {k}"] = f"{score:.3f}"
        if scores := self.scores():
            repeated = table["id"].nunique() < len(table)
            of_all = f" of all {len(table):,} rows, repeated ones included" if repeated else ""
            facts["Kendall's tau with runtime"] = f"{scores['tau']:.3f}{of_all}"
            facts["ordered pair accuracy"] = f"{scores['opa']:.3f}"
            few = [k for k in _FIRST if k < len(table)]  # of all the fastest is the fastest
            firsts = {k: f"the best of the first {k}" for k in few} | {1: "the first"}
            slowdowns = [f"{firsts[k]}: {two_digits(100 * scores[f'top_{k}_error'])} %" for k in few]
            facts["slowdown against the fastest"] = ", ".join(slowdowns)
            if (noise := self._noise()) >= _TINY:
                apart = f"runs of one configuration differ by {two_digits(100 * noise)} %, the median"
                facts["repeats"] = f"{apart}; slowdowns take their mean"
        if self.cycles_as_compiled is not None:
            bound = f"the default, bound by them, has {self.default_cycles:,}"
            facts["as compiled"] = f"{self.cycles_as_compiled:,} cycles, without constraints; {bound}"
        if len(estimates := self.estimates()):
            best = estimates.iloc[0]
            cycles = f"{best['vs_baseline']:.3f} of {self._baseline_is}"
            facts["best estimate"] = f"configuration {best['config']:.0f}, {cycles}"
            facts["Kendall's tau of the estimate"] = describe_estimates()
        if self.failures:
            asked = len(self.failures) + len(estimates)
            facts["the compiler's estimates"] = count_failures(self.failures, asked)
        return pd.Series(facts, name=self.program)

    def numbers(self) -> list[Number]:
        """Return the first against the default, how far to trust it, and the score to expect or to see."""
        if self.all_alike:
            numbers = [Number("Kendall's tau", "not defined", "no order is right or wrong")]
            if "runtime" in self.rows:
                noise = self.rows["runtime"].max() / self.rows["runtime"].min() - 1
                slower = f"{two_digits(100 * noise)} % slower" if noise else "the same"
                numbers.insert(0, Number("slowest against the fastest", slower, "by chance" if noise else ""))
            return numbers
        scores = self.scores()
        if scores:
            return self._measured_numbers(scores)
        return [self._first_against_default(), self._trust_number(), self._expected_number()]

    def _measured_numbers(self, scores: Mapping[str, float]) -> list[Number]:
        runtime = self._judged_by
        place = int((runtime < runtime.iloc[0]).sum()) + 1
        config = self.compared_with.config
        against = Number("first against the default", "not known", self.compared_with.words)
        if config is not None:
            ratio = runtime.iloc[0] / runtime[self.table["config"] == config].iloc[0] - 1
            against = Number(f"first against {self._compared}", *_difference(ratio))
        error = scores["top_1_error"]
        slower, exactly = _difference(error)
        by_runtime = f"{exactly}{', ' * bool(exactly)}place {place:,} of {len(runtime):,} by runtime"
        order = f"1 is the right order, 0 is chance; {percent(scores['opa'])} of all pairs are right"
        return [
            against,
            Number("first against the fastest", slower, by_runtime),
            Number("Kendall's tau", f"{scores['tau']:.3f}", order),
        ]

    def _first_against_default(self) -> Number:
        config = self.compared_with.config
        first = int(self.table["config"].iloc[0])
        name = f"first against {self._compared}" if config is not None else "first against the default"
        slower = None if config is None else self.faster(first)
        if config == first:
            return Number(name, "the same", f"{self._compared} is in place 1")
        if slower is None:
            return Number(name, "not known", "no probability can be given")
        assert config is not None
        note = "by labels like those that the models learned; a device may differ"
        if self.learnt:
            note = "by the known runtimes; others are expected to be like these"
        return Number(name, f"{probability_text(1 - slower[config])} likely faster", note)

    def _trust_number(self) -> Number:
        if self.learnt and self._by_compiler:
            return Number("known estimates", f"{self.learnt.measurements}", "cycles, by the compiler")
        if self.learnt:
            by = "measured by earlier commands" if self.known_from else "measured by you"
            return Number("known runtimes", f"{self.learnt.measurements}", by)
        if self.trust is None:
            return Number("trust", "not known", "what the models were trained on is not known")
        note = "of its nodes differ in opcode from the nearest train program"
        return Number("distance to the train programs", percent(self.trust.nearest), note)

    def _expected_number(self) -> Number:
        if self.learnt:
            tau = self.learnt.expected_tau
            value = "not known" if tau is None else f"{tau:.2f}"
            note = "on the others, if they are measured as these"
            if self.learnt.knows_all:
                return Number("expected Kendall's tau", "not defined", "all configurations are known")
            if self.learnt.are_neighbours:
                note = "the known configurations are nearer to the default than the others"
            return Number("expected Kendall's tau", value, note)
        if self.trust and self.trust.kind == "tile" and not self.trust.unlike:
            share = percent((self.trust.scores == 1).mean())
            note = f"of {len(self.trust.scores)} kernels that no model was trained on"
            return Number("the fastest is among the first five", share, note)
        band = self.trust.band(_LEVEL) if self.trust else None
        if band:
            low, high = band
            scored = f"of {percent(_LEVEL)} of {self.trust.programs} programs that no model was trained on"
            note = f"{scored}, by labels as the models learned"
            return Number("expected Kendall's tau", f"{low:.2f} to {high:.2f}", note)
        return Number("expected Kendall's tau", "not known", "no program like it was scored")

    def sections(self) -> list[Section]:
        """Return the first configurations in words, the figures, and everything else folded."""
        parts = [Section("The first configurations", table_html(self.first_rows()))]
        parts += [Section(question, picture(figure)) for question, figure in self._answers().items()]
        details = [
            Section("All sentences", sentences(self.words()), folded=True),
            Section("Facts", table_html(self.summary()), folded=True),
        ]
        if len(self.effects):
            shown = self.effects.drop(columns="choice").head(_ROWS_OF_EFFECTS)
            details.append(Section("Effects of the choices", table_html(shown), folded=True))
        return [*parts, *details]

    def first_rows(self) -> pd.DataFrame:
        """Return the first configurations for a reader. Those that are one program share a row.

        Returns:
            Texts and numbers: ``place``, ``config`` (all that are alike), ``probability of being faster than
            the default``, ``slower than the fastest``, ``known runtime`` (``known estimate, cycles`` of the
            compiler), ``of the default's cycles`` (each where it is known; or ``of the cycles as compiled``
            where these are fewer), and the ``differences from the default`` in words.
        """
        rows = self.table.drop_duplicates("id").head(_ON_PAGE)
        alike = self.table.groupby("id")["config"].agg(lambda configs: listed([*map(str, configs)]))
        columns: dict[str, Any] = {"place": rows["rank"], "config": rows["id"].map(alike)}
        if "faster" in rows:
            columns[f"probability of being faster than {self._compared}"] = rows["faster"].map(
                probability_text
            )
        if self.scores():
            excess = 100 * (self._judged_by / self._judged_by.min() - 1)
            columns["slower than the fastest"] = excess[rows.index].map(lambda x: f"{two_digits(x)} %")
        if "known" in rows:
            columns["known estimate, cycles" if self._by_compiler else "known runtime"] = rows["known"]
        if self._baseline_cycles and "estimated_cycles" in rows:
            compared = "the cycles as compiled" if self._keeps_program else "the default's cycles"
            columns[f"of {compared}"] = rows["estimated_cycles"] / self._baseline_cycles
        columns[f"differences from {self._base}"] = [self._in_words(int(c)) for c in rows["config"]]
        return pd.DataFrame(columns).reset_index(drop=True)

    def figures(self) -> list[Figure]:
        """Return slowdown against place, or what the members say; the graph; the effects of the choices."""
        return list(self._answers().values())

    def _answers(self) -> dict[str, Figure]:
        """Return the figures by the question that each answers."""
        from fastslow_programs.program.graph_picture import plot_effects_on_graph
        from fastslow_programs.ranking.plots import plot_effects

        answers = {}
        places = self.plot_places()
        if places is not None:
            answers["How slow is each place?" if self.scores() else "Do the models agree?"] = places
        largest, names = self._largest_by_node()
        if self.arrays is not None and largest:
            figure = plot_effects_on_graph(self.arrays, self.program, largest, names)
            answers["Where in the program do choices matter?"] = figure
        if len(self.effects):
            answers["Which choices matter?"] = plot_effects(self.effects, self._base)
        return answers

    def plot_places(self) -> Figure | None:
        """Plot slowdown against place, or without runtimes the place by each model; None for a single one."""
        from fastslow_programs.ranking.plots import plot_members, plot_slowdown

        if not self.scores():
            members = [name for name, weight in self.weights.items() if weight > 0 and name in self.table]
            if len(members) < 2 or len(self.table) < 2:
                return None
            return plot_members(self.table, members, self.compared_with.config, self._compared)
        marks = {}
        if self.compared_with.config is not None:
            marks[self._compared] = self.compared_with.config
        if self.rule:
            marks["first of the trivial rule"] = int(self.rule.prediction.argmin())
        known = self.table.dropna(subset="known")["config"].tolist() if "known" in self.table else ()
        judged = self.table.assign(**{self._judged_column: self._judged_by})
        return plot_slowdown(judged, marks, known)

    def _largest_by_node(self) -> tuple[dict[int, float], dict[int, str]]:
        """Return by node the effect of its strongest option, and the names of the choices' first nodes."""
        largest: dict[int, float] = {}
        names: dict[int, str] = {}
        for row in self.effects.dropna(subset="effect").itertuples():
            choice = self.choices[row.choice]
            for node in choice.nodes:
                if abs(row.effect) > abs(largest.get(node, 0.0)):
                    largest[node] = row.effect
                    alike = f" and {choice.tied} alike" if choice.tied else ""
                    if node == choice.nodes[0]:
                        names[node] = choice.node + alike
        return largest, names

    @property
    def _compared(self) -> str:
        """What ``compared_with`` is called."""
        if self.compared_with.known:
            return "the default"
        return f"configuration {self.compared_with.config}"

    @property
    def _base(self) -> str:
        """What the options of the choices are compared with."""
        if any(choice.known for choice in self.choices):
            config = self.compared_with.config
            nearest = config is not None and bool(differences(self.choices, config))
            return "the compiler's own layouts" if nearest else "the default"
        return "the commonest options" if self.compared_with.config is None else self._compared

    @property
    def _baseline_is(self) -> str:
        """Whose cycles the baseline is, in words."""
        return f"the cycles of {AS_COMPILED}" if self._keeps_program else "the default's cycles"


def _difference(ratio: float) -> tuple[str, str]:
    """Return a difference of two runtimes for the head of a page, and of a tiny one its number as a note."""
    if not ratio:
        return "the same", ""
    words = f"{two_digits(abs(100 * ratio))} % {'less time' if ratio < 0 else 'slower'}"
    return ("the same to 0.1 %", words) if abs(ratio) < _TINY else (words, "")


def _with_probability(probability: float) -> str:
    words = probability_text(probability)
    return f"with a probability {'of ' if words[0].isdigit() else ''}{words}"


def _effect_in_words(row: Any) -> str:
    """Put a row of the effects into words."""
    direction = "faster" if row.effect < 0 else "slower"
    places = f"{abs(row.effect):.0f} of 100 places {direction}"
    return f"{change_in_words(row.where, row.option, row.default)}, {places}"


def make_table(
    ids: np.ndarray,
    prediction: np.ndarray,
    members: Mapping[str, np.ndarray],
    runtime: np.ndarray,
    cycles: Mapping[int, int | None],
    normalizers: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return the table of a :class:`Ranking`, in the order in which a submission lists the configurations.

    Args:
        ids: ``(C,)`` names of the configurations; those that are one program have the same.
        prediction: ``(C,)`` of the run, lower = faster.
        members: ``(C,)`` of each member.
        runtime: ``(C,)`` from the file, 0 where it is unknown.
        cycles: The compiler's estimate by configuration, None where it refused; empty if it was not asked.
        normalizers: ``(C,)`` runtime of the compiler's default, tile only.
    """
    order = fastest_first(prediction, "layout")
    columns = {"rank": np.arange(1, len(order) + 1), "config": order, "prediction": prediction[order]}
    columns |= {name: values[order] for name, values in members.items()}
    if runtime.min() > 0:
        columns["runtime"] = runtime[order]
        if normalizers is not None:
            columns["over_default"] = (runtime / normalizers)[order]
    if cycles:
        columns["estimated_cycles"] = [cycles.get(config) for config in order.tolist()]
    columns["id"] = ids[order]
    return pd.DataFrame(columns).astype({"estimated_cycles": float} if cycles else {})
