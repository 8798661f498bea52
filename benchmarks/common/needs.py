"""Evaluations that searches and trivial rules need to find a good configuration."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.labelled_sample import KERNEL
from fastslow.competition.catalog import COLLECTIONS, TEST
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import read_solution

GUIDED = "guided"
UNGUIDED = ("random", "tpe", "nsga2")
WITHIN = {"within 5%": 0.05, "within 1%": 0.01, "the best known": 0.0}
"""Distances to the best known value, relative to it."""


def needs_of(curve: np.ndarray) -> dict[str, int]:
    """Return the evaluations until a curve is within each distance; all of them if it never is.

    Args:
        curve: ``(n,)`` best value after each evaluation over the best of all, minus 1.
    """
    return {name: int(min(len(curve), (curve > within).sum() + 1)) for name, within in WITHIN.items()}


def summarise(programs: list[dict]) -> dict:
    """Return mean and quartiles of the evaluations needed, and the ratio of the best unguided to the guided.

    Args:
        programs: Per program ``counts`` (a list of :func:`needs_of` by strategy), ``size`` (configurations)
            and ``near`` (fraction of the configurations within 1 %).
    """
    needed: dict[str, dict[str, list[float]]] = {}
    for name in programs[0]["counts"]:
        seeds = [count for program in programs for count in program["counts"][name]]
        values = {within: [count[within] for count in seeds] for within in WITHIN}
        needed[name] = {
            w: [float(np.mean(own)), *np.quantile(own, [0.25, 0.5, 0.75]).tolist()]
            for w, own in values.items()
        }
    sizes = [program["size"] for program in programs]
    unguided = [name for name in needed if not name.startswith(GUIDED)]
    return {
        "programs": len(sizes),
        "needed": needed,
        "best unguided over guided": {
            w: min(needed[name][w][0] for name in unguided) / needed[GUIDED][w][0] for w in WITHIN
        },
        "configurations": [int(np.median(sizes)), min(sizes), max(sizes)],
        "within 1 %": float(np.median([program["near"] for program in programs])),
    }


def curve_in_order(predicted: np.ndarray, runtime: np.ndarray, seed: int) -> np.ndarray:
    """Return the curve of a random start and then each configuration in the order of its prediction.

    Args:
        predicted: ``(C,)`` predictions, the lowest first.
        runtime: ``(C,)`` labels, positive.
        seed: Seed of the start.

    Returns:
        ``(C + 1,)`` best value so far over the best of all, minus 1.
    """
    start = np.random.default_rng([seed, 1]).integers(len(runtime))
    values = np.r_[runtime[start], runtime[np.argsort(predicted, kind="stable")]]
    return np.minimum.accumulate(values) / runtime.min() - 1


def rules_in_order(run: Path, seeds: int) -> list[dict]:
    """Return the mean evaluations that every trivial rule and the ensemble need without learning.

    Args:
        run: Folder of runs of ``make submit`` on the sample.
        seeds: Random starts of each program.

    Returns:
        One row per collection and rule: means over its test programs, of kernels only those with at least
        ``KERNEL`` tiles.
    """
    solution, rows = read_solution(resolve("data/sample/solution.csv")), []
    for collection in COLLECTIONS:
        ensemble = run / f"ensemble-{collection.slug}"
        rules = {path.name.replace("-", " "): path for path in sorted((ensemble / "baselines").iterdir())}
        for rule, folder in {**rules, "ensemble": ensemble}.items():
            counts = []
            for name, predicted in read_predictions(folder)[TEST].items():
                runtime = solution[f"{collection.name}:{name}"]
                if collection.kind == "layout" or len(runtime) >= KERNEL:
                    curves = [curve_in_order(predicted, runtime, seed) for seed in range(seeds)]
                    counts += [needs_of(curve) for curve in curves]
            rows.append({"collection": collection.name, "in the order of": rule, **_means(counts)})
    return rows


def _means(counts: Sequence[dict[str, int]]) -> dict[str, float]:
    return {within: round(float(np.mean([count[within] for count in counts])), 1) for within in WITHIN}
