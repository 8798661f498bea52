"""Submit to Kaggle, wait for the score, download the competition: through the kaggle package.

Tested with the unmodified package against a loopback stub of Kaggle's API (``tests/helpers/kaggle_stub.py``).
How the real service words a refusal is known from public reports only, so its own words are always shown.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastslow.competition.catalog import COMPETITION
from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, is_there
from fastslow.evaluation.submission_record import SubmissionResult
from fastslow.kaggle.api_process import HOW_TO_AUTHENTICATE, PAGE, CallError, KaggleError, call
from fastslow.kaggle.credentials import credentials, unusable

SUCCESS = "Successfully submitted"
_UPLOAD_FAILED = "Could not submit to competition"  # an answer of kaggle's, not an exception
_LONGEST_POLL_S = 30.0
_PAUSES_S = (2.0, 8.0, 30.0, 60.0, 60.0)  # before each further attempt at a download


@dataclass(frozen=True)
class Submission:
    """A row of Kaggle's list of submissions."""

    ref: int  # Kaggle's number for it
    file_name: str
    message: str
    status: str  # pending, complete or error
    public_score: float | None  # None before it is scored
    private_score: float | None  # None while it is hidden
    error: str = ""  # why Kaggle could not score it, if it says so


def submit(
    csv: Path, message: str, begin: Callable[[SubmissionResult], None] = lambda _: None
) -> SubmissionResult:
    """Upload a submission file.

    Args:
        csv: The file, checked by :func:`fastslow.competition.submission_csv.check_submission`.
        message: Description that Kaggle shows beside the submission.
        begin: Called just before the upload with what finds it again, should this process be killed.

    Raises:
        DataError: The file is missing or empty.
        KaggleError: No credentials, refused credentials (401), no permission (403), submission limit
            reached, failed upload, or no network. Nothing was submitted unless the message states it.
    """
    csv = Path(csv)
    if not is_there(csv, MAX_TEXT_BYTES) or not csv.stat().st_size:
        raise DataError(csv, "no such file, or an empty one", "Run `make submission` first")
    earlier = sorted(row.ref for row in submissions())
    result = SubmissionResult(file_name=csv.name, message=message, earlier_refs=earlier)
    begin(result)
    target = {"file_name": str(csv.absolute()), "message": message, "competition": COMPETITION}
    try:
        answer = call("competition_submit", quiet=False, **target)["message"] or ""
    except CallError as error:
        if error.kind == "request" and _is_limit(error.said):
            raise CallError("limit", error.said) from error
        raise
    if SUCCESS not in answer:
        raise CallError("upload" if answer == _UPLOAD_FAILED else "unconfirmed", answer)
    return result


def submissions() -> list[Submission]:
    """Return the latest submissions of your team, newest first; errors as :func:`submit`."""
    _require_credentials()
    return [
        Submission(
            ref=row["ref"],
            file_name=row["fileName"] or "",
            message=row["description"] or "",
            status=row["status"].lower(),
            public_score=float(row["publicScore"]) if row["publicScore"] else None,
            private_score=float(row["privateScore"]) if row["privateScore"] else None,
            error=row.get("errorDescription") or "",
        )
        for row in call("competition_submissions", competition=COMPETITION) or ()
    ]


def find_submission(result: SubmissionResult) -> Submission | None:
    """Return our submission, the newest of its name and message that was not listed before the upload.

    None where Kaggle does not list it (yet). Errors as :func:`submit`.
    """
    ours = [
        row
        for row in submissions()
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
    """Wait until Kaggle has scored our submission; a lost connection in between is only reported.

    Args:
        result: As returned by :func:`submit`.
        timeout_s: Time limit, seconds.
        poll_s: First pause, seconds; each later one is 1.5 times as long, up to 30.
        report: Called with one line of progress before each pause.

    Raises:
        KaggleError: Kaggle could not score the file, does not list it, or is not ready in time.
    """
    began = time.monotonic()
    ours = None
    state = "not listed yet"
    page = f"{PAGE}/submissions"
    while True:
        try:
            ours = find_submission(result)
            state = ours.status if ours else "not listed yet"
        except KaggleError as error:
            if not error.transient:
                raise
            state = str(error)
        if ours and ours.status == "complete":
            return ours
        if ours and ours.status == "error":
            reason = ours.error or "no reason given"
            raise KaggleError(f"Kaggle could not score {result.file_name} ({reason})", f"See {page}")
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


def download_archive(folder: Path) -> Path:
    """Download the competition's data as one zip into a folder; errors as :func:`submit`.

    The kaggle package resumes a part that is there, from this run or an earlier one.
    """
    _require_credentials()
    archive = Path(folder).resolve() / f"{COMPETITION}.zip"
    target = {"competition": COMPETITION, "path": str(archive.parent)}
    for pause_s in (*_PAUSES_S, None):
        try:
            call("competition_download_files", echo=True, quiet=False, **target)
            break
        except KaggleError as error:
            if pause_s is None or not error.transient or "Failed to resolve" in str(error):  # no network
                raise
            print(f"{error}. Trying again in {pause_s:.0f} s", file=sys.stderr, flush=True)
        time.sleep(pause_s)
    if not archive.is_file():
        raise CallError("other", f"{archive} was not written")
    return archive


def _require_credentials() -> None:
    if credentials() is None:
        reasons = unusable()
        problem = f"no Kaggle credentials found; {reasons}" if reasons else "no Kaggle credentials found"
        raise KaggleError(problem.rstrip("."), HOW_TO_AUTHENTICATE)


def _is_limit(said: str) -> bool:
    """Return whether a refusal (400) means the submission limit; the service may give no reason."""
    if "allowance" in said.lower():
        return True
    try:
        limits = call("competition_get_submission_limits", competition_name=COMPETITION)
    except CallError:
        return False
    return limits["numAllowedNow"] == 0
