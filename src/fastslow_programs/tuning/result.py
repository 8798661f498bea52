"""The result of a study: the best configuration in words and as files, tables, the curve."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from fastslow.core.artifacts import MANIFEST, commit
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, write_json
from fastslow.core.settings import resolve
from fastslow_programs.compiler.tuned import TUNED, write_signature
from fastslow_programs.tuning.confirmation import LEVEL, too_few
from fastslow_programs.tuning.evaluators import serialised
from fastslow_programs.tuning.tune import Study

BEST, EVALUATIONS, CURVE = "best.json", "evaluations.csv", "curve.png"
DEFAULT_PROGRAM = "default.hlo.pb"


def summarise_study(study: Study) -> pd.Series:
    """Return what the study found, one value per fact."""
    history, target = study.history, study.target
    best, default = study.best, study.default
    facts = {
        "result": conclusion(study),
        "value": target.evaluator.name,
        "evaluations": f"{history.spent}, {len(history.failures)} of them failed",
        "space": f"{float(target.space.size):.3g} configurations of {len(target.space.choices)} choices",
        "strategy": study.settings.strategy,
    }
    if known := len(history) - history.spent:
        where = f", in {target.measured.path}" if target.measured else ""
        facts["known"] = f"{known} configurations that were evaluated before the study{where}"
    if study.exhausted:
        facts["evaluations"] += "; no configuration is left to propose"
    if target.tied > len(target.space.choices):
        facts["imposed"] = (
            f"of {target.tied} choices the compiler can be made to take {len(target.space.choices)}"
        )
    if default:
        facts["default"] = f"{default:.6g}, {target.default_is}"
    if best:
        facts["best"] = f"{best[1]:.6g}"
        if not study.plan:
            number = int((history.curve > best[1]).sum()) + 1 - known
            facts["best"] += f", after {number} evaluations" if number > 0 else ", known before"
        facts["proposed by"] = best[0].by
        facts["configuration"] = target.space.in_words(best[0].codes)
    if best and default:
        facts["best over default"] = f"{best[1] / default:.4f}"
    if target.evaluator.remark:
        facts["machine"] = target.evaluator.remark
    return pd.Series(facts, name=target.name)


def conclusion(study: Study) -> str:
    """Return whether something was gained, with the interval where values are noisy."""
    best, default = study.best, study.default
    if study.verdict:
        return study.verdict.in_words
    if not best or not default:
        return "not known: the default has no value"
    if study.plan:
        return too_few(0)
    if best[1] >= default:
        return "nothing gained: nothing that was evaluated is faster than the default"
    single = ", by single measurements, which confirm=0 believes" if study.target.evaluator.noisy else ""
    return f"gained: {best[1] / default:.4f} of the default{single}"


def best_facts(study: Study) -> dict | None:
    """Return the configuration to use and the fastest candidate, as ``best.json`` holds them.

    Returns:
        The configuration to use with its ``value``. ``candidate`` is the fastest configuration with its
        value, ``confirmed`` whether it is known to be faster than the default, ``over_default`` the ratio of
        its value to the default's. After paired rounds there are their number and the ``interval`` of the
        ratio. None where nothing has a value.
    """
    best, candidate, default, verdict = study.best, study.candidate, study.default, study.verdict
    if not best or not candidate:
        return None
    target = study.target
    facts = target.as_json(best[0].codes) | {"value": best[1]}
    facts["candidate"] = target.as_json(candidate[0].codes) | {"value": candidate[1]}
    facts |= {"confirmed": study.confirmed, "over_default": candidate[1] / default if default else None}
    if verdict and np.isfinite(verdict.high):
        interval = {"level": LEVEL, "low": verdict.low, "high": verdict.high}
        facts |= {"interval": interval, "paired_rounds": verdict.rounds}
    return facts


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


def plot_curve(study: Study) -> Figure:
    """Plot the best value so far over evaluations, against the default's where it is known."""
    default = study.default
    scale = default or 1.0
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(study.history) + 1)
    values = [e.value for _, e in study.history.done]
    shown = [n for n, v in zip(numbers, values, strict=True) if v is not None]
    axes.scatter(shown, [v / scale for v in values if v is not None], s=12, c="0.6", label="evaluated")
    axes.step(numbers, study.history.curve / scale, where="post", label="best so far")
    if default:
        axes.axhline(1.0, ls=":", c="0.3", label="default")
    axes.set(xlabel="evaluations", ylabel="value over default" if default else study.target.evaluator.name)
    if shown:
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))  # a log axis has a tick a decade
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
    axes.set_title(study.target.name)
    axes.legend()
    return figure


def write_result(study: Study) -> Path:
    """Write the best configuration, the constrained HLO, the table of evaluations and the curve.

    Returns:
        The study's folder.
    """
    folder = resolve(study.settings.folder)
    target = study.target
    with atomic_path(folder / EVALUATIONS) as temporary:
        list_evaluations(study).to_csv(temporary, index=False)
    save_figure(plot_curve(study), folder / CURVE)
    if study.best and (best := best_facts(study)):
        proposal, _ = study.best
        facts = {
            "default": study.default,
            "default_is": target.default_is,
            "evaluator": target.evaluator.name,
        }
        write_json(folder / BEST, best | facts)
        if target.module_of:
            for name, codes in ((TUNED, proposal.codes), (DEFAULT_PROGRAM, target.space.default.tolist())):
                with atomic_path(folder / name) as temporary:
                    temporary.write_bytes(serialised(target.module_of(tuple(codes))))
        if target.local:
            write_signature(folder, target.local)
    summary = {name: str(value) for name, value in summarise_study(study).items()}
    write_json(
        folder / MANIFEST, {"settings": study.settings.asdict(), "commit": commit(), "summary": summary}
    )
    return folder
