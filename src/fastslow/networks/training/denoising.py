"""Labels with less noise, by predictions from other programs and a program's other configurations.

A measurement is the true runtime and noise; the repeated configurations of a graph show its size. Two
predictions know nothing of the measurement: ridge regression on the features of a configuration, fitted on
other programs; and trees on its choices, fitted on the graph's other configurations. A label becomes a
mixture of its measurement and of both, by how wrong each is (``benchmarks/noise.py``).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import TRAIN
from fastslow.competition.data_quality import label_noise
from fastslow.evaluation.baselines import MAX_CONFIGS, GraphRows, Linear, fit_ridge
from fastslow.features.scaling import normal_scores, standardise
from fastslow.features.store import Features, Graph
from fastslow.features.train_graphs import draw_configs

_FOLDS = 5
_TYPICAL = 100  # configurations that the mean error over all graphs counts beside those of a graph
_ENOUGH = 200  # distinct configurations of a graph that trees learn from
_TREES = {
    **{"objective": "regression", "num_iterations": 200, "learning_rate": 0.05, "num_leaves": 15},
    **{"min_data_in_leaf": 10, "lambda_l2": 1.0, "min_data_per_group": 5, "cat_smooth": 5.0, "cat_l2": 1.0},
    **{"deterministic": True, "num_threads": 1, "verbose": -1},
}


class _Measured(NamedTuple):
    """The labels ``(C,)`` of a graph, in normal scores of the ranks of its measurements."""

    label: np.ndarray  # mean of the runs of each configuration
    noise: np.ndarray  # variance of that mean; 0 where none is known
    example: GraphRows  # some configurations, for the regression


def denoised_labels(
    sources: Mapping[str, Features], names: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, np.ndarray]]:
    r"""Return labels with less noise, of the graphs that have noise.

    On the scale of normal scores of ranks, with the mean y of n measurements of noise variance
    :math:`\sigma^2` and the prediction f, a label becomes

    .. math:: f + \frac{\tau^2}{\tau^2 + \sigma^2 / n} (y - f)

    where :math:`\tau^2` is the mean of :math:`(y - f)^2 - \sigma^2 / n` over the graph's configurations and,
    counted as 100 more, over the configurations of all train graphs.

    Args:
        sources: Features by the prefix of their graphs' names.
        names: Graphs, ``<prefix>/<graph>``, by split. Only train graphs predict others; without another
            program there is no regression.

    Returns:
        ``(C,)`` by split and name, above 0: exponentials of the scores. A graph without noise, or with too
        few repeats to tell, is left out.
    """
    graphs = [(split, name) for split, own in names.items() for name in own]
    stems = sorted({name.rpartition("/")[2] for _, name in graphs})
    fold = {graph: stems.index(graph[1].rpartition("/")[2]) % _FOLDS for graph in graphs}
    measured = {graph: _measure(_read(sources, graph), graph[1]) for graph in graphs}
    fitted = {}
    for n in range(_FOLDS):
        noisy = [graph for graph, own in measured.items() if fold[graph] == n and own.noise.any()]
        others = [own.example for graph, own in measured.items() if fold[graph] != n and graph[0] == TRAIN]
        rule = fit_ridge(others, _centred) if noisy and others else None
        fitted |= {graph: _predict(_read(sources, graph), measured[graph].label, rule) for graph in noisy}
    residual = {graph: measured[graph].label - own for graph, own in fitted.items()}
    wrong = {graph: np.square(own) - measured[graph].noise for graph, own in residual.items()}
    means = [own.mean() for (split, _), own in wrong.items() if split == TRAIN]
    typical = np.mean(means) if means else 0.0
    labels: dict[str, dict[str, np.ndarray]] = {split: {} for split in names}
    for graph, own in wrong.items():
        error = max(0.0, (own.sum() + _TYPICAL * typical) / (len(own) + _TYPICAL))
        mixed = fitted[graph] + error / (error + measured[graph].noise) * residual[graph]
        labels[graph[0]][graph[1]] = np.exp(mixed)
    return labels


def _read(sources: Mapping[str, Features], graph: tuple[str, str]) -> Graph:
    split, name = graph
    prefix, _, stem = name.rpartition("/")
    return sources[prefix].graph(split, stem)


def _centred(label: np.ndarray) -> np.ndarray:
    return label - label.mean()


def _measure(graph: Graph, name: str) -> _Measured:
    scores, counts = normal_scores(graph.file_runtime), graph.count
    label = np.bincount(graph.config_row, scores) / counts
    noise = np.zeros(len(label))
    if label_noise(graph.file_runtime, graph.config_row) > 0:
        squares = np.square(scores - label[graph.config_row]).sum()
        noise = squares / (len(scores) - len(counts)) / counts
    rows = draw_configs(graph.num_configs, MAX_CONFIGS, 0, name)
    values = standardise(np.asarray(graph.config_feat))[rows]
    return _Measured(label, noise, GraphRows(values, label[rows]))


def _predict(graph: Graph, label: np.ndarray, rule: Linear | None) -> np.ndarray:
    """Return what the regression, and then trees, say of the labels ``(C,)`` without having seen them."""
    fitted = np.full(len(label), label.mean())
    if rule:
        fitted += _centred(rule.predict(np.asarray(graph.config_feat)))
    if len(label) >= _ENOUGH:
        fitted += _out_of_fold(graph.choices.values[:][:, graph.choices.varying], label - fitted, graph.count)
    return fitted


def _out_of_fold(values: np.ndarray, label: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return what trees, fitted on four fifths of the labels ``(C,)``, say of the others."""
    import lightgbm  # with scikit-learn a second

    values, fold = values.astype(np.float32), np.random.default_rng(0).permutation(len(label)) % _FOLDS
    options = {"categorical_feature": [*range(values.shape[1])], "params": _TREES}
    fitted = np.zeros(len(label))
    for out in range(_FOLDS):
        kept = fold != out
        data = lightgbm.Dataset(values[kept], label[kept], weight=counts[kept], **options)
        fitted[~kept] = lightgbm.train(_TREES, data).predict(values[~kept])
    return fitted
