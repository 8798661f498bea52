"""Labelled files, and the models of a finished run that predict them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, SPLITS, Collection
from fastslow.core.errors import DataError
from fastslow.core.npz_io import read_arrays
from fastslow.features.graph import Graph
from fastslow.runs.features_folder import Features
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import UnseenGraphs
from fastslow_programs.ranking.models import runs_folder


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


def run_with_features(named: str | Path | None) -> Path:
    """Return the folder of a finished run whose features are there: the named one, or the newest.

    Raises:
        DataError: There is no such run, or it has no features, as the models in the package have none.
    """
    runs = runs_folder(named or "").resolve()
    remedy = "Name the folder of a run of `make submit`, such as runs/sample, or make it with `make submit`"
    if not runs.is_dir():
        raise DataError(runs, "no such folder", remedy)
    features = features_of(runs)
    if not features.is_dir():
        problem = f"these models came without the features that they learned from ({features} is missing)"
        raise DataError(runs, problem, remedy)
    return runs


def features_of(runs: Path) -> Path:
    """Return the folder of the features of a run of ``make submit``: ``features/NAME`` of ``runs/NAME``."""
    return runs.parent.parent / "features" / runs.name


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
        self.features = Features(features_of(runs) / collection.slug)
        self._run = FinishedRun(self.ensemble)

    def predict(self, graph: Graph) -> dict[str, np.ndarray]:
        """Predict an unseen graph as ``rank`` does: ``(C_file,)`` by member, and last by the ensemble."""
        unseen = UnseenGraphs(self.features.folder, [graph])
        members, ensemble = self._run.predict_program(unseen, graph.name)
        return members | {self._run.name: ensemble}
