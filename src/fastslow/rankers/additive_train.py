"""The additive ranker of a layout collection: a score is the sum of learnt costs of states."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.progress import boosting_progress
from fastslow.core.settings import AtLeastTwo, Fraction, NonNegativeFloat, Positive, resolve, unkeyed
from fastslow.evaluation.predictions import PREDICTED_SPLITS, write_predictions
from fastslow.features.config_tensors import config_chunks
from fastslow.features.store import Features, Graph
from fastslow.rankers import additive_fit
from fastslow.rankers.additive_fit import Fitted, Problem
from fastslow.rankers.additive_states import additive_rows
from fastslow.rankers.boosting_config import BoostingConfig
from fastslow.rankers.train import write_run
from fastslow.rankers.train_graphs import draw_graphs, trainable

ENTRY = "fastslow.rankers.additive_train:train_additive_ranker"
_PICK_BYTES = 48  # working memory of one state of one configuration


class AdditiveRankerConfig(BoostingConfig):
    """Settings of the additive ranker's notebook; for those not described here see :class:`BoostingConfig`.

    The rows of its trees are states, and ``learning_rate`` is the share of the best step of a tree's leaves
    that is taken.
    """

    folder: str = unkeyed("runs/sample/additive-layout-xla-random-s0")
    num_iterations: Positive = 300
    evaluate_every: Positive = 10
    learning_rate: Fraction = 0.1
    feature_fraction: Fraction = 0.3
    configs_per_graph: AtLeastTwo = 1000
    ridge: NonNegativeFloat = 1.0
    """Penalty on a leaf's squared value, in units of its own curvature; more is smoother."""

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        kind = Features(resolve(self.features)).collection.kind
        self.require(kind == "layout", "features", "a features folder of a layout collection")
        return self.run_artifact("additive ranker", ENTRY)


def read_problem(
    features: Features,
    split: str,
    names: Sequence[str] | None = None,
    also: Mapping[str, Features] | None = None,
    most: int | None = None,
    seed: int = 0,
) -> Problem:
    """The states and runtimes of a split.

    Args:
        features: A finished features folder of a layout collection.
        split: ``train``, ``valid`` or ``test``.
        names: Which graphs, ``<name>/<graph>`` for those of ``also``; all of ``features`` unless told.
        also: Features of other collections, by name.
        most: Most configurations of a graph, drawn at random.
        seed: Seed of the draw.
    """
    sources = {"": features, **(also or {})}
    names = features.names(split) if names is None else list(names)
    parts, runtimes = [], []
    for graph, rows, runtime in draw_graphs(sources, split, names, most, seed):
        parts.append(additive_rows(graph, rows))
        runtimes.append(runtime)
    return Problem(names, parts, runtimes)


def fit(config: AdditiveRankerConfig, features: Features, also: Mapping[str, Features], title: str) -> Fitted:
    """Boost on the train graphs, stop on the valid ones.

    Raises:
        DataError: No train graph has two configurations of different runtime.
    """
    names = trainable(features, also)
    if not names:
        raise DataError(features.folder, "no train graph with different runtimes", "Train on other programs")
    train = read_problem(features, "train", names, also, config.configs_per_graph, config.seed)
    if not len(train.rows):
        raise DataError(features.folder, "no train graph with different layouts", "Train on other programs")
    valid = read_problem(features, "valid", most=config.valid_configs)
    with boosting_progress(config.num_iterations, title) as report:
        stopping = (config.evaluate_every, config.early_stopping_rounds, report)
        return additive_fit.fit(config.trees(), train, valid, config.num_iterations, config.ridge, *stopping)


def predict_split(fitted: Fitted, features: Features, split: str) -> dict[str, np.ndarray]:
    """Predict every configuration of every file of a split, ``(F,)`` float64 each, lower = faster."""
    graphs = (features.graph(split, name) for name in features.names(split))
    return {graph.name: graph.expand(score_graph(fitted, graph)) for graph in graphs}


def score_graph(fitted: Fitted, graph: Graph, chunk_bytes: int = 1 << 28) -> np.ndarray:
    """``(C,)`` scores of a graph's configurations, which are looked at in chunks.

    Args:
        fitted: The trained ranker.
        graph: A layout graph.
        chunk_bytes: Working memory for one chunk of configurations; changes no value.
    """
    width = len(graph.config_index) + len(graph.pairs)
    chunks = config_chunks(graph.num_configs, _PICK_BYTES * width, chunk_bytes)
    return np.concatenate([fitted.scores(additive_rows(graph, chunk, shared=True)) for chunk in chunks])


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
            artifact.finish(**_train(config, artifact.folder))
    return read_manifest(artifact.folder)


def _train(config: AdditiveRankerConfig, folder: Path) -> dict:
    """Fit, write all but the manifest, and give the facts for it."""
    features = Features(resolve(config.features))
    fitted = fit(config, features, config.also(), folder.name)
    history = [{"objective": "additive", "round": round_, "valid": tau} for round_, tau in fitted.history]
    write_run(folder, history, fitted.booster, fitted.rounds)
    scores = {split: predict_split(fitted, features, split) for split in PREDICTED_SPLITS}
    write_predictions(folder, scores)
    valid = collection_score("layout", features.labels("valid"), scores["valid"])
    return {"valid": {**valid, "weights": f"{fitted.rounds} rounds"}}
