"""Call the kaggle package in a process of its own: importing it authenticates, and it prints to stdout."""

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any
from urllib.parse import urlsplit

from fastslow.competition.catalog import COMPETITION
from fastslow.core.errors import FastslowError
from fastslow.core.isolated import TIMED_OUT, Killed, call_isolated
from fastslow.core.progress import LOG_SECONDS
from fastslow.kaggle.credentials import credentials, kaggle_environment, scrub

PAGE = f"https://www.kaggle.com/competitions/{COMPETITION}"
HOW_TO_AUTHENTICATE = (
    "Make a token at https://www.kaggle.com/settings/api and type `export KAGGLE_API_TOKEN=<token>`,"
    " or save it as ~/.kaggle/access_token, or run `kaggle auth login`"
)
CODE_PAGE = "https://www.kaggle.com/work/code"
UPLOAD = "upload"
"""Name of the request that sends the bytes of a file."""
_SERVICES = "/v1/"  # in the address of every request to Kaggle's services, but not of an uploaded file
_IDLE_S = 600.0  # kaggle itself repeats a lost upload for six minutes without printing anything
_NOISY = ("VERBOSE", "VERBOSE_OUTPUT")  # they make kaggle print its requests, credentials included
MEANINGS = {  # by kind of failure: the problem and the remedy
    "credentials": ("Kaggle refused the credentials of {}", HOW_TO_AUTHENTICATE),
    "limit": ("the submission limit is reached", "It is reset at midnight UTC"),
    "upload": ("the upload failed, nothing was submitted", "Run it again"),
    "file": (
        "the kaggle package cannot write",
        "Free some space, or set KAGGLE_CONFIG_DIR to a folder of your own, and run it again",
    ),
    "network": (
        "Kaggle could not be reached or did not answer in full",
        "Check the network and proxy and run it again",
    ),
    "unreachable": ("Kaggle cannot be reached", "Check the network and proxy and run it again"),
    "missing": (
        f"Kaggle finds no competition {COMPETITION!r}, or not what was asked of it",
        f"Look whether {PAGE} is there, and run it again",
    ),
    "proxy": (
        "the proxy refuses the connection",
        "Give its user and password in http_proxy and https_proxy (http://USER:PASSWORD@HOST:PORT)",
    ),
    "access": (
        f"Kaggle gives no access to the competition {COMPETITION!r}",
        f"Accept the rules at {PAGE}/rules as the owner of the credentials, and check the name",
    ),
    "denied": (
        "Kaggle gives no access to the notebook",
        f"Look whether it is there under {CODE_PAGE}. {HOW_TO_AUTHENTICATE}",
    ),
    "request": (
        "Kaggle refused the request",
        f"Join the competition at {PAGE} and upload the file there: the page shows what is wrong with it",
    ),
    "conflict": (
        "Kaggle is busy with another request, or has this one already",
        "Wait a minute and run it again: it looks at the list of submissions first",
    ),
    "size": (
        "Kaggle refuses a file of this size",
        f"Make the submission again, compress it and upload it at {PAGE}: the page shows what is allowed",
    ),
    "answer": (
        "Kaggle's answer has a form that is not known here",
        f"See {PAGE}/submissions, or run `pip install -U 'kaggle>=2.2.4,<3'` and run it again",
    ),
    "unconfirmed": (
        "Kaggle did not confirm the submission",
        f"See {PAGE}/submissions, and run it again: it is sent anew unless Kaggle lists it",
    ),
    "package": ("the kaggle package is missing or too old", "Run `pip install 'kaggle>=2.2.4,<3'`"),
    "other": ("the kaggle package failed", f"See {PAGE}/submissions"),
}
_NOTEBOOK_CALLS = ("kernels_", "dataset_", "quota_")
_NOTEBOOK_MEANINGS = MEANINGS | {  # of requests about a notebook, its code and its hours
    "conflict": ("Kaggle is busy with another request", "Wait a minute and run it again"),
    "size": ("Kaggle refuses a file of this size", "Look at wheels/, which is sent with the code"),
    "missing": ("Kaggle finds no such notebook or dataset", f"See {CODE_PAGE}, and run it again"),
    "access": (
        "Kaggle gives no access to the notebook or its code",
        f"Look whether the account that {CODE_PAGE} shows is the owner of the credentials",
    ),
    "request": (
        "Kaggle refused the request",
        "Look whether the phone number is verified at https://www.kaggle.com/settings, and run it again",
    ),
    "answer": (
        "Kaggle's answer has a form that is not known here",
        "Run `pip install -U 'kaggle>=2.2.4,<3'` and run it again: a notebook that was sent runs on",
    ),
    "other": ("the kaggle package failed", f"See {CODE_PAGE}, and run it again"),
}
_STATUS = {
    **{400: "request", 401: "credentials", 403: "access", 404: "missing", 407: "proxy"},
    **{408: "network", 409: "conflict", 413: "size", 429: "network"},
}
_UNREAD = (AttributeError, LookupError, TypeError, RecursionError)  # from reading an answer
_SHOWN = 200  # characters of an answer
_SIGN_IN = {"kaggle auth login": "GenerateAccessToken"}  # the request that tells whether credentials hold


class KaggleError(FastslowError):
    """Kaggle did not do what was asked; ``transient`` where the same call may work in a moment."""

    def __init__(self, problem: str, remedy: str, transient: bool = False):
        super().__init__(f"{problem}. {remedy}")
        self.problem, self.remedy = problem, remedy
        self.transient = transient


class CallError(KaggleError):
    """A call of the kaggle package failed; what it said is scrubbed.

    Args:
        kind: A kind of :data:`MEANINGS`.
        said: What the package or Kaggle said.
        request: The request to Kaggle that failed, such as ``CreateSubmission``; empty where none is known.
        place: The place of the credentials that were used, by default the present one.
        method: The method of kaggle's that was called, which tells what the remedy is about.
    """

    def __init__(self, kind: str, said: str, request: str = "", place: str | None = None, method: str = ""):
        meanings = _NOTEBOOK_MEANINGS if method.startswith(_NOTEBOOK_CALLS) else MEANINGS
        problem, remedy = meanings[kind]
        problem = problem.format(place or credentials())
        shown = f"{request}: {said}" if request else said
        super().__init__(
            f"{problem} ({scrub(shown).rstrip('.')})", remedy, transient=kind in ("network", "unreachable")
        )
        self.kind = kind
        self.said = said
        self.request = request


def field_of(answer: Any, key: str, kind: type | UnionType) -> Any:
    """Return an entry of an answer of Kaggle's.

    Raises:
        CallError: The answer has another form: it lacks the entry, or the entry has another type.
    """
    value = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise CallError("answer", f"it has no {key}: {answer!r:.60}")
    return value


def why_unreachable(error: BaseException | str) -> str:
    """Return in words why a host cannot be reached; empty for any other error of the network."""
    text = str(error)
    hosts = re.findall(r"host='([^']+)', port=(\d+)", text)
    host, port = hosts[-1] if hosts else ("the server", "")
    if "proxy" in text.lower():
        host = f"the proxy {host}"
    if "Connection refused" in text:
        return f"{host}:{port} refuses the connection"
    if "Failed to resolve" in text:
        return f"{host} cannot be found: this machine has no network"
    return ""


def print_to_stderr(piece: str) -> None:
    """Print a piece of what kaggle prints, such as its progress bar, to stderr."""
    print(piece, end="", file=sys.stderr, flush=True)


def call(method: str, hear: Callable[[str], None] | None = None, **arguments: Any) -> Any:
    """Call a method of ``kaggle.api.kaggle_api_extended.KaggleApi``, such as ``competition_submissions``.

    A call that prints nothing for ten minutes is stopped.

    Args:
        method: Its name.
        hear: Receives what kaggle prints, without credentials, in pieces of a line at most.
        **arguments: Its arguments.

    Returns:
        The result as JSON values; an object of kaggle's as a dict with the service's own keys.

    Raises:
        CallError: The method raised an exception, the process was stopped, or it ended without an answer.
    """
    place = credentials()  # kaggle deletes those of a login that Kaggle refuses
    variables = {name: value for name, value in kaggle_environment().items() if name not in _NOISY}
    if not sys.stderr.isatty():  # kaggle's own bar would flood a log
        variables |= {"TQDM_MININTERVAL": f"{LOG_SECONDS}", "TQDM_MAXINTERVAL": f"{LOG_SECONDS}"}

    def pass_on(piece: str) -> None:
        if hear:
            hear(scrub(piece))

    try:
        outcome = call_isolated(_call, method, arguments, variables, place, hear=pass_on, silence=_IDLE_S)
    except Killed as error:
        kind = "network" if error.kind == TIMED_OUT else "other"
        raise CallError(kind, f"{error.kind}: {error}", method=method) from None
    kind, request, answer = outcome
    if kind:
        raise CallError(kind, answer, request, place, method)
    return json.loads(answer)


def _call(
    method: str, arguments: dict[str, Any], variables: dict[str, str], place: str | None
) -> tuple[str, str, str]:
    """Call a method in this process.

    Returns:
        The kind of failure, empty where there is none; the request that failed, as far as it is known; and
        what kaggle said, or its result as JSON.
    """
    os.environ.clear()
    os.environ.update(variables)
    signed_in = False
    answers: list[Any] = []
    try:
        with _watch_answers(answers):
            from tqdm import tqdm

            tqdm.set_lock(threading.RLock())  # the default one is a semaphore, which outlives this process
            from kaggle.api.kaggle_api_extended import KaggleApi  # importing it authenticates and may fail

            api = KaggleApi()
            api.authenticate()  # exits where there are no credentials or Kaggle refuses them
            signed_in = True
            if not hasattr(api, method):
                return "package", "", f"it has no {method}"
            statuses = _watch_uploads(api)
            answer = json.dumps(getattr(api, method)(**arguments), default=_plain)
        if statuses and statuses[-1] >= 400:
            return _kind_of_status(statuses[-1]), UPLOAD, f"status {statuses[-1]}"
        return "", "", answer
    except (Exception, SystemExit) as error:
        kind = _kind(error)
        if not signed_in and kind in ("request", "access", "missing"):
            kind = "credentials"  # a refused refresh of a token says nothing of the competition
        if isinstance(error, SystemExit):
            return kind, _SIGN_IN.get(place or "", "IntrospectToken"), "Kaggle does not accept it"
        reason = why_unreachable(error) if kind == "network" else ""
        if reason:
            return "unreachable", "", reason
        if answers and isinstance(error, (*_UNREAD, json.JSONDecodeError)):
            return kind, _name_of(answers[-1].url), f"the answer is {answers[-1].text[:_SHOWN]!r}"
        return kind, _request_of(error), _in_words(error)


def _in_words(error: BaseException) -> str:
    """Return the words of an error; the innermost error of a lost connection, without addresses."""
    texts = []
    while inner := _cause(error):
        texts += [text.rstrip(".") for text in error.args if isinstance(text, str) and "://" not in text]
        error = inner
    return ": ".join([*texts, f"{type(error).__name__}: {error}"])


def _cause(error: BaseException) -> BaseException | None:
    """Return the error that another one wraps, as requests and urllib3 keep it; None where there is none."""
    wrapped = (getattr(error, "reason", None), *reversed(error.args))
    return next((value for value in wrapped if isinstance(value, BaseException)), None)


def _watch_uploads(api: Any) -> list[int]:
    """Return a list that receives the status of each upload of a file, which kaggle keeps to itself."""
    statuses: list[int] = []
    is_successful = getattr(api, "_is_upload_successful", None)

    def note(response: Any) -> bool:
        statuses.append(response.status_code)
        return bool(is_successful(response))

    if is_successful:
        api._is_upload_successful = note
    return statuses


def _request_of(error: BaseException) -> str:
    """Return the name of the request to Kaggle that failed, the last part of its address."""
    request = getattr(error, "request", None) or getattr(getattr(error, "response", None), "request", None)
    return _name_of(getattr(request, "url", None) or "")


def _name_of(address: str) -> str:
    return urlsplit(address).path.rpartition("/")[2] if _SERVICES in address else ""


@contextlib.contextmanager
def _watch_answers(answers: list[Any]) -> Iterator[None]:
    """Add what Kaggle's services answer to a list, and refuse what is no answer to the request.

    kaggle takes from an answer the fields that it has, so that another object would count as an empty list.
    """
    from kagglesdk.kaggle_http_client import KaggleHttpClient

    prepare = KaggleHttpClient._prepare_response

    def check(client: Any, kind: Any, answer: Any) -> Any:
        answers.append(answer)
        fields = {field.json_name for field in getattr(kind, "_fields", ())}
        if answer.ok and fields and "application/json" in answer.headers.get("Content-Type", ""):
            value = answer.json()
            if not isinstance(value, dict):
                raise TypeError("it is no object")
            code = value.get("code")
            is_error = isinstance(code, int) and code >= 400  # kaggle raises it
            if value and not is_error and not fields & value.keys():
                raise LookupError("it has none of the fields")
        return prepare(client, kind, answer)

    KaggleHttpClient._prepare_response = check
    try:
        yield
    finally:
        KaggleHttpClient._prepare_response = prepare


def _plain(value: Any) -> Any:
    """Return one of kaggle's objects as a dict, with a key for every field."""
    return value.to_dict(ignore_defaults=False)


def _status(response: Any) -> int | None:
    """Return the status of an answer; of one that hides it in its text, that one."""
    status = getattr(response, "status_code", None)
    if status is None or status >= 400:
        return status
    try:
        return int(response.json()["code"])
    except (ValueError, LookupError, TypeError):
        return status


def _kind_of_status(status: int) -> str:
    return _STATUS.get(status, "network" if status >= 500 else "other")


def _kind(error: BaseException) -> str:
    """Return the kind of failure, as :data:`MEANINGS` lists it."""
    if isinstance(error, ValueError) and "was denied" in str(error):  # kaggle's word for 401 and 403
        return "denied"
    status = _status(getattr(error, "response", None))
    if status is not None:
        return _kind_of_status(status)
    import requests
    import urllib3.exceptions

    if isinstance(error, requests.exceptions.ProxyError) and " 407 " in str(error):  # no port or address
        return "proxy"
    kinds = {  # in this order: most of the network's errors are subclasses of OSError
        # a header cannot hold them: another attempt would not pass either
        "credentials": (SystemExit, requests.exceptions.InvalidHeader, UnicodeError),
        "package": ImportError,
        "answer": _UNREAD,
        "network": (
            ConnectionError,
            TimeoutError,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            ValueError,  # a download of the wrong size, an answer that is not JSON
        ),
        "file": OSError,
    }
    return next((kind for kind, types in kinds.items() if isinstance(error, types)), "other")
