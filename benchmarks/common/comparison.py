"""Summarise what variants score on held-out programs: means over seeds, gains with standard errors."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from common import report
from common.folds import family_of
from common.held_out import BASE, Run


def by_graph(results: list[dict], metric: str = "tau") -> dict[str, dict[str, dict[int, float]]]:
    """Arrange one metric of the results as collection -> graph -> seed -> value."""
    found: dict = {}
    for result in results:
        for collection, graphs in result["per_graph"].items():
            for graph, values in graphs.items():
                found.setdefault(collection, {}).setdefault(graph, {})[result["seed"]] = values[metric]
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
            "by collection": {
                c: [means[seed][c] for seed in tau]
                for c in dict.fromkeys(c for r in own for c in r["per_graph"])
            },
            "by graph": {
                c: {graph: list(taus.values()) for graph, taus in by_seed.items()}
                for c, by_seed in graphs.items()
            },
            "seconds": float(np.mean([result["seconds"] for result in own])) if own else 0.0,
        }
    return summary


def variant_rows(summary: dict[str, dict]) -> list[dict]:
    """Return one table row per variant, best first; the gain over the base is paired by seed."""
    rows = sorted(summary.items(), key=lambda item: -np.mean(item[1]["gain over base"] or [-np.inf]))
    collections = list(summary[BASE]["by collection"])
    return [
        {
            "variant": variant,
            "seeds": len(part["tau"]),
            "tau": report.spread(list(part["tau"].values())),
            "gain over base": report.spread(part["gain over base"]) if variant != BASE else "",
            "±": f"{part['standard error']:.3f}" if part["standard error"] else "",
            **{c: f"{np.mean(part['by collection'].get(c) or [np.nan]):.3f}" for c in collections},
            "seconds a run": f"{part['seconds']:.0f}",
        }
        for variant, part in rows
        if part["tau"]
    ]
