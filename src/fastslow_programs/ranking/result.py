"""The result of a ranking: its table, the ends in words, the effects of the choices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from fastslow.core.shown import Shown
from fastslow_programs.program.convert import count_failures
from fastslow_programs.program.default import Default
from fastslow_programs.ranking.advice import describe_estimates
from fastslow_programs.ranking.effects import effects
from fastslow_programs.ranking.known_runtimes import Learnt
from fastslow_programs.ranking.named_choices import NamedChoice, differences
from fastslow_programs.ranking.rules import Rule
from fastslow_programs.ranking.trust import TOLD, Trust

_SENTENCES = 5  # of effects, and of changes
_SURE = 2  # standard errors
_FIRST = 1, 5, 10, 100  # configurations whose fastest is compared with the fastest of all


def _nothing() -> None:
    """Give nothing."""


@dataclass(frozen=True, repr=False)
class Ranking(Shown):
    """The ranking of the configurations of a program.

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
        compared_with: The configuration that others are compared with, and whether it is the default.
        default_cycles: The compiler's estimate of its own default, None where it was not asked.
        failures: Why the compiler gave no estimate, an entry for each configuration without one.
        defaults_remedy: Advice to make the compiler's own layouts known, where models read them and the
            program names none.
        advice: What to do while no runtime is known, in sentences; none otherwise.
        learnt: What measured runtimes added, None without any.
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
    default_cycles: int | None = None
    failures: Sequence[str] = ()
    defaults_remedy: str = ""
    advice: Sequence[str] = ()
    learnt: Learnt | None = None
    known_from: str = ""
    find_rule: Callable[[], Rule | None] = _nothing
    judge: Callable[[], Trust | None] = _nothing

    @cached_property
    def table(self) -> pd.DataFrame:  # type: ignore[override]
        """The rows; ``faster`` is the probability to be faster than ``compared_with``, where there is one."""
        config = self.compared_with.config
        faster = None if config is None else self.faster(config)
        return self.rows if faster is None else self.rows.assign(faster=faster[self.rows["config"]])

    @cached_property
    def effects(self) -> pd.DataFrame:
        """What each option does, see :func:`fastslow_programs.ranking.effects.effects`."""
        return effects(self.choices, self._in_file_order)

    @cached_property
    def rule(self) -> Rule | None:
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

    def words(self) -> list[str]:
        """Return what was found: changes, effects, the trivial rule, and how far to trust it."""
        facts = self.summary()
        start = f"{self.program}: {len(self.table):,} configurations of {facts['choices']} choices"
        lines = [
            f"models: {self.models}",
            f"{start}; default: {facts['default']}",
            *([self.learnt.words()] if self.learnt else []),
            *self.advice,
            *self._changes(),
            *self._largest_effects(),
        ]
        if self.rule:
            lines.append(self._beside_the_rule(self.rule))
        lines += (self.trust.words() if self.trust else []) + self._sureness
        told = ("run", "members", "configurations", "choices", "fastest", "default")
        return lines + [f"{name}: {fact}" for name, fact in facts.items() if name not in told]

    def figures(self) -> list[Figure]:
        """Return the figures of predictions and of effects."""
        from fastslow_programs.ranking.plots import plot_effects, plot_predictions

        title = f"{self.program}, ranked by {self.models}"
        predictions = plot_predictions(self.table, self.default, title)
        return [predictions, *([plot_effects(self.effects)] if len(self.effects) else [])]

    def changes(self) -> pd.DataFrame:
        """Return the options that are faster than the default's by more than two standard errors.

        Returns:
            Rows of ``effects``, the fastest first, one per choice, only of choices whose default is known. An
            option is left out if the compiler estimates no configuration that takes it below the default's
            cycles.
        """
        known = [number for number, choice in enumerate(self.choices) if choice.known]
        sure = self.effects[self.effects["choice"].isin(known)]
        rows = sure[sure["effect"] + _SURE * sure["standard_error"] < 0].sort_values("effect", kind="stable")
        refuted = [self._is_refuted(row.choice, row.option) for row in rows.itertuples()]
        rows = rows[~np.array(refuted, bool)]
        return rows.drop_duplicates("choice").reset_index(drop=True)

    def _is_refuted(self, number: int, option: str) -> bool:
        """Return whether configurations that take an option were estimated, and none is below the default."""
        choice = self.choices[number]
        estimates = self.estimates()
        taken = choice.values[estimates["config"].to_numpy(int)] == choice.options.index(option)
        return bool(taken.any() and estimates["vs_default"][taken].min() >= 1)

    def _changes(self) -> list[str]:
        rows = self.changes()
        if self.choices and not any(choice.known for choice in self.choices):
            return ["to change: no advice, since the compiler's default is not known"]
        if rows.empty:
            also = ", or the compiler's estimates refute it" if self.default_cycles else ""
            return [f"to change: nothing; no option is surely predicted faster than the default's{also}"]
        to_do = "to measure first" if self.advice else "to change"
        return [f"{to_do}: {_effect_in_words(row)}" for row in rows.head(_SENTENCES).itertuples()]

    def _largest_effects(self) -> list[str]:
        order = (-self.effects["effect"].abs()).sort_values(kind="stable").index[:_SENTENCES]
        return [f"effect: {_effect_in_words(row)}" for row in self.effects.loc[order].itertuples()]

    def _beside_the_rule(self, rule: Rule) -> str:
        predicted = self.table["prediction"].to_numpy()
        prediction = rule.prediction[self.table["config"]]
        scores = f"valid programs: {rule.valid:.3f}, models {rule.models:.3f}"
        if self.learnt:
            known = self.table.dropna(subset="known")
            tau = ranking_tau(known["known"], rule.prediction[known["config"]])
            scores = f"Kendall's tau {tau:.2f} on the known runtimes"
        return (
            f"trivial rule: {rule.name} ({scores}) agrees with the ranking by Kendall's tau "
            f"{kendall_tau(predicted, prediction):.2f}; "
            f"its fastest is in place {prediction.argmin() + 1} here"
        )

    def faster(self, than: int) -> np.ndarray | None:
        """Return the probability ``(C,)`` that each configuration is faster than one; equal ones count half.

        Configurations are named by their position in the file. It is None where it is not known.
        """
        if self.learnt:
            return self.learnt.faster(than)
        return self.trust.faster(self._in_file_order, than) if self.trust else None

    @cached_property
    def _sureness(self) -> list[str]:
        """Say how sure it is that the first configuration is faster than the default and than the others."""
        first = int(self.table["config"].iloc[0])
        other = self.compared_with.config
        slower = self.faster(first)
        if slower is None:
            return []
        told = f"than {(slower <= 1 - TOLD).sum()} of {len(slower) - 1} others with at least {TOLD:.0%}"
        if other not in (None, first):
            name = "the default" if self.compared_with.known else f"configuration {other}"
            told = f"than {name} with a probability of {1 - slower[other]:.0%}, and {told}"
        of = ", by labels like those that the models learned" if self.advice else ""
        return [f"sure: configuration {first} is faster {told}; equal runtimes count half{of}"]

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

        ``vs_default`` is the estimate as a multiple of the estimate of the compiler's own default.
        """
        columns = ["rank", "config", "prediction", "estimated_cycles", "vs_default"]
        if not self.default_cycles:
            return pd.DataFrame(columns=columns)
        ratio = self.table["estimated_cycles"] / self.default_cycles
        rows = self.table.assign(vs_default=ratio)[columns].dropna()
        return rows.sort_values("estimated_cycles", kind="stable", ignore_index=True)

    def scores(self) -> dict[str, float]:
        """Return how well the ranking agrees with the runtimes of the file; nothing where it has none.

        Returns:
            Every metric of :data:`fastslow.competition.metrics.ALL_METRICS` by name, such as ``tau``, ``opa``
            and ``top_1_error``; of a tile of its runtimes over the default's.
        """
        if "runtime" not in self.table:
            return {}
        runtime = self.table["over_default" if "over_default" in self.table else "runtime"].to_numpy()
        prediction = self.table["prediction"].to_numpy()
        return {name: metric(runtime, prediction) for name, metric in ALL_METRICS.items()}

    def summary(self) -> pd.Series:
        """Return what was ranked by what, one value per fact."""
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
            equal = [choice.values == choice.values[config] for choice in self.choices]
            same = np.all(equal, axis=0) if equal else np.arange(len(table)) == config
            facts["default"] += f", place {table.loc[same[table['config']], 'rank'].min()}"
        if self.known_from:
            facts["known from"] = f"{self.known_from}; cache=False ranks without them"
        if self.defaults_remedy:
            remedy = self.defaults_remedy
            facts["compiler's own layouts"] = f"not known, which makes the ranking worse; {remedy}"
        if "over_default" in table:
            for k in (TOP_K, 1):
                score = tile_score(table["over_default"].to_numpy(), table["prediction"].to_numpy(), k)
                facts[f"1 - slowdown of the top {k}"] = f"{score:.3f}"
        if scores := self.scores():
            facts["Kendall's tau with runtime"] = f"{scores['tau']:.3f}"
            facts["ordered pair accuracy"] = f"{scores['opa']:.3f}"
            slowdowns = [f"{scores[f'top_{k}_error']:.1%} of the first {k}" for k in _FIRST]
            facts["slowdown"] = ", ".join(slowdowns)
        if len(estimates := self.estimates()):
            best = estimates.iloc[0]
            words = f"configuration {best['config']:.0f}, {best['vs_default']:.3f} of the default's cycles"
            facts["best estimate"] = words
            facts["the estimate's own tau"] = describe_estimates()
        if self.failures:
            asked = len(self.failures) + len(estimates)
            facts["the compiler's estimates"] = count_failures(self.failures, asked)
        return pd.Series(facts, name=self.program)


def _effect_in_words(row: Any) -> str:
    """Put a row of the effects into words; a point is a hundredth of the ranking."""
    direction = "faster" if row.effect < 0 else "slower"
    return f"{row.where} {row.option} instead of {row.default}, {abs(row.effect):.0f} points {direction}"


def make_table(
    prediction: np.ndarray,
    members: Mapping[str, np.ndarray],
    runtime: np.ndarray,
    cycles: Mapping[int, int | None],
    normalizers: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return the table of a :class:`Ranking`, in the order in which a submission lists the configurations.

    Args:
        prediction: ``(C,)`` of the run, lower = faster.
        members: ``(C,)`` of each member.
        runtime: ``(C,)`` from the file, 0 where it is unknown.
        cycles: The compiler's estimate by configuration, None where it refused; empty if it was not asked.
        normalizers: ``(C,)`` runtime of the compiler's default, tile only.
    """
    order = fastest_first(prediction, "layout")
    columns = {"rank": np.arange(1, len(order) + 1), "config": order, "prediction": prediction[order]}
    columns |= {name: values[order] for name, values in members.items()}
    if 0 < runtime.min() < runtime.max():
        columns["runtime"] = runtime[order]
        if normalizers is not None:
            columns["over_default"] = (runtime / normalizers)[order]
    if cycles:
        columns["estimated_cycles"] = [cycles.get(config) for config in order.tolist()]
    return pd.DataFrame(columns).astype({"estimated_cycles": float} if cycles else {})
