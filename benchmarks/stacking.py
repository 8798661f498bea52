"""Stacking without leakage: the GNN's scores as one more column of the ranker's table.

``python benchmarks/stacking.py [--quick] [--seeds N] [--folds N] [--sources xla nlp] [--scale z]``. The train
programs of a source are dealt into folds by architecture, alike in both searches. A GNN trained on the other
folds scores the train graphs of each, so that the column of a train graph is from a network that saw neither
it nor its like; one trained on all train graphs fills the column of valid and test. The networks learn from
both searches together and keep their best weights on valid of random, and the ranker its best objective on
valid; ensembles are weighted on valid as ``make submit`` does. Test is scored and chooses nothing. Finished
trainings lie in ``benchmarks/results/stacking/`` by settings and data, and are not repeated.
"""

import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import measure
from fastslow import train_config
from fastslow.arrays import read_arrays, write_arrays
from fastslow.artifacts import digest
from fastslow.collections import COLLECTIONS, Collection
from fastslow.config import resolve
from fastslow.ensemble import NORMALISATIONS, EnsembleConfig, combine, rank_mean, search_weights
from fastslow.features import LayoutFeatureConfig, build_features
from fastslow.graphs import Features
from fastslow.inputs import Inputs, pick_device, predict
from fastslow.metrics import collection_score
from fastslow.presets import preset_settings
from fastslow.ranker import fit_objectives
from fastslow.ranker_config import RankerConfig
from fastslow.ranker_fit import read_training
from fastslow.ranker_table import Table, draw_configs, read_table
from fastslow.scores import SCORED_SPLITS, Scores
from fastslow.solution import read_solution
from fastslow.steps import parse_overrides
from fastslow.train import Training
from fastslow.train_config import LayoutTrainConfig
from folds import HeldOut, deal

RESULTS = Path(__file__).resolve().parent / "results"
HELD_OUT = "held_out"
COLUMN = "gnn_score"
ENSEMBLES = {
    "ensemble": ("gnn", "ranker"),
    "ensemble with stacked": ("gnn", "stacked"),
    "ensemble of three": ("gnn", "ranker", "stacked"),
}
LEAST_GAIN = 0.01


def z_score(score: np.ndarray) -> np.ndarray:
    """Scores of a graph less their mean, over their deviation."""
    return (score - score.mean()) / max(score.std(), 1e-9)


SCALES = {"z": z_score, "rank": rank_mean}


class OutOfFold(HeldOut):
    """A features folder whose train graphs of some families are split ``held_out``; it has no test.

    Args:
        folder: The folder that a feature notebook wrote.
        families: Which are held out of train.
    """

    def __init__(self, folder: Path, families: set[str]):
        super().__init__(folder, families)  # calls them valid, and every other graph train
        valid = self.index["name"].map(self._origin) == "valid"
        split = self.index["split"].replace("valid", HELD_OUT).mask(valid, "valid")
        self.index = self.index.assign(split=split)


def parse_arguments(arguments: list[str]) -> Namespace:
    """The command line."""
    parser = measure.make_parser(__doc__.splitlines()[0])
    parser.set_defaults(threads=1)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of networks and rankers (default 3)")
    parser.add_argument("--folds", type=int, default=3, help="folds of the train programs (default 3)")
    parser.add_argument("--sources", nargs="+", default=["xla", "nlp"], choices=("xla", "nlp"))
    parser.add_argument("--scale", default="z", choices=SCALES, help="scale of a graph's column (default z)")
    parser.add_argument("--copies", type=int, default=1, help="columns that hold it (default 1)")
    parser.add_argument("--preset", default="sample", help="settings of all models (default sample)")
    parser.add_argument("--data-root", default="data/sample", help="folder of npz_all/ and solution.csv")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.folds, options.sources, options.preset = 1, 2, ["xla"], "smoke"
        options.set = ["gnn.epochs=1", "gnn.width=8", "ranker.rounds=5", *options.set]
    torch.set_num_threads(options.threads)
    return options


class Stacking:
    """Trains what one source needs, or finds what was trained before.

    Args:
        options: The command line.
        source: ``xla`` or ``nlp``.
        place: Folder of features and results.
    """

    def __init__(self, options: Namespace, source: str, place: Path):
        self.options, self.place = options, place / "stacking"
        overrides = parse_overrides(options.set)
        self.settings = {
            step: preset_settings(options.preset, overrides, step, "layout")
            for step in ("features", "gnn", "ranker")
        }
        solution = read_solution(resolve(options.data_root) / "solution.csv")
        self.features: dict[Collection, Features] = {}
        self.labels: dict[Collection, dict] = {}
        for collection in (c for c in COLLECTIONS if c.name.startswith(f"layout:{source}:")):
            folder = place / "features" / "stacking" / digest(self.settings["features"]) / collection.slug
            where = {"collection": collection.name, "folder": str(folder), "workers": 1}
            where["data_root"] = options.data_root
            build_features(LayoutFeatureConfig.of({**self.settings["features"], **where}))
            features = self.features[collection] = Features(folder)
            test = {name: solution[f"{collection.name}:{name}"] for name in features.names("test")}
            self.labels[collection] = {"valid": features.labels("valid"), "test": test}
        names = [name for features in self.features.values() for name in features.names("train")]
        self.folds = deal(names, options.folds)

    def network(self, seed: int, families: set[str]) -> dict[str, np.ndarray]:
        """Scores by ``SLUG/SPLIT/GRAPH`` of a network trained without the train graphs of some families.

        They are those of the graphs held out or, where none is, of valid and test.
        """
        first = next(c for c in self.features if c.name.endswith("random"))
        where = {"features": str(self.features[first].folder), "device": self.options.device}
        config = LayoutTrainConfig.of({**self.settings["gnn"], **where, "seed": seed, "train_on": "source"})
        folders = [Path(config.features), *config.also()]
        inputs = [Features(folder).fingerprint for folder in folders]
        path = self._path("gnn", [train_config.FORMAT, config.identity(), sorted(families), inputs])
        if not path.is_file():
            began = time.perf_counter()
            own, *others = (OutOfFold(f, families) if families else Features(f) for f in folders)
            arrays = self._train_network(config, own, others, path.with_suffix(""))
            write_arrays(path, arrays | {"seconds": np.array(time.perf_counter() - began)})
            shutil.rmtree(path.with_suffix(""))
        return read_arrays(path)

    def _train_network(self, config, own, others, checkpoints: Path) -> dict[str, np.ndarray]:
        device = pick_device(config.device)
        training = Training(config, Inputs(own, config.depth, device, others))
        training.run(checkpoints, checkpoints.name)
        training.choose_weights()
        arrays = {}
        for features in (own, *others):
            inputs = Inputs(features, config.depth, device)
            inputs.node_scaler = training.inputs.node_scaler
            inputs.config_scaler = training.inputs.config_scaler
            for split in (s for s in (*SCORED_SPLITS, HELD_OUT) if config_splits(features, s)):
                scores = predict(training.judged, inputs, split, config.inference_configs)
                arrays |= {f"{features.folder.name}/{split}/{name}": s for name, s in scores.items()}
        return arrays

    def networks(self, seed: int) -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Scores by slug, split and graph: out of fold for train, of the network of all for the others."""
        found: dict = {}
        whole = self.network(seed, set())
        parts = [self.network(seed, families) for families in self.folds]
        for arrays, splits in ((whole, SCORED_SPLITS), *((part, (HELD_OUT,)) for part in parts)):
            for key, score in arrays.items():
                slug, _, rest = key.partition("/")
                split, _, name = rest.partition("/")
                if split in splits:
                    found.setdefault(slug, {}).setdefault(split, {})[name] = score
        return found
