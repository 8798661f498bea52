"""Submit to Kaggle, wait for the score, download the competition: through the kaggle package.

Tested with the unmodified package against a loopback stub of Kaggle's API (``tests/helpers/kaggle_stub.py``).
How the real service words a refusal is known from public reports only, so its own words are always shown.
"""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from fastslow.competition.catalog import COMPETITION
from fastslow.core.errors import DataError
from fastslow.core.input_files import MAX_TEXT_BYTES, is_there
from fastslow.core.records import Record
from fastslow.evaluation.submission_record import SubmissionResult
from fastslow.kaggle.api_process import (
    HOW_TO_AUTHENTICATE,
    PAGE,
    UPLOAD,
    CallError,
    KaggleError,
    call,
    field_of,
    print_to_stderr,
)
from fastslow.kaggle.credentials import credentials, unusable

SUCCESS = "Successfully submitted"
PENDING, COMPLETE, ERROR = "pending", "complete", "error"
_UPLOAD_FAILED = "Could not submit to competition"  # an answer of kaggle's, not an exception
_LONGEST_POLL_S = 30.0
_SETTLED_S = 120.0  # from the beginning of an upload until Kaggle's list has it, if it arrived
_PAUSES_S = (2.0, 8.0, 30.0, 60.0, 60.0)  # before each further attempt at a download or an upload
_UNLISTED = "not listed yet"
_AGAIN = "Type the same command again: it is sent anew"
_REFUSED = ("credentials", "limit", "access", "missing", "proxy", "request", "size", "package", "file")
_NOTHING_SENT = ("StartSubmissionUpload", UPLOAD)  # requests after whose failure there is no submission


@dataclass(frozen=True)
class Submission:
    """A row of Kaggle's list of submissions."""

    ref: int  # Kaggle's number for it
    file_name: str
    message: str
    status: str  # PENDING, COMPLETE or ERROR
    public_score: float | None  # None before it is scored
    private_score: float | None  # None while it is hidden
    error: str = ""  # why Kaggle could not score it, if it says so

    @property
    def is_final(self) -> bool:
        """Whether Kaggle has scored it, or has refused to."""
        return self.status == ERROR or (self.status == COMPLETE and self.public_score is not None)


class _Row(Record):
    """Keys of a row of the list, as the kaggle package gives them."""

    ref: int
    fileName: str | None
    description: str | None
    status: Literal["PENDING", "COMPLETE", "ERROR"]
    publicScore: str | None
    privateScore: str | None
    errorDescription: str | None = None


def submit(
    csv: Path, message: str, begin: Callable[[SubmissionResult], None] = lambda _: None
) -> SubmissionResult:
    """Upload a submission file, once: after a lost answer the list tells whether it arrived.

    Args:
        csv: The file, checked by :func:`fastslow.competition.submission_checks.check_submission`.
        message: Description that Kaggle shows beside the submission.
        begin: Called just before the upload with what finds it again, should this process be killed.

    Raises:
        DataError: The file is missing or empty.
        KaggleError: No credentials, refused credentials (401), no permission (403), submission limit
            reached, failed upload, or no network. Nothing was submitted unless the message states it.
    """
    csv = Path(csv)
    if not is_there(csv, MAX_TEXT_BYTES) or not csv.stat().st_size:
        remedy = f"Run `make submission NAME={shlex.quote(csv.stem)}`, or `fastslow blend` if it is a blend"
        raise DataError(csv, "no such file, or an empty one", remedy)
    earlier = sorted(row.ref for row in submissions())
    if _is_limit():
        raise CallError("limit", "Kaggle allows no more today")
    result = SubmissionResult(file_name=csv.name, message=message, earlier_refs=earlier, begun=time.time())
    begin(result)
    try:
        _send(csv, message)
    except CallError as error:
        if error.kind == "request" and ("allowance" in error.said.lower() or _is_limit()):
            raise CallError("limit", error.said) from error
        if error.kind in _REFUSED or error.request in _NOTHING_SENT:
            raise
        print(f"{error.problem}. Looking whether Kaggle lists it", file=sys.stderr, flush=True)
        if find_settled(result) is None:
            problem = f"{error.problem}, and Kaggle does not list it"
            raise KaggleError(problem, error.remedy, error.transient) from error
    return result


def _send(csv: Path, message: str) -> None:
    """Send a file; what fails before Kaggle has it is repeated."""
    target = {"file_name": str(csv.absolute()), "message": message, "competition": COMPETITION}
    for pause_s in (*_PAUSES_S, None):
        try:
            answer = field_of(call("competition_submit", quiet=False, **target), "message", str)
            if answer == _UPLOAD_FAILED:
                raise CallError("upload", answer, UPLOAD)
            if SUCCESS not in answer:
                raise CallError("unconfirmed", answer)
            return
        except CallError as error:
            # kaggle itself repeats an upload whose connection was lost, for minutes
            passing = error.request in _NOTHING_SENT and error.kind == "network"
            if pause_s is None or not passing:
                raise
            print(f"{error.problem}. Trying again in {pause_s:.0f} s", file=sys.stderr, flush=True)
        time.sleep(pause_s)


def submissions() -> list[Submission]:
    """Return the latest submissions of your team, newest first; errors as :func:`submit`."""
    require_credentials()
    rows = call("competition_submissions", competition=COMPETITION) or []
    return [_read_row(row) for row in rows]


def _read_row(value: Any) -> Submission:
    try:
        row = _Row.model_validate(value)
        return Submission(
            ref=row.ref,
            file_name=row.fileName or "",
            message=row.description or "",
            status=row.status.lower(),
            public_score=_score(row.publicScore),
            private_score=_score(row.privateScore),
            error=row.errorDescription or "",
        )
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))} of a row is {first['input']!r:.60}: {first['msg']}"
        raise CallError("answer", said, "ListSubmissions") from None
    except ValueError as error:
        raise CallError("answer", str(error), "ListSubmissions") from None


def _score(text: str | None) -> float | None:
    if not text:
        return None
    try:
        score = float(text)
    except ValueError:
        score = nan
    if not isfinite(score):
        raise ValueError(f"a score is {text!r:.60}")
    return score


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


def find_settled(result: SubmissionResult) -> Submission | None:
    """Return our submission, or None once Kaggle's list would have it if it had arrived.

    Kaggle lists a submission some time after it took it, so a list that lacks one is asked again until two
    minutes after the upload began. A line of progress is printed before each pause.

    Raises:
        KaggleError: As for :func:`submit`; or the list cannot be read until then.
    """
    left_s = min(result.begun + _SETTLED_S - time.time(), _SETTLED_S)
    ours, state = _watch(result, left_s, min(5.0, _SETTLED_S), print, lambda _: True)
    if ours is None and state != _UNLISTED:
        remedy = "Check the network and run it again"
        raise KaggleError(f"Kaggle's list of submissions cannot be read ({state})", remedy, True)
    return ours


def wait_for_score(
    result: SubmissionResult,
    timeout_s: float = 900.0,
    poll_s: float = 5.0,
    report: Callable[[str], None] = print,
) -> Submission:
    """Wait until Kaggle has scored our submission or has refused to.

    A lost connection in between is only reported.

    Args:
        result: As returned by :func:`submit`.
        timeout_s: Time limit, seconds.
        poll_s: First pause, seconds; each later one is 1.5 times as long, up to 30.
        report: Called with one line of progress before each pause.

    Raises:
        KaggleError: Kaggle does not list the file, or is not ready in time.
    """
    ours, state = _watch(result, timeout_s, poll_s, report, lambda row: row.is_final)
    if ours and ours.is_final:
        return ours
    if state == _UNLISTED:
        raise KaggleError(
            f"Kaggle said {SUCCESS!r} but lists no such submission after {timeout_s:.0f} s",
            f"It does that when the submission limit is reached, which is reset at midnight UTC. {_AGAIN}"
            " unless Kaggle lists it by then",
        )
    remedy = f"It will appear at {PAGE}/submissions. Type the same command again to ask for it"
    raise KaggleError(f"no score after {timeout_s:.0f} s (last: {state})", remedy, True)


def _watch(
    result: SubmissionResult,
    timeout_s: float,
    poll_s: float,
    report: Callable[[str], None],
    is_enough: Callable[[Submission], bool],
) -> tuple[Submission | None, str]:
    """Ask for our submission until it is enough or the time is up.

    Returns:
        Our submission as listed last, None where it was not; and what the last look said, in words.
    """
    began = time.monotonic()
    ours = None
    while True:
        try:
            ours = find_submission(result)
            state = _state(ours)
        except KaggleError as error:
            if not error.transient:
                raise
            state = error.problem
        waited = time.monotonic() - began
        if (ours and is_enough(ours)) or waited + poll_s > timeout_s:
            return ours, state
        report(f"score of {result.file_name}: {state} ({waited:.0f} s)")
        time.sleep(poll_s)
        poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)


def _state(ours: Submission | None) -> str:
    if ours is None:
        return _UNLISTED
    return ours.status if ours.status != COMPLETE else "complete, without a score"


def download_archive(folder: Path) -> Path:
    """Download the competition's data as one zip into a folder; errors as :func:`submit`.

    The kaggle package resumes a part that is there, from this run or an earlier one.
    """
    require_credentials()
    archive = Path(folder).resolve() / f"{COMPETITION}.zip"
    target = {"competition": COMPETITION, "path": str(archive.parent)}
    persistent_call("competition_download_files", hear=print_to_stderr, quiet=False, **target)
    if not archive.is_file():
        raise CallError("other", f"{archive} was not written")
    return archive


def persistent_call(method: str, **arguments: Any) -> Any:
    """Call a method as :func:`~fastslow.kaggle.api_process.call` does, again after a connection was lost.

    Raises:
        CallError: As ``call``; a connection was lost six times, or there is no way to Kaggle at all.
    """
    for pause_s in _PAUSES_S:
        try:
            return call(method, **arguments)
        except CallError as error:
            if error.kind != "network":
                raise
            print(f"{error.problem}. Trying again in {pause_s:.0f} s", file=sys.stderr, flush=True)
        time.sleep(pause_s)
    return call(method, **arguments)


def require_credentials() -> None:
    """Refuse to call Kaggle without credentials; the KaggleError names how to make them."""
    if credentials() is None:
        reasons = unusable()
        problem = f"no Kaggle credentials found; {reasons}" if reasons else "no Kaggle credentials found"
        raise KaggleError(problem.rstrip("."), HOW_TO_AUTHENTICATE)


def _is_limit() -> bool:
    """Return whether the submission limit is reached; False where Kaggle does not say."""
    try:
        limits = call("competition_get_submission_limits", competition_name=COMPETITION)
        return bool(field_of(limits, "numAllowedNow", int) == 0)
    except CallError:
        return False
