"""The trivial rules beside which models are measured, fitted without the held-out architectures."""

from collections.abc import Sequence

import numpy as np

from common.comparison import by_graph, means_by_seed
from common.folds import HeldOut
from common.held_out import Run
from fastslow.competition.catalog import TRAIN, VALID
from fastslow.evaluation.baselines import (
    MAX_CONFIGS,
    RIDGE,
    SINGLE,
    Example,
    choose_column,
    fit_ridge,
    predict_configs,
)
from fastslow.evaluation.metric_table import graph_metrics
from fastslow.features.scaling import standardise
from fastslow.features.train_graphs import draw_graphs, trainable


def rule_results(runs: Sequence[Run]) -> list[dict]:
    """Evaluate the best single feature and the ridge regression on what the runs hold out.

    Args:
        runs: Runs of one variant and seed, one per fold and group of collections.

    Returns:
        Results as those of :func:`common.held_out.train_held_out`, with the rule as variant.
    """
    results = []
    for run in runs:
        for folder in run.features:
            features = HeldOut(folder, set(run.held_out))
            examples = [
                Example(standardise(np.asarray(graph.config_feat))[rows], runtime)
                for graph, rows, runtime in draw_graphs(
                    {"": features}, TRAIN, trainable({"": features}), MAX_CONFIGS, seed=0
                )
            ]
            graphs, labels = features.names(VALID), features.labels(VALID)
            for name, rule in ((SINGLE, choose_column(examples)), (RIDGE, fit_ridge(examples))):
                predicted = {graph: predict_configs(rule, features.graph(VALID, graph)) for graph in graphs}
                table = graph_metrics(labels, predicted).to_dict(orient="index")
                facts = {"variant": name, "seed": run.seed, "fold": run.fold, "seconds": 0.0}
                results.append({**facts, "per_graph": {features.collection.name: table}})
    return results


def rule_means(runs: Sequence[Run], metric: str = "tau") -> dict[str, dict[str, float]]:
    """Return one metric of each rule: its mean over collections, and by collection the mean over graphs.

    Args:
        runs: As for :func:`rule_results`.
        metric: One of :data:`fastslow.competition.metrics.ALL_METRICS`.
    """
    results, means = rule_results(runs), {}
    for rule in (SINGLE, RIDGE):
        own = by_graph([result for result in results if result["variant"] == rule], metric)
        by_collection = means_by_seed(own)[runs[0].seed]
        means[rule] = {metric: float(np.mean(list(by_collection.values()))), **by_collection}
    return means
