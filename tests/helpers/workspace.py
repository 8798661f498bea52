"""A small competition cut out of the sample, and one run of the whole path over it: fixtures of conftest."""

import io
import os
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fastslow import cli
from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.core.files import read_json, write_json, writer_lock

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
LAYOUT_FILES = {"train": 2, "valid": 1, "test": 1}
SERIAL = "features.workers=1"  # for a few small files, starting processes takes longer than the work
TILE_FILES = {"train": 4, "valid": 2, "test": 2}
TINY = ("preset=smoke", "jobs=2")  # next to no training


def cut_sample(root: Path, layout_files: dict[str, int] = LAYOUT_FILES) -> Path:
    """Copy the smallest files of every collection and split, with their rows of the two CSVs."""
    ids = set()
    for collection in COLLECTIONS:
        for split in SPLITS:
            most = (layout_files if collection.kind == "layout" else TILE_FILES)[split]
            programs = list_programs(SAMPLE, collection, split)
            for program in sorted(programs, key=lambda p: p.path.stat().st_size)[:most]:
                target = collection.folder(root, split) / program.path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(program.path, target)
                if split == "test":
                    ids.add(program.id)
    for name in ("solution.csv", "sample_submission.csv"):
        header, *rows = (SAMPLE / name).read_text().splitlines(keepends=True)
        (root / name).write_text(header + "".join(row for row in rows if row.split(",")[0] in ids))
    return root


def command(*arguments: str) -> list[str]:
    """The workflow's command line with next to no training."""
    return [sys.executable, "-m", "fastslow", *arguments, *TINY]


def environment(home: Path) -> dict[str, str]:
    """The environment of a process whose data, features, runs and submissions lie under ``home``."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("KAGGLE_")}
    return {**inherited, "FASTSLOW_HOME": str(home), "OMP_NUM_THREADS": "1"}


def stopped(home: Path, arguments: tuple[str, ...], begun, number: int) -> tuple[int, list[psutil.Process]]:
    """Send a signal to a command once ``begun(process)``; return its status and what still lives below it."""
    log = home / "stopped.log"
    with log.open("w") as said:
        process = subprocess.Popen(command(*arguments), env=environment(home), stderr=said)
    try:
        while not begun(process):
            assert process.poll() is None, f"it must be stopped before it ends: {log.read_text()}"
            time.sleep(0.02)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        status = process.wait(timeout=10)
    finally:
        process.kill()
    _, alive = psutil.wait_procs(below, timeout=20)
    assert below, "a step has processes of its own"
    return status, alive


def said_by(home: Path, *arguments: str) -> dict[str, str]:
    """Run a command in this process, which has its libraries and its kernels' server; return what it said."""
    said = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        patch.chdir(home)
        with redirect_stdout(said["stdout"]), redirect_stderr(said["stderr"]):
            status = cli.main([*arguments, *TINY])
    assert status == 0, said["stderr"].getvalue()
    return {name: stream.getvalue() for name, stream in said.items()}


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Path, SimpleNamespace]:
    """A home where the run ``smoke`` is complete, and what the workflow said; not to be changed.

    The first of pytest's workers that needs it makes it for all: 16 kernels take its half minute.
    """
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    home, said = place / "home", place / "said.json"
    with writer_lock(place):
        if not said.is_file():
            cut_sample(home / "data" / "sample")
            write_json(said, said_by(home, "submit", SERIAL))
    return home, SimpleNamespace(**read_json(said))


@pytest.fixture
def data_home(finished, tmp_path, monkeypatch) -> Path:
    """A home with the data of the finished home and no run, as this process's own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data").symlink_to(finished[0] / "data")
    for name, value in environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.fixture
def home(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished home, as this process's own."""
    shutil.copytree(finished[0], tmp_path / "home")
    for name, value in environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"
