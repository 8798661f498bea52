import hashlib
import json

import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import DataError
from fastslow.evaluation.ledger import (
    SubmissionResult,
    read_submission_record,
    update_record,
    write_ledger,
    write_record,
)

SCORES = {c.name: score for c, score in zip(COLLECTIONS, (0.9, 0.4, 0.5, 0.3, 0.9), strict=True)}


def submission(folder, name, content="ID,TopConfigs\ntile:xla:a,0;1\n"):
    path = folder / f"{name}.csv"
    path.write_text(content)
    return path


def table(folder):
    lines = (folder / "ledger.md").read_text().splitlines()
    header, rule, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert set(rule) == {"---"}
    return [dict(zip(header, row, strict=True)) for row in rows]


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


def test_ledger_has_one_row_a_submission(tmp_path):
    record = write_record(submission(tmp_path, "first"), ["a", "b"], {}, SCORES)
    write_record(submission(tmp_path, "second"), ["a"], {}, {"tile:xla": 0.25})
    first, second = table(tmp_path)
    facts = ["name", "created", "commit", "members", "row order"]
    assert list(first) == [*facts, *SCORES, "mean", "public", "private"]
    assert [first["name"], first["created"]] == ["first", record["created"][:10]]
    assert [first["members"], first["mean"], first["tile:xla"]] == ["2", "0.6000", "0.9000"]
    assert [first["public"], first["private"]] == ["", ""]
    assert [second["tile:xla"], second["layout:xla:default"], second["mean"]] == ["0.2500", "", ""]


def test_kaggles_scores_join_the_record_and_the_ledger(tmp_path):
    path = submission(tmp_path, "first")
    before = write_record(path, ["a"], {}, SCORES)
    after = update_record(path, kaggle={"public": 0.7512, "private": None, "status": "COMPLETE"})
    assert after == {**before, "kaggle": {"public": 0.7512, "private": None, "status": "COMPLETE"}}
    assert read_submission_record(path) == after
    (row,) = table(tmp_path)
    assert [row["public"], row["private"]] == ["0.7512", ""]


def test_a_record_made_again_keeps_the_upload_of_the_same_csv_alone(tmp_path):
    """Else the next `make submit` would send the same file a second time."""
    path = submission(tmp_path, "first")
    write_record(path, ["a"], {}, SCORES)
    upload = SubmissionResult(file_name="first.csv", message="again", earlier_refs=[7]).model_dump()
    update_record(path, upload=upload, kaggle={"public": 0.75})
    record = write_record(path, ["a", "b"], {}, SCORES)
    assert record["upload"] == upload and record["kaggle"] == {"public": 0.75} and len(record["members"]) == 2
    assert table(tmp_path)[0]["public"] == "0.7500"
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


def test_scores_of_another_file_are_not_recorded(tmp_path):
    path = submission(tmp_path, "first")
    before = write_record(path, ["a"], {}, SCORES)
    path.write_text("ID,TopConfigs\ntile:xla:a,1;0\n")
    with pytest.raises(DataError, match="not the file its record was written for"):
        update_record(path, kaggle={"public": 0.9})
    assert read_submission_record(path) == before


def test_rows_are_oldest_first_and_files_without_a_record_have_none(tmp_path):
    for name, created in (("a", "2026-02-01"), ("b", "2026-01-01")):
        path = submission(tmp_path, name)
        record = write_record(path, [], {}, {})
        path.with_suffix(".json").write_text(json.dumps({**record, "created": created}))
    submission(tmp_path, "by-hand")
    (tmp_path / "scores.json").write_text("[1, 2]")
    write_ledger(tmp_path)
    assert [row["name"] for row in table(tmp_path)] == ["b", "a"]
