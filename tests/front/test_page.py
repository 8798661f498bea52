"""The page of docs/how_it_works.md: from npz to CSV with the science, with the results of the steps."""

import contextlib
import math
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import entered
from fastslow.competition.catalog import TEST, VALID, get_collection, list_programs
from fastslow.competition.submission_checks import check_submission
from fastslow.competition.submission_csv import SAMPLE
from fastslow.core.errors import DataError, SettingsError, registered
from fastslow.core.settings import PROJECT
from fastslow.features.build import GraphOptions, build_graphs
from fastslow.networks.model.network import Block
from fastslow.networks.settings.options import NetworkOptions
from fastslow.networks.training.train import train
from fastslow.rankers.fit import fit, read_training
from fastslow.rankers.libraries import LIBRARIES
from fastslow.rankers.options import RankerOptions
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.steps.ensemble import EnsembleSettings, build_ensemble
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import train_gnn
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from helpers.cases import cases

COLLECTIONS = [get_collection(name) for name in ("layout:xla:default", "layout:xla:random")]
PROGRAMS = {"train": 2, "valid": 1, "test": 1}
FILES, NETWORK_FILES, LINES, RANK_FILES = 45, 15, 7000, 70


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data root with a few of the sample's programs of two collections."""
    root = tmp_path_factory.mktemp("two collections")
    rows = []
    for collection in COLLECTIONS:
        for split, number in PROGRAMS.items():
            folder = collection.folder(root, split)
            folder.mkdir(parents=True)
            for path in sorted(collection.folder(PROJECT / "data/sample", split).glob("*.npz"))[:number]:
                shutil.copy(path, folder)
                if split == TEST:
                    rows.append(f"{collection.name}:{path.stem},0")
    (root / SAMPLE).write_text("\n".join(["ID,TopConfigs", *rows]) + "\n")
    return root


@pytest.fixture(scope="module")
def page(root):
    """What the page's code defines, and the files that it enters."""
    code = entered.page_code().replace('Path("data/sample")', f"Path({str(root)!r})")
    names = {}
    with contextlib.chdir(root), contextlib.redirect_stdout(sys.stderr):
        files = entered.entered(lambda: exec(compile(code, str(entered.PAGE), "exec"), names))
    return names, files


def test_its_csv_is_valid(page, root):
    checked = check_submission(root / "submission.csv", root)
    assert sum(checked["rows"].values()) == len(COLLECTIONS) * PROGRAMS["test"]


def test_its_predictions_are_those_of_the_steps(page, root, tmp_path, monkeypatch):
    names, _ = page
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    features = [f"features/{collection.slug}" for collection in COLLECTIONS]
    for collection, folder in zip(COLLECTIONS, features, strict=True):
        data = {"collection": collection.name, "data_root": str(root), "folder": folder}
        build_features(FeatureSettings(**data, workers=1))
    options = names["network"].options
    runs = {model: [f"runs/{model}-{c.slug}" for c in COLLECTIONS] for model in ("gnn", "ranker", "ensemble")}
    train_gnn(
        TrainSettings(features=features, runs=runs["gnn"], folder="runs/training", epochs=options.epochs)
    )
    trees = names["trees"].num_trees
    train_ranker(
        RankerSettings(
            features=features[0], folder=runs["ranker"][0], runs=runs["ranker"][1:], num_iterations=trees
        )
    )
    for collection, folder, gnn, ranker, ensemble in zip(COLLECTIONS, features, *runs.values(), strict=True):
        build_ensemble(EnsembleSettings(features=folder, runs=[gnn, ranker], folder=ensemble))
        for graph, values in read_predictions(tmp_path / ensemble)[TEST].items():
            np.testing.assert_array_equal(names["ranking"][f"{collection.name}:{graph}"], values)
    score = read_run_manifest(tmp_path / ensemble)["valid"]["mean"]
    last = names["combine"](names["members"], VALID, "min_max", names["weights"])
    assert names["valid_score"](last) == score


def test_a_reader_enters_few_files(page):
    _, files = page
    row = entered.row("npz to CSV", files)
    networks = [path for path in files if path.parts[1] == "networks"]
    assert row["files"] <= FILES and len(networks) <= NETWORK_FILES and row["lines of these files"] <= LINES
    assert {path.parts[1] for path in files} == {
        "core",
        "competition",
        "features",
        "networks",
        "rankers",
        "ensemble",
    }


def test_a_reader_of_rank_enters_few_files():
    files = entered.entered(lambda: entered.rank_file(entered.first_layout_file()))
    assert Path("fastslow_programs/ranking/rank.py") in files and len(files) <= RANK_FILES


def test_methods_and_functions_are_entered_and_bodies_of_classes_are_not():
    files = entered.entered(lambda: read_run_manifest and get_collection("tile:xla").kind)
    (path,) = files
    assert path.name == "catalog.py" and files[path] >= {"get_collection", "Collection.kind"}
    assert os.fspath(path).startswith("fastslow")


@cases(
    "options, name, value",
    [
        (NetworkOptions, "epochs", 0),
        (NetworkOptions, "dropout", 1.5),
        (NetworkOptions, "learning_rate", math.nan),
        (NetworkOptions, "kind", "tiles"),
        (RankerOptions, "objective", "rank"),
        (RankerOptions, "num_iterations", 0),
        (RankerOptions, "seed", "3"),
        (GraphOptions, "hops", -2),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(options, name, value):
    with pytest.raises(SettingsError, match=rf"^{name}: {value!r}: Input should be "):
        options(**{name: value})


def test_graphs_that_no_model_can_learn_from_are_refused():
    with pytest.raises(DataError, match="build_graphs: files is empty"):
        build_graphs([])
    data = PROJECT / "data" / "sample"
    files = [list_programs(data, collection, VALID)[0] for collection in COLLECTIONS]
    with pytest.raises(DataError, match="belongs to layout:xla:random, the files before it to"):
        build_graphs(files)
    without_train = build_graphs(files[:1])
    with pytest.raises(DataError, match="the graphs of layout:xla:default: no train graph to learn from"):
        train([without_train], NetworkOptions(epochs=1))


def test_graphs_that_do_not_suit_the_options_are_refused_before_a_training():
    data = PROJECT / "data" / "sample"
    layout, tile = COLLECTIONS[0], get_collection("tile:xla")
    files = {c: [list_programs(data, c, split)[0] for split in ("train", VALID)] for c in (layout, tile)}
    whole, kernels = build_graphs(files[layout]), build_graphs(files[tile])
    one = NetworkOptions(epochs=1)
    with pytest.raises(
        SettingsError, match="kind: 'layout' is not the kind of the graphs of tile:xla; choose"
    ):
        train([kernels], one)
    with pytest.raises(
        SettingsError, match="kind: 'tile' is not the kind of the graphs of layout:xla:default"
    ):
        train([whole], NetworkOptions(epochs=1, kind="tile"))
    with pytest.raises(DataError, match="train: got no graphs"):
        train([], one)
    with pytest.raises(SettingsError, match="folds: 1 is not 2 or more"):
        train([whole], NetworkOptions(folds=1))
    with pytest.raises(SettingsError, match="folds: 1 is not 2 or more"):
        read_training({"": whole}, RankerOptions(folds=1))
    with pytest.raises(SettingsError, match="slug: 'unknown slug' is none of layout-xla-default"):
        train([whole], one).predict("unknown slug")
    with pytest.raises(DataError, match="another set of layout:xla:default is given too"):
        train([whole, build_graphs(files[layout])], one)
    with pytest.raises(SettingsError, match="split: 'tset' is none of train, valid, test"):
        fit(read_training({"": whole}), RankerOptions(num_iterations=1)).predict_split(whole, "tset")
    without_valid = build_graphs(files[layout][:1])
    for learn in (lambda: train([without_valid], one), lambda: read_training({"": without_valid})):
        with pytest.raises(
            DataError, match="the graphs of layout:xla:default: no valid graph to score a model"
        ):
            learn()


def test_two_files_of_one_name_are_refused(tmp_path):
    data = PROJECT / "data" / "sample"
    first = list_programs(data, COLLECTIONS[0], VALID)[0]
    other = replace(first, path=Path(shutil.copy(first.path, tmp_path)))
    with pytest.raises(DataError, match=f"has the same name as {first.path} of this split"):
        build_graphs([first, other])


@cases("convolution, library", [("gat", "xgb")])
def test_a_name_that_no_registry_has_is_refused(convolution, library):
    with pytest.raises(SettingsError, match="convolution: 'gat' is none of sage, sage_sum, gcn, mlp_gcn"):
        Block(NetworkOptions(convolution=convolution).architecture())
    with pytest.raises(SettingsError, match="library: 'xgb' is none of lightgbm"):
        registered(LIBRARIES, "library", RankerOptions(library=library).library)
