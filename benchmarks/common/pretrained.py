"""Labelled files, and the models of a finished run that predict them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, SPLITS, Collection
from fastslow.core.npz_io import read_arrays
from fastslow.features.graph import Graph
from fastslow.runs.features_folder import Features
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import UnseenGraphs


def labelled_files(root: Path) -> Iterator[tuple[Collection, Path]]:
    """Yield the files with runtimes of which two differ, whatever their split.

    Args:
        root: Folder that holds ``npz_all/``.
    """
    for collection in COLLECTIONS:
        for path in sorted(p for split in SPLITS for p in collection.folder(root, split).glob("*.npz")):
            runtime = read_arrays(path, ["config_runtime"])["config_runtime"]
            if 0 < runtime.min() < runtime.max():
                yield collection, path


class Pretrained:
    """Models of a finished run for one collection.

    Args:
        runs: Folder of the run of ``make submit``.
        collection: The collection.

    Attributes:
        features: Its features.
        ensemble: Folder of its ensemble.
    """

    def __init__(self, runs: Path, collection: Collection):
        self.ensemble = runs / f"ensemble-{collection.slug}"
        self.features = Features(runs.parents[1] / "features" / runs.name / collection.slug)
        self._run = FinishedRun(self.ensemble)

    def predict(self, graph: Graph) -> dict[str, np.ndarray]:
        """Predict an unseen graph as ``rank`` does: ``(C_file,)`` by member, and last by the ensemble."""
        unseen = UnseenGraphs(self.features.folder, [graph])
        members, ensemble = self._run.predict_program(unseen, graph.name)
        return members | {self._run.name: ensemble}
