"""Trees of their own for twins: which programs they are, what is learned, what a run folder keeps."""

import dataclasses
import json

import numpy as np
import pytest

from fastslow.competition.catalog import get_collection
from fastslow.competition.metrics import ordered_pair_accuracy
from fastslow.core.errors import DataError
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureConfig, build_features
from fastslow.features.store import Features
from fastslow.rankers import twins
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.train import read_ranker_predictor, train_ranker
from fastslow.rankers.twins import TWINS, Twins, fit_twins, flat_layouts, read_twins, signature
from helpers.competition_files import layout_arrays, write_npz

COLLECTION = get_collection("layout:xla:random")
TREES = {"num_iterations": 60, "min_data_in_leaf": 2, "num_leaves": 4, "num_threads": 1, "learning_rate": 0.1}
TREES |= {"feature_fraction": 1.0, "train_on": "collection", "objective": "regression"}


def write_program(root, split, name, seed, dots):
    """A program that is slow where the output of its first dot and the kernel of its second one disagree."""
    arrays = layout_arrays(seed=seed, dots=dots, configs=120)
    layouts = arrays["node_config_feat"]
    slow = (layouts[:, 0, 0] == 1) ^ (layouts[:, 1, 12] == 1)
    arrays["config_runtime"] = np.where(split == "test", 0, 1_000 + 1_000 * slow).astype(np.int64)
    write_npz(COLLECTION.folder(root, split) / f"{name}.npz", arrays)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Two train programs that are twins of ``same`` and ``t``; ``other`` has no twin."""
    root = tmp_path_factory.mktemp("twins")
    programs = [("train", "a", 1, 3), ("train", "b", 2, 3), ("valid", "same", 3, 3), ("valid", "other", 4, 5)]
    for split, name, seed, dots in [*programs, ("test", "t", 5, 3)]:
        write_program(root, split, name, seed, dots)
    build_features(FeatureConfig(data_root=str(root), folder=str(root / "features"), workers=1))
    return Features(root / "features")


def test_a_signature_forgets_sizes_and_configurations_but_not_the_graph(features):
    graph = features.graph("train", "a")
    assert signature(graph) == signature(features.graph("test", "t"))
    assert signature(graph.take(np.arange(2))) == signature(graph)
    larger = dataclasses.replace(graph, tensor_sizes=graph.tensor_sizes * 3)
    assert signature(larger) == signature(graph)
    opcodes = graph.node_opcode.copy()
    opcodes[graph.config_index[0]] += 1
    fewer = dataclasses.replace(graph, edge_index=graph.edge_index[1:])
    ranks = dataclasses.replace(graph, tensor_sizes=graph.tensor_sizes * (np.arange(6) < 1))
    others = [dataclasses.replace(graph, node_opcode=opcodes), fewer, ranks]
    assert len({signature(other) for other in (graph, *others)}) == 4


def test_columns_are_the_layouts_of_the_tensors(features):
    graph = features.graph("train", "a")
    flat, codes = flat_layouts(graph), graph.choices.layout_codes()
    assert flat.shape == (graph.num_configs, 18 * len(graph.config_index))
    np.testing.assert_array_equal(flat[5, 18 * 2 + 6 : 18 * 2 + 12], graph.layouts[codes[5, 2, 1]])
    columns = twins._distinct_columns(flat)
    kept = flat[:, columns]
    assert (kept != kept[:1]).any(0).all() and len(np.unique(kept, axis=1).T) == len(columns)
    assert len(np.unique(kept, axis=0)) == len(np.unique(flat, axis=0))


def test_twins_are_ranked_by_an_interaction_of_single_layouts_and_others_as_before(features, tmp_path):
    where = {"features": str(features.folder)}
    for name in ("plain", "own"):
        train_ranker(RankerConfig(**where, folder=str(tmp_path / name), twins=name == "own", **TREES))
    predicted = {name: read_predictions(tmp_path / name) for name in ("plain", "own")}
    runtime = features.labels("valid")["same"]
    right = {n: ordered_pair_accuracy(runtime, own["valid"]["same"]) for n, own in predicted.items()}
    assert right["own"] > 0.99 > right["plain"] + 0.2
    np.testing.assert_array_equal(predicted["own"]["valid"]["other"], predicted["plain"]["valid"]["other"])
    assert not np.array_equal(predicted["own"]["test"]["t"], predicted["plain"]["test"]["t"])
    again = read_ranker_predictor(tmp_path / "own")
    for split in ("valid", "test"):
        for name, values in again(features, split).items():
            np.testing.assert_allclose(predicted["own"][split][name], values, rtol=1e-6, atol=1e-9)
    assert not (tmp_path / "plain" / TWINS).exists()


def test_changed_or_broken_trees_are_refused(features, tmp_path):
    config = RankerConfig(features=str(features.folder), folder=str(tmp_path), twins=True, **TREES)
    train_ranker(config)
    (tmp_path / TWINS).write_text(json.dumps({"signature": "x"}) + "\n")
    with pytest.raises(DataError, match=f"{TWINS}.*Train it again"):
        read_twins(tmp_path, "Train it again")


def test_programs_whose_layouts_never_vary_get_no_trees(features):
    constant = features.graph("train", "a").take(np.zeros(3, int))
    config = RankerConfig(**TREES)
    sources = {"": type("One", (), {"graph": lambda *_: constant})()}
    assert fit_twins(config, sources, ["a"]).known == {}
    assert Twins({}).predict_split(features, "valid") == {}
