"""The code as a private dataset of Kaggle, which notebooks there attach."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastslow.core.artifacts import commit
from fastslow.core.files import write_json
from fastslow.core.settings import PROJECT
from fastslow.kaggle.api_process import CallError, KaggleError, call, field_of
from fastslow.kaggle.client import persistent_call

POLL_S = 15.0
"""Seconds between two questions on what Kaggle is making."""
_PARTS = ("src", "notebooks", "pyproject.toml", "wheels")  # the last only where it is there
_READY_POLLS = 80  # most, until a dataset is ready


def send_code(dataset: str) -> None:
    """Make this repository a private dataset, or a new version of it, and wait until notebooks may use it.

    Args:
        dataset: Its name, ``USER/NAME``.

    Raises:
        KaggleError: Kaggle did not take the code, or has not made the dataset ready after 20 minutes.
    """
    with tempfile.TemporaryDirectory() as place:
        for part in filter(Path.exists, (PROJECT / name for name in _PARTS)):
            copy = shutil.copytree if part.is_dir() else shutil.copy
            copy(part, Path(place, part.name))
        facts = {"id": dataset, "title": "fastslow code", "licenses": [{"name": "other"}]}
        write_json(Path(place, "dataset-metadata.json"), facts)
        options = {"folder": place, "dir_mode": "zip", "quiet": True, "ignore_patterns": ["__pycache__/"]}
        before = _version(dataset)
        if before:
            answer = call("dataset_create_version", version_notes=f"commit {commit()}", **options)
        else:
            answer = call("dataset_create_new", **options)
    require_taken("the code", answer, f"See whether https://www.kaggle.com/datasets/{dataset} is there")
    if not wait(lambda: _version(dataset, ready=True) > before, _READY_POLLS):
        raise KaggleError(f"Kaggle has not made the dataset {dataset} ready", "Run it again in some minutes")


def _version(dataset: str, ready: bool = False) -> int:
    """Return the number of the newest version of a dataset; 0 where there is none, or none that is ready."""
    facts = json.loads(ask("dataset_status", dataset=dataset, format="json") or "{}")
    counts = not ready or facts.get("status") == "ready"
    return facts.get("current_version_number", 0) if counts else 0


def ask(method: str, **arguments: Any) -> Any:
    """Return the answer of a method of Kaggle's API; None where it has no such thing."""
    try:
        return persistent_call(method, **arguments)
    except CallError as error:
        if error.kind not in ("missing", "access", "denied"):
            raise
    return None


def wait(is_so: Callable[[], bool], polls: int) -> bool:
    """Ask at most ``polls`` times, with pauses, whether something is so; return whether it is."""
    for _ in range(polls):
        if is_so():
            return True
        time.sleep(POLL_S)
    return False


def require_taken(what: str, answer: dict[str, Any], remedy: str) -> None:
    """Raise an error where Kaggle answers that it did not take something.

    Args:
        what: What was sent, in words, such as ``the notebook``.
        answer: Kaggle's answer; a text under ``error`` is its reason.
        remedy: What to do, a sentence.

    Raises:
        KaggleError: The answer has an error.
    """
    if error := field_of(answer, "error", str | None):
        raise KaggleError(f"Kaggle did not take {what} ({error.rstrip('.')})", remedy)
