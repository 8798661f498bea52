"""Find the user's Kaggle credentials, and keep them out of everything that is shown."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SHORTEST_SECRET = 8  # characters; a shorter value cannot be a real credential


class _Place(NamedTuple):
    """A place where the kaggle package looks for credentials, and what is there."""

    name: str
    complete: bool
    secrets: list[str]


def credentials() -> str | None:
    """Return which credentials the kaggle package will use: a place, never a value.

    Only a call can tell whether Kaggle still accepts them.

    Returns:
        ``KAGGLE_API_TOKEN``, ``~/.kaggle/access_token`` or another place; None where there are none.
    """
    return next((place.name for place in _places() if place.complete), None)


def scrub(text: str) -> str:
    """Return a text without credentials, authorisation headers, and passwords and queries in addresses."""
    for place in _places():
        for secret in place.secrets:
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "[secret]")
    text = re.sub(r"(?i)(authorization\W+(?:basic|bearer)\s+)\S+", r"\1[secret]", text)
    text = re.sub(r"(https?://)[^/\s@]+@", r"\1[secret]@", text)
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\")]+", r"\1?[query]", text)


def _places() -> Iterator[_Place]:
    """Yield the places in the order in which the kaggle package looks."""
    home = Path("~/.kaggle").expanduser()
    token = os.environ.get("KAGGLE_API_TOKEN", "")  # the token, or the path of a file that holds it
    yield _Place("KAGGLE_API_TOKEN", bool(token), [token, _read(Path(token))])
    for name in ("access_token", "access_token.txt"):
        token = _read(home / name)
        yield _Place(f"~/.kaggle/{name}", bool(token), [token])
    user, key = os.environ.get("KAGGLE_USERNAME", ""), os.environ.get("KAGGLE_KEY", "")
    yield _Place("KAGGLE_USERNAME and KAGGLE_KEY", bool(user and key), [key])
    legacy = _read_json(_legacy_path(home))
    complete = bool((user or legacy.get("username")) and (key or legacy.get("key")))
    yield _Place(str(_legacy_path(home)), complete, [legacy.get("key", "")])
    tokens = _read_json(home / "credentials.json")
    found = [tokens.get("refresh_token", ""), tokens.get("access_token", "")]
    yield _Place("kaggle auth login", bool(found[0]), found)


def _legacy_path(home: Path) -> Path:
    """Return where the kaggle package looks for ``kaggle.json``."""
    if os.environ.get("KAGGLE_CONFIG_DIR"):
        return Path(os.environ["KAGGLE_CONFIG_DIR"]) / "kaggle.json"
    if home.is_dir() or not sys.platform.startswith("linux"):
        return home / "kaggle.json"
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "kaggle" / "kaggle.json"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _read_json(path: Path) -> dict[str, str]:
    """Return the entries of a JSON object that have a value, as strings; empty where there is none."""
    try:
        value = json.loads(_read(path))
    except json.JSONDecodeError:
        return {}
    return {name: str(entry) for name, entry in value.items() if entry} if isinstance(value, dict) else {}
