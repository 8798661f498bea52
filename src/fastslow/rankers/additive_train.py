"""Train the additive ranker of a layout collection: a prediction is the sum of learned costs of states."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import TRAIN, VALID
from fastslow.competition.metrics import collection_score, mean_metrics
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import boosting_progress
from fastslow.core.records import Record, check_record
from fastslow.core.settings import NonNegative, resolve
from fastslow.evaluation.predictions import PREDICTED_SPLITS, Predictor, write_predictions
from fastslow.features.derived import derived
from fastslow.features.store import Features, Graph
from fastslow.features.train_graphs import draw_graphs, trainable
from fastslow.rankers import additive_fit
from fastslow.rankers.additive_fit import Fitted, Problem
from fastslow.rankers.additive_states import additive_rows
from fastslow.rankers.config import AdditiveRankerConfig
from fastslow.rankers.train import OUTPUTS, read_booster, write_trees


class _Manifest(Record):
    """Key of an additive ranker's manifest that prediction needs."""

    trees: NonNegative


def read_problem(
    features: Features,
    split: str,
    names: Sequence[str] | None = None,
    also: Mapping[str, Features] | None = None,
    max_configs: int | None = None,
    seed: int = 0,
) -> Problem:
    """Read the states and runtimes of a split.

    Args:
        features: A finished features folder of a layout collection.
        split: ``train``, ``valid`` or ``test``.
        names: Graphs to read, ``<name>/<graph>`` for those of ``also``; by default all of ``features``.
        also: Features of other collections, by name.
        max_configs: Maximum configurations of a graph; of more, that many are sampled.
        seed: Seed of the samples.
    """
    sources = {"": features, **(also or {})}
    names = features.names(split) if names is None else list(names)
    parts, runtimes = [], []
    for graph, rows, runtime in draw_graphs(sources, split, names, max_configs, seed):
        parts.append(additive_rows(graph, rows))
        runtimes.append(runtime)
    return Problem(names, parts, runtimes)


def fit(config: AdditiveRankerConfig, features: Features, also: Mapping[str, Features], title: str) -> Fitted:
    """Boost on the train graphs, evaluated on the valid ones.

    Args:
        config: Settings.
        features: Features of the collection to predict.
        also: Features of other collections to learn from, by name.
        title: Title of the progress bar.

    Raises:
        DataError: No train graph can be learned from.
    """
    names = trainable({"": features, **also})
    train = read_problem(features, TRAIN, names, also, config.configs_per_graph, config.seed)
    if not len(train.rows):
        raise DataError(features.folder, "no train graph with different layouts", "Train on other programs")
    valid = read_problem(features, VALID, max_configs=config.valid_configs)
    with boosting_progress(config.num_iterations, title) as report:
        return additive_fit.fit(config, train, valid, report)


def predict_split(fitted: Fitted, features: Features, split: str) -> dict[str, np.ndarray]:
    """Predict every configuration of every file of a split, ``(C_file,)`` float64 each, lower = faster."""
    graphs = (features.graph(split, name) for name in features.names(split))
    return {graph.name: graph.expand(predict_graph(fitted, graph)) for graph in graphs}


def read_additive_predictor(folder: Path) -> Predictor:
    """Read a finished additive ranker as a function that predicts.

    Raises:
        DataError: The run is not finished, or was changed after it was trained.
    """
    manifest = check_record(Path(folder) / MANIFEST, read_manifest(folder), _Manifest, "Train it again")
    return partial(predict_split, Fitted(read_booster(folder), manifest["trees"], []))


def predict_graph(fitted: Fitted, graph: Graph) -> np.ndarray:
    """Predict the configurations ``(C,)`` of a layout graph."""
    return fitted.predict(derived(graph, "additive rows", lambda: additive_rows(graph)))


def train_additive_ranker(config: AdditiveRankerConfig) -> dict:
    """Train the additive ranker of one layout collection and write its run folder.

    The folder gets ``metrics.jsonl``, ``training.png``, ``model.txt``, ``importance.csv``,
    ``predictions.npz`` and, last, ``manifest.json``, so that it can be a member of an ensemble. An
    interrupted run starts again.

    Args:
        config: Settings.

    Returns:
        The manifest, with the valid score (mean and per graph).
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            artifact.finish(OUTPUTS, **_train(config, artifact.folder))
    return read_manifest(artifact.folder)


def _train(config: AdditiveRankerConfig, folder: Path) -> dict:
    """Fit, write all but the manifest, and return the facts for it."""
    features = Features(resolve(config.features))
    fitted = fit(config, features, config.also(), folder.name)
    predictions = {split: predict_split(fitted, features, split) for split in PREDICTED_SPLITS}
    labels = features.labels(VALID)
    metrics = {"additive": mean_metrics(labels, predictions[VALID])}
    write_trees(folder, {"additive": fitted}, metrics, "additive")
    warnings = write_predictions(folder, predictions)
    valid = collection_score("layout", labels, predictions[VALID])
    return {
        "valid": {**valid, "weights": f"{fitted.num_trees} rounds"},
        "trees": fitted.num_trees,
        "warnings": warnings,
        "features": features.recipe,
    }
