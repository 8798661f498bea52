"""Choose a rule of binding on some programs and score it on others."""

from collections import Counter

import numpy as np

from common.binding_rules import COMMITTED
from fastslow.competition.metrics import kendall_tau

DRAWS = 200
_TEXT = """\
The rule was chosen on the runs of this table. {draws} times, the rule with the highest tau on a random
half of the {programs} programs that all rules above know ({configurations:,} configurations) was scored
on the other half: tau {held_out} (mean, 2.5 and 97.5 percentile); chosen: {chosen}. Bootstrap of the
programs, tau of the rule of the labels: {interval}. All programs come from AlexNet."""


def choose_on_half(
    estimates: dict[str, np.ndarray], classes: np.ndarray, runtime: np.ndarray, draws: int = DRAWS
) -> dict:
    """Choose the rule on half of the programs and score it on the others, many times.

    Args:
        estimates: Estimated cycles of every configuration by rule, ``(C,)``, NaN where not known. Only
            configurations that all rules know are used.
        classes: ``(C,)`` number of the distinct program of each configuration; a half is one of programs,
            since configurations of one program differ only by noise.
        runtime: ``(C,)`` measured time.
        draws: Number of random halves, and of bootstraps.

    Returns:
        ``programs`` and ``configurations`` used; ``chosen``, how often each rule was the best of a half;
        ``held_out``, mean tau of the best on the other half, with its 2.5 and 97.5 percentiles; and
        ``interval``, these percentiles of the tau of the rule of the labels over bootstraps of programs.
    """
    rng = np.random.default_rng(0)
    known = np.all([np.isfinite(estimate) for estimate in estimates.values()], axis=0)
    rows = {label: np.flatnonzero(known & (classes == label)) for label in np.unique(classes[known])}

    def tau(rule: str, some: np.ndarray) -> float:
        own = np.concatenate([rows[label] for label in some])
        return kendall_tau(runtime[own], estimates[rule][own])

    chosen, held_out, spread = Counter(), [], []
    for _ in range(draws):
        halves = np.array_split(rng.permutation(list(rows)), 2)
        best = max(estimates, key=lambda rule: tau(rule, halves[0]))
        chosen[best] += 1
        held_out.append(tau(best, halves[1]))
        if COMMITTED in estimates:
            spread.append(tau(COMMITTED, rng.choice(list(rows), len(rows))))
    return {
        "programs": len(rows),
        "configurations": int(known.sum()),
        "chosen": dict(chosen.most_common()),
        "held_out": [float(np.mean(held_out)), *_ends(held_out)],
        "interval": _ends(spread),
    }


def _ends(values: list[float]) -> list[float]:
    return np.percentile(values, [2.5, 97.5]).tolist() if values else []


def choice_in_words(found: dict) -> str:
    """Return :func:`choose_on_half` as a paragraph."""

    def ends(low: float, high: float) -> str:
        return f"[{low:.3f}, {high:.3f}]"

    mean, *percentiles = found["held_out"]
    words = {
        "held_out": f"{mean:.3f} {ends(*percentiles)}",
        "interval": ends(*found["interval"]) if found["interval"] else "not computed",
        "chosen": ", ".join(f"{rule} {count}" for rule, count in found["chosen"].items()),
    }
    return _TEXT.format(**found | words, draws=DRAWS)
