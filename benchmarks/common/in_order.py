"""What trivial rules need where a search is measured: the configurations of a test file in a rule's order."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from common.needs import KERNEL, WITHIN, needed
from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import fit_baselines
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.store import Features
from fastslow.kaggle.solution import read_solution
from fastslow.programs.zoo import PROGRAMS
from fastslow.tuning.target import Target


def curve(predicted: np.ndarray, runtime: np.ndarray, seed: int) -> np.ndarray:
    """Return the best value over the best of all, minus 1, after a random start and then each of the order.

    Args:
        predicted: ``(C,)`` predictions, the lowest first.
        runtime: ``(C,)`` labels, positive.
        seed: Of the start.
    """
    start = np.random.default_rng([seed, 1]).integers(len(runtime))
    values = np.r_[runtime[start], runtime[np.argsort(predicted, kind="stable")]]
    return np.minimum.accumulate(values) / runtime.min() - 1


def rules_in_order(run: Path, seeds: int) -> list[dict]:
    """Return the mean evaluations that every trivial rule, and the ensemble itself, needs without learning.

    Args:
        run: Folder of runs of ``make submit`` on the sample.
        seeds: Random starts of each program.

    Returns:
        One row per collection and rule, means over its test programs (kernels: of ``KERNEL`` tiles or more).
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
                    curves = [curve(predicted, runtime, seed) for seed in range(seeds)]
                    counts += [[needed(own, within) for within in WITHIN] for own in curves]
            rows.append({"collection": collection.name, "in the order of": rule} | _means(counts))
    return rows


def pools_in_order(run: Path, pools: Sequence[Target], seeds: int) -> list[dict]:
    """Return the same of drawn layouts: the rules of train and valid, and what the run says of them.

    Args:
        run: Folder of runs, as for :func:`rules_in_order`; its features are in the folder of the same name.
        pools: Labelled configurations of programs of the zoo, with a prediction.
        seeds: Random starts of each program.
    """

    @cache
    def rules_of(slug: str):
        return fit_baselines(Features(resolve(f"features/{run.name}/{slug}")))

    counts: dict[str, list] = {}
    for pool in pools:
        collection = get_collection(f"layout:{PROGRAMS[pool.name].source}:random")
        prediction, config_feat = pool.pretrained(pool.space.listed)
        orders = {name: rule.predict(config_feat) for name, rule in rules_of(collection.slug).items()}
        for name, predicted in {**orders, "ensemble": prediction}.items():
            curves = [curve(predicted, pool.labels, seed) for seed in range(seeds)]
            counts.setdefault(name, []).extend([needed(own, w) for w in WITHIN] for own in curves)
    return [
        {"collection": "drawn layouts", "in the order of": name} | _means(own) for name, own in counts.items()
    ]


def _means(counts: Sequence[Sequence[int]]) -> dict[str, float]:
    titles = [f"within {within:.0%}" if within else "the best known" for within in WITHIN]
    return dict(zip(titles, np.mean(counts, 0).round(1).tolist(), strict=True))
