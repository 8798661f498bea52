import hashlib
import json

from fastslow.competition.catalog import COLLECTIONS
from fastslow.evaluation.submission_record import (
    SubmissionResult,
    read_submission_record,
    update_record,
    write_record,
)

SCORES = {c.name: score for c, score in zip(COLLECTIONS, (0.9, 0.4, 0.5, 0.3, 0.9), strict=True)}


def submission(folder, name, content="ID,TopConfigs\ntile:xla:a,0;1\n"):
    path = folder / f"{name}.csv"
    path.write_text(content)
    return path


def test_record_says_what_the_csv_was_made_of(tmp_path):
    path = submission(tmp_path, "first")
    record = write_record(path, ["gnn-s0", "trees"], {"tile:xla": {"trees": 1.0}}, SCORES, method="min-max")
    assert json.loads((tmp_path / "first.json").read_text()) == record == read_submission_record(path)
    assert record["name"] == "first"
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["weights"] == {"tile:xla": {"trees": 1.0}}
    assert record["members"] == ["gnn-s0", "trees"]
    assert record["scores"] == SCORES
    assert record["method"] == "min-max"
    assert record["commit"] and record["created"].endswith("+00:00")


def test_kaggles_scores_join_the_record(tmp_path):
    path = submission(tmp_path, "first")
    before = write_record(path, ["a"], {}, SCORES)
    after = update_record(path, kaggle={"public": 0.7512, "private": None, "status": "COMPLETE"})
    assert after == {**before, "kaggle": {"public": 0.7512, "private": None, "status": "COMPLETE"}}
    assert read_submission_record(path) == after


def test_a_record_made_again_keeps_the_upload_of_the_same_csv_alone(tmp_path):
    """Else the next `make submit` would send the same file a second time."""
    path = submission(tmp_path, "first")
    write_record(path, ["a"], {}, SCORES)
    upload = SubmissionResult(file_name="first.csv", message="again", earlier_refs=[7]).model_dump()
    update_record(path, upload=upload, kaggle={"public": 0.75})
    record = write_record(path, ["a", "b"], {}, SCORES)
    assert record["upload"] == upload and record["kaggle"] == {"public": 0.75} and len(record["members"]) == 2
    record = write_record(submission(tmp_path, "first", "ID,TopConfigs\ntile:xla:a,1;0\n"), ["a"], {}, SCORES)
    assert "upload" not in record and "kaggle" not in record


def test_a_damaged_record_is_replaced_and_that_is_said(tmp_path, capsys):
    path = tmp_path / "first.csv"
    path.write_text("ID,TopConfigs\n")
    write_record(path, ["a"], {}, {})
    assert not capsys.readouterr().err
    path.with_suffix(".json").write_text("{")
    write_record(path, ["a"], {}, {})
    assert "replaced, and with it any upload that it recorded" in capsys.readouterr().err
    assert read_submission_record(path)["members"] == ["a"]
