"""The real kaggle package against a loopback stub of Kaggle: what is sent, what each refusal becomes."""

import base64
import errno
import os
import threading
from pathlib import Path

import pytest
import requests
import urllib3.exceptions
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from fastslow.core.errors import DataError
from fastslow.evaluation.submission_record import SubmissionResult
from fastslow.kaggle import api_process, client, credentials
from fastslow.kaggle.api_process import CallError, call, print_to_stderr
from fastslow.kaggle.client import KaggleError
from helpers.cases import cases
from helpers.kaggle_stub import DROP, KaggleStub, call_here, clean_environment

CSV = b"ID,TopConfigs\ntile:xla:a,4;3;2;1;0\nlayout:xla:default:b,1;0\n"
TOKEN = "KGAT_0123456789abcdef"
BASIC = "Basic " + base64.b64encode(b"me:0123456789abcdef-secret").decode()
"""What is sent for a token, as Bearer, and for the user and key of the stub."""
LIMIT = "Submission not allowed: Your team has used its daily Submission allowance (5) today"


@pytest.fixture
def stub(monkeypatch, tmp_path):
    home = tmp_path / "home of me"
    home.mkdir()
    clean_environment(monkeypatch, home)
    with KaggleStub() as server:
        for name, value in server.environment(home).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def here(stub, monkeypatch):
    """Kaggle again, where the calls need no process of their own."""
    monkeypatch.setattr(api_process, "call_isolated", call_here)
    return stub


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "a folder" / "gnn ensemble.csv"
    path.parent.mkdir()
    path.write_bytes(CSV)
    return path


def test_submit_sends_the_file_and_finds_its_own_score(stub, csv):
    """Under the name of the link to it; no earlier upload of that name, no other file is taken for it."""
    csv = csv.with_name("latest.csv")
    csv.symlink_to("gnn ensemble.csv")
    stub.add(csv.name, "-first try, ü", "COMPLETE", publicScore="0.1", privateScore="0.2")
    stub.listed = False
    result = client.submit(csv, "-first try, ü")
    assert stub.uploads == [CSV] and client.find_submission(result) is None
    stub.scored = stub.add(csv.name, "-first try, ü", "PENDING")
    stub.add("another.csv", "-first try, ü", "COMPLETE", publicScore="0.9", privateScore="0.9")
    lines = []
    ours = client.wait_for_score(result, poll_s=0.01, report=lines.append)
    assert (ours.status, ours.public_score, ours.private_score) == ("complete", 0.694, 0.705)
    assert (ours.ref, ours.file_name, ours.message) == (102, csv.name, "-first try, ü")
    assert len(lines) == 1 and "pending" in lines[0]


def test_an_api_token_is_used_and_its_refusal_is_named(here, monkeypatch):
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    here.add("a.csv", None, "PENDING")
    (only,) = client.submissions()
    assert (only.ref, only.status, only.message, only.public_score) == (101, "pending", "", None)
    assert f"Bearer {TOKEN}" in here.authorization
    with pytest.raises(CallError, match="no_such_method") as missing:
        call("no_such_method")
    assert missing.value.kind == "package"
    here.answers["IntrospectToken"] = [400] * 4
    with pytest.raises(KaggleError, match="refused the credentials of KAGGLE_API_TOKEN") as caught:
        client.submissions()
    assert "0123456789abcdef" not in str(caught.value)


def test_a_home_that_cannot_be_written_is_named(here, csv, monkeypatch):
    monkeypatch.setenv("HOME", str(csv))
    with pytest.raises(KaggleError, match="cannot write .*Not a directory.*KAGGLE_CONFIG_DIR"):
        client.submissions()


@pytest.mark.parametrize(
    ("call", "answer", "remaining", "message"),
    [
        ("ListSubmissions", 401, 4, "refused the credentials of KAGGLE_USERNAME.*kaggle.com/settings/api"),
        (
            "ListSubmissions",
            (403, {"code": 403, "message": "Permission 'x' denied to 0123456789abcdef-secret"}),
            4,
            "no access to the competition 'predict-ai.*Accept the rules at.*/rules",
        ),
        ("CreateSubmission", (400, {"code": 400, "message": LIMIT}), 4, "limit is reached.*allowance.*UTC"),
        ("CreateSubmission", 400, 0, "limit is reached"),
        ("CreateSubmission", 400, 4, "refused the request.*upload the file there"),
        ("CreateSubmission", 500, 4, "did not answer in full .CreateSubmission: .*run it again"),
        ("CreateSubmission", 409, 4, "busy with another request, or has this one already .CreateSubmission"),
        ("StartSubmissionUpload", 413, 4, "refuses a file of this size .StartSubmissionUpload"),
        ("/upload/blob-0", 413, 4, "refuses a file of this size .upload: status 413"),
        ("CreateSubmission", (200, None), 4, "not known here .CreateSubmission: the answer is 'null'.*/sub"),
        ("CreateSubmission", (200, {"message": None}), 4, "form that is not known here .it has no message"),
        ("CreateSubmission", (200, []), 4, "not known here .CreateSubmission: the answer is '..'"),
        ("StartSubmissionUpload", (200, "no"), 4, "not known here .StartSubmissionUpload: the answer"),
        ("CreateSubmission", (200, {"code": 403, "message": "no"}), 4, "Accept the rules"),
        ("ListSubmissions", (200, None), 4, "not known here .ListSubmissions: the answer is 'null'"),
        ("ListSubmissions", (200, []), 4, "not known here .ListSubmissions: the answer is '..'"),
        ("ListSubmissions", (200, {"error": "Internal"}), 4, "not known here .*Internal"),
        ("ListSubmissions", (200, {"code": None, "message": None}), 4, "not known here .*null"),
        ("ListSubmissions", (200, {"submissions": [None]}), 4, "a form that is not known here"),
        (
            "ListSubmissions",
            (200, {"submissions": [{"ref": 1, "status": "FAILED"}]}),
            4,
            "not known here .*FAILED",
        ),
        ("ListSubmissions", (200, {"submissions": [{"ref": "x"}]}), 4, "ref of a row is 'x'"),
        ("ListSubmissions", (200, {"submissions": [{"publicScore": "good"}]}), 4, "ListSubmissions.*'good'"),
        ("ListSubmissions", (200, {"submissions": [{"publicScore": "nan"}]}), 4, "a score is 'nan'"),
        ("CreateSubmission", (200, {"message": "Thank you"}), 4, "did not confirm .*Thank you.*/submissions"),
    ],
)
def test_each_refusal_says_what_to_do(here, csv, call, answer, remaining, message, monkeypatch):
    monkeypatch.setattr(client, "_SETTLED_S", 0.0)
    here.answers[call], here.remaining = [answer], remaining
    here.listed = False
    with pytest.raises(KaggleError, match=f"(?s){message}") as caught:
        client.submit(csv, "m")
    assert "0123456789abcdef" not in str(caught.value)


def test_an_upload_that_the_server_could_not_take_is_repeated(here, csv, monkeypatch, capsys):
    monkeypatch.setattr(client, "_PAUSES_S", (0.0, 0.0))
    here.answers = {"/upload/blob-0": [500], "/upload/blob-1": [503]}
    assert client.submit(csv, "m").file_name == csv.name
    assert here.uploads == [CSV] and here.calls["CreateSubmission"] == 1
    assert capsys.readouterr().err.count("Trying again in 0 s") == 2
    here.answers = {"StartSubmissionUpload": [DROP]}
    assert client.submit(csv, "m") and len(here.uploads) == 2
    here.answers = {f"/upload/blob-{n}": [500] for n in range(4, 7)}
    with pytest.raises(KaggleError, match="did not answer in full .upload: status 500"):
        client.submit(csv, "m")
    assert here.calls["CreateSubmission"] == 2


def test_a_lost_answer_is_looked_for_in_the_list_before_anything_is_sent_again(here, csv, monkeypatch):
    """The submission appears at the third look."""
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    here.answers["CreateSubmission"] = [DROP]
    looks = []
    real = client.find_submission

    def look(result):
        looks.append(result)
        if len(looks) == 3:
            here.add(csv.name, "m", "PENDING")
        return real(result)

    monkeypatch.setattr(client, "find_submission", look)
    assert client.submit(csv, "m") and len(looks) == 3
    assert here.calls["CreateSubmission"] == 1


def test_where_the_limit_is_reached_nothing_is_sent(here, csv):
    here.remaining = 0
    with pytest.raises(KaggleError, match="limit is reached .*midnight UTC"):
        client.submit(csv, "m")
    assert not here.uploads


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refused_refresh_of_a_login_is_named(here, status, monkeypatch):
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name)
    login = Path("~/.kaggle/credentials.json").expanduser()
    login.parent.mkdir()
    login.write_text('{"refresh_token": "refreshing-1", "username": "me"}')
    here.answers["GenerateAccessToken"] = [status] * 4
    with pytest.raises(KaggleError, match="credentials of kaggle auth login .GenerateAccessToken: "):
        client.submissions()
    login.write_text('{"refresh_token": "refreshing-1", "username": "me"}')
    here.answers.clear()
    assert client.submissions() == []


def test_no_network(here, csv, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(KaggleError) as caught:
        client.submit(csv, "m")
    assert caught.value.transient
    said = "Kaggle cannot be reached (the proxy 127.0.0.1:9 refuses the connection)."
    assert str(caught.value) == f"{said} Check the network and proxy and run it again"


def test_a_connection_that_always_closes_is_one_sentence(here, csv, monkeypatch, capsys):
    """Neither urllib3's words with the address nor a remedy within a problem."""
    monkeypatch.setattr(client, "_SETTLED_S", 0.0)
    lost = "RemoteDisconnected: Remote end closed connection without response"
    here.answers = {"CreateSubmission": [DROP]}
    with pytest.raises(KaggleError) as caught:
        client.submit(csv, "m")
    assert caught.value.transient
    said = f"did not answer in full (CreateSubmission: Unable to connect to proxy: {lost})"
    assert f"{said}. Looking whether Kaggle lists it\n" in capsys.readouterr().err
    assert str(caught.value).endswith(
        f"{said}, and Kaggle does not list it. Check the network and proxy and run it again"
    )
    here.answers = {"ListSubmissions": [DROP]}
    with pytest.raises(
        KaggleError, match="list of submissions cannot be read .*[)]. Check the network and run"
    ) as c:
        client.find_settled(result_of(csv))
    assert "://" not in str(c.value) and str(c.value).count("run it again") == 1


def test_no_semaphore_outlives_the_process_of_a_call(here, csv, monkeypatch):
    """Python would print two lines on a leaked one after the last line of the command."""
    monkeypatch.delattr(tqdm, "_lock", raising=False)
    client.submit(csv, "m")
    assert isinstance(tqdm.get_lock(), type(threading.RLock()))


def test_a_download_without_a_way_to_kaggle_ends_at_once(here, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(KaggleError, match="cannot be reached"):
        client.download_archive(tmp_path)
    assert "Trying again" not in capsys.readouterr().err


def test_without_a_file_or_credentials_nothing_is_asked(stub, csv, monkeypatch):
    with pytest.raises(DataError, match="make submission NAME='my run'`"):
        client.submit(csv.with_name("my run.csv"), "m")
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(KaggleError, match="no Kaggle credentials found.*export KAGGLE_API_TOKEN=<token>"):
        client.submit(csv, "m")
    assert not stub.calls


def result_of(csv):
    return SubmissionResult(file_name=csv.name, message="m", earlier_refs=[])


def test_waiting_outlives_a_lost_connection(here, csv):
    here.scored = here.add(csv.name, "m", "PENDING")
    here.answers["ListSubmissions"] = [503, DROP]
    lines = []
    ours = client.wait_for_score(result_of(csv), poll_s=0.01, report=lines.append)
    assert ours.public_score == 0.694
    assert "503" in lines[0] and "could not be reached" in lines[1] and "pending" in lines[2]


def test_waiting_ends_where_no_score_can_come(here, csv):
    wait = {"poll_s": 0.01, "report": lambda _: None}
    with pytest.raises(KaggleError, match="lists no such submission.*submission limit"):
        client.wait_for_score(result_of(csv), timeout_s=0, **wait)
    here.add(csv.name, "m", "PENDING")
    with pytest.raises(KaggleError, match="no score after 0 s .last: pending"):
        client.wait_for_score(result_of(csv), timeout_s=0, **wait)
    here.add(csv.name, "m", "COMPLETE")
    with pytest.raises(KaggleError, match="no score after 0 s .last: complete, without a score"):
        client.wait_for_score(result_of(csv), timeout_s=0, **wait)
    here.add(csv.name, "m", "ERROR", errorDescription="Row 3: no such ID")
    ours = client.wait_for_score(result_of(csv), **wait)
    assert (ours.status, ours.error) == ("error", "Row 3: no such ID")
    here.answers["ListSubmissions"] = [401]
    with pytest.raises(KaggleError, match="refused the credentials"):
        client.wait_for_score(result_of(csv), **wait)


def test_download_resumes_within_kaggle_and_by_running_it_again(stub, tmp_path, monkeypatch):
    content = bytes(range(256)) * 12_000
    stub.files["/data/competition.zip"] = content
    stub.cuts["/data/competition.zip"] = [2_500_000]
    stub.answers["DownloadDataFiles"] = [DROP]
    monkeypatch.setattr(client, "_PAUSES_S", (0.0, 0.0))
    archive = client.download_archive(tmp_path / "with space")
    assert archive == tmp_path / "with space" / "predict-ai-model-runtime.zip"
    assert archive.read_bytes() == content
    assert stub.calls["DownloadDataFiles"] == 2
    assert stub.ranges == [None, f"bytes={2 << 20}-"]  # kaggle keeps whole chunks of 1 MiB


def test_nothing_shown_holds_a_credential(stub, monkeypatch, capfd):
    monkeypatch.setenv("VERBOSE", "true")
    assert call("competition_submissions", hear=print_to_stderr, competition="a") == []
    assert "".join(capfd.readouterr()) == "", "kaggle must not print its requests"
    assert stub.authorization == {BASIC}, "the stub must have seen the credentials, or this tests nothing"
    monkeypatch.setattr(api_process, "_NOISY", ())
    assert call("competition_submissions", hear=print_to_stderr, competition="a") == []
    shown = "".join(capfd.readouterr())
    assert "Authorization: Basic [secret]" in shown, "kaggle must have printed its requests"
    stub.answers["ListSubmissions"] = [(400, {"code": 400, "message": f"no {BASIC} 0123456789abcdef-secret"})]
    with pytest.raises(CallError, match="no Basic") as caught:
        call("competition_submissions", competition="a")
    for text in (shown, str(caught.value)):
        assert "0123456789abcdef-secret" not in text
    assert BASIC not in shown


def test_scrub(monkeypatch, tmp_path):
    clean_environment(monkeypatch, tmp_path)
    (tmp_path / ".kaggle").mkdir()
    (tmp_path / ".kaggle" / "access_token").write_text("KGAT_from-file\n")
    (tmp_path / ".kaggle" / "kaggle.json").write_text('{"username": "me", "key": "keyfromjson"}')
    (tmp_path / ".kaggle" / "credentials.json").write_text('{"refresh_token": "refreshing-1"}')
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_from-env")
    text = (
        "KGAT_from-file keyfromjson refreshing-1 KGAT_from-env me\nAuthorization: Bearer abc.def\n"
        "'authorization': 'Basic bWU6eA=='\nhttp://user:word@proxy:1/ https://host/a.zip?Signature=b&c end"
    )
    assert credentials.scrub(text) == (
        "[secret] [secret] [secret] [secret] me\nAuthorization: Bearer [secret]\n"
        "'authorization': 'Basic [secret]\nhttp://[secret]@proxy:1/ https://host/a.zip?[query] end"
    )


@given(st.text("abcdefghij0123456789_-", min_size=20, max_size=40), st.data())
def test_no_part_of_a_credential_is_shown(key, data):
    start = data.draw(st.integers(0, len(key) - 8))
    part = key[start : start + data.draw(st.integers(8, len(key)))]
    basic = base64.b64encode(f"me:{key}".encode()).decode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAGGLE_USERNAME", "me")
        patch.setenv("KAGGLE_KEY", key)
        shown = credentials.scrub(f"said {part!r} {basic} {basic[:-3]} end")
    assert (
        part not in shown
        and basic[:12] not in shown
        and shown.startswith("said '")
        and shown.endswith(" end")
    )


@cases(
    "environment, files, found",
    [
        ({}, {}, None),
        ({"KAGGLE_API_TOKEN": "KGAT_1"}, {".kaggle/access_token": "KGAT_2"}, "KAGGLE_API_TOKEN"),
        ({}, {".kaggle/access_token": "KGAT_2", ".kaggle/kaggle.json": "{}"}, "~/.kaggle/access_token"),
        ({}, {".kaggle/access_token": " \n"}, None),
        ({"KAGGLE_USERNAME": "me", "KAGGLE_KEY": "k"}, {}, "KAGGLE_USERNAME and KAGGLE_KEY"),
        ({"KAGGLE_USERNAME": "me"}, {}, None),
        ({}, {".kaggle/kaggle.json": '{"username": "me"'}, None),
        (
            {},
            {".config/kaggle/kaggle.json": '{"username": "me", "key": "k"}'},
            "{home}/.config/kaggle/kaggle.json",
        ),
        (
            {"KAGGLE_CONFIG_DIR": "{home}/x y"},
            {"x y/kaggle.json": '{"username": "me", "key": "k"}'},
            "{home}/x y/kaggle.json",
        ),
        ({}, {".kaggle/credentials.json": '{"refresh_token": "r"}'}, "kaggle auth login"),
        ({}, {".kaggle/credentials.json": "[]"}, None),
    ],
)
def test_credentials_are_found_where_kaggle_finds_them(monkeypatch, tmp_path, environment, files, found):
    clean_environment(monkeypatch, tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(home=tmp_path))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert credentials.credentials() == (found and found.format(home=tmp_path))


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A function that puts a package in the place of kaggle's, whose method ``run`` does what it is told."""
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("KAGGLE_KEY", "0123456789abcdef")
    monkeypatch.syspath_prepend(tmp_path)

    def put(does):
        (tmp_path / "kaggle" / "api").mkdir(parents=True)
        for folder in ("kaggle", "kaggle/api"):
            (tmp_path / folder / "__init__.py").touch()
        source = "import os, time\nclass KaggleApi:\n    def authenticate(self): pass\n"
        source += f"    def run(self): print('begun with', os.environ['KAGGLE_KEY']); {does}\n"
        (tmp_path / "kaggle" / "api" / "kaggle_api_extended.py").write_text(source)

    return put


def test_a_silent_call_is_stopped_and_its_echo_is_scrubbed(package, monkeypatch, capfd):
    package("time.sleep(60)")
    monkeypatch.setattr(api_process, "_IDLE_S", 2.0)
    with pytest.raises(CallError, match="timed out: it printed nothing for 2 s") as caught:
        call("run", hear=print_to_stderr)
    assert caught.value.kind == "network"
    assert capfd.readouterr().err == "begun with [secret]\n"


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_1")
    (tmp_path / "kaggle.py").write_text("raise ModuleNotFoundError(\"No module named 'kaggle'\")\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KaggleError, match="missing or too old .ModuleNotFoundError: No module.*pip install"):
        client.submissions()


BAD_FILES = {
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: path.touch() or os.truncate(path, 3 << 30),
    "list": lambda path: path.write_text('["key"]'),
    "surrogate": lambda path: path.write_text('{"username": "me", "key": "\\ud800"}'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "no key": lambda path: path.write_text('{"username": "me", "key": ""}'),
    "NUL": lambda path: path.write_text('{"username": "me", "key": "a\\u0000b"}'),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe{"),
}


@cases("bad", BAD_FILES)
def test_a_file_of_credentials_that_cannot_be_used_is_named_and_hides_no_error(bad, monkeypatch, tmp_path):
    clean_environment(monkeypatch, tmp_path)
    (tmp_path / ".kaggle").mkdir()
    for name in ("kaggle.json", "access_token"):
        path = tmp_path / ".kaggle" / name
        if name == "kaggle.json" or bad in ("pipe", "device", "large", "bytes"):
            BAD_FILES[bad](path)
            with pytest.raises(KaggleError, match=f"no Kaggle credentials found; .*{name}: "):
                client.submissions()
            assert credentials.scrub("an error") == "an error"
            path.unlink()
    monkeypatch.setenv("KAGGLE_API_TOKEN", str(path))
    if bad in ("pipe", "device", "large"):
        BAD_FILES[bad](path)
        assert credentials.credentials() is None and credentials.scrub("an error") == "an error"


@cases(
    "file, text, sent",
    [
        ("kaggle.json", '\ufeff{"username": "me", "key": "0123456789abcdef-secret"}', BASIC),
        *(("access_token", f"{left}\r\n", f"Bearer {TOKEN}") for left in (f"\ufeff{TOKEN}", f'"{TOKEN}"')),
    ],
)
def test_credentials_are_used_as_an_editor_left_them(here, file, text, sent, monkeypatch):
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name)
    path = Path("~/.kaggle").expanduser() / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    here.authorization.clear()
    assert client.submissions() == [] and here.authorization == {sent}


@cases(
    "error, kind",
    [
        (OSError(errno.ENOSPC, "No space left on device"), "file"),
        (urllib3.exceptions.ProtocolError("closed"), "network"),
        (ValueError("Downloaded file size (1) does not match expected size (2)"), "network"),
        (SystemExit(1), "credentials"),
        (requests.exceptions.InvalidHeader("a line feed"), "credentials"),
        (requests.exceptions.ProxyError("Tunnel connection failed: 407 Proxy Authentication"), "proxy"),
        (requests.exceptions.ProxyError("host='127.0.0.1', port=37407: Remote end closed"), "network"),
        (KeyError("x"), "answer"),
        (RuntimeError("x"), "other"),
    ],
)
def test_exceptions_have_kinds(error, kind):
    assert api_process._kind(error) == kind
