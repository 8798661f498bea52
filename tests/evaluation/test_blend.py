"""Blends of submissions: ranks against plain loops, what does not fit, and their row on the leaderboard."""

import json
from fractions import Fraction

import numpy as np
import pytest

import fastslow
from fastslow import cli
from fastslow.competition.submission_checks import check_submission, read_any_submission
from fastslow.core.errors import DataError, SettingsError, listed
from fastslow.core.files import read_json
from fastslow.evaluation.blend import BlendSettings, blend_orders, blend_submissions
from fastslow.evaluation.compare import CompareSettings
from fastslow.evaluation.leaderboard import LeaderboardSettings, leaderboard
from fastslow.evaluation.scores import score_submission, solution_of
from fastslow.evaluation.submission_record import read_submission_record, update_record
from helpers.cases import cases


def slow_blend(orders, weights):
    """The mean of places by exact fractions, one configuration after the other."""
    seen = []
    for order in orders:
        seen += [config for config in order if config not in seen]
    means = {}
    for config in seen:
        places = [order.index(config) if config in order else len(order) for order in orders]
        means[config] = sum(Fraction(w) * p for w, p in zip(weights, places, strict=True))
    return sorted(seen, key=lambda config: (means[config], seen.index(config)))[: len(orders[0])]


@pytest.mark.parametrize("trial", range(30))
def test_ranks_are_those_of_plain_loops(trial):
    rng = np.random.default_rng(trial)
    configs = int(rng.integers(1, 60))
    listed = configs if trial % 2 else min(5, configs)
    orders = [rng.permutation(configs)[:listed] for _ in range(rng.integers(2, 5))]
    weights = rng.integers(1, 5, len(orders)).tolist()
    assert blend_orders(orders, weights).tolist() == slow_blend([o.tolist() for o in orders], weights)


def test_a_submission_with_itself_is_itself_and_ties_go_to_the_first():
    order = np.array([2, 0, 1])
    assert blend_orders([order, order], [1, 1]).tolist() == [2, 0, 1]
    assert blend_orders([order, order[::-1]], [1, 1]).tolist() == [2, 0, 1]
    assert blend_orders([order, order[::-1]], [1, 2]).tolist() == [1, 0, 2]


def write(path, rows):
    """Write a submission from its rows."""
    path.write_text("ID,TopConfigs\n" + "".join(f"{name},{order}\n" for name, order in rows.items()))
    return path


ROWS = {"layout:xla:random:a": "1;0;2", "layout:nlp:default:b": "0;1", "tile:xla:k": "4;3;2;1;0"}


@cases(
    "changes, said",
    [
        ({"layout:xla:random:a": None}, r"b\.csv: lacks 1 of the 3 rows of .*a\.csv: layout:xla:random:a\."),
        ({"layout:xla:random:z": "0"}, r"a\.csv: lacks 1 of the 4 rows of .*b\.csv: layout:xla:random:z\."),
        (
            {"layout:nlp:default:b": "0;1;2"},
            r"b\.csv: layout:nlp:default:b: 3 configurations, but 2 in .*a\.csv",
        ),
        (
            {"layout:nlp:default:b": "0;0"},
            r"b\.csv: line 3 \(layout:nlp:default:b\): index 0 occurs more than",
        ),
        ({"layout:nlp:default:b": ""}, r"b\.csv: line 3 \(layout:nlp:default:b\): '' is not an index"),
        ({"mine:c": "0;1"}, r"b\.csv: line 5 \(mine:c\): no test graph has this ID"),
        (
            {"tile:xla:k": "4;3;2;1;999999999"},
            r"b\.csv: tile:xla:k: index 999999999, but no program has 1,000,000 configurations",
        ),
    ],
)
def test_rows_that_do_not_fit_are_an_error_with_their_names(tmp_path, changes, said):
    other = {name: order for name, order in (ROWS | changes).items() if order is not None}
    paths = [write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.csv", other)]
    with pytest.raises(DataError, match=said):
        blend_submissions(paths)


@cases(
    "texts, said",
    [
        (["a.csv"], "csvs: .* two submissions or more: fastslow blend a.csv b.csv"),
        (["a.csv", "a.csv"], "csvs: .* different files; use weights instead"),
        (["a.csv", "b.csv", "weights=2,1,1"], "weights: .* 2 numbers, one for each submission"),
        (["a.csv", "b.csv", "weights=2"], "weights: .* 2 numbers, one for each submission"),
        (["a.csv", "b.csv", "unproven_order=True"], "unproven_order: True has no effect without an upload"),
        (["a.csv", "b.csv", "weights=1,0"], "weights: .* finite numbers above 0"),
        (["a.csv", "b.csv", "weights=2,b"], "weights: 'b' in the list is a text, a number wanted"),
        (["a.csv", "b.csv", "weights=2,1e999"], "weights: inf in the list is not finite, a number wanted"),
        (["a.csv", "b.csv", "weight=2,1"], "weight: no such setting.*; did you mean 'weights'"),
        (["a.csv", "b.csv", "weights=1e308,1e308"], "weights: .* finite numbers above 0, of 1e-06 to"),
        (["a.csv", "./a.csv"], "csvs: .* different files; use weights instead"),
        (["a.csv", "b.csv", "out=c.txt"], "out: .* a path that ends in .csv"),
        (["a.csv", "b.csv", "data_root=/nope"], "data_root: '/nope' is not a folder that holds npz_all/ or"),
        (["a.csv", "b.csv", "c"], "no such file"),
        (["a.csv", "b.csv", "wights=2,1"], "^wights: no such setting; did you mean 'weights'"),
        (["a.csv", "mein"], "mein.csv: no such file. `fastslow leaderboard` lists .*did you mean 'mine'"),
    ],
)
def test_a_wrong_setting_is_an_error_with_its_name(tmp_path, monkeypatch, texts, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    (tmp_path / "submissions").mkdir()
    for name in ("a.csv", "b.csv", "submissions/mine.csv"):
        write(tmp_path / name, ROWS)
    with pytest.raises((SettingsError, DataError), match=said):
        settings = BlendSettings.from_texts(texts, first="csvs...")
        blend_submissions(settings.paths(), data_root=settings.test_files())


def test_names_of_the_leaderboard_stand_for_submissions(tmp_path, monkeypatch):
    """``compare`` and ``blend`` take them alike; a blend has no run, so its run is compared as a CSV, too."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "submissions"
    folder.mkdir()
    mine, mix = (write(folder / f"{name}.csv", ROWS) for name in ("mine", "mix"))
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    for typed in (["mine", "mix.csv"], ["submissions/mine.csv", "mix"]):
        assert BlendSettings(csvs=typed).paths() == [mine, mix]
    assert CompareSettings(one="mine", other="mix").folders() == (mine, mix)
    assert CompareSettings(one="mine", other="mine").folders() == (tmp_path / "runs" / "mine",) * 2


def test_submissions_that_nothing_is_known_of_are_blended_again(tmp_path, monkeypatch):
    """Their record names no data: the folder of the project is none."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.csv", ROWS)
    assert cli.main(["blend", "a.csv", "b.csv", "out=first.csv"]) == 0
    assert cli.main(["blend", "submissions/first.csv", "c.csv", "out=second.csv"]) == 0
    assert "data_root" not in read_json(tmp_path / "submissions" / "second.json")


@pytest.fixture
def other(home):
    """A submission of somebody else for the data of ``home``: the run's, each row reversed."""
    rows = read_any_submission(home / "submissions" / "smoke.csv")
    return write(home / "theirs.csv", {name: ";".join(map(str, order[::-1])) for name, order in rows.items()})


def test_a_blend_is_checked_recorded_and_on_the_leaderboard(home, other, capsys, monkeypatch):
    monkeypatch.chdir(home)
    update_record(home / "submissions" / "smoke.csv", warnings=["a rule fills rows"])
    assert cli.main(["blend", "submissions/smoke.csv", "theirs.csv", "weights=2,1", "out=both.csv"]) == 0
    csv = home / "submissions" / "both.csv"
    data = home / "data" / "sample"
    said = " ".join(capsys.readouterr().out.split())
    assert f"{csv}: 6 rows of 2 submissions, checked against {data}; mean of the five" in said
    check_submission(csv, data)
    mine = read_any_submission(home / "submissions" / "smoke.csv")
    blended = read_any_submission(csv)
    layout = [name for name in mine if name.startswith("layout")]
    assert all(blended[name].tolist() == mine[name].tolist() for name in layout), "2 : 1 against the reverse"

    assert read_submission_record(csv)["blend"] == {"submissions/smoke.csv": 2.0, "theirs.csv": 1.0}
    assert read_submission_record(csv)["warnings"] == ["smoke: a rule fills rows"]
    board = leaderboard(LeaderboardSettings(sort="private"))
    assert "no run has a score private: they are in order of their names" in board.words()
    update_record(csv, kaggle={"public": 0.7, "private": 0.65})
    board = leaderboard(LeaderboardSettings(sort="test"))
    rows = board.table.set_index(["run", "model"])
    row = rows.loc[("both", "blend")]
    score = score_submission(csv, solution_of(data))
    assert row["test tile:xla"] == score["tile:xla"]["mean"]
    assert (row["place"], row["medal"], row["private"]) == ("12 to 31", "silver", 0.65)
    marked = rows["test programs"]
    assert row["test programs"] == marked["smoke", "ensemble"], "so that both are sorted together"
    assert "theirs.csv (weight 1)" in row["settings"] and "| 12-31" in str(board)
    assert "| both " in str(board), "the name that compare and blend take"
    assert "both: a blend of submissions/smoke.csv (weight 2) and theirs.csv (weight 1)" in board.words()
    assert "both: place 12 to 31 of the 617 on the final board, silver" in str(board)
    assert max(map(len, str(board).splitlines())) <= 80


def test_only_a_blend_that_can_be_made_again_is_replaced(home, other, capsys, monkeypatch):
    monkeypatch.chdir(home)
    csv = home / "submissions" / "both.csv"
    blend = ["blend", "submissions/smoke.csv", "theirs.csv", "out=both.csv"]
    assert cli.main(blend) == cli.main([*blend, "weights=1,3"]) == cli.main(blend) == 0
    assert cli.main(["blend", "both.csv", "theirs.csv", "out=smoke.csv"]) == 1
    assert "smoke.csv is there already and is no blend; give another name" in capsys.readouterr().err

    before = csv.read_bytes()
    assert cli.main(["blend", "both.csv", "theirs.csv", "out=both.csv"]) == 1
    assert "both.csv is one of the submissions to blend; give another name" in capsys.readouterr().err
    assert csv.read_bytes() == before

    update_record(csv, kaggle={"public": 0.7, "private": None})
    assert cli.main([*blend, "weights=1,3"]) == 1
    assert "both.csv has the name of another submission, which was uploaded" in capsys.readouterr().err
    assert cli.main(blend) == 0, "the same one, whose upload may have been interrupted"
    assert read_submission_record(csv)["kaggle"]["public"] == 0.7

    csv.write_bytes(other.read_bytes())
    assert cli.main(blend) == 1
    assert "both.csv is not the file that" in capsys.readouterr().err
    assert csv.read_bytes() == other.read_bytes()


def test_a_row_that_does_not_fit_the_test_files_is_named_with_its_file(home, other, tmp_path):
    lines = other.read_text().splitlines()
    row = next(n for n, line in enumerate(lines) if line.startswith("tile"))
    row_id, _, order = lines[row].partition(",")
    lines[row] = f"{row_id},{order.rpartition(';')[0]};99999"
    wrong = tmp_path / "range.csv"
    wrong.write_text("\n".join(lines) + "\n")
    smoke = home / "submissions" / "smoke.csv"
    for out in (None, tmp_path / "o.csv"):
        with pytest.raises(
            DataError, match=rf"^{wrong}: line {row + 1} \({row_id}\): index 99999 is outside"
        ):
            fastslow.blend(smoke, wrong, out=out)
    assert not (tmp_path / "o.csv").exists()


def test_submissions_of_two_releases_are_an_error(home, monkeypatch):
    smoke = home / "submissions" / "smoke.csv"
    (home / "submissions" / "old.csv").write_bytes(smoke.read_bytes())
    record = json.loads(smoke.with_suffix(".json").read_text())
    record["row_order"]["layout:xla:random"] = "0" * 16
    (home / "submissions" / "old.json").write_text(json.dumps(record))
    said = "was made from layout:xla:random files of another row order than"
    for use in (fastslow.blend, fastslow.compare):
        with pytest.raises(DataError, match=said):
            use("smoke.csv", "old.csv")
    assert cli.main(["compare", "smoke.csv", "old.csv"]) == 1


def test_in_python_nothing_is_written_without_out(home, other):
    before = sorted(home.rglob("*"))
    blended = fastslow.blend(home / "submissions" / "smoke.csv", other, weights=(1, 3))
    assert blended.keys() == read_any_submission(other).keys() and sorted(home.rglob("*")) == before
    with pytest.raises(
        SettingsError, match="data_root: '/nope' is not a folder that holds npz_all/ or sample"
    ):
        fastslow.blend(home / "submissions" / "smoke.csv", other, data_root="/nope")
    csv = home / "submissions" / "api.csv"
    fastslow.blend(home / "submissions" / "smoke.csv", other, weights=(1, 3), out=csv)
    written = read_any_submission(csv)
    assert all(written[name].tolist() == order.tolist() for name, order in blended.items())


def test_a_message_names_the_first_rows_and_how_many_more():
    assert listed(["a", "b"]) == "a, b" and listed([*"abcde"]) == "a, b, c and 2 more"
