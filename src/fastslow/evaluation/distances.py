"""Scores by distance: how a model does on programs that are near to, or far from, those it learned from."""

from collections.abc import Mapping, Sequence

import numpy as np

from fastslow.competition.catalog import TRAIN
from fastslow.competition.opcodes import distance, opcode_shares
from fastslow.core.npz_io import read_arrays
from fastslow.evaluation.score_tables import PARTS
from fastslow.runs.features_folder import Features, files_of


def nearest_train(stores: Sequence[Features], split: str) -> dict[str, dict[str, float]]:
    """Measure the distance of every graph of a split to the nearest train graph.

    Train graphs of all collections of a kind count, since one network may learn from all layout collections.

    Args:
        stores: Features of some collections.
        split: ``valid`` or ``test``.

    Returns:
        Distance by graph of each collection, see :func:`fastslow.competition.opcodes.distance`. Features
        without train graphs are left out.
    """
    stores = [features for features in stores if features.has_train]
    train: dict[str, list[np.ndarray]] = {}
    for features in stores:
        train.setdefault(features.collection.kind, []).append(_opcode_shares(features, TRAIN))
    distances = {}
    for features in stores:
        seen = np.unique(np.concatenate(train[features.collection.kind]), axis=0)
        nearest = distance(_opcode_shares(features, split), seen).min(1, initial=1.0)
        distances[features.collection.name] = dict(zip(features.names(split), nearest.tolist(), strict=True))
    return distances


def _opcode_shares(features: Features, split: str) -> np.ndarray:
    """Return the opcode shares of a split's graphs; only their opcodes are read."""
    files = (files_of(features.folder, split, name)[0] for name in features.names(split))
    return opcode_shares(read_arrays(file, ["node_opcode"])["node_opcode"] for file in files)


def score_by_distance(
    stores: Sequence[Features], split: str, scored: Mapping[str, Mapping[str, dict]]
) -> list[dict]:
    """Average scores over the graphs of a collection that are near to, or far from, the train graphs.

    Args:
        stores: Features of some collections.
        split: ``valid`` or ``test``.
        scored: By collection, ``per_graph``: the score of each of its graphs, by name or ID.

    Returns:
        One row per collection and part, at most three parts of equal size: ``split``, ``collection``,
        ``part`` (one of ``score_tables.PARTS``), ``graphs`` (count), ``smallest`` and ``largest`` distance,
        and the mean ``score``.
    """
    rows = []
    for collection, distances in nearest_train(stores, split).items():
        scores = {g.removeprefix(f"{collection}:"): s for g, s in scored[collection]["per_graph"].items()}
        order = sorted(distances, key=lambda graph: (distances[graph], graph))
        for part, graphs in zip(PARTS, np.array_split(order, len(PARTS)), strict=True):
            if len(graphs):
                row = {"split": split, "collection": collection, "part": part, "graphs": len(graphs)}
                row |= {"smallest": distances[graphs[0]], "largest": distances[graphs[-1]]}
                rows.append(row | {"score": float(np.mean([scores[graph] for graph in graphs]))})
    return rows
