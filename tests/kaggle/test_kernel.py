"""`make kaggle`: the real kaggle package pushes, follows and fetches against a loopback stub."""

import contextlib
import json
import re
from functools import partial

import nbformat
import pytest

from fastslow import cli
from fastslow.competition.catalog import COMPETITION
from fastslow.evaluation.leaderboard import LeaderboardSettings, leaderboard
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.kaggle import api_process, client, code_dataset, kernel
from helpers.cases import cases
from helpers.kaggle_stub import DROP, KaggleStub, call_here, clean_environment

pytestmark = pytest.mark.usefixtures("undrawn")

COMMAND = ("kaggle", "name=smoke")
LOG = [f"line {number}\n" for number in range(30)]
PARTS = code_dataset._PARTS
LEFT = ("runs/smoke/run.json", "runs/smoke/ranker-tile", "runs/smoke/ensemble-tile", "submissions/smoke")
"""What the notebook leaves: a small part of a run, since every file is a request."""


@pytest.fixture
def home(data_home):
    """A home with the data alone."""
    return data_home


@pytest.fixture
def stub(finished, home, tmp_path, monkeypatch):
    """Kaggle, whose notebook leaves a part of the finished run ``smoke``; nothing of that name is here."""
    clean_environment(monkeypatch, tmp_path / "me")
    (tmp_path / "me").mkdir()
    with KaggleStub() as server:
        for path in sorted(finished[0].rglob("*")):
            name = str(path.relative_to(finished[0]))
            if path.is_file() and name.startswith((*LEFT, "features/smoke/tile-xla/manifest.json")):
                server.output[name] = path.read_bytes()
        server.output["submission.csv"] = b"ID,TopConfigs\n"
        server.log, server.progress = LOG, ["COMPLETE"]
        for name, value in server.environment(tmp_path / "me").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(api_process, "call_isolated", call_here)
        for module in (kernel, code_dataset):
            monkeypatch.setattr(module, "POLL_S", 0.0)
        monkeypatch.setattr(client, "_PAUSES_S", (0.0,))
        # to pack the whole source takes most of a second
        monkeypatch.setattr(code_dataset, "_PARTS", ("pyproject.toml",))
        yield server


def test_a_run_is_pushed_followed_fetched_and_uploaded(stub, home, monkeypatch, capsys):
    monkeypatch.setattr(code_dataset, "_PARTS", PARTS)
    assert cli.main([*COMMAND, "hours=3", "seeds=2", "gnn.layout.epochs=9"]) == 0
    said = capsys.readouterr().out
    assert "quota: 28.00h of GPUs are left until 2026-12-05" in said
    assert "pushed: https://www.kaggle.com/code/me/fastslow-smoke" in said and "".join(LOG) in said

    assert [sorted(names) for names in stub.packed] == [["notebooks.zip", "pyproject.toml", "src.zip"]]
    (pushed,) = stub.pushed
    assert (pushed["slug"], pushed["newTitle"]) == ("me/fastslow-smoke", "fastslow-smoke")
    assert pushed["machineShape"] == "NvidiaTeslaT4" and pushed["enableInternet"] and pushed["isPrivate"]
    assert pushed["datasetDataSources"] == ["me/fastslow-code"]
    assert pushed["competitionDataSources"] == [COMPETITION]
    cells = nbformat.reads(pushed["text"], 4).cells
    (given,) = [cell.source for cell in cells if "injected-parameters" in cell.metadata.get("tags", [])]
    values = {}
    exec(given, {}, values)
    assert values == {"name": "smoke", "hours": 3.0, "settings": "seeds=2 gnn.layout.epochs=9"}

    csv = home / "submissions" / "smoke.csv"
    assert stub.uploads[-1] == csv.read_bytes() == stub.output["submissions/smoke.csv"]
    assert read_submission_record(csv)["kaggle"] == {"public": 0.694, "private": 0.705}
    table = leaderboard(LeaderboardSettings()).table
    (row,) = table[table["model"] == "ensemble"].to_dict("records")
    assert (row["run"], row["private"]) == ("smoke", 0.705)
    assert {path.name for path in home.iterdir()} == {"data", "runs", "submissions"}, (
        "nothing else is fetched"
    )


@cases(
    "setting",
    [
        "init=runs/sample",
        "logger=json:dumps",
        "ensemble.extra=runs/own/*",
        "ensemble.layout.extra=runs/own/*",
        "gnn.init=runs/sample",
        "gnn.layout.logger=json:dumps",
        "features.hlo_folder=/pb",
        "hours=20",
    ],
)
def test_what_is_only_here_is_refused_before_anything_is_sent(stub, capsys, setting):
    assert cli.main([*COMMAND, setting]) == 1
    name, _, value = setting.partition("=")
    said = capsys.readouterr().err
    assert said.startswith(f"error: {name}: {value} ") and "on Kaggle; " in said
    assert not stub.packed and not stub.pushed


def test_target_submission_stops_before_the_upload_and_lost_answers_end_nothing(stub, capsys):
    stub.answers = {
        "GetKernelSessionStatus": [500],
        "GetAcceleratorQuotaStatistics": [DROP],
        "GetDatasetStatus": [429],
    }
    stub.newest = "99.0.0"  # kaggle prints a warning before its answer
    assert cli.main([*COMMAND, "target=submission"]) == 0
    assert not stub.calls["CreateSubmission"]
    assert "28.00h of GPUs are left" in capsys.readouterr().out


def test_one_that_runs_is_followed_and_not_pushed_again(stub, home, capsys):
    stub.states = ["RUNNING", "RUNNING", "COMPLETE"]
    stub.answers = {
        "GetKernelSessionStatus": [],
        "/api/v1/kernels/logs/stream/me/fastslow-smoke": [404, DROP],
    }
    assert cli.main([*COMMAND, "target=submission"]) == 0
    said = capsys.readouterr().out
    assert "has the status running on Kaggle: not sent again" in said and not stub.pushed
    assert said.count("line 7\n") == 1, "Kaggle sends the log from its beginning each time"
    assert (home / "runs" / "smoke" / "run.json").is_file()


def test_one_that_has_finished_is_fetched(stub, home, capsys):
    stub.states = ["COMPLETE"]
    stub.answers = {"/output/submissions/smoke.csv": [DROP]}
    assert cli.main([*COMMAND, "target=submission"]) == 0
    assert "has the status complete on Kaggle: not sent again" in capsys.readouterr().out and not stub.pushed
    assert (home / "submissions" / "smoke.csv").read_bytes() == stub.output["submissions/smoke.csv"]


def test_one_that_was_fetched_is_not_fetched_again_but_uploaded_where_that_failed(stub, capsys):
    stub.states, stub.remaining = ["COMPLETE"], 0
    assert cli.main(COMMAND) == 1
    assert "the submission limit is reached" in capsys.readouterr().err
    stub.remaining = 4
    fetches = stub.calls["ListKernelSessionOutput"]
    assert cli.main(COMMAND) == 0
    assert "smoke.csv was fetched before. Another NAME trains anew" in capsys.readouterr().out
    assert stub.calls["ListKernelSessionOutput"] == fetches and stub.calls["CreateSubmission"] == 1


@pytest.mark.parametrize(
    "request_, answer, said",
    [
        (
            "StartBlobUpload",
            413,
            "file of this size .* Look at wheels/, which is sent with the code",
        ),
        ("SaveKernel", 409, "is busy with another request .*Conflict.* Wait a minute and run it again$"),
        ("CreateDataset", (200, {"error": "No space"}), "did not take the code .No space.. See whether"),
        (
            "GetAcceleratorQuotaStatistics",
            (200, {}),
            "0h of GPUs are left until Kaggle gives some. .* verified phone",
        ),
    ],
)
def test_a_refusal_is_told_in_words_about_the_notebook(stub, home, capsys, request_, answer, said):
    stub.answers = {request_: [answer] * 3}
    assert cli.main(COMMAND) == 1
    error = capsys.readouterr().err.strip()
    assert re.search(said, error) and "submission" not in error
    assert not (home / "submissions").exists()


def test_a_fetch_that_was_interrupted_goes_on(stub, home, capsys):
    stub.states = ["COMPLETE"]
    name = [name for name in stub.output if name.startswith("submissions/")][-1]
    stub.answers = {f"/output/{name}": [404]}
    assert cli.main([*COMMAND, "target=submission"]) == 1
    assert "finds no such notebook or dataset" in capsys.readouterr().err
    assert not (home / "runs").exists(), "a run appears whole"
    kept = home / ".fetched-smoke" / "runs" / "smoke" / "run.json"
    begun = kept.stat().st_mtime_ns
    assert cli.main([*COMMAND, "target=submission"]) == 0
    assert (home / "runs" / "smoke" / "run.json").stat().st_mtime_ns == begun, "it is not fetched again"
    assert (home / name).is_file()
    assert {path.name for path in home.iterdir()} == {"data", "runs", "submissions"}


def test_two_commands_of_one_name_fetch_once(stub, home, capsys):
    """The second one follows as well, waits until the first has fetched, and finds what that one fetched."""
    stub.states = ["COMPLETE"]
    lock = kernel.writer_lock

    @contextlib.contextmanager
    def after_the_other(folder):
        monkeypatch.setattr(kernel, "writer_lock", lock)
        assert cli.main([*COMMAND, "target=submission"]) == 0
        with lock(folder):
            yield

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kernel, "writer_lock", after_the_other)
        assert cli.main([*COMMAND, "target=submission"]) == 0
    assert stub.calls["ListKernelSessionOutput"] == 1 and "smoke.csv" in capsys.readouterr().out
    assert {path.name for path in home.iterdir()} == {"data", "runs", "submissions"}


def test_a_further_run_makes_a_new_version_of_the_code(stub):
    stub.dataset = 4
    assert cli.main([*COMMAND, "target=submission"]) == 0
    assert stub.dataset == 5 and stub.calls["CreateDatasetVersion"] == 1 and not stub.calls["CreateDataset"]


@pytest.mark.parametrize("state", ["ERROR", "CANCEL_ACKNOWLEDGED"])
def test_one_that_fails_shows_its_log_and_loses_nothing(stub, home, capsys, state):
    stub.states = [state]
    stub.failure = "Your notebook was stopped because it exceeded the max allowed execution duration"
    stub.output = {name: text for name, text in stub.output.items() if "ranker-tile" in name}
    stub.states = ["QUEUED", "RUNNING", state]
    assert cli.main(COMMAND) == 1
    printed, said = capsys.readouterr()
    assert "".join(LOG) in printed
    assert f"me/fastslow-smoke ended with status {state}" in said
    assert f"It left {home / 'runs' / 'smoke'}. Its log is above" in said
    assert ("exceeded the max allowed execution duration" in said) == (state == "ERROR")
    assert "Its log is above and at https://www.kaggle.com/code/me/fastslow-smoke" in said
    assert (home / "runs" / "smoke" / "ranker-tile-xla-s0" / "manifest.json").is_file()
    assert not stub.calls["CreateSubmission"]


def test_one_that_failed_unseen_is_fetched_and_not_pushed_again(stub, home, capsys):
    """The laptop slept, or Ctrl-C had ended the following."""
    stub.states = ["ERROR"]
    assert cli.main(COMMAND) == 1
    printed, said = capsys.readouterr()
    assert "has the status error on Kaggle: not sent again" in printed and "".join(LOG) in printed
    assert f"It left {home / 'runs' / 'smoke'}, {home / 'submissions' / 'smoke.csv'}. Its log" in said
    assert (home / "runs" / "smoke" / "run.json").is_file() and not stub.pushed


def test_one_that_failed_and_left_nothing_is_pushed_by_the_same_command(stub, home, capsys):
    output, stub.output, stub.states = stub.output, {}, ["RUNNING", "ERROR"]
    assert cli.main(COMMAND) == 1
    assert "It left nothing: type it again to send it anew. Its log is above" in capsys.readouterr().err
    stub.states = ["ERROR", "QUEUED", "QUEUED", "COMPLETE"]
    stub.api = partial(_with_output, stub, output, stub.api)
    assert cli.main([*COMMAND, "target=submission"]) == 0
    assert len(stub.pushed) == 1 and (home / "submissions" / "smoke.csv").is_file()
    assert "me/fastslow-smoke is queued\n" in capsys.readouterr().out


def _with_output(stub, output, api, name, request):
    """Answer as the stub does; a notebook that is pushed leaves output."""
    if name == "SaveKernel":
        stub.output = output
    return api(name, request)


def test_a_lost_connection_to_the_log_hides_none_of_its_lines(monkeypatch, capsys):
    """kaggle says among the lines that it was lost; the log comes from its beginning each time."""
    lost = "Log stream connection lost, reconnecting...\n"
    calls = [[*LOG[:3], lost, lost], LOG]
    states = iter(["RUNNING", "ERROR"])

    def call(method, hear, **_):
        for piece in calls.pop(0):
            hear(piece)

    monkeypatch.setattr(kernel, "call", call)
    monkeypatch.setattr(kernel, "POLL_S", 0.0)
    monkeypatch.setattr(kernel, "persistent_call", lambda *_, **__: {"status": next(states)})
    assert kernel._follow("me/fastslow-smoke") == {"status": "ERROR"}
    assert capsys.readouterr().out == "".join(LOG)


def test_a_competition_whose_rules_were_not_accepted_is_named_at_once(stub, capsys):
    answer = {"ref": "me/fastslow-smoke", "invalidCompetitionSources": [COMPETITION]}
    stub.answers = {"SaveKernel": [(200, answer)]}
    assert cli.main(COMMAND) == 1
    said = capsys.readouterr().err
    assert f"gave the notebook no access to {COMPETITION}" in said and f"{COMPETITION}/rules" in said


@pytest.mark.parametrize(
    "hours, said",
    [
        (
            (25, 30),
            "hours: 8.5, but 5.00h of GPUs are left until 2026-12-05T00:00:00+00:00. Give fewer HOURS",
        ),
        ((31, 30), "hours: 8.5, but 0.00h of GPUs are left until 2026"),
        ((0, 0), "GPUs need a verified phone"),
    ],
)
def test_too_small_a_quota_is_an_error_before_anything_is_sent(stub, capsys, hours, said):
    stub.hours = hours
    assert cli.main(COMMAND) == 1
    assert said in capsys.readouterr().err
    assert not stub.uploads and not stub.pushed


def test_a_notebook_that_kaggle_does_not_take_is_an_error_with_its_words(stub, capsys):
    stub.refusal = "Maximum batch GPU session count of 2 reached."
    assert cli.main(COMMAND) == 1
    said = capsys.readouterr().err
    assert "Kaggle did not take the notebook (Maximum batch GPU session count of 2 reached)" in said


@pytest.mark.parametrize("answer", [{}, {"status": 7}, "COMPLETE"])
def test_an_answer_of_another_form_is_an_error_and_not_a_new_notebook(stub, monkeypatch, capsys, answer):
    monkeypatch.setattr(kernel, "ask", lambda *_, **__: answer)
    assert cli.main(COMMAND) == 1
    assert "it has no status" in capsys.readouterr().err
    assert not stub.uploads and not stub.pushed


def test_one_that_waits_for_hours_is_followed_no_longer(stub, monkeypatch, capsys):
    """A server that has nothing to say of a notebook counts as one that queues it."""
    monkeypatch.setattr(kernel, "_QUEUED_POLLS", 3)
    stub.states = ["QUEUED"]
    assert cli.main(COMMAND) == 1
    assert "is queued since 0 hours. Look whether it waits" in capsys.readouterr().err
    stub.states = ["QUEUED", "QUEUED", "RUNNING", "QUEUED", "QUEUED", "COMPLETE"]
    assert cli.main([*COMMAND, "target=submission"]) == 0


def test_an_expired_token_is_an_error_with_the_remedy(stub, capsys):
    stub.answers = {"GetKernelSessionStatus": [401], "GetAcceleratorQuotaStatistics": [401]}
    assert cli.main(COMMAND) == 1
    said = capsys.readouterr().err
    assert not stub.uploads and "Kaggle refused the credentials of KAGGLE_USERNAME and KAGGLE_KEY" in said
    assert "Make a token at https://www.kaggle.com/settings/api" in said


def test_a_wrong_setting_or_a_name_that_is_here_is_an_error_before_anything_is_sent(stub, home, capsys):
    assert cli.main([*COMMAND, "gnn.layout.epoch=9"]) == 1
    assert "gnn.layout.epoch" in capsys.readouterr().err
    (home / "runs" / "smoke").mkdir(parents=True)
    assert cli.main(COMMAND) == 1
    assert "runs/smoke is here already. Give another NAME" in capsys.readouterr().err
    assert not stub.calls


def test_the_metadata_are_those_of_the_notebook():
    """For who pushes it by hand, with the kaggle command and a name in place of USER."""
    metadata = json.loads(kernel.PUSHED_NOTEBOOK.with_name("kernel-metadata.json").read_text())
    assert (
        metadata["code_file"] == kernel.PUSHED_NOTEBOOK.name and metadata["machine_shape"] == "NvidiaTeslaT4"
    )
    assert metadata["competition_sources"] == [COMPETITION]
    assert all(name.startswith("USER/") for name in [metadata["id"], *metadata["dataset_sources"]])


def test_a_notebook_that_left_nothing_of_this_name_is_an_error(stub, capsys):
    stub.output, stub.states = {}, ["COMPLETE"]
    assert cli.main(COMMAND) == 1
    assert "me/fastslow-smoke left no submissions/smoke.csv. Give another NAME" in capsys.readouterr().err
