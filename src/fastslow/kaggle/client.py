"""Submit to Kaggle, wait for the score, download the competition: through the real ``kaggle`` CLI.

The CLI runs as a subprocess, because importing ``kaggle`` authenticates at import. What it prints decides,
never its exit code: after a failed upload it exits 0 (kaggle 2.2). It was tried here, unmodified, against a
loopback stub of Kaggle's API (``tests/kaggle_stub.py``); how the real service words a refusal is known from
public reports only, so an answer that is not recognised is shown as it came, without credentials.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastslow.core.errors import ConfigError, DataError, FastslowError
from fastslow.kaggle.cli_process import credentials, run, scrub

COMPETITION = "predict-ai-model-runtime"
SUCCESS = "Successfully submitted"
HOW_TO_AUTHENTICATE = (
    "Make a token at https://www.kaggle.com/settings/api and type `export KAGGLE_API_TOKEN=<token>`,"
    " or save it as ~/.kaggle/access_token, or run `kaggle auth login`"
)
HOW_TO_INSTALL = "Run `pip install 'kaggle>=2.2.4,<3'`"
_LONGEST_POLL_S = 30.0
_PAUSES_S = (2.0, 8.0, 30.0, 60.0, 60.0)  # Before each further try of a download.
_MEANINGS = (  # A sign in the CLI's output, the problem, the remedy, whether it may pass; the first counts.
    (
        r"authentication required|401 client error|unauthorized|invalid credentials",
        "Kaggle refused the credentials of {credentials}",
        HOW_TO_AUTHENTICATE,
        False,
    ),
    (
        r"submission (allowance|limit)|(daily|maximum)\b.{,40}\bsubmission.{,40}(allowed|reached|used)",
        "the submission limit is reached",
        "It starts afresh at midnight UTC",
        False,
    ),
    (r"could not submit to competition", "the upload failed, nothing was submitted", "Run it again", False),
    (
        r"\[errno (13|28|30)\]",
        "the kaggle CLI cannot write",
        "Free some space, or set KAGGLE_CONFIG_DIR to a folder of your own, and run it again",
        False,
    ),
    (
        r"connection|timed? ?out|max retries|resolve|unreachable|broken pipe|incomplete ?read"
        r"|does not match expected size|429 client error|5\d\d server error",
        "Kaggle could not be reached or did not answer in full",
        "Check the network and proxy and run it again; before a second upload look at {address}/submissions",
        True,
    ),
    (
        r"403 client error|forbidden|permission|accept.*rules|404 client error|not found|could not find",
        "Kaggle gives no access to the competition {competition!r}",
        "Accept the rules at {address}/rules as the owner of the credentials, and check the name",
        False,
    ),
    (
        r"400 client error|bad request",
        "Kaggle refused the request",
        "Join the competition at {address} and upload the file there: the page says what is wrong with it",
        False,
    ),
    (r"no module named|unrecognized arg", "the kaggle CLI is missing or too old", HOW_TO_INSTALL, False),
)


class KaggleError(FastslowError):
    """Kaggle did not do what was asked; the message says why and what to type.

    Args:
        problem: What happened.
        remedy: What to do about it.
        transient: Whether the same call may work in a moment (network, overload).
    """

    def __init__(self, problem: str, remedy: str, transient: bool = False):
        super().__init__(f"{problem}. {remedy}")
        self.transient = transient


@dataclass(frozen=True)
class Submission:
    """A row of Kaggle's list of submissions.

    Args:
        ref: Kaggle's number for it.
        file_name: Name of the uploaded file, without folders.
        message: The description it was submitted with.
        status: ``pending``, ``complete`` or ``error``.
        public_score: Score on the public leaderboard, None until there is one.
        private_score: Score on the private leaderboard, None while it is hidden.
    """

    ref: int
    file_name: str
    message: str
    status: str
    public_score: float | None
    private_score: float | None


@dataclass(frozen=True)
class SubmissionResult:
    """An upload that Kaggle has accepted; its score follows, see :func:`wait_for_score`.

    Args:
        competition: The competition's slug.
        file_name: Name of the uploaded file, without folders.
        message: The description it was submitted with.
        earlier_refs: Submissions listed before this one, to tell a second upload of the same name apart.
        remaining_today: How many more submissions Kaggle allows today, None where it does not say.
    """

    competition: str
    file_name: str
    message: str
    earlier_refs: frozenset[int]
    remaining_today: int | None


def submit(csv: Path, message: str, competition: str = COMPETITION) -> SubmissionResult:
    """Upload a submission file.

    Args:
        csv: The file; check it before, see :mod:`fastslow.kaggle.submission`.
        message: Description that Kaggle shows beside the submission.
        competition: The competition's slug, the last part of its address.

    Raises:
        DataError: There is no such file, or it is empty.
        KaggleError: No credentials, refused credentials (401), no permission (403), submission limit
            reached, failed upload, or no network; nothing was submitted unless the message says so.
    """
    csv = Path(csv)
    if not csv.is_file() or not csv.stat().st_size:
        raise DataError(csv, "no such file, or an empty one", "Run `make submission` first")
    earlier = frozenset(row.ref for row in submissions(competition))
    file_and_message = [f"--file={csv.absolute()}", f"--message={message}"]
    code, output = run(["competitions", "submit", "-c", competition, *file_and_message])
    if code or SUCCESS not in output:
        if re.search("400 client error|bad request", output, re.I) and _remaining_today(competition) == 0:
            output += "\nsubmission limit: 0 remaining today"
        raise _failure(output, competition)
    remaining = re.search(r"(\d+) submissions? remaining today", output)
    return SubmissionResult(competition, csv.name, message, earlier, int(remaining[1]) if remaining else None)


def submissions(competition: str = COMPETITION) -> list[Submission]:
    """The latest submissions of your team, newest first; errors as :func:`submit`."""
    _require(competition)
    code, output = run(["competitions", "submissions", "-c", competition, "--format", "json"])
    start = re.search(r"^\[$", output, re.M)
    if code or not (start or "No submissions found" in output):
        raise _failure(output, competition)
    rows = json.JSONDecoder().raw_decode(output[start.start() :])[0] if start else []
    return [
        Submission(
            ref=row["ref"],
            file_name=row["fileName"] or "",
            message=row["description"] or "",
            status=str(row["status"]).rpartition(".")[2].lower(),
            public_score=float(row["publicScore"]) if row["publicScore"] else None,
            private_score=float(row["privateScore"]) if row["privateScore"] else None,
        )
        for row in rows
    ]


def scores(result: SubmissionResult) -> Submission | None:
    """How our submission stands: the newest one of its name and message that was not listed before it.

    None where Kaggle does not list it (yet).

    Raises:
        KaggleError: As :func:`submit`.
    """
    ours = [
        row
        for row in submissions(result.competition)
        if row.ref not in result.earlier_refs
        and row.file_name == result.file_name
        and row.message.split() == result.message.split()
    ]
    return max(ours, key=lambda row: row.ref, default=None)


def wait_for_score(
    result: SubmissionResult,
    timeout_s: float = 900.0,
    poll_s: float = 5.0,
    report: Callable[[str], None] = print,
) -> Submission:
    """Ask until Kaggle has scored our submission; a lost connection on the way is only reported.

    Args:
        result: What :func:`submit` returned.
        timeout_s: When to give up, seconds.
        poll_s: First pause, seconds; each later one is longer by half, up to 30.
        report: Takes one line of progress before each pause.

    Raises:
        KaggleError: Kaggle could not score the file, does not list it, or is not ready in time.
    """
    began, ours, state = time.monotonic(), None, "not listed yet"
    page = f"{_address(result.competition)}/submissions"
    while True:
        try:
            ours = scores(result)
            state = ours.status if ours else "not listed yet"
        except KaggleError as error:
            if not error.transient:
                raise
            state = str(error)
        if ours and ours.status == "complete":
            return ours
        if ours and ours.status == "error":
            raise KaggleError(f"Kaggle could not score {result.file_name}", f"Its reason is shown at {page}")
        waited = time.monotonic() - began
        if waited + poll_s > timeout_s:
            break
        report(f"score of {result.file_name}: {state} ({waited:.0f} s)")
        time.sleep(poll_s)
        poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)
    if ours is None and state == "not listed yet":
        raise KaggleError(
            f"Kaggle said {SUCCESS!r} but lists no such submission after {timeout_s:.0f} s",
            f"It does that when the submission limit is reached; look at {page}",
        )
    raise KaggleError(f"no score after {timeout_s:.0f} s (last: {state})", f"It will appear at {page}", True)


def download(folder: Path, competition: str = COMPETITION) -> Path:
    """Download the competition's data as one zip and return its path; errors as :func:`submit`.

    The CLI goes on with a part that is there, from this run or an earlier one.

    Args:
        folder: Where the zip goes; its name is the competition's slug.
        competition: The competition's slug.
    """
    _require(competition)
    archive = Path(folder).resolve() / f"{competition}.zip"
    for pause_s in (*_PAUSES_S, None):
        command = ["competitions", "download", "-c", competition, f"--path={archive.parent}"]
        code, output = run(command, echo=True)
        if code == 0 and archive.is_file():
            return archive
        error = _failure(output, competition)
        if pause_s is None or not error.transient:
            break
        print(f"{error}. Trying again in {pause_s:.0f} s", file=sys.stderr, flush=True)
        time.sleep(pause_s)
    raise error


def _require(competition: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", competition):
        raise ConfigError(f"competition: {competition!r} is not a slug such as {COMPETITION!r}")
    if credentials() is None:
        raise KaggleError("no Kaggle credentials found", HOW_TO_AUTHENTICATE)


def _remaining_today(competition: str) -> int | None:
    """Kaggle answers a submission over the limit with a bare 400: the allowance tells it from the rest."""
    _, output = run(["competitions", "submission-limits", "-c", competition])
    remaining = re.search(r"Remaining today: (\d+)", output)
    return int(remaining[1]) if remaining else None


def _address(competition: str) -> str:
    return f"https://www.kaggle.com/competitions/{competition}"


def _failure(output: str, competition: str) -> KaggleError:
    """What the CLI's output means, with the last line that says so, without credentials."""
    address = _address(competition)
    lines = [line.strip() for line in re.split(r"[\r\n]+", scrub(output)) if line.strip()]
    for pattern, problem, remedy, transient in _MEANINGS:
        telling = [line for line in lines if re.search(pattern, line, re.I)]
        if telling:
            names = {"competition": competition, "address": address, "credentials": credentials()}
            said = telling[-1].rstrip(".")
            return KaggleError(f"{problem.format(**names)} ({said})", remedy.format(**names), transient)
    said = " / ".join(lines[-5:]) or "it printed nothing"
    return KaggleError(f"the kaggle CLI failed ({said})", f"See {address}/submissions")
