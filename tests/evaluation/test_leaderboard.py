"""The leaderboard: its numbers, its order, and that what is damaged costs no other run its row."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest

import fastslow
from fastslow import cli
from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import kendall_tau, tile_score
from fastslow.core.errors import SettingsError
from fastslow.evaluation.leaderboard import model_means
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.submission_record import write_record
from fastslow.runs import predictions
from helpers.good_artifacts import change_json, reseal
from helpers.runs import make_features, overwrite_predictions, random_scores, write_run

pytestmark = pytest.mark.usefixtures("undrawn")

XLA = "layout:xla:random"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Features of every collection; two runs and a model written by hand; their predictions."""
    root, rng = tmp_path_factory.mktemp("home"), np.random.default_rng(5)
    features = {c.name: make_features(root, c.name) for c in COLLECTIONS}
    scores = {}
    for run, noise in (("one", 0.1), ("two", 3.0)):
        given = {"data": "sample", "preset": "sample", "collections": ["x", "y"], "gnn.dropout": 0}
        record_run(root / "runs" / run, str(root / "data"), "sample", given, {})
        for name, run_features in features.items():
            slug = name.replace(":", "-")
            for folder in (f"gnn-{slug}-s0", f"gnn-{slug}-s1", f"ensemble-{slug}"):
                scores[run, folder] = random_scores(run_features, rng, noise)
                seed = {"seed": int(folder[-1])} if "gnn" in folder else {"model": "ensemble"}
                write_run(root / "runs" / run / folder, run_features, scores[run, folder], **seed)
    folder = root / "runs/mine/trees-layout-xla-random-s0"
    network_scores = scores["one", "gnn-layout-xla-random-s0"]
    predictions.write_run(folder, features[XLA], network_scores, model="trees", seed=0)
    solution = ["ID,config_index,runtime"]
    for name, run_features in features.items():
        count = run_features.num_configs("test")["t"]
        solution += [f"{name}:t,{i},{100 + (7 * i) % count}" for i in range(count)]
    (root / "data" / "solution.csv").write_text("\n".join(solution) + "\n")
    (root / "data" / "sample").mkdir()  # of the run without a record
    (root / "data" / "sample" / "solution.csv").write_text("ID,config_index,runtime\ntile:xla:k,0,9\n")
    begun = {"features/one/tile-xla": "10:00", "runs/one/gnn-tile-xla-s0": "10:15"}  # half an hour each
    for path, time in (begun | {"runs/one/ensemble-tile-xla": "12:00"}).items():
        facts = {"start_time": f"2026-01-01T{time}:00+00:00", "duration": 1800.0}
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path / "notebook.ipynb").write_text(json.dumps({"metadata": {"papermill": facts}}))
    csv = root / "submissions" / "two.csv"
    csv.parent.mkdir()
    csv.write_text("ID,TopConfigs\n")
    write_record(csv, ["gnn"], {}, {}, kaggle={"public": 0.7, "private": None})
    return root, features, scores


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy of it as this process's own, and its features and scores."""
    shutil.copytree(made[0], tmp_path / "home")
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "home", *made[1:]


def test_every_number_is_as_computed_by_hand(home):
    root, features, scores = home
    table = fastslow.leaderboard().table.set_index(["run", "model"])
    assert {*table.index} == {(run, m) for run in ("one", "two") for m in ("gnn", "ensemble")} | {
        ("mine", "trees")
    }
    by_seed = []
    row, means, differences = table.loc["one", "gnn"], {"valid": [], "test": []}, []
    for name, run_features in features.items():
        slug = name.replace(":", "-")
        seeds = [scores["one", f"gnn-{slug}-s{seed}"] for seed in (0, 1)]
        metric = tile_score if name == "tile:xla" else kendall_tau
        valid = [
            np.mean([metric(run_features.labels("valid")[g], s["valid"][g]) for s in seeds])
            for g in ("v", "w")
        ]
        count = run_features.num_configs("test")["t"]
        truth = 100 + (7 * np.arange(count)) % count
        places = [np.argsort(np.argsort(s["test"]["t"], kind="stable")) for s in seeds]
        means["valid"].append(np.mean(valid))
        means["test"].append(np.mean([metric(truth, place) for place in places]))
        differences.append(valid[0] - valid[1])
        by_seed.append(
            [np.mean([metric(run_features.labels("valid")[g], s["valid"][g]) for g in "vw"]) for s in seeds]
        )
        assert row[f"valid {name}"] == pytest.approx(means["valid"][-1])
        assert row[f"test {name}"] == pytest.approx(means["test"][-1])
    assert [row["valid"], row["test"]] == pytest.approx([np.mean(means["valid"]), np.mean(means["test"])])
    error = abs(sum(differences)) / 2 / 5
    assert row["valid_error"] == pytest.approx(error), "all collections have the same two programs"
    assert row["valid_seeds"] == pytest.approx(np.std(np.mean(by_seed, axis=0), ddof=1))
    assert math.isnan(table.loc["one", "ensemble"]["valid_seeds"]), "one seed"
    assert math.isnan(row["test_error"]), "one program a collection"
    assert (row["seeds"], row["settings"], row["hours"]) == (2, "sample collections=x,y gnn.dropout=0", 1.25)
    assert table["public"].dropna().to_dict() == {("two", "ensemble"): 0.7} and table["private"].isna().all()
    valid_scores, mine = scores["one", "gnn-layout-xla-random-s0"]["valid"], table.loc["mine", "trees"]
    seed_zero = {g: kendall_tau(features[XLA].labels("valid")[g], valid_scores[g]) for g in valid_scores}
    assert mine[f"valid {XLA}"] == pytest.approx(np.mean([*seed_zero.values()]))
    assert math.isnan(mine["valid"]) and mine["settings"] == ""
    said = f"over 5 of the five collections: valid {row['valid']:.3f}, test {row['test']:.3f}"
    assert f"gnn, mean {said}" in [*model_means(root / "runs/one")]
    (said,) = model_means(root / "runs/mine")
    assert said == f"trees, mean over 1 of the five collections: valid {mine[f'valid {XLA}']:.3f}"


def test_it_is_sorted_printed_and_written(home, capsys):
    root, *_ = home
    board = fastslow.leaderboard(sort=XLA)
    column = board.table[f"valid {XLA}"]
    assert column.is_monotonic_decreasing and not column.isna().any()
    assert [*fastslow.leaderboard(sort="public").table["run"]][0] == "two"
    assert [*fastslow.leaderboard(sort="run").table["run"]] == ["mine", "one", "one", "two", "two"]
    assert cli.main(["leaderboard", "hours", "csv=board/"]) == 1
    assert "csv: 'board/' is not a path that ends in .csv" in capsys.readouterr().err
    assert cli.main(["leaderboard", "hours", "csv=board.csv"]) == 0
    said = capsys.readouterr().out
    assert "| one " in said and "| mine/trees " in said and "nan" not in said and "left out" not in said
    assert "gnn" not in said and "private" not in said and max(map(len, said.splitlines())) <= 80
    assert cli.main(["leaderboard", "--wide"]) == 0
    said = capsys.readouterr().out
    assert "| one  | gnn " in said and "nlp:random" in said and "private" not in said and "nan" not in said
    blend = fastslow.leaderboard(wide=True)  # it has scores of test only
    assert "hours are the whole run's (of a resumed step: the last)" in blend.words()[0]
    blend.table.loc[0, f"valid {XLA}"] = np.nan
    assert "nan" not in str(blend) and "| - / " in str(blend)
    written = pd.read_csv(root / "board.csv", keep_default_na=False, na_values=[""])
    assert len(written) == 5 and [*written["hours"].dropna()] == [1.25, 1.25]
    with pytest.raises(SettingsError, match="sort: 'best' is not one of valid, test, public"):
        fastslow.leaderboard(sort="best")


def test_a_run_without_a_mean_says_which_collections_it_lacks(home):
    """A run whose ensemble was deleted stood in the table without a score and without a word."""
    root, *_ = home
    shutil.rmtree(root / "runs" / "two" / "ensemble-tile-xla")
    said = [word for word in fastslow.leaderboard().words() if "no mean" in word]
    others = "tile:xla, layout:xla:default, layout:nlp:default, layout:nlp:random"
    assert sorted(said) == [
        f"mine/trees: no mean of five on valid without {others}",
        "two: no mean of five on valid without tile:xla",
    ]


def test_a_name_is_not_broken_at_its_hyphens(home):
    root, *_ = home
    name = "-".join(["a-run-of-mine"] * 4)
    shutil.copytree(root / "runs" / "two", root / "runs" / name)
    shutil.rmtree(root / "runs" / name / "ensemble-tile-xla")
    below = str(fastslow.leaderboard()).split("\n\n")[1]
    assert f"{name}: no mean of five" in " ".join(below.split())
    assert max(map(len, below.splitlines())) <= 80


def test_scores_of_other_programs_stand_below_and_are_said(home):
    """A run of a single easy valid program leads no table of runs of two."""
    root, *_ = home
    easy = root / "runs" / "easy" / "trees-layout-xla-random-s0"
    shutil.copytree(root / "runs/mine/trees-layout-xla-random-s0", easy)
    change_json(easy / "manifest.json", lambda made: made["valid"].update(per_graph={"v": 1.0}, mean=1.0))
    reseal(easy)
    (root / "runs" / "gone").symlink_to(root / "unmounted" / "disk")
    board = fastslow.leaderboard(sort=XLA)
    assert board.table["run"].iloc[-1] == "easy" and board.table[f"valid {XLA}"].iloc[-1] == 1
    assert board.table[f"valid {XLA} programs"].nunique() == 2
    (said,) = (word for word in board.words() if "do not compare" in word)
    assert said.startswith(f"* easy: valid scores of {XLA} stand on other") and "with mine, one" in said
    for wide in (False, True):
        (row,) = (
            line for line in str(fastslow.leaderboard(sort=XLA, wide=wide)).splitlines() if "| easy" in line
        )
        assert row.count("*") == 1 and "1.000 *" in row
    (gone,) = board.left_out
    assert "gone: a link to" in gone and "unmounted/disk, which is not there" in gone


def test_a_mark_belongs_to_the_score_that_it_was_computed_for(home):
    """Sorted by a collection, a run whose tile programs are others has a mark at its mean alone."""
    root, *_ = home
    other = root / "runs" / "two" / "ensemble-tile-xla"
    values = predictions.read_predictions(other)
    values["valid"]["v"] = values["valid"]["v"][:-1]
    overwrite_predictions(other, values)
    for name, marks in ((XLA, [XLA.removeprefix("layout:")]), ("tile:xla", [])):
        lines = str(fastslow.leaderboard(sort=name)).splitlines()
        cells = {line.split("|")[1].strip(): line.split("|")[2:] for line in lines if line.startswith("|")}
        marked = ["*" in cell for cell in cells["two"]]
        assert marked[0] == (not marks) and sum(marked[1:]) == 1, lines


@pytest.mark.parametrize("sort", ["valid", "test", "hours"])
def test_valid_scores_of_fewer_configurations_are_marked(home, sort):
    """A run made with MODELS= predicts 1,000 configurations of a valid program, others all of them."""
    root, features, _ = home
    for name in features:
        slug = name.replace(":", "-")
        for seed in (0, 1):
            shutil.rmtree(root / "runs" / "two" / f"gnn-{slug}-s{seed}")  # its ensemble alone
        folder = root / "runs" / "two" / f"ensemble-{slug}"
        values = predictions.read_predictions(folder)
        values["valid"]["v"] = values["valid"]["v"][:-1]
        overwrite_predictions(folder, values)
    board = fastslow.leaderboard(sort=sort)
    (said,) = (word for word in board.words() if "do not compare" in word)
    assert said.startswith("* two: valid scores stand on") and said.endswith("do not compare with one")
    assert "another number of their configurations" in said
    assert board.table.groupby("run")["valid programs"].nunique().to_dict() == {"mine": 1, "one": 1, "two": 1}
    for wide in (False, True):
        printed = str(fastslow.leaderboard(sort=sort, wide=wide)).splitlines()
        rows = [line for line in printed if line.startswith(("| one ", "| two "))]
        assert rows and all(line.count("*") == line.startswith("| two ") for line in rows), printed
    if sort == "valid":
        assert [*board.table["run"]] == ["one", "one", "two", "mine"]


def test_damaged_and_foreign_folders_are_named_and_the_rest_is_listed(home):
    root, features, scores = home
    runs, rows = root / "runs", len(fastslow.leaderboard().table)
    (runs / "photos").mkdir()
    for name in ("comparisons", "placement"):
        (runs / name).mkdir()
    (runs / "notes.txt").write_text("x")
    (runs / "two" / "run.json").write_text("{")
    (runs / "one" / "gnn-tile-xla-s0" / "manifest.json").write_text("[]")
    (runs / "one" / "gnn-tile-xla-s1" / "predictions.npz").write_bytes(b"x")
    (runs / "mine" / "trees-layout-xla-random-s0" / "manifest.json").unlink()
    (root / "submissions" / "two.json").write_text("{}")
    predictions.write_run(runs / "other", features[XLA], scores["one", "gnn-layout-xla-random-s1"])
    change_json(runs / "other/manifest.json", lambda m: m["settings"].update(collection="layout:mine"))
    reseal(runs / "other")
    board = fastslow.leaderboard()
    named = ["photos", "two/run.json", "one/gnn-tile-xla-s0", "gnn-tile-xla-s1", "trees-layout", "two.json"]
    named += ["layout:mine"]
    found = [[name for name in named if name in reason] for reason in board.left_out]
    assert sorted(found) == sorted([name] for name in named)
    assert len(board.table) == rows - 1
    gnn = board.table.set_index(["run", "model"]).loc["one", "gnn"]
    assert math.isnan(gnn["valid tile:xla"]) and not math.isnan(gnn[f"valid {XLA}"])
    shutil.rmtree(runs)
    assert str(fastslow.leaderboard()) == "no finished model under runs/"


def test_a_blend_is_listed_after_a_foreign_and_a_damaged_record(home):
    root, *_ = home
    folder = root / "submissions"
    (folder / "a.json").write_text("{}")
    (folder / "b.json").write_text('{"blend": ')
    (folder / "c.csv").write_text("ID,TopConfigs\n")
    write_record(
        folder / "c.csv",
        [],
        {},
        {},
        blend={"one": 2.0, "two": 1.0},
        kaggle={"public": 0.5},
        warnings=["a", "b"],
    )
    board = fastslow.leaderboard()
    (reason,) = board.left_out
    assert "b.json" in reason and "c: a blend of one (weight 2) and two (weight 1)" in board.words()
    assert [words for words in board.words() if "warning" in words] == ["c: warning: a; b"]
    row = board.table.set_index("run").loc["c"]
    assert (row["model"], row["public"]) == ("blend", 0.5)
    (folder / "c.csv").write_text("ID,TopConfigs\ntile:xla:k,0\n")
    board = fastslow.leaderboard()
    assert "c" not in set(board.table["run"])
    assert f"{folder / 'c.csv'}: not the file its record was written for (sha256)" in board.left_out[1]
    (folder / "c.csv").unlink()
    assert "c.csv" in fastslow.leaderboard().left_out[1]
