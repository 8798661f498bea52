"""CSVs, records, settings and command lines that are wrong: refused by name."""

import shutil
from pathlib import Path

import pytest

from fastslow.competition.catalog import COLLECTIONS, ProgramFile, list_programs
from fastslow.competition.submission_checks import check_ids, expected_counts, read_submission
from fastslow.core.errors import DataError, FastslowError, SettingsError
from fastslow.evaluation.scores import read_solution
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.features.configs.default_layouts import default_file
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.run import RunSettings, run
from fastslow.workflow.steps import parse_overrides
from helpers.bad_files import ANY_FILE, DOOR, refused, replace
from helpers.cases import cases
from helpers.competition_files import write_data_root
from helpers.good_artifacts import COUNTS, change_json, distance_row, score_row


def lines(change):
    """A mutation of the list of a text's lines."""

    def write(path):
        path.write_bytes(("\n".join(change(path.read_text().splitlines())) + "\n").encode())

    return write


def second(row):
    return lines(lambda rows: [rows[0], row, *rows[2:]])


@cases("name", ANY_FILE)
def test_a_broken_submission_is_refused(good, tmp_path, name):
    path = tmp_path / "mine.csv"
    shutil.copy(good.root / "mine.csv", path)
    assert set(read_submission(path, COUNTS)) == set(COUNTS)
    ANY_FILE[name](path)
    refused(lambda: read_submission(path, COUNTS), path)


SOLUTION = {
    **DOOR,
    "no header": lines(lambda rows: rows[1:]),
    "a runtime of NaN": second("tile:xla:k,0,nan"),
    "a runtime beyond 64 bits": second("tile:xla:k,0," + "9" * 30),
}


@cases("name", SOLUTION)
def test_a_broken_solution_is_refused(good, tmp_path, name):
    path = tmp_path / "solution.csv"
    shutil.copy(good.root / "solution.csv", path)
    assert {row_id: len(runtimes) for row_id, runtimes in read_solution(path).items()} == COUNTS
    SOLUTION[name](path)
    refused(lambda: read_solution(path), path)


def copy_submission(good, folder):
    for suffix in ("csv", "json"):
        shutil.copy(good.root / f"mine.{suffix}", folder / f"mine.{suffix}")


def entry(key, value=None):
    def change(record):
        if value is None:
            del record[key]
        else:
            record[key] = value

    return lambda path: change_json(path, change)


RECORD = {
    **DOOR,
    **{f"{text[:10]!r}": replace(text.encode()) for text in ("[]", "{")},
    **{f"without {key}": entry(key) for key in ("name", "created", "commit", "sha256", "members", "scores")},
    **{f"without {key}, which a run needs": entry(key) for key in ("table", "valid_mean")},
    "members as text": entry("members", "gnn"),
    "an unknown collection": entry("scores", {"tile": 0.5}),
    "a score of NaN": entry("scores", {"tile:xla": float("nan")}),
    "a table that is none": entry("table", [1, 2]),
    "a table of baselines alone": entry("table", [{**score_row(), "weight": None}]),
    "a distance without a score": entry("distances", [{"split": "test", "collection": "tile:xla"}]),
    "a distance of another collection": entry("distances", [{**distance_row(), "collection": "tile"}]),
    "an upload of nothing": entry("upload", {}),
    "Kaggle's score as text": entry("kaggle", {"public": "0.7"}),
}


@cases("name", RECORD)
def test_a_broken_record_is_refused(good, tmp_path, name):
    copy_submission(good, tmp_path)
    RECORD[name](tmp_path / "mine.json")
    refused(lambda: read_submission_record(tmp_path / "mine.csv", "table", "valid_mean"), "mine")


@cases("name", ["a,b", 'a"b', "a\nb", "a\x1bb"])
def test_a_name_that_breaks_the_csv_is_found_before_training(tmp_path, name):
    for collection in ("tile:xla", "layout:xla:default", "layout:xla:random", "layout:nlp:default"):
        write_data_root(tmp_path, collection, (), ())
    write_data_root(tmp_path, "layout:nlp:random", (), ())
    check_ids(tmp_path)
    write_data_root(tmp_path, "layout:nlp:random", (), (), (name,))
    with pytest.raises(DataError, match="cannot be an ID"):
        check_ids(tmp_path)


@cases("text", ["", "x\n", "ID,TopConfigs\nx,1\n", "ID,TopConfigs\ntile:xla:other,0\n"])
def test_a_broken_sample_submission_is_found_before_training(tmp_path, text):
    write_data_root(tmp_path, "tile:xla", (), ())
    (tmp_path / "sample_submission.csv").write_text(text)
    with pytest.raises(DataError, match="sample_submission.csv"):
        check_ids(tmp_path)


def run_of_all(tmp_path):
    """Settings of a run whose five collections have one file a split, listed in the sample submission."""
    ids = []
    for collection in COLLECTIONS:
        write_data_root(tmp_path, collection.name, ("a",))
        ids.append(f"{collection.name}:t")
    (tmp_path / "sample_submission.csv").write_text(
        "\n".join(["ID,TopConfigs", *(f"{i},0" for i in ids), ""])
    )
    return RunSettings(target="features", data=str(tmp_path), preset="smoke", name="doors", jobs=1)


@cases("target", ["features", "train", "submission"], run_of_all=run_of_all)
def test_a_test_file_that_is_lost_is_found_before_features(run_of_all, target, monkeypatch):
    monkeypatch.setattr("fastslow.workflow.execution.run_steps", lambda *_: pytest.fail("features begin"))
    lost = COLLECTIONS[3].folder(run_of_all.data, "test") / "t.npz"
    write_data_root(run_of_all.data, COLLECTIONS[3].name, (), (), ("other",))
    lost.unlink()
    with pytest.raises(DataError, match=f"line 5 lists layout:nlp:default:t, but there is no {lost}"):
        run(run_of_all.replace(target=target))


NO_FILE = ("a folder", "a named pipe", "a link to /dev/zero", "a dangling link", "a link to itself")


@cases("name", NO_FILE)
@cases("file", ["sample_submission.csv", "npz_all/npz/layout/xla/default/test/t.npz"], run_of_all=run_of_all)
def test_an_optional_file_counts_as_absent_only_where_nothing_has_its_name(run_of_all, name, file):
    path = Path(run_of_all.data) / file
    ANY_FILE[name](path)
    sibling = ProgramFile(COLLECTIONS[2], "test", COLLECTIONS[2].folder(run_of_all.data, "test") / "t.npz")
    with pytest.raises(DataError, match=path.name):
        default_file(sibling) if path.suffix == ".npz" else expected_counts(path.parent)


def test_a_name_that_is_not_utf_8_is_found_before_features(tmp_path):
    settings = run_of_all(tmp_path)
    folder = COLLECTIONS[0].folder(settings.data, "train")
    (folder / "a.npz").rename(folder / b"a\xff.npz".decode(errors="surrogateescape"))
    with pytest.raises(DataError, match="is not UTF-8"):
        list_programs(settings.data, COLLECTIONS[0], "train")


RUN = [
    *(
        f"jobs={value}"
        for value in ("-1", "1.5", "x", "99999", "True", "None", "1e3", "[1]", "1#2", "1 # 2", "9" * 5000)
    ),
    *(f"seeds={value}" for value in ("-1", "10**9", "4097", "one")),
    *(
        f"name={value}"
        for value in ("a/b", "..", ".", ".x", "/", "a" * 300, "a\nb", "a\0b", "\x1b[31m", "é" * 60)
    ),
    *(f"preset={value}" for value in ("none", "Sample", " ")),
    "data=\0",
    f"data={'a' * 5000}",
    "unknown=1",
    "=1",
    "name",
    "name=a name=b",
    "target=x",
    "SEED=1",
]


@cases("typed", RUN)
def test_a_wrong_setting_of_a_run_is_refused(typed):
    texts = typed.split(" ") if typed.startswith("name=a ") else [typed]
    with pytest.raises(SettingsError) as caught:
        make_plan(RunSettings.from_texts(texts, {"target": "submission"} if "target" in typed else None))
    assert len(str(caught.value)) < 700 and str(caught.value).isprintable()


OF_STEPS = [
    *(f"ranker.num_leaves={value}" for value in ("1", "1000000", "2.5", "x", str(2**200))),
    *(f"gnn.learning_rate={value}" for value in ("0", "nan", "1e400", "None")),
    "gnn.epochs=" + "(" * 3000,
    "gnn.epochs=" + "9" * 5000,
    "gnn.epochs=2 # of 3",
]


@cases("typed", OF_STEPS)
def test_a_wrong_setting_of_a_step_is_refused(typed):
    with pytest.raises(SettingsError) as caught:
        for section, settings in parse_overrides([typed]).items():
            (RankerSettings if section == "ranker" else TrainSettings)(**settings)
    assert len(str(caught.value)) < 4000


@cases("seed", [2**31, 2**64, 2**200, -1])
def test_a_seed_that_libraries_cannot_hold_is_refused(seed):
    for settings in (RankerSettings, TrainSettings):
        with pytest.raises(FastslowError, match="seed: "):
            settings(seed=seed)
