"""Scores of variants and trivial rules on held-out programs: means over seeds, gains with standard errors."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from common import report
from common.folds import HeldOut, family_of
from common.held_out import BASE, Run
from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.metrics import ranking_tau
from fastslow.evaluation.baselines import (
    MAX_CONFIGS,
    RIDGE,
    SINGLE,
    Example,
    choose_column,
    fit_ridge,
    predict_configs,
)
from fastslow.features.scaling import standardise
from fastslow.features.train_graphs import draw_graphs, trainable


def by_graph(results: list[dict]) -> dict[str, dict[str, dict[int, float]]]:
    """Arrange the taus of the results as collection -> graph -> seed -> value."""
    found: dict = {}
    for result in results:
        for collection, graphs in result["per_graph"].items():
            for graph, tau in graphs.items():
                found.setdefault(collection, {}).setdefault(graph, {})[result["seed"]] = tau
    return found


def means_by_seed(graphs: dict[str, dict[str, dict[int, float]]]) -> dict[int, dict[str, float]]:
    """Average :func:`by_graph` as seed -> collection -> mean over its graphs."""
    means: dict = {}
    for collection, per_graph in graphs.items():
        for seed in {seed for values in per_graph.values() for seed in values}:
            held = [values[seed] for values in per_graph.values() if seed in values]
            means.setdefault(seed, {})[collection] = float(np.mean(held))
    return means


def standard_error(graphs: dict, base: dict) -> float | None:
    """Return the standard error of a variant's gain over the base.

    Args:
        graphs: The variant's :func:`by_graph`.
        base: The base's.

    Returns:
        Standard error over architectures of the gain, paired by graph and seed; None for one architecture.
    """
    gains: dict[str, list[float]] = {}
    for collection, per_graph in graphs.items():
        for graph, taus in per_graph.items():
            paired = base.get(collection, {}).get(graph, {})
            known = [tau - paired[seed] for seed, tau in taus.items() if seed in paired]
            gains.setdefault(family_of(graph), []).extend(known)
    means = [np.mean(known) for known in gains.values() if known]
    return float(np.std(means, ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None


def whole_results(runs: Sequence[Run], results: list[dict]) -> dict[str, list[dict]]:
    """Return the results by variant, of those seeds whose runs are all finished."""
    planned = Counter((run.variant, run.seed) for run in runs)
    done = Counter((result["variant"], result["seed"]) for result in results)
    whole = {key for key, count in planned.items() if done[key] == count}
    return {
        variant: [r for r in results if r["variant"] == variant and (variant, r["seed"]) in whole]
        for variant in dict.fromkeys(run.variant for run in runs)
    }


def time_ratio(results: list[dict], base: list[dict]) -> float | None:
    """Return the processor time over the base's with the same seed and fold, mean over both."""
    seconds = {(r["seed"], r["fold"]): r["seconds"] for r in base}
    keys = [(r["seconds"], (r["seed"], r["fold"])) for r in results]
    ratios = [own / seconds[key] for own, key in keys if key in seconds]
    return float(np.mean(ratios)) if ratios else None


def summarise(runs: list[Run], results: list[dict]) -> dict[str, dict]:
    """Return tau and the gain over the base per variant, over the seeds whose runs are all finished."""
    counted = whole_results(runs, results)
    base_graphs = by_graph(counted[BASE])
    summary: dict[str, dict] = {}
    for variant, own in counted.items():
        graphs = by_graph(own)
        means = means_by_seed(graphs)
        tau = {seed: float(np.mean(list(means[seed].values()))) for seed in sorted(means)}
        base = summary[BASE]["tau"] if variant != BASE else tau
        summary[variant] = {
            "tau": tau,
            "gain over base": [tau[seed] - base[seed] for seed in tau if seed in base],
            "standard error": standard_error(graphs, base_graphs),
            "by collection": {c: [means[seed][c] for seed in tau] for c in graphs},
            "by graph": {c: {g: list(taus.values()) for g, taus in own.items()} for c, own in graphs.items()},
            "time": time_ratio(own, counted[BASE]),
        }
    return summary


def variant_rows(summary: dict[str, dict]) -> list[dict]:
    """Return one table row per variant, best first; the gain over the base is paired by seed."""
    rows = sorted(summary.items(), key=lambda item: -np.mean(item[1]["gain over base"] or [-np.inf]))
    return [
        {
            "variant": variant,
            "seeds": len(part["tau"]),
            "tau": report.spread(list(part["tau"].values())),
            "gain over base": report.spread(part["gain over base"]) if variant != BASE else "",
            "±": f"{part['standard error']:.3f}" if part["standard error"] else "",
            **{c: f"{np.mean(taus):.3f}" for c, taus in part["by collection"].items()},
            "time over base": f"{part['time']:.2f}" if part["time"] else "",
        }
        for variant, part in rows
        if part["tau"]
    ]


def rule_means(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Fit the best single feature and the ridge regression on the training programs of runs, and score both.

    Args:
        runs: Runs of one variant and seed, one per fold and group of collections.

    Returns:
        By rule ``tau``, the mean over collections, and by collection the mean over held-out graphs.
    """
    taus: dict[str, dict[str, list[float]]] = {SINGLE: {}, RIDGE: {}}
    for run in runs:
        for features in (HeldOut(folder, set(run.held_out)) for folder in run.features):
            source = {"": features}
            drawn = draw_graphs(source, TRAIN, trainable(source), MAX_CONFIGS, seed=0)
            examples = [
                Example(standardise(np.asarray(graph.config_feat))[rows], runtime)
                for graph, rows, runtime in drawn
            ]
            labels = features.labels(VALID)
            for name, rule in ((SINGLE, choose_column(examples)), (RIDGE, fit_ridge(examples))):
                own = taus[name].setdefault(features.collection.name, [])
                for graph in features.names(VALID):
                    own.append(
                        ranking_tau(labels[graph], predict_configs(rule, features.graph(VALID, graph)))
                    )
    means = {rule: {c: float(np.mean(own)) for c, own in found.items()} for rule, found in taus.items()}
    return {rule: {"tau": float(np.mean(list(own.values()))), **own} for rule, own in means.items()}
