"""From ensembles to a checked CSV: the table's numbers, the record, and what never replaces a good file."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import (
    ALL_METRICS,
    collection_score,
    ranking_tau,
    tile_score,
)
from fastslow.competition.node_columns import LISTS
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.submission_checks import check_submission
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.figures import MODEL_WORDS
from fastslow.evaluation import scores
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.scores import (
    competition_score,
    read_solution,
    score_submission,
    solution_of,
    valid_metrics,
)
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions, write_predictions
from fastslow.runs.run_manifest import PREDICTIONS
from fastslow.steps import submission
from fastslow.steps.ensemble import EnsembleSettings, build_ensemble
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.submission import SubmissionSettings, make_submission
from helpers.competition_files import write_data_root
from helpers.good_artifacts import change_arrays

pytestmark = pytest.mark.usefixtures("undrawn")

MODELS = ("gnn", "ranker")
RULES = ["best single feature", "ridge on config features"]


def runs_of(collection):
    """The runs of a collection's rows, as the table names them."""
    return [*RULES, *(["product of bounds"] * (collection.kind == "tile")), "gnn s0", "ranker s0", "ensemble"]


def give_a_constant(arrays):
    """Make a constant of the first parameter of a file."""
    arrays["node_opcode"][0] = OPCODES["constant"]
    numbers = arrays["node_feat"][:, LISTS["parameter_number"][0]]
    numbers[numbers > 0] -= 1


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Features of all five collections, whose building takes seconds, with a solution beside the data."""
    root = tmp_path_factory.mktemp("competition")
    rng, rows = np.random.default_rng(0), ["ID,config_index,runtime"]
    for c in COLLECTIONS:
        write_data_root(root / "data", c.name, train=("a",), valid=("v", "w"), test=("t", "u"))
        for split, name in (("valid", "w"), ("test", "u")):  # farther from train than v and t
            path = c.folder(root / "data", split) / f"{name}.npz"
            change_arrays(path, give_a_constant)
        folder = str(root / "features" / c.slug)
        settings = {"collection": c.name, "data_root": str(root / "data"), "folder": folder, "workers": 1}
        build_features(FeatureSettings(**settings))
        for name, count in Features(folder).num_configs("test").items():
            rows += [f"{c.name}:{name},{i},{r}" for i, r in enumerate(rng.integers(1, 99, count))]
    (root / "data" / "solution.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="module")
def made(features, tmp_path_factory):
    """Two members with random scores, many of them equal, and their ensemble, for every collection."""
    root, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(1)
    for c in COLLECTIONS:
        stored_features = Features(features / "features" / c.slug)
        runs = []
        for model in MODELS:
            splits = {split: stored_features.num_configs(split) for split in ("valid", "test")}
            scores = {
                split: {name: rng.integers(0, 4, count).astype(float) for name, count in counts.items()}
                for split, counts in splits.items()
            }
            folder = root / "runs" / f"{model}-{c.slug}-s0"
            write_predictions(folder, scores)
            valid = collection_score(c.kind, stored_features.labels("valid"), scores["valid"])
            facts = {"collection": c.name, "model": model, "seed": 0}
            Artifact(folder, facts, {"data": stored_features.data}).finish([PREDICTIONS], valid=valid)
            runs.append(str(folder))
        folder = root / "made" / f"ensemble-{c.slug}"
        build_ensemble(EnsembleSettings(features=str(stored_features.folder), runs=runs, folder=str(folder)))
    return root


@pytest.fixture
def settings(features, made, tmp_path):
    """A submission of a copy of the ensembles, which a test may change."""
    return settings_in(tmp_path, features, made)


@pytest.fixture(scope="module")
def submitted(features, made, tmp_path_factory):
    """A submission that was made, its table and the folder of all; read-only."""
    folder = tmp_path_factory.mktemp("submitted")
    settings = settings_in(folder, features, made)
    return settings, make_submission(settings), folder


def settings_in(tmp_path, features, made):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return SubmissionSettings(
        data_root=str(features / "data"),
        features=[str(features / "features" / c.slug) for c in COLLECTIONS],
        ensembles=[str(tmp_path / "made" / f"ensemble-{c.slug}") for c in COLLECTIONS],
        csv=str(tmp_path / "out" / "mine.csv"),
        folder=str(tmp_path / "runs" / "submission"),
    )


def csv_of(tmp_path):
    return tmp_path / "out" / "mine.csv"


def test_the_table_is_what_the_metrics_give(submitted, features):
    _, table, tmp_path = submitted
    assert list(table["run"]) == [run for c in COLLECTIONS for run in runs_of(c)]
    assert list(table["model"]) == [run.removesuffix(" s0") for run in table["run"]]
    assert list(table["collection"].unique()) == [c.name for c in COLLECTIONS]
    solution = read_solution(features / "data" / "solution.csv")
    for c in COLLECTIONS:
        metric = tile_score if c.kind == "tile" else ranking_tau
        stored_features = Features(features / "features" / c.slug)
        ensemble = tmp_path / "made" / f"ensemble-{c.slug}"
        runs = [*(tmp_path / "runs" / f"{model}-{c.slug}-s0" for model in MODELS), ensemble]
        rules = read_manifest(ensemble)["baselines"].values()
        runs = [*(Path(rule["folder"]) for rule in rules), *runs]
        for run, (_, row) in zip(runs, table[table["collection"] == c.name].iterrows(), strict=True):
            scores = read_predictions(run)
            valid = [metric(stored_features.graph("valid", g).file_runtime, scores["valid"][g]) for g in "vw"]
            test = []
            for graph in "tu":  # the order that a submission would list, equal scores in file order
                score = scores["test"][graph]
                order = sorted(range(len(score)), key=lambda i, score=score: score[i])
                places = [order.index(i) for i in range(len(order))]
                test.append(metric(solution[f"{c.name}:{graph}"], places))
            for split, values in (("valid", valid), ("test", test)):
                wanted = [np.mean(values), min(values), max(values)]
                assert list(row[[split, f"{split}_min", f"{split}_max"]]) == pytest.approx(wanted)
            labels = {"valid": {g: stored_features.graph("valid", g).file_runtime for g in "vw"}}
            labels["test"] = {g: solution[f"{c.name}:{g}"] for g in "tu"}
            for split, runtimes in labels.items() if c.kind == "tile" else ():
                first = [runtime[np.argmin(scores[split][g])] for g, runtime in runtimes.items()]
                wanted = [2 - one / min(runtimes[g]) for one, g in zip(first, runtimes, strict=True)]
                assert row[f"{split}_top1"] == pytest.approx(np.mean(wanted))
            assert c.kind == "tile" or np.isnan(row["valid_top1"])
        weights = [m["weight"] for m in read_manifest(ensemble)["members"].values()]
        shown = table.loc[table["collection"] == c.name, "weight"]
        assert list(shown.dropna()) == [*weights, 1.0] and shown.isna().sum() == len(rules)


def test_csv_record_and_plot(submitted, features):
    _, table, tmp_path = submitted
    csv, root = csv_of(tmp_path), features / "data"
    assert check_submission(csv, root)["rows"] == {c.name: 2 for c in COLLECTIONS}
    for line in csv.read_text().splitlines()[1:]:
        row_id, order = line.split(",")
        collection = next(c for c in COLLECTIONS if row_id.startswith(f"{c.name}:"))
        score = read_predictions(tmp_path / "made" / f"ensemble-{collection.slug}")["test"][
            row_id.split(":")[-1]
        ]
        wanted = sorted(range(len(score)), key=lambda i: score[i])
        assert order == ";".join(map(str, wanted[:5] if collection.kind == "tile" else wanted))
    record = json.loads(csv.with_suffix(".json").read_text())
    assert record["sha256"] == hashlib.sha256(csv.read_bytes()).hexdigest()
    ensemble = table[table["model"] == "ensemble"]
    assert record["scores"] == dict(zip(ensemble["collection"], ensemble["valid"], strict=True))
    assert record["valid_mean"] == pytest.approx(ensemble["valid"].mean())
    assert record["test_mean"] == pytest.approx(ensemble["test"].mean()), "table and CSV score the same"
    scored = score_submission(csv, read_solution(root / "solution.csv"))
    assert record["test"] == {name: score["mean"] for name, score in scored.items()}
    assert record["test_mean"] == competition_score(record["test"])
    assert len(record["members"]) == 10 and set(record["weights"]) == {c.name for c in COLLECTIONS}
    assert csv.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in csv.parent.iterdir()} == {"mine.csv", "mine.json", "mine.png"}


@pytest.mark.parametrize("solved", [True, False])
def test_scores_are_recorded_by_distance_to_the_nearest_train_graph(
    submitted, settings, features, tmp_path, solved
):
    """Of test graphs where there is a solution, else of valid ones."""
    if solved:
        _, _, tmp_path = submitted
    else:
        table = make_submission(without_solution(settings, features, tmp_path))
        assert "test" not in table and "test_top1" not in table and len(table) == 26
    record = json.loads(csv_of(tmp_path).with_suffix(".json").read_text())
    assert (record["test_mean"] is None) == (not solved)
    split, names = ("test", "tu") if solved else ("valid", "vw")
    table = score_submission(csv_of(tmp_path), solution_of(features / "data")) if solved else {}

    def shares(collection, split, name):
        nodes = Features(features / "features" / collection.slug).graph(split, name).node_opcode
        return np.bincount(nodes, minlength=256) / len(nodes)

    for c in COLLECTIONS:
        alike = [other for other in COLLECTIONS if other.kind == c.kind]
        near, far = (
            min(abs(shares(c, split, name) - shares(other, "train", "a")).sum() / 2 for other in alike)
            for name in names
        )
        assert near < far
        rows = [row for row in record["distances"] if row["collection"] == c.name]
        valid = table.get(c.name) or read_manifest(tmp_path / "made" / f"ensemble-{c.slug}")["valid"]
        scores = {name.rpartition(":")[2]: score for name, score in valid["per_graph"].items()}
        common = {"split": split, "collection": c.name, "graphs": 1}
        assert rows == [
            {**common, "part": part, "smallest": distance, "largest": distance, "score": scores[name]}
            for part, distance, name in zip(
                ("nearest third", "middle third"), (near, far), names, strict=True
            )
        ]


def test_an_ensemble_is_compared_with_its_models_on_each_graph(made):
    tmp_path = made
    folder = tmp_path / "made" / "ensemble-layout-xla-random"
    table = scores.compare_graphs(folder)
    assert list(table.columns) == ["ensemble", *RULES, *map(MODEL_WORDS.get, MODELS)]
    assert set(table.index) == {"v", "w"} and table.iloc[:, 0].is_monotonic_increasing
    for model in MODELS:
        wanted = read_manifest(tmp_path / "runs" / f"{model}-layout-xla-random-s0")
        wanted = wanted["valid"]["per_graph"]
        assert table[MODEL_WORDS[model]].to_dict() == pytest.approx(wanted)
    assert table["ensemble"].to_dict() == pytest.approx(read_manifest(folder)["valid"]["per_graph"])


def without_solution(settings, features, tmp_path):
    """The same settings for a data root that has the npz files alone."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "npz_all").symlink_to(features / "data" / "npz_all")
    return SubmissionSettings(**{**settings.asdict(), "data_root": str(root)})


def test_it_is_made_again_where_something_it_depends_on_changed(settings, features, tmp_path):
    make_submission(settings)
    csv = csv_of(tmp_path)
    assert settings.artifact().is_current()
    for product in (csv, csv.with_suffix(".json"), csv.with_suffix(".png")):
        content = product.read_bytes()
        product.unlink()
        assert not settings.artifact().is_current()
        product.write_bytes(content)
    assert settings.artifact().is_current()
    bare = without_solution(settings, features, tmp_path)
    for name in ("solution.csv", "sample_submission.csv"):
        before = bare.artifact().fingerprint
        (tmp_path / "data" / name).write_text("x")
        assert bare.artifact().fingerprint != before
    folder = tmp_path / "made" / "ensemble-tile-xla"
    manifest = read_manifest(folder)
    given = {**manifest["settings"], "changed": True}
    Artifact(folder, given, manifest["inputs"]).finish([PREDICTIONS], valid=manifest["valid"])
    assert not settings.artifact().is_current()


def test_a_csv_that_fails_the_check_never_replaces_a_good_one(
    submitted, settings, features, tmp_path, monkeypatch
):
    """Without a solution, whose scores would refuse it too."""
    settings = without_solution(settings, features, tmp_path)
    csv = csv_of(tmp_path)
    shutil.copytree(csv_of(submitted[2]).parent, csv.parent)
    good = {path: path.read_bytes() for path in csv.parent.iterdir()}
    right = submission.format_submission
    monkeypatch.setattr(submission, "format_submission", lambda *a: right(*a).replace(b";0", b";1", 1))
    with pytest.raises(DataError, match="index 1 occurs more than once"):
        make_submission(settings)
    assert {path: path.read_bytes() for path in csv.parent.iterdir()} == good
    assert not settings.artifact().is_current()


def test_the_data_are_those_that_the_runs_were_made_from(settings, features, tmp_path):
    """A notebook that is run by hand on other data than the sample needs no ``data_root``."""
    unnamed = SubmissionSettings(**{**settings.asdict(), "data_root": ""})
    said = "data_root: no run of the ensembles records its data; give data_root=FOLDER"
    with pytest.raises(SettingsError, match=said):
        make_submission(unnamed)
    record_run(tmp_path / "made", str(features / "data"), "sample", {}, None)
    make_submission(unnamed)
    record = read_submission_record(csv_of(tmp_path))
    assert record["data_root"] == str(features / "data") and record["test"]


def test_all_five_collections_are_needed(settings):
    four = {**settings.asdict(), "features": settings.features[:4], "ensembles": settings.ensembles[:4]}
    with pytest.raises(
        SettingsError, match="no folder for layout:nlp:random; a submission needs every collection"
    ):
        make_submission(SubmissionSettings(**four))
    with pytest.raises(SettingsError, match="ensembles: 4 folders for 5 features"):
        SubmissionSettings(**{**four, "features": settings.features})
    with pytest.raises(SettingsError, match="csv: .* ends in .csv"):
        SubmissionSettings(csv="submissions/sample")


def test_a_run_may_be_submitted_alone(settings, tmp_path):
    runs = [str(tmp_path / "runs" / f"gnn-{c.slug}-s0") for c in COLLECTIONS]
    table = make_submission(SubmissionSettings(**{**settings.asdict(), "ensembles": runs}))
    assert list(table["run"]) == ["gnn s0"] * 5 and set(table["weight"]) == {1.0}


def test_all_metrics_of_every_model_stand_beside_the_competition_s(submitted):
    settings, scores, _ = submitted
    for features, ensemble, c in zip(settings.features, settings.ensembles, COLLECTIONS, strict=True):
        table = valid_metrics(features, ensemble).set_index("model")
        assert {"network", "ensemble"} < {*table.index} and [*table.columns] == [*ALL_METRICS]
        for model, row in table.iterrows():
            words = scores["model"].replace(MODEL_WORDS)
            valid = scores[(scores["collection"] == c.name) & (words == model)]["valid"]
            assert valid.mean() == pytest.approx(1 - row["top_5_error"] if c.kind == "tile" else row["tau"])
            assert row["opa_ties_wrong"] <= row["opa"] and row["top_100_error"] <= row["top_1_error"]
