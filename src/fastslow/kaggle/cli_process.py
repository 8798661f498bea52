"""Run the real ``kaggle`` CLI as a subprocess: with which credentials, and without showing them."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_IDLE_S = 600.0  # The CLI itself tries a lost upload again for six minutes without a word.
_NOISY = ("VERBOSE", "VERBOSE_OUTPUT")  # They make the CLI print its requests, credentials included.


def credentials() -> str | None:
    """Which credentials the CLI will find, in the order in which it looks; None without any.

    Returns the place (``KAGGLE_API_TOKEN``, ``~/.kaggle/access_token``), never a value. Whether Kaggle
    still accepts them only a call can tell.
    """
    if os.environ.get("KAGGLE_API_TOKEN"):
        return "KAGGLE_API_TOKEN"
    for path in _token_paths():
        if _read(path):
            return f"~/.kaggle/{path.name}"
    if os.environ.get("KAGGLE_USERNAME") and os.environ.get("KAGGLE_KEY"):
        return "KAGGLE_USERNAME and KAGGLE_KEY"
    legacy = _read_json(_legacy_path())
    if all(os.environ.get(f"KAGGLE_{name.upper()}") or legacy.get(name) for name in ("username", "key")):
        return str(_legacy_path())
    return "kaggle auth login" if _read_json(_oauth_path()).get("refresh_token") else None


def run(arguments: list[str], echo: bool = False) -> tuple[int, str]:
    """Run the CLI beside this Python; return its exit code and all it printed, stdout and stderr together.

    Show nothing of it before :func:`scrub`. A CLI that is silent for ten minutes is stopped, and a last
    line says so.

    Args:
        arguments: Command and options, such as ``["competitions", "list"]``.
        echo: Pass its output (a progress bar) on to stderr as it comes, scrubbed.
    """
    script = Path(sys.executable).with_name("kaggle")
    if not script.is_file() and find_spec("kaggle") is None:
        return 1, "No module named kaggle\n"
    command = [str(script)] if script.is_file() else [sys.executable, "-m", "kaggle"]
    environment = {name: value for name, value in os.environ.items() if name not in _NOISY}
    environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    if not sys.stderr.isatty():
        # A log needs a line now and then, not ten a second.
        environment |= {"TQDM_MININTERVAL": "30", "TQDM_MAXINTERVAL": "60"}
    pieces = []
    with _process([*command, *arguments], environment) as process:
        for piece in _pieces(process):
            pieces.append(piece)
            if echo:
                print(scrub(piece), end="", file=sys.stderr, flush=True)
    return process.returncode, "".join(pieces)


def scrub(text: str) -> str:
    """Text without credentials: their values, authorisation headers, passwords and queries in addresses."""
    for secret in _secrets():
        text = text.replace(secret, "[secret]")
    text = re.sub(r"(?i)(authorization\W+(?:basic|bearer)\s+)\S+", r"\1[secret]", text)
    text = re.sub(r"(https?://)[^/\s@]+@", r"\1[secret]@", text)
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\")]+", r"\1?[query]", text)


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A process that does not outlive the block, however the block ends."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        try:
            yield process
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()


def _pieces(process: subprocess.Popen) -> Iterator[str]:
    """A process's output, cut after each line feed or carriage return."""
    buffer = b""
    while select.select([process.stdout], [], [], _IDLE_S)[0]:
        chunk = os.read(process.stdout.fileno(), 65536)
        *whole, buffer = re.split(rb"(?<=[\r\n])", buffer + chunk)
        if not chunk:
            whole.append(buffer)
        yield from (piece.decode(errors="replace") for piece in whole)
        if not chunk:
            return
    process.kill()
    yield f"\ntimed out: the CLI printed nothing for {_IDLE_S:.0f} s\n"


def _secrets() -> list[str]:
    """Every credential of this user that the CLI could print; a short value cannot be a real one."""
    token = os.environ.get("KAGGLE_API_TOKEN", "")  # The token, or the path of a file that holds it.
    values = [token, os.environ.get("KAGGLE_KEY", ""), *map(_read, [Path(token), *_token_paths()])]
    for known in (_read_json(_legacy_path()), _read_json(_oauth_path())):
        values += [str(known[name]) for name in ("key", "access_token", "refresh_token") if known.get(name)]
    return [value for value in values if len(value) >= 8]


def _home() -> Path:
    return Path("~/.kaggle").expanduser()


def _token_paths() -> list[Path]:
    return [_home() / "access_token", _home() / "access_token.txt"]


def _oauth_path() -> Path:
    return _home() / "credentials.json"


def _legacy_path() -> Path:
    """Where the CLI looks for ``kaggle.json``."""
    if os.environ.get("KAGGLE_CONFIG_DIR"):
        return Path(os.environ["KAGGLE_CONFIG_DIR"]) / "kaggle.json"
    if _home().is_dir() or not sys.platform.startswith("linux"):
        return _home() / "kaggle.json"
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "kaggle" / "kaggle.json"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _read_json(path: Path) -> dict:
    try:
        value = json.loads(_read(path))
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
