"""A finished run applied to files: to its own test files it says what is stored, bit by bit for trees."""

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.predictions import read_predictions, write_run
from fastslow.features.build import build_features
from fastslow.features.config import FeatureConfig
from fastslow.features.store import Features
from fastslow.features.unseen import read_unseen
from fastslow.ranking.inference import predict_members, predict_run
from fastslow.steps import MODELS


def unseen(slug):
    """The sample's test files of a collection, as files that the features never saw."""
    programs = list_programs(resolve("data/sample"), get_collection(slug), TEST)
    return read_unseen(resolve(f"features/smoke/{slug}"), [program.path for program in programs])


@pytest.mark.parametrize(
    "collection", [c for c in COLLECTIONS if c.slug in ("tile-xla", "layout-nlp-random")]
)
def test_on_its_own_test_files_a_run_says_what_is_stored(home, collection):
    slug = collection.slug
    members = predict_members(resolve(f"runs/smoke/ensemble-{slug}"), unseen(slug))
    models = [f"{model}-{slug}-s0" for model in MODELS[collection.kind]]
    assert list(members) == [*models, f"ensemble-{slug}"]
    for name, predictions in members.items():
        stored = read_predictions(resolve(f"runs/smoke/{name}"))[TEST]
        assert predictions.keys() == stored.keys()
        for graph, values in predictions.items():
            if name.startswith(("gnn", "ensemble")):  # float32 sums may depend on the number of threads
                np.testing.assert_allclose(values, stored[graph], rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(values, stored[graph])


def test_what_a_file_says_of_runtimes_changes_nothing(home, tmp_path):
    slug = "layout-xla-default"
    folder, run = resolve(f"features/smoke/{slug}"), resolve(f"runs/smoke/ensemble-{slug}")
    (program,) = list_programs(resolve("data/sample"), get_collection(slug), TEST)
    with np.load(program.path) as npz:
        arrays = dict(npz)
    arrays["config_runtime"] = np.arange(1, len(arrays["config_runtime"]) + 1)
    np.savez(tmp_path / "other.npz", **arrays)
    both = read_unseen(folder, [program.path, tmp_path / "other.npz"])
    predictions = predict_run(run, both)
    np.testing.assert_array_equal(predictions[program.name], predictions["other"])
    assert both.graph(TEST, "other").file_runtime.max() == len(arrays["config_runtime"])


def test_a_split_of_the_features_themselves(home):
    slug = "tile-xla"
    run, features = resolve(f"runs/smoke/ranker-{slug}-s0"), Features(resolve(f"features/smoke/{slug}"))
    stored = read_predictions(run)
    for split in ("valid", "test"):
        for graph, values in predict_run(run, features, split).items():
            np.testing.assert_array_equal(values, stored[split][graph])


def test_other_features_are_refused(home):
    (home / "elsewhere").mkdir()
    slug = "layout-xla-random"
    settings = Features(resolve(f"features/smoke/{slug}")).manifest["settings"]
    other = FeatureConfig(**{**settings, "hops": 1}, folder="elsewhere/layout-xla-random", workers=1)
    build_features(other)
    with pytest.raises(DataError, match="trained on features other than .*elsewhere"):
        predict_run(resolve(f"runs/smoke/ranker-{slug}-s0"), Features(resolve(other.folder)))
    build_features(other.replace(folder=f"features/smoke/{slug}"))
    default = Features(resolve("features/smoke/layout-xla-default"))
    with pytest.raises(DataError, match=f"trained on features other than .*{slug}"):
        predict_run(resolve("runs/smoke/gnn-layout-xla-default-s0"), default)


def test_a_run_without_a_model_is_refused(home, tmp_path):
    features = Features(resolve("features/smoke/tile-xla"))
    predictions = {
        s: {n: np.arange(c) for n, c in features.num_configs(s).items()} for s in ("valid", "test")
    }
    write_run(tmp_path / "mine", features, predictions, model="mine")
    with pytest.raises(DataError, match="a run of 'mine', whose model is not kept"):
        predict_run(tmp_path / "mine", features)
