"""How often a configuration occurs in a test file changes no other one's prediction."""

import numpy as np
import pytest
import torch

from fastslow.competition.catalog import get_collection
from fastslow.competition.schema import SCHEMA
from fastslow.networks.predict.dataset import GraphDataset, make_network, predict
from fastslow.rankers.table import read_table
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network_settings import TrainSettings
from helpers.competition_files import competition_arrays, write_data_root, write_npz

COPIES = 200
KINDS = {"layout": "layout:xla:random", "tile": "tile:xla"}


@pytest.fixture(params=KINDS)
def folders(request, tmp_path):
    """Features of one data root, and of the same with one test configuration given 200 times more."""
    collection = KINDS[request.param]
    arrays = competition_arrays(request.param, seed=3, configs=24, labelled=False)
    per_config = [key for key, (_, shape) in SCHEMA[request.param].items() if shape and shape[0] == "C"]
    more = {
        **arrays,
        **{key: np.concatenate([arrays[key], arrays[key][:1].repeat(COPIES, 0)]) for key in per_config},
    }
    built = []
    for name, test in (("once", arrays), ("often", more)):
        root = write_data_root(tmp_path / name, collection)
        write_npz(get_collection(collection).folder(root, "test") / "t.npz", test)
        folder = str(root / "features")
        build_features(FeatureSettings(collection=collection, data_root=str(root), folder=folder, workers=1))
        built.append(Features(root / "features"))
    return request.param, built


def test_copies_of_a_test_configuration_leave_the_others_as_they_are(folders, tmp_path):
    kind, built = folders
    predictions = []
    for features in built:
        where = {"runs": [str(tmp_path / "run")], "folder": str(tmp_path / "training")}
        settings = TrainSettings(kind=kind, features=[str(features.folder)], **where)
        inputs = GraphDataset(settings, settings.sources(), configs_together=8)
        torch.manual_seed(0)
        network = make_network(settings, inputs)
        for parameter in network.parameters():  # the head starts at 0, where every prediction is equal
            torch.nn.init.normal_(parameter, std=0.3)
        predictions.append(predict(network, inputs, features.collection.slug, "test")["t"])
    once, often = predictions
    assert np.ptp(once) > 1e-3 and len(often) == len(once) + COPIES
    np.testing.assert_allclose(often[: len(once)], once, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(often[len(once) :], often[0])
    assert (np.argsort(often[: len(once)], kind="stable") == np.argsort(once, kind="stable")).all()


def test_a_rankers_rows_are_those_of_the_file(folders):
    _, (once, often) = folders
    few, many = (read_table(features, "test").rows[0] for features in (once, often))
    np.testing.assert_array_equal(many[: len(few)], few)
    np.testing.assert_array_equal(many[len(few) :], few[:1].repeat(COPIES, 0))
