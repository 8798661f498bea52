"""Call the kaggle package in a process of its own: importing it authenticates, and it prints to stdout."""

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastslow.competition.catalog import COMPETITION
from fastslow.core.errors import FastslowError
from fastslow.core.progress import LOG_SECONDS
from fastslow.kaggle.credentials import credentials, scrub

PAGE = f"https://www.kaggle.com/competitions/{COMPETITION}"
HOW_TO_AUTHENTICATE = (
    "Make a token at https://www.kaggle.com/settings/api and type `export KAGGLE_API_TOKEN=<token>`,"
    " or save it as ~/.kaggle/access_token, or run `kaggle auth login`"
)
_SCRIPT = Path(__file__).with_name("api_call.py")
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
    "access": (
        f"Kaggle gives no access to the competition {COMPETITION!r}",
        f"Accept the rules at {PAGE}/rules as the owner of the credentials, and check the name",
    ),
    "request": (
        "Kaggle refused the request",
        f"Join the competition at {PAGE} and upload the file there: the page says what is wrong with it",
    ),
    "unconfirmed": ("Kaggle did not confirm the submission", f"See {PAGE}/submissions"),
    "package": ("the kaggle package is missing or too old", "Run `pip install 'kaggle>=2.2.4,<3'`"),
    "other": ("the kaggle package failed", f"See {PAGE}/submissions"),
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
    command = [sys.executable, "-P", str(_SCRIPT), json.dumps([method, arguments])]
    environment = {name: value for name, value in os.environ.items() if name not in _NOISY}
    environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    if not sys.stderr.isatty():  # kaggle's own bar would flood a log
        environment |= {"TQDM_MININTERVAL": f"{LOG_SECONDS}", "TQDM_MAXINTERVAL": f"{LOG_SECONDS}"}
    printed = ""
    with (
        tempfile.TemporaryFile() as answer,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.PIPE, env=environment
        ) as process,
    ):
        try:
            for piece in _pieces(process):
                printed += piece
                if echo:
                    print(scrub(piece), end="", file=sys.stderr, flush=True)
            process.wait()
        except TimeoutError as error:
            raise CallError("network", str(error)) from None
        finally:
            process.kill()  # does nothing once it has ended
        answer.seek(0)
        text = answer.read()
    if not text:
        said = " / ".join(printed.strip().split("\n")[-5:])
        raise CallError("other", f"status {process.returncode}: {said or 'it printed nothing'}")
    value = json.loads(text)
    if "failure" in value:
        raise CallError(*value["failure"])
    return value["result"]


def _pieces(process: subprocess.Popen) -> Iterator[str]:
    """Yield what a process prints to stderr, cut after each line feed or carriage return.

    Raises:
        TimeoutError: It printed nothing for too long.
    """
    buffer = b""
    while select.select([process.stderr], [], [], _IDLE_S)[0]:
        chunk = os.read(process.stderr.fileno(), 65536)
        *whole, buffer = re.split(rb"(?<=[\r\n])", buffer + chunk)
        if not chunk:
            whole.append(buffer)
        yield from (piece.decode(errors="replace") for piece in whole)
        if not chunk:
            return
    raise TimeoutError(f"timed out: kaggle printed nothing for {_IDLE_S:.0f} s")
