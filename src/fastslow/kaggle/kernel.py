"""Train on Kaggle's own GPUs: push code and notebook, follow the log, fetch what was made.

Tested with the unmodified kaggle package against a loopback stub (``tests/helpers/kaggle_stub.py``). Kaggle
knows the state of a notebook: the same command again follows one that runs, and fetches what one left that
has finished or failed. The record of a CSV that was fetched names its notebook: it is not fetched again.
"""

import contextlib
import itertools
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from fastslow.core.errors import SettingsError, listed
from fastslow.core.files import read_json, write_json, writer_lock
from fastslow.core.settings import PROJECT, resolve
from fastslow.evaluation.submission_record import read_submission_record, update_record
from fastslow.kaggle.api_process import CODE_PAGE, PAGE, CallError, KaggleError, call, field_of
from fastslow.kaggle.client import persistent_call, require_credentials
from fastslow.kaggle.code_dataset import POLL_S, ask, require_taken, send_code, wait

PUSHED_NOTEBOOK = PROJECT / "notebooks" / "90_on_kaggle.ipynb"
_METADATA = "kernel-metadata.json"
_NOTEBOOK = "notebook"  # key of a submission's record: the notebook that made it
_BEGUN_POLLS = 8  # most, until a notebook is queued
_QUEUED_POLLS = 960  # most in a row, of four hours
_QUEUED = "QUEUED"
_LOG_LOST = "Log stream connection "  # how kaggle begins what it says of a lost connection
_GOING = (_QUEUED, "RUNNING", "CANCEL_REQUESTED")


def train_on_kaggle(name: str, hours: float, settings: str) -> Path:
    """Train on two T4 of Kaggle and fetch ``submissions/NAME.csv`` and ``runs/NAME``.

    Args:
        name: Name of the run, new on this machine. If an earlier call has fetched the whole run of this name,
            its CSV is returned and nothing is trained.
        hours: Most hours that the notebook may take there.
        settings: Settings of ``fastslow submit`` as typed in a shell.

    Returns:
        The CSV.

    Raises:
        SettingsError: Another run or CSV of that name is here, or the GPU quota has fewer hours left.
        KaggleError: Kaggle did not take code or notebook, or the notebook failed. Its log is printed, and
            what it had made is fetched.
    """
    require_credentials()
    csv = resolve(f"submissions/{name}.csv")
    title = re.sub("[^a-z0-9]+", "-", f"fastslow-{name}".lower()).strip("-")
    recorded = csv.is_file() and csv.with_suffix(".json").is_file()
    if recorded and read_submission_record(csv).get(_NOTEBOOK) == title:
        print(f"{csv} was fetched before. Another NAME trains anew", flush=True)
        return csv
    made = (resolve(f"runs/{name}"), csv)
    for path in made:
        if path.exists():
            remedy = f"Give another NAME, or remove it with `make clean NAME={name}`"
            raise SettingsError("name", f"{path} is here already. {remedy}")
    user = call("get_config_value", name="username")
    kernel = f"{user}/{title}"
    page = f"https://www.kaggle.com/code/{kernel}"
    before = _status(kernel)
    if before not in (*_GOING, "COMPLETE", ""):
        _fetch(kernel, name, made)  # of one that failed when nobody followed it
    if before in (*_GOING, "COMPLETE") or any(path.exists() for path in made):
        state = f"{kernel} has the status {before.lower()} on Kaggle"
        print(f"{state}: not sent again. Another NAME trains anew", flush=True)
    else:
        _check_quota(hours)
        dataset = f"{user}/fastslow-code"
        print(f"sending the code as the private dataset {dataset}: Kaggle takes minutes", flush=True)
        send_code(dataset)
        _send_notebook({"id": kernel, "title": title, "dataset_sources": [dataset]}, name, hours, settings)
        print(f"pushed: {page}. Ctrl-C ends only the following", flush=True)
        wait(lambda: _status(kernel) in _GOING, _BEGUN_POLLS)  # not for the state of a version before
    ended = _follow(kernel)
    _fetch(kernel, name, made)
    if ended["status"] != "COMPLETE":
        reason = field_of(ended, "failureMessage", str | None) or "no reason given"
        here = [str(path) for path in made if path.exists()]
        left = f"It left {listed(here)}" if here else "It left nothing: type it again to send it anew"
        problem = f"{kernel} ended with status {ended['status']} ({reason.rstrip('.')})"
        raise KaggleError(problem, f"{left}. Its log is above and at {page}")
    if not csv.is_file():
        raise KaggleError(f"{kernel} left no submissions/{name}.csv", "Give another NAME")
    update_record(csv, **{_NOTEBOOK: title})
    return csv


def _status(kernel: str) -> str:
    """Return Kaggle's word for the state of a notebook; empty where there is none of that name."""
    answer = ask("kernels_status", kernel=kernel)
    return "" if answer is None else field_of(answer, "status", str)


def _check_quota(hours: float) -> None:
    """Print how many GPU hours are left this week; refuse where they are too few."""
    heard: list[str] = []
    persistent_call("quota_view_cli", hear=heard.append, output_format="json")
    _, bracket, text = "".join(heard).partition("[")  # before it a warning, or that there is no quota
    rows = json.loads(bracket + text) if bracket else []
    gpu = next((row for row in rows if row["resource"] == "GPU"), {"remaining": "0h"})
    said = f"{gpu['remaining']} of GPUs are left until {gpu.get('refreshAt', 'Kaggle gives some')}"
    print(f"quota: {said}", flush=True)
    if float(gpu["remaining"].rstrip("h")) < hours:
        remedy = "Give fewer HOURS or wait. GPUs need a verified phone: https://www.kaggle.com/settings"
        raise SettingsError("hours", f"{hours:g}, but {said}. {remedy}")


def _send_notebook(facts: dict[str, Any], name: str, hours: float, settings: str) -> None:
    parameters = {"name": name, "hours": hours, "settings": settings}
    with tempfile.TemporaryDirectory() as place:
        notebook = parameterize_notebook(load_notebook_node(str(PUSHED_NOTEBOOK)), parameters)
        nbformat.write(notebook, Path(place, PUSHED_NOTEBOOK.name))
        write_json(Path(place, _METADATA), read_json(PUSHED_NOTEBOOK.with_name(_METADATA)) | facts)
        answer = call("kernels_push", folder=place)
    require_taken("the notebook", answer, "See `kaggle quota`, and whether the phone is verified")
    attached = ("invalidCompetitionSources", "invalidDatasetSources")
    if refused := [source for key in attached for source in answer.get(key) or []]:
        problem = f"Kaggle gave the notebook no access to {listed(refused)}, without which it fails"
        remedy = f"Accept the rules at {PAGE}/rules, and type it again when the notebook has ended"
        raise KaggleError(problem, remedy)


def _follow(kernel: str) -> dict[str, Any]:
    """Print the log of a notebook until it has ended; return Kaggle's last words on it.

    Raises:
        KaggleError: It is queued for hours.
    """
    printed: list[str] = []
    queued = 0
    while queued < _QUEUED_POLLS:
        with contextlib.suppress(CallError):  # no log while it is queued, silence, a lost connection
            hear = partial(_print_new, printed, itertools.count())
            call("kernels_logs_cli", hear=hear, kernel=kernel, follow=True)
        state = persistent_call("kernels_status", kernel=kernel)
        status = field_of(state, "status", str)
        if status not in _GOING:
            return state
        if status == _QUEUED and not queued:
            print(f"{kernel} is queued", flush=True)
        queued = queued + 1 if status == _QUEUED else 0
        time.sleep(POLL_S)
    remedy = f"Look whether it waits under {CODE_PAGE}. Type the same command again to follow it"
    raise KaggleError(f"{kernel} is queued since {_QUEUED_POLLS * POLL_S / 3600:.0f} hours", remedy)


def _print_new(printed: list[str], place: Iterator[int], piece: str) -> None:
    """Print a piece of a log unless it was printed: Kaggle sends the log from its beginning each time.

    Lines of the kaggle package on a lost connection are left out.
    """
    if not piece.startswith(_LOG_LOST) and next(place) == len(printed):
        printed.append(piece)
        print(piece, end="", flush=True)


def _fetch(kernel: str, name: str, made: Sequence[Path]) -> None:
    """Fetch the run and its submission, unless they are here; each folder and file appears whole.

    What an interrupted call has fetched stays in a folder of its own, and the next call goes on with it.
    """
    fetched = resolve(f".fetched-{name}")  # until all of it is here
    names = rf"^(runs|submissions)/{re.escape(name)}[./]"
    with writer_lock(fetched):  # a second command of this name waits here, and finds what the first fetched
        if not any(path.exists() for path in made):
            persistent_call(
                "kernels_output", kernel=kernel, path=str(fetched), file_pattern=names, page_size=200
            )
            for path in (*fetched.glob("submissions/*"), *fetched.glob("runs/*")):
                target = resolve(str(path.relative_to(fetched)))
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
                print(f"fetched: {target}", flush=True)
        shutil.rmtree(fetched, ignore_errors=True)
