"""Genuine TpuGraphs files, from npz to scores; skipped where there are none beside the repository."""

import numpy as np
import pytest
import torch

from fastslow.competition.catalog import COLLECTIONS, SPLITS, ProgramFile, get_collection
from fastslow.competition.reader import read_choices
from fastslow.competition.submission_checks import check_submission, expected_counts, read_submission
from fastslow.competition.submission_csv import collection_of
from fastslow.core.errors import DataError
from fastslow.features.build import build_graph
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.predict.dataset import make_network
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import read_graphs, train_gnn
from fastslow.steps.network_settings import TrainSettings
from helpers.cases import cases
from helpers.competition_files import REAL, needs_real, npz_program, write_submission

pytestmark = needs_real
PROGRAMS = [
    ProgramFile(collection, split, path)
    for collection in COLLECTIONS
    for split in SPLITS
    for path in sorted(collection.folder(REAL, split).glob("*.npz"))
]
LAYOUT = [program for program in PROGRAMS if program.collection.kind == "layout"]


def features_config(collection, **settings):
    return FeatureSettings(collection=collection.name, data_root=str(REAL), workers=1, **settings)


def test_choices_give_the_published_layouts():
    for program in LAYOUT:
        layouts, choices = read_choices(program.path)
        feat = np.load(program.path)["node_config_feat"]
        for start in range(0, len(feat), 100):
            part = slice(start, start + 100)
            restored = layouts[choices.layout_codes(part)].reshape(feat[part].shape)
            np.testing.assert_array_equal(restored, feat[part], err_msg=program.id)


@cases("program", PROGRAMS)
def test_features_of_every_file(program):
    settings = features_config(program.collection)
    graph, names = build_graph(program, settings)
    file = npz_program(program.path, program.collection.kind, program.split != "test")
    assert graph.config_feat.shape == (graph.num_configs, len(names))
    assert np.isfinite(graph.config_feat).all() and np.isfinite(graph.node_feat).all()
    assert np.bincount(graph.config_row).min() > 0
    assert len(graph.config_row) == len(graph.file_runtime) == len(file.runtime)
    if file.choices is not None:
        for start in range(0, len(file.choices), 100):
            part = slice(start, start + 100)
            expanded = graph.choices.layout_codes(graph.config_row[part])
            np.testing.assert_array_equal(file.choices.layout_codes(part), expanded)
    assert (graph.runtime > 0).all() == (program.split != "test")
    if program.collection.kind == "layout":
        kept = graph.node_opcode[graph.config_index]
        np.testing.assert_array_equal(kept, file.node_opcode[file.node_config_ids])
        assert graph.config_feat[:, names.index("violation_ratio")].max() > 0
        for name, column in zip(names, graph.config_feat.T, strict=True):
            if name.endswith(("_share", "violation_ratio", "_by_volume")):
                assert 0 <= column.min() <= column.max() <= 1, name


def labelled_root(root, collection):
    """A data root of the published files; for tile, train and valid swap: that train file has one runtime."""
    sources = ("valid", "train", "test") if collection.kind == "tile" else SPLITS
    for split, source in zip(SPLITS, sources, strict=True):
        folder = collection.folder(root, split)
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(collection.folder(REAL, source).resolve())
    return root


def test_networks_learn_from_the_labelled_and_rank_the_test_files_of_every_collection(tmp_path):
    """A training on genuine files of each kind takes seconds."""
    ranked = {}
    for name in ("layout:xla:default", "tile:xla"):
        collection = get_collection(name)
        settings = features_config(collection, folder=str(tmp_path / collection.slug)).replace(
            data_root=str(labelled_root(tmp_path / "data", collection))
        )
        build_features(settings)
        where = {"runs": [str(tmp_path / "runs" / name)], "folder": str(tmp_path / "training" / name)}
        small = {"epochs": 1, "hidden_channels": 16, "configs_per_step": 32, "evaluate_every": 1}
        run = TrainSettings(kind=collection.kind, features=[settings.folder], device="cpu", **where, **small)
        assert -1 <= train_gnn(run)["valid"]["mean"] <= 2
        scores, features = read_predictions(tmp_path / "runs" / name), Features(settings.folder)
        check_predictions(tmp_path / "runs" / name, scores, features)
        tests = {p.name: p.path for p in PROGRAMS if (p.collection, p.split) == (collection, "test")}
        assert scores["test"].keys() == tests.keys()
        for test, path in tests.items():
            file = npz_program(path, collection.kind)
            rows = file.choices.values if collection.kind == "layout" else file.config_feat
            distinct = len(np.unique(rows.reshape(len(rows), -1), axis=0))
            assert len(scores["test"][test]) == len(rows)
            assert (np.ptp(scores["test"][test]) > 1e-5) == (distinct > 1)
        ranked |= predictions_of_tests(run, tmp_path / "runs" / name / "model.pt")
    if not (REAL / "sample_submission.csv").is_file():
        pytest.skip("no published sample_submission.csv")
    csv = tmp_path / "real.csv"
    write_submission(csv, ranked, REAL)
    rows = read_submission(csv, expected_counts(REAL), partial=True)
    assert [collection_of(row_id) for row_id in rows] == list(COLLECTIONS)
    with pytest.raises(DataError, match="889 of 894 IDs have no row"):
        check_submission(csv, REAL)


def predictions_of_tests(run, weights):
    """Predictions of the test files of all collections of a training's kind, by ID."""
    found, inputs = {}, read_graphs(run)
    network = make_network(run, inputs).eval()
    network.load_state_dict(torch.load(weights, weights_only=True))
    for program in PROGRAMS:
        if (program.collection.kind, program.split) == (run.kind, "test"):
            graph = build_graph(program, features_config(program.collection))[0]
            scaled = PreparedGraph(graph, inputs.node_scaler, inputs.config_scaler)
            with torch.no_grad():
                predicted = network(scaled.batch(np.arange(graph.num_configs), run.num_layers))
            found[program.id] = graph.expand(predicted.numpy())
    return found
