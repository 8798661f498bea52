"""The result of a study: the best configuration in words and as files, tables, the curve, the page."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.errors import counted
from fastslow.core.figures import (
    CEILING,
    DEFAULT,
    ENSEMBLE,
    FAINT,
    WIDTH,
    in_style,
    mark_ratios,
    name_in_colours,
    save_figure,
    shortened,
)
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow.core.shown import Number, Section, make_page, picture
from fastslow.core.tables import percent, table_html, two_digits
from fastslow_programs.compiler.tuned import TUNED, write_signature
from fastslow_programs.program.convert import count_reasons
from fastslow_programs.tuning.confirmation import LEVEL, against, too_few
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.kept_study import KEPT
from fastslow_programs.tuning.tune import Study

BEST, EVALUATIONS, CURVE = "best.json", "evaluations.csv", "curve.png"
DEFAULT_PROGRAM = "default.hlo.pb"
PAGE = "tune.html"
_ROWS, _NAME = 10, 32  # configurations on the page, and characters of a name in a title
_CHOICES = 3  # of a configuration on the page; evaluations.csv has all
_BESIDE = 1.1  # of an axis beyond the only value on it
_AROUND = 1.0  # percent of an axis on both sides of the only value on it
_SEEN = 8  # times the gain, up to which an axis without a logarithm shows it
_NEAR = 5e-4  # of 1, where four decimals do not show a difference
_COUNTED = 1e9  # configurations; a larger count is printed as a power of ten
_UNITS = {
    "compiler": "cycles",
    "replay": "ns (cycles for the sample)",
    "device": "of the default's time",
}
"""Units of values by evaluator; a command's are what it prints."""
_OF_A_TILE = "of the file's normaliser"  # several rows of a file may be the default, at different runtimes


def summarise_study(study: Study) -> pd.Series:
    """Return the facts and findings of a study by name."""
    history, target = study.history, study.target
    best, default = study.best, study.default
    choices = counted(len(target.space.choices), "choice")
    facts = {
        "result": conclusion(study),
        "value": target.evaluator.name,
        "evaluations": f"{history.spent}, {len(history.failures)} of them failed",
        "space": f"{_count(target.space.size)} configurations of {choices}",
        "strategy": study.searched_by,
    }
    if history.failures:
        facts["failures"] = count_reasons(history.failures)
    if known := len(history) - history.spent:
        where = f", in {target.measured.path}" if target.measured else ""
        facts["known"] = f"{counted(known, 'configuration')} evaluated before the study{where}"
    if study.exhausted:
        facts["evaluations"] += "; no configuration is left to propose"
    elif (unspent := study.settings.evaluations - history.spent) >= (study.plan.cost if study.plan else 1):
        facts["evaluations"] += f"; {unspent} of {study.settings.evaluations} are not spent"
    if target.tied > len(target.space.choices):
        bound = f"{len(target.space.choices)} of {counted(target.tied, 'choice')}"
        facts["bound"] = f"{bound}; the compiler chooses the others itself"
    if plain := study.without_constraints:
        facts["as compiled"] = f"not known: {plain.failure}"
        if plain.value is not None:
            facts["as compiled"] = f"{value_text(plain.value, study)}, without constraints"
    if default:
        value = "" if _is_ratio(study) else f"{value_text(default, study)}, "
        facts["default"] = f"{value}{target.default_is}{', bound by constraints' if plain else ''}"
    if best:
        facts["best"] = value_text(best[1], study)
        if _keeps_default(study):
            facts["best"] = study.baseline_is + ("" if _is_ratio(study) else f", {facts['best']}")
        elif not study.plan:
            number = int((history.curve > best[1]).sum()) + 1 - known
            facts["best"] += f", after {counted(number, 'evaluation')}" if number > 0 else ", known before"
        first = next((proposal for proposal, _ in history.done if proposal.codes == best[0].codes), best[0])
        facts["proposed by"] = first.by
        facts["configuration"] = target.space.in_words(best[0].codes)
        if study.keeps_program:
            facts["configuration"] = "the program without constraints"
    if best and study.baseline:
        compared = "default" if study.baseline == default else study.baseline_is
        facts[f"best over {compared}"] = _ratio(best[1] / study.baseline)
    if target.evaluator.remark:
        facts["machine"] = target.evaluator.remark
    return pd.Series(facts, name=target.name)


def conclusion(study: Study) -> str:
    """Return whether something was gained, with the interval where values are noisy."""
    best, candidate, baseline = study.best, study.candidate, study.baseline
    if study.verdict:
        return study.verdict.in_words
    if not best or not candidate or not baseline:
        return "not known: the default has no value"
    if study.plan:
        return too_few(0)
    if all_equal(study):
        return f"nothing to gain: {_all_are(study)}; keep the default"
    if candidate[1] >= baseline:
        nothing = f"nothing gained: nothing that was evaluated is faster than {study.baseline_is}"
        if baseline == study.default:
            return nothing
        return f"{nothing}; the fastest is {against(candidate[1] / baseline, 'it')}"
    single = ", by single measurements, which confirm=0 believes" if study.target.evaluator.noisy else ""
    return f"gained: the best is {against(best[1] / baseline, study.baseline_is)}{single}"


def _keeps_default(study: Study) -> bool:
    """Return whether the configuration to use is the default itself."""
    return bool(study.best and study.best[0].codes == tuple(map(int, study.target.space.default)))


def all_equal(study: Study) -> bool:
    """Return whether two or more evaluated configurations, and the program as compiled, have one value."""
    values = [evaluation.value for _, evaluation in study.history.done if evaluation.value is not None]
    return len(values) > 1 and set(values) == {study.default, study.as_compiled or study.default}


def _all_are(study: Study) -> str:
    """Return that all evaluated configurations are equal, and how much of the space they are."""
    count = sum(evaluation.value is not None for _, evaluation in study.history.done)
    size = study.target.space.size
    which = (
        f"all {count:,}" if study.exhausted or count == size else f"the {count:,} evaluated of {_count(size)}"
    )
    return f"{which} configurations have the same value"


def _ratio(ratio: float) -> str:
    """Return a ratio with four decimals, or with as many as show that it is not 1."""
    return f"{ratio:.4f}" if ratio == 1 or abs(1 - ratio) >= _NEAR else f"{ratio:.7f}"


def value_text(value: float, study: Study) -> str:
    """Return a value of a study as text with its unit, such as ``1,250 cycles``.

    Args:
        value: A value that the study's evaluator gave, or the default's.
        study: The study. Values of a command have no unit.
    """
    return f"{_number(value)} {_unit(study)}".rstrip()


def time_text(time: float, study: Study) -> str:
    """Return a time of a fleet with its unit: ns where a device measured, else the evaluator's unit."""
    kind = study.settings.kind_of_evaluator
    return f"{_number(time)} {'ns' if kind == 'device' else _UNITS.get(kind, '')}".rstrip()


def _unit(study: Study) -> str:
    """Return the unit of a study's values; a tile's are over the runtime of the compiler's default."""
    kind = study.settings.kind_of_evaluator
    if kind == "replay" and study.settings.ranking().find_collection().kind == "tile":
        return _UNITS["device"] if study.default == 1 else _OF_A_TILE
    return _UNITS.get(kind, "")


def _is_ratio(study: Study) -> bool:
    """Return whether values are ratios to the default, whose value is then 1 by definition."""
    return _unit(study) == _UNITS["device"]


def _signed(ratio: float) -> str:
    """Return a ratio to the default's value as a difference in percent with two digits and its sign."""
    if ratio >= 2:
        return f"+{two_digits(100 * (ratio - 1))} %"
    return "0 %" if ratio == 1 else f"{100 * (ratio - 1):+#.2g} %".replace("-", "−").replace(". ", " ")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _first_choices(words: str) -> str:
    """Return the first choices of a configuration in words, and how many more there are."""
    choices = words.split("; ")
    more = len(choices) - _CHOICES
    shown = "; ".join(choices[:_CHOICES])
    return f"{shown}; and {more} more" if more > 0 else shown


def _count(size: int) -> str:
    """Return a number of configurations; of a very large one its power of ten."""
    return f"{size:,}" if size < _COUNTED else f"about 10^{len(str(size)) - 1}"


def best_facts(study: Study) -> dict | None:
    """Return the configuration to use and the fastest candidate, as ``best.json`` holds them.

    Returns:
        The configuration to use with its ``value``, and ``over_default``, the ratio of it to the default's.
        ``candidate`` is the fastest configuration with its own; after paired rounds it has their number and
        the ``interval`` of the ratio. ``confirmed`` tells whether the candidate is known to be faster than
        the default and the program as compiled. Where the latter has a value, that is ``as_compiled``, and
        ``constrained`` tells whether constraints impose the configuration to use, or the program is kept
        without any. ``default`` and ``default_is`` are the default's value and what it is, ``evaluator`` is
        what the values are. None where nothing has a value.
    """
    best, candidate, default, verdict = study.best, study.candidate, study.default, study.verdict
    if not best or not candidate:
        return None
    facts, of_candidate = (
        study.target.as_json(proposal.codes)
        | {"value": value, "over_default": value / default if default else None}
        for proposal, value in (best, candidate)
    )
    if verdict and np.isfinite(verdict.high):
        interval = {"level": LEVEL, "low": verdict.low, "high": verdict.high}
        of_candidate |= {"interval": interval, "paired_rounds": verdict.rounds}
    facts |= {"candidate": of_candidate, "confirmed": study.confirmed}
    if study.as_compiled is not None:
        facts |= {"as_compiled": study.as_compiled, "constrained": not study.keeps_program}
    default_is, evaluator = study.target.default_is, study.target.evaluator.name
    return facts | {"default": default, "default_is": default_is, "evaluator": evaluator}


def list_evaluations(study: Study) -> pd.DataFrame:
    """Return one row per evaluation in their order: who proposed it, value, best so far, failure, words."""
    rows = [
        {
            "evaluation": number,
            "by": proposal.by,
            "value": evaluation.value,
            "best": best if np.isfinite(best) else None,
            "seconds": evaluation.seconds,
            "failure": evaluation.failure,
            "options": " ".join(map(str, proposal.codes)),
            "configuration": study.target.space.in_words(proposal.codes),
        }
        for number, ((proposal, evaluation), best) in enumerate(
            zip(study.history.done, study.history.curve, strict=True), start=1
        )
    ]
    return pd.DataFrame(rows)


@in_style
def plot_curve(study: Study) -> Figure:
    """Plot the best value so far over evaluations, in percent against the baseline's where that is known."""
    baseline = study.baseline
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(study.history) + 1)
    evaluated = [evaluation.value for _, evaluation in study.history.done]
    shown = [number for number, value in zip(numbers, evaluated, strict=True) if value is not None]
    values = np.array([value for value in evaluated if value is not None])
    curve = study.history.curve
    if baseline:
        values, curve = 100 * (values / baseline - 1), 100 * (curve / baseline - 1)
    axes.scatter(shown, values, s=14, color=FAINT)
    axes.step(numbers, curve, where="post", color=ENSEMBLE)
    so_far = "lowest single value so far" if study.plan else "best so far"
    named = [("dot: one evaluation", CEILING), (f"line: {so_far}", ENSEMBLE)]
    if baseline:
        axes.axhline(0.0, linestyle="--", color=DEFAULT)
        value = "" if _is_ratio(study) else f", {value_text(baseline, study)}"
        named.append((f"dashed: {study.baseline_is}{value}", DEFAULT))
    axes.set_xlabel("evaluations")
    axes.set_ylabel(f"value against {study.baseline_is}, %" if baseline else study.target.evaluator.name)
    if shown:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter("{x:g}")
        if baseline:
            _mark_differences(axes, values)
        else:
            _mark_values(axes, values)
    name = shortened(study.target.name, _NAME)
    best = study.candidate
    title = name
    if best and baseline:
        gained = "no difference" if all_equal(study) else against(best[1] / baseline, study.baseline_is)
        if study.plan and not study.confirmed and best[1] < baseline:
            gained = f"not confirmed: {gained}"
        rounds = f" in {study.verdict.rounds} paired rounds" if study.verdict else ""
        title = f"{gained[0].upper()}{gained[1:]}{rounds}, {name}"
    axes.set_title(title)
    name_in_colours(figure, named)
    return figure


def _mark_differences(axes: Axes, percent: np.ndarray) -> None:
    """Set the axis of differences from the default: logarithmic on both sides of 0 where a gain is small."""
    differences = np.abs(percent[percent != 0])
    told = -percent.min() if percent.min() < 0 else float(differences.min(initial=np.inf))
    if not len(differences):  # the line is in the middle, not at an edge of the axes
        axes.set_ylim(-_AROUND, _AROUND)
    elif np.ptp([*percent, 0.0]) > _SEEN * told:
        start = 10.0 ** np.floor(np.log10(told))
        axes.set_yscale("symlog", linthresh=start, linscale=0.5)
        most = 1.6 * max(percent.max(), start)
        least = 1.6 * min(percent.min(), -start)
        axes.set_ylim(least, most)
        decades = start * 10.0 ** np.arange(np.log10(max(most, -least) / start) + 1)
        axes.set_yticks([tick for tick in (*-decades, 0, *decades) if least <= tick <= most])
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")


def _mark_values(axes: Axes, values: np.ndarray) -> None:
    """Set the axis of values where no default is known."""
    axes.set_yscale("log")
    lowest, highest = values.min(), values.max()
    if lowest == highest:
        lowest, highest = lowest / _BESIDE, highest * _BESIDE
        axes.set_ylim(lowest, highest)
    mark_ratios(axes.yaxis, lowest, highest)
    axes.yaxis.set_major_formatter("{x:g}")


def study_page(study: Study) -> str:
    """Return a page of HTML: whether something was gained, the best configurations, and the curve."""
    facts = summarise_study(study)
    best, baseline, baseline_is = study.best, study.baseline, study.baseline_is
    numbers = []
    if all_equal(study):
        note = f"{_unit(study)}, as the default has".lstrip(", ")
        numbers.append(Number("value of each", _number(baseline), note))
    elif best and baseline:
        kept = f"{baseline_is} itself"
        told = kept if _keeps_default(study) else against(best[1] / baseline, "").rstrip()
        note = study.target.evaluator.name if _is_ratio(study) else value_text(best[1], study)
        numbers.append(Number(f"best against {baseline_is}", told, note))
    numbers.append(Number("evaluations", f"{study.history.spent}", study.searched_by))
    size = study.target.space.size
    distinct = len({proposal.codes for proposal, _ in study.history.done})  # of repeated rounds one
    share = f"{percent(distinct / size, 1)} of them were evaluated" if size else ""
    numbers.append(Number("configurations", _count(size), share))
    rows = list_evaluations(study).dropna(subset="value").drop_duplicates("options")
    rows = rows.sort_values("value", kind="stable", ignore_index=True).head(_ROWS)
    table = pd.DataFrame({"evaluation": rows["evaluation"], "by": rows["by"]})
    if baseline:  # the values are in evaluations.csv
        ratios = [value / baseline for value in rows["value"]]
        table[f"against {baseline_is}"] = [_signed(ratio) for ratio in ratios]
    else:
        unit = _unit(study)
        table[f"value, {unit}" if unit else "value"] = [_number(value) for value in rows["value"]]
    table["configuration"] = [_first_choices(words) for words in rows["configuration"]]
    verdict = facts["result"][:1].upper() + facts["result"][1:] + "."
    details = Section("Facts", table_html(facts), folded=True)
    if all_equal(study):  # neither an order nor a curve says anything
        parts = [
            Section("The configurations that were evaluated first", table_html(table), folded=True),
            details,
        ]
    else:
        curve = Section("How did the search go?", picture(plot_curve(study)))
        parts = [Section("The best configurations", table_html(table)), curve, details]
        if study.plan:  # single values of noisy runs decide nothing: the verdict is of paired rounds
            single = "The lowest single values, which the paired rounds may not confirm"
            parts = [curve, Section(single, table_html(table), folded=True), details]
    return make_page(study.target.name, "Search of a configuration", verdict, numbers, parts)


def write_result(study: Study) -> Path:
    """Write the best configuration, the constrained HLO, the table of evaluations, the curve, the page.

    Returns:
        The study's folder.
    """
    folder = resolve(study.settings.folder)
    target = study.target
    with atomic_path(folder / EVALUATIONS) as temporary:
        list_evaluations(study).to_csv(temporary, index=False)
    save_figure(plot_curve(study), folder / CURVE)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text(study_page(study))
    if study.best and (best := best_facts(study)):
        proposal, _ = study.best
        write_json(folder / BEST, best)
        if target.module_of:
            best_module = target.module if study.keeps_program else target.module_of(proposal.codes)
            default_module = target.module_of(tuple(target.space.default.tolist()))
            for name, module in ((TUNED, best_module), (DEFAULT_PROGRAM, default_module)):
                with atomic_path(folder / name) as temporary:
                    temporary.write_bytes(serialised(module))
        if target.local:
            write_signature(folder, target.local)
    summary = {name: str(value) for name, value in summarise_study(study).items()}
    facts = {"settings": study.settings.asdict(), "commit": commit(), "summary": summary}
    write_json(folder / MANIFEST, facts | {KEPT: len(study.history)})
    return folder
