"""Graphs that a features folder never saw, built as its own were: what a finished model is applied to."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from fastslow.competition.catalog import TEST, Program
from fastslow.features.build import build_graph
from fastslow.features.config import FeatureConfig
from fastslow.features.store import Features, Graph


class UnseenGraphs(Features):
    """A features folder with its settings and scalers, whose test split is other graphs.

    Whatever predicts a test split predicts these graphs, exactly as if they had been in the folder.

    Args:
        folder: The folder that a feature notebook wrote.
        graphs: The graphs, each with its own name.
    """

    def __init__(self, folder: Path, graphs: Iterable[Graph]):
        super().__init__(folder)
        self._graphs = {graph.name: graph for graph in graphs}
        rows = [
            {
                "split": TEST,
                "name": g.name,
                "configs": g.num_configs,
                "merged": len(g.config_row) - g.num_configs,
            }
            for g in self._graphs.values()
        ]
        self.index = pd.concat([self.index[self.index["split"] != TEST], pd.DataFrame(rows)])

    def graph(self, split: str, name: str) -> Graph:
        """Return a graph: of test one of those given, else of the folder."""
        return self._graphs[name] if split == TEST else super().graph(split, name)


def read_unseen(folder: Path, paths: Sequence[Path], hlo_folder: str = "") -> UnseenGraphs:
    """Build graphs from competition files with the settings of a features folder.

    Runtimes in the files, if any, are in the graphs; no model reads them.

    Args:
        folder: The features folder of the collection that the files are of.
        paths: The npz files.
        hlo_folder: As the setting of feature building.

    Raises:
        DataError: The features are not finished, or a file is broken; the message names the key.
    """
    features = Features(folder)
    settings = FeatureConfig(**features.manifest["settings"], hlo_folder=hlo_folder)
    programs = [Program(features.collection, TEST, Path(path)) for path in paths]
    return UnseenGraphs(folder, [build_graph(program, settings)[0] for program in programs])
