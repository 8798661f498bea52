"""Find the user's Kaggle credentials, and keep them out of everything that is shown."""

import os
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastslow.core.errors import DataError
from fastslow.core.files import parse_json
from fastslow.core.input_files import is_there, read_text

_REMEDY = "Download it again at https://www.kaggle.com/settings/api"
_SHORTEST_SECRET = 8  # characters; a shorter value cannot be a real credential


class _Place(NamedTuple):
    """A place where the kaggle package looks for credentials, and what is there."""

    name: str
    complete: bool
    secrets: list[str]
    variables: dict[str, str] = {}  # that give the kaggle package what is there
    problem: str = ""  # why a file that is there cannot be used


def credentials() -> str | None:
    """Return which credentials the kaggle package will use: a place, never a value.

    Only a call can tell whether Kaggle still accepts them.

    Returns:
        ``KAGGLE_API_TOKEN``, ``~/.kaggle/access_token`` or another place; None where there are none.
    """
    return next((place.name for place in _places() if place.complete), None)


def kaggle_environment() -> dict[str, str]:
    """Return the variables of this process, with the credentials as the kaggle package takes them.

    Byte-order marks, quotes and line ends around a value are gone.
    """
    places = [*_places()]
    variables = next((place.variables for place in places if place.complete), {})
    if any(place.problem and place.name.endswith("kaggle.json") for place in places):
        variables = {
            **variables,
            "KAGGLE_CONFIG_DIR": os.devnull,
        }  # the package would wait for a pipe, or fail
    return {**os.environ, **variables}


def unusable() -> str:
    """Return which files of credentials are there but cannot be used, and why; empty where there are none."""
    return "; ".join(place.problem for place in _places() if place.problem)


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
    parts = set()
    for secret in secrets:
        parts |= {secret[start : start + length] for start in range(len(secret) - length + 1)}
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
    given = _clean(os.environ.get("KAGGLE_API_TOKEN", ""))  # the token, or the path of a file that holds it
    named = given and os.path.exists(given)
    token, problem = _read(Path(given)) if named else (given, "")
    yield _Place("KAGGLE_API_TOKEN", bool(token), [token], {"KAGGLE_API_TOKEN": token}, problem)
    for name in ("access_token", "access_token.txt"):
        token, problem = _read(home / name)
        yield _Place(f"~/.kaggle/{name}", bool(token), [token], {"KAGGLE_API_TOKEN": token}, problem)
    user = _clean(os.environ.get("KAGGLE_USERNAME", ""))
    key = _clean(os.environ.get("KAGGLE_KEY", ""))
    yield _pair("KAGGLE_USERNAME and KAGGLE_KEY", user, key)
    path = _legacy_path(home)
    legacy, problem = _read_json(path)
    file_user = legacy.get("username", "")
    file_key = legacy.get("key", "")
    misnamed = path.with_name(f"{path.name}.txt")
    if os.path.exists(misnamed) and not os.path.lexists(path):
        problem = f"{misnamed}: the kaggle package does not read it. Rename it to {path.name}"
    elif not problem and os.path.lexists(path) and not (file_user and file_key):
        problem = f"{path}: it has no {'key' if file_user else 'username'}. {_REMEDY}"
    place = _pair(str(path), user or file_user, key or file_key)
    yield place._replace(secrets=[*place.secrets, *_keys(file_user, file_key)], problem=problem)
    tokens, problem = _read_json(home / "credentials.json")
    refresh = tokens.get("refresh_token", "")
    access = tokens.get("access_token", "")
    yield _Place("kaggle auth login", bool(refresh), [refresh, access], problem=problem)


def _pair(name: str, user: str, key: str) -> _Place:
    given = {"KAGGLE_USERNAME": user, "KAGGLE_KEY": key}
    return _Place(name, bool(user and key), _keys(user, key), given)


def _keys(user: str, key: str) -> list[str]:
    """Return a key as it is and as servers echo it: user and key, or the key, in base64."""
    texts = [text.encode(errors="replace") for text in (f"{user}:{key}", key)] if key else []
    return [key, *(encode(text).decode() for text in texts for encode in (b64encode, urlsafe_b64encode))]


def _legacy_path(home: Path) -> Path:
    """Return where the kaggle package looks for ``kaggle.json``."""
    if os.environ.get("KAGGLE_CONFIG_DIR"):
        return Path(os.environ["KAGGLE_CONFIG_DIR"]) / "kaggle.json"
    if home.is_dir() or not sys.platform.startswith("linux"):
        return home / "kaggle.json"
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "kaggle" / "kaggle.json"


def _clean(text: str) -> str:
    """Return a value without what editors and shells leave around it."""
    return text.strip("\ufeff\"' \t\r\n")


def _read(path: Path) -> tuple[str, str]:
    """Return a value that a file holds, empty where there is none, and why the file cannot be used."""
    try:
        return (_clean(read_text(path, _REMEDY)), "") if is_there(path) else ("", "")
    except (DataError, OSError) as error:
        return "", str(error)


def _read_json(path: Path) -> tuple[dict[str, str], str]:
    """Return the entries of a JSON object that have a value, as strings, and why the file cannot be used."""
    text, problem = _read(path)
    if not text:
        return {}, problem
    try:
        value = parse_json(path, text, _REMEDY)
    except DataError as error:
        return {}, str(error)
    if not isinstance(value, dict):
        return {}, f"{path}: it holds no JSON object. {_REMEDY}"
    if "\\u0000" in text:  # no environment variable holds it
        return {}, f"{path}: it holds a NUL. {_REMEDY}"
    return {name: _clean(str(entry)) for name, entry in value.items() if entry}, ""
