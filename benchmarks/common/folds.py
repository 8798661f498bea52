"""Folds of the train and valid graphs, grouped by architecture; test is never read."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID
from fastslow.core.errors import DataError
from fastslow.features.graph import Graph, fit_scalers
from fastslow.features.scaling import Scaler
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features

POOLED = (TRAIN, VALID)


def family_of(name: str) -> str:
    """Return the architecture of a program: its name up to the first ``_``, such as ``resnet``.

    Programs of one architecture resemble each other, so they are held out together.
    """
    return name.partition("_")[0]


def split_families(names: Iterable[str], num_folds: int) -> list[set[str]]:
    """Split architectures into folds of about equally many programs.

    Args:
        names: Names of programs of train and valid.
        num_folds: Number of folds, at least 2.

    Returns:
        The architectures of each fold.

    Raises:
        DataError: There are fewer architectures than folds, or fewer than 2 folds.
    """
    names = sorted(set(names))
    families = np.array([family_of(name) for name in names])
    if not 2 <= num_folds <= len(set(families)):
        problem = f"{len(set(families))} architectures cannot be split into {num_folds} folds"
        raise DataError(
            "train and valid", problem, "Ask for 2 folds or more, and at most one per architecture"
        )
    # GroupKFold breaks ties towards the highest group; negated numbers break them towards the first name
    groups = -pd.factorize(families)[0]
    folds = GroupKFold(num_folds).split(names, groups=groups)
    return [set(families[held_out].tolist()) for _, held_out in folds]


def build_layouts(settings: dict, data_root: str, folder: Path) -> None:
    """Build the features of every layout collection in ``folder/<slug>``."""
    for collection in COLLECTIONS:
        if collection.kind == "layout":
            where = {"collection": collection.name, "data_root": data_root, "workers": 1}
            where["folder"] = str(folder / collection.slug)
            build_features(FeatureSettings(**{**settings, **where}))


class HeldOut(Features):
    """A features folder with some architectures as valid and all others as train; it has no test.

    Scalers are fitted on its own train graphs.

    Args:
        folder: The folder that a feature notebook wrote.
        families: The held-out architectures.
    """

    def __init__(self, folder: Path, families: set[str]):
        super().__init__(folder)
        known = self.index[self.index["split"].isin(POOLED)]
        self._origin = dict(zip(known["name"], known["split"], strict=True))
        held_out = known["name"].map(family_of).isin(families)
        self.index = known.assign(split=held_out.map({True: VALID, False: TRAIN}))

    def graph(self, split: str, name: str) -> Graph:
        """Read one graph from the split that the folder has it in."""
        return super().graph(self._origin[name], name)

    def read_labels(self, split: str, name: str, array: str) -> np.ndarray:
        """Read the labels of a graph from the split that the folder has it in."""
        return super().read_labels(self._origin[name], name, array)

    def scaler(self, name: str) -> Scaler:
        """Fit the ``node`` or ``config`` scaler."""
        graphs = (self.graph(TRAIN, graph) for graph in self.names(TRAIN))
        return fit_scalers(graphs)[name]
