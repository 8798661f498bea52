"""Find the user's Kaggle credentials, and keep them out of everything that is shown."""

import json
import os
import re
import sys
from base64 import b64encode, urlsafe_b64encode
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
    """Return a text without credentials, authorisation headers, and passwords and queries in addresses.

    Parts of a credential of 8 characters or more are taken out as well, and user and key in base64.
    """
    text = _without(text, [secret for place in _places() for secret in place.secrets])
    text = re.sub(r"(?i)(authorization\W+(?:basic|bearer)\s+)\S+", r"\1[secret]", text)
    text = re.sub(r"(\w[\w+.-]*://)\S+@", r"\1[secret]@", text)
    text = re.sub(r"(?<![\w\[/])[\w.%+-]+:[^\s:@/]\S*@", "[secret]@", text)
    return re.sub(r"(\w+://[^\s?'\"]+)\?[^\s'\")]+", r"\1?[query]", text)


def _without(text: str, secrets: list[str]) -> str:
    """Return a text without secrets and without their parts of the shortest length or more."""
    length = _SHORTEST_SECRET
    parts = {own[start : start + length] for own in secrets for start in range(len(own) - length + 1)}
    hidden = bytearray(len(text))  # 1 for a character of a secret
    for start in range(len(text) - length + 1):
        if text[start : start + length] in parts:
            hidden[start : start + length] = b"\1" * length
    for run in reversed([*re.finditer(b"\1+", hidden)]):
        text = f"{text[: run.start()]}[secret]{text[run.end() :]}"
    return text


def _places() -> Iterator[_Place]:
    """Yield the places in the order in which the kaggle package looks."""
    home = Path("~/.kaggle").expanduser()
    token = os.environ.get("KAGGLE_API_TOKEN", "")  # the token, or the path of a file that holds it
    stored = _read(Path(token))
    yield _Place("KAGGLE_API_TOKEN", bool(token), [stored or token])
    for name in ("access_token", "access_token.txt"):
        token = _read(home / name)
        yield _Place(f"~/.kaggle/{name}", bool(token), [token])
    user, key = os.environ.get("KAGGLE_USERNAME", ""), os.environ.get("KAGGLE_KEY", "")
    yield _Place("KAGGLE_USERNAME and KAGGLE_KEY", bool(user and key), _keys(user, key))
    legacy = _read_json(_legacy_path(home))
    owner, own_key = user or legacy.get("username", ""), key or legacy.get("key", "")
    secrets = [*_keys(owner, own_key), *_keys(legacy.get("username", ""), legacy.get("key", ""))]
    yield _Place(str(_legacy_path(home)), bool(owner and own_key), secrets)
    tokens = _read_json(home / "credentials.json")
    found = [tokens.get("refresh_token", ""), tokens.get("access_token", "")]
    yield _Place("kaggle auth login", bool(found[0]), found)


def _keys(user: str, key: str) -> list[str]:
    """Return a key as it is and as servers echo it: user and key, or the key, in base64."""
    texts = [f"{user}:{key}".encode(), key.encode()] if key else []
    return [key, *(encode(text).decode() for text in texts for encode in (b64encode, urlsafe_b64encode))]


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
