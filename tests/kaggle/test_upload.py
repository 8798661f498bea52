"""`make submit DATA=kaggle` from a finished run on: the real kaggle package against a loopback stub."""

import json
import shutil
from functools import partial

import numpy as np
import pytest

from fastslow import cli
from fastslow.competition import row_order
from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import DataError
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.kaggle import api_process, client
from fastslow.kaggle import upload as upload_module
from fastslow.kaggle.provenance import GOOGLE, KAGGLE, PROVENANCE, read_row_orders, record_provenance
from fastslow.kaggle.upload import upload
from fastslow.workflow import run
from fastslow.workflow.begun_run import resume
from fastslow.workflow.settings.run_settings import RunSettings
from helpers.kaggle_stub import KaggleStub, call_here, clean_environment

pytestmark = pytest.mark.usefixtures("undrawn")

COMMAND = ("submit", "preset=smoke", "jobs=2")
LAYOUT_TESTS = [f"{collection.name} test" for collection in COLLECTIONS if collection.kind == "layout"]


@pytest.fixture
def csv(home, tmp_path, monkeypatch):
    """The finished submission of a home where the data pose as the real competition, from Kaggle."""
    raw = home / "data" / "raw"
    shutil.copytree(home / "data" / "sample", raw)
    record_provenance(raw, KAGGLE, LAYOUT_TESTS)
    (tmp_path / "me").mkdir()
    clean_environment(monkeypatch, tmp_path / "me")
    return home / "submissions" / "smoke.csv"


@pytest.fixture
def stub(csv, tmp_path, monkeypatch):
    """Kaggle, with credentials for it in the environment; it scores at once."""
    with KaggleStub() as server:
        server.progress = ["COMPLETE"]
        monkeypatch.setattr(api_process, "call_isolated", call_here)
        for name, value in server.environment(tmp_path / "me").items():
            monkeypatch.setenv(name, value)
        yield server


def test_the_score_goes_into_the_record_and_nothing_is_sent_twice(stub, csv, capsys):
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    said = capsys.readouterr().out
    assert stub.uploads == [csv.read_bytes()]
    assert "smoke.csv: uploaded; waiting for its score" in said
    assert "Kaggle: public 0.694, private 0.705" in said
    record = read_submission_record(csv)
    assert record["kaggle"] == {"public": 0.694, "private": 0.705}
    assert stub.submissions[0]["description"] == record["upload"]["message"]
    assert f"valid mean {record['valid_mean']:.4f}" in record["upload"]["message"]

    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    assert "uploaded before; asking for its score" in capsys.readouterr().out
    assert stub.calls["CreateSubmission"] == 1 and len(stub.uploads) == 1
    assert json.loads(csv.with_suffix(".json").read_text())["kaggle"]["private"] == 0.705


def test_an_upload_that_was_cut_off_is_looked_for_before_another(stub, csv, monkeypatch):
    stub.answers = {"CreateSubmission": [500]}  # it arrived; the answer did not
    monkeypatch.setattr(client, "_SETTLED_S", 0.0)
    assert cli.main([*COMMAND, "data=kaggle"]) == 1
    record = read_submission_record(csv)
    assert "upload" not in record and len(stub.uploads) == 1
    stub.scored = stub.add(csv.name, record["attempt"]["message"], "PENDING")
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    assert stub.calls["CreateSubmission"] == 1 and len(stub.uploads) == 1
    assert read_submission_record(csv)["kaggle"] == {"public": 0.694, "private": 0.705}


def test_what_kaggle_never_lists_is_sent_again_by_the_same_command(stub, csv, capsys, monkeypatch):
    monkeypatch.setattr(client, "_SETTLED_S", 0.0)
    monkeypatch.setattr(upload_module, "wait_for_score", partial(client.wait_for_score, timeout_s=0.0))
    stub.listed = False
    assert cli.main([*COMMAND, "data=kaggle"]) == 1
    assert "Type the same command again: it is sent anew" in capsys.readouterr().err
    stub.listed = True
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    assert "Kaggle accepted it but does not list it" in capsys.readouterr().out
    assert stub.calls["CreateSubmission"] == 2
    assert read_submission_record(csv)["kaggle"]["public"] == 0.694


def test_what_kaggle_could_not_score_is_sent_again_by_the_same_command(stub, csv, capsys):
    stub.progress = ["ERROR"]
    assert cli.main([*COMMAND, "data=kaggle"]) == 1
    said = capsys.readouterr().err
    assert "could not score smoke.csv (no reason given)" in said and "the same command again" in said
    stub.progress = ["COMPLETE"]
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    assert stub.calls["CreateSubmission"] == 2
    assert read_submission_record(csv)["kaggle"]["public"] == 0.694


def test_a_hidden_private_score_is_called_hidden(stub, csv, capsys):
    stub.progress = ["PENDING"]
    stub.api = partial(hide_private, stub, stub.api)
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    assert "Kaggle: public 0.5, private hidden" in capsys.readouterr().out


def hide_private(stub, api, name, request):
    """Answer as the stub does, with a public score alone."""
    answer = api(name, request)
    for row in stub.submissions:
        row.update(status="COMPLETE", publicScore="0.5")
    return answer


def test_a_failed_upload_is_an_error(stub, csv, capsys, monkeypatch):
    monkeypatch.setattr(client, "_PAUSES_S", (0.0, 0.0))
    stub.answers = {f"/upload/blob-{n}": [500] for n in range(5)}
    assert cli.main([*COMMAND, "data=kaggle"]) == 1
    said = capsys.readouterr().err
    assert "did not answer in full (upload: status 500). Check the network" in said and "secret" not in said
    assert stub.calls["CreateSubmission"] == 0
    assert not {"upload", "kaggle"} & set(read_submission_record(csv))


def test_without_credentials_it_says_what_to_type(csv, capsys):
    assert cli.main([*COMMAND, "data=kaggle"]) == 0
    said = capsys.readouterr().out
    assert "not uploaded: no Kaggle credentials" in said
    assert "export KAGGLE_API_TOKEN=" in said and "type `make submit NAME=smoke` again: nothing" in said
    assert "| tile:xla" in said, "the table comes first"


def test_the_sample_and_a_submission_alone_are_never_uploaded(stub, csv, capsys):
    assert cli.main(["submission", *COMMAND[1:], "data=kaggle"]) == 0
    assert cli.main([*COMMAND, "data=sample"]) == 0
    assert "not uploaded: data/sample is not the Kaggle competition" in capsys.readouterr().out
    assert not stub.calls


def test_a_file_that_was_changed_by_hand_is_not_sent(stub, csv):
    header, first, *rest = csv.read_text().splitlines()
    name, order = first.split(",")
    swapped = ";".join(order.split(";")[::-1])
    csv.write_text("\n".join([header, f"{name},{swapped}", *rest]) + "\n")
    with pytest.raises(DataError, match="not the file its record was written for"):
        upload(csv, csv.parents[1] / "data" / "raw")
    assert not stub.calls


def shuffle_rows(path):
    """Give a layout file its configurations in another order."""
    arrays = dict(np.load(path))
    arrays["node_config_feat"] = arrays["node_config_feat"][::-1]
    np.savez_compressed(path, **arrays)


def test_data_of_the_launch_release_are_not_uploaded(stub, csv, capsys, monkeypatch):
    raw = csv.parents[1] / "data" / "raw"
    orders = read_row_orders(raw)
    monkeypatch.setattr(row_order, "LAUNCH", dict([next(iter(orders.items()))]))
    assert cli.main([*COMMAND, "data=kaggle", "unproven_order=True"]) == 1
    said = capsys.readouterr().err
    assert "launch release (August 2023)" in said and "run `make data` with Kaggle credentials" in said
    assert not stub.uploads
    monkeypatch.delenv("KAGGLE_KEY")
    assert cli.main([*COMMAND, "data=kaggle", "unproven_order=True"]) == 0
    said = capsys.readouterr().out
    assert "not uploaded: " in said and "run `make data` with" in said and "token" not in said


def test_the_command_to_type_once_there_is_a_token_repeats_the_run(tmp_path, monkeypatch):
    """Another one would train another run for a day, or be refused."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    for typed, said in (
        ([], "DATA=kaggle"),
        (["name=kaggle", "hours=2"], "NAME=kaggle"),
        (["name=my run"], "NAME='my run'"),
        (["preset=harvard"], "NAME=kaggle-harvard"),
        (["predict_with=package"], "NAME=kaggle-package"),
    ):
        plan, recorded, *_ = resume(RunSettings.from_texts(["data=kaggle", "overwrite=True", *typed]))
        record_run(tmp_path / "runs" / plan.name, plan.data_root, plan.preset, recorded, None)
        assert run._same_command(plan, False) == f"make submit {said}"
        assert run._same_command(plan, True) == f"make submit {said} SET=unproven_order=True"


def test_data_whose_order_is_unproven_are_uploaded_only_where_that_is_said(stub, csv, capsys):
    raw = csv.parents[1] / "data" / "raw"
    (raw / PROVENANCE).unlink()
    for source in (None, GOOGLE):
        if source:
            record_provenance(raw, source, LAYOUT_TESTS)
        assert cli.main([*COMMAND, "data=kaggle"]) == 1
        said = capsys.readouterr().err
        assert "warning: " in said and "unproven_order: nobody has shown" in said
        assert "add unproven_order=True (with make SET=unproven_order=True)" in said and not stub.uploads
    assert cli.main([*COMMAND, "data=kaggle", "unproven_order=True"]) == 0
    assert stub.uploads == [csv.read_bytes()]


def test_a_submission_of_another_release_than_the_data_is_not_uploaded(stub, csv):
    raw = csv.parents[1] / "data" / "raw"
    shuffle_rows(next((raw / "npz_all/npz/layout/nlp/random/test").glob("*.npz")))
    with pytest.raises(DataError, match=r"smoke\.csv: was made from layout test files of another row order"):
        upload(csv, raw, unproven_order=True)
    assert not stub.uploads


def test_a_blend_is_uploaded_and_its_score_recorded(stub, csv, capsys, monkeypatch):
    monkeypatch.chdir(csv.parent)
    (csv.parent / "theirs.csv").write_bytes(csv.read_bytes())
    raw = csv.parents[1] / "data" / "raw"
    foreign = csv.parent.parent / "foreign.csv"  # a part of the rows; nobody recorded what they are
    foreign.write_text("".join(csv.read_text().splitlines(keepends=True)[:3]))
    (csv.parent / "part.csv").write_bytes(foreign.read_bytes())
    assert cli.main(["blend", str(foreign), "part.csv", "out=both.csv", "upload=True"]) == 1
    said = capsys.readouterr().err
    assert "data_root: an upload is checked against the test files" in said and "data_root=FOLDER" in said
    assert not stub.uploads and not csv.with_name("both.csv").exists()
    blend = ("blend", csv.name, "theirs.csv", "out=both.csv", "upload=True", f"data_root={raw}")
    assert cli.main(blend) == 1
    assert f"upload: {raw} is not the Kaggle competition" in capsys.readouterr().err and not stub.uploads
    (raw / "solution.csv").unlink()  # as of the real competition, which publishes no test labels
    (raw / PROVENANCE).unlink()
    assert cli.main(blend) == 1
    assert "or add unproven_order=True" in capsys.readouterr().err and not stub.uploads
    assert cli.main([*blend, "unproven_order=True"]) == 0
    both = csv.with_name("both.csv")
    assert stub.uploads == [both.read_bytes()] and both.read_bytes() == csv.read_bytes()
    assert read_submission_record(both)["kaggle"] == {"public": 0.694, "private": 0.705}
    assert stub.submissions[0]["description"].startswith("fastslow both ")
