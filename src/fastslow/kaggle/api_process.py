"""Call the kaggle package in a process of its own: importing it authenticates, and it prints to stdout."""

import json
import os
import sys
from typing import Any

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
        f"Check the network and proxy and run it again; before a second upload look at {PAGE}/submissions",
    ),
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
    "request": (
        "Kaggle refused the request",
        f"Join the competition at {PAGE} and upload the file there: the page shows what is wrong with it",
    ),
    "unconfirmed": ("Kaggle did not confirm the submission", f"See {PAGE}/submissions"),
    "package": ("the kaggle package is missing or too old", "Run `pip install 'kaggle>=2.2.4,<3'`"),
    "other": ("the kaggle package failed", f"See {PAGE}/submissions"),
}
_STATUS = {
    **{400: "request", 401: "credentials", 403: "access", 404: "missing", 407: "proxy"},
    **dict.fromkeys((408, 429), "network"),
}


class KaggleError(FastslowError):
    """Kaggle did not do what was asked; ``transient`` where the same call may work in a moment."""

    def __init__(self, problem: str, remedy: str, transient: bool = False):
        super().__init__(f"{problem}. {remedy}")
        self.transient = transient


class CallError(KaggleError):
    """A call of the kaggle package failed, with a kind of :data:`MEANINGS`; what it said is scrubbed."""

    def __init__(self, kind: str, said: str):
        problem, remedy = MEANINGS[kind]
        problem = f"{problem.format(credentials())} ({scrub(said).rstrip('.')})"
        super().__init__(problem, remedy, transient=kind == "network")
        self.kind, self.said = kind, said


def call(method: str, echo: bool = False, **arguments: Any) -> Any:
    """Call a method of ``kaggle.api.kaggle_api_extended.KaggleApi``, such as ``competition_submissions``.

    A call that prints nothing for ten minutes is stopped. With ``echo``, what kaggle prints (a progress bar)
    goes to stderr, without credentials.

    Returns:
        The result as JSON values; an object of kaggle's as a dict with the service's own keys.

    Raises:
        CallError: The method raised an exception, the process was stopped, or it ended without an answer.
    """
    variables = {name: value for name, value in kaggle_environment().items() if name not in _NOISY}
    if not sys.stderr.isatty():  # kaggle's own bar would flood a log
        variables |= {"TQDM_MININTERVAL": f"{LOG_SECONDS}", "TQDM_MAXINTERVAL": f"{LOG_SECONDS}"}

    def hear(piece: str) -> None:
        if echo:
            print(scrub(piece), end="", file=sys.stderr, flush=True)

    try:
        failure, answer = call_isolated(_call, method, arguments, variables, hear=hear, silence=_IDLE_S)
    except Killed as error:
        raise CallError("network" if error.kind == TIMED_OUT else "other", f"{error.kind}: {error}") from None
    if failure:
        raise CallError(failure, answer)
    return json.loads(answer)


def _call(method: str, arguments: dict[str, Any], variables: dict[str, str]) -> tuple[str, str]:
    """Call a method in this process.

    Returns:
        The kind of failure, empty where there is none; and what kaggle said, or its result as JSON.
    """
    os.environ.clear()
    os.environ.update(variables)
    try:
        from kaggle.api.kaggle_api_extended import KaggleApi  # importing it authenticates and may fail

        api = KaggleApi()
        api.authenticate()  # exits where there are no credentials or Kaggle refuses them
        return "", json.dumps(getattr(api, method)(**arguments), default=_plain)
    except (Exception, SystemExit) as error:
        said = "kaggle exits" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        return _kind(error), said


def _plain(value: Any) -> Any:
    """Return one of kaggle's objects as a dict, with a key for every field."""
    return value.to_dict(ignore_defaults=False)


def _kind(error: BaseException) -> str:
    """Return the kind of failure, as :data:`MEANINGS` lists it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return _STATUS.get(status, "network" if status >= 500 else "other")
    import requests
    import urllib3.exceptions

    if isinstance(error, requests.exceptions.ProxyError) and " 407 " in str(error):  # no port or address
        return "proxy"
    kinds = {  # in this order: most of the network's errors are subclasses of OSError
        # a header cannot hold them: another attempt would not pass either
        "credentials": (SystemExit, requests.exceptions.InvalidHeader, UnicodeError),
        "package": (ImportError, AttributeError),
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
