"""A small competition cut out of the sample, and one run of the whole path over it: fixtures of conftest."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.core.files import read_json, write_json, writer_lock

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
LAYOUT_FILES = {"train": 2, "valid": 1, "test": 1}
SERIAL = "features.workers=1"  # for a few small files, starting processes takes longer than the work
TILE_FILES = {"train": 4, "valid": 2, "test": 2}


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
    return [sys.executable, "-m", "fastslow", *arguments, "preset=smoke", "jobs=2"]


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


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """A home where the run ``smoke`` is complete, and what the workflow said; not to be changed.

    The first of pytest's workers that needs it makes it for all. The imports of 16 kernels take its minute.
    """
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    home, said = place / "home", place / "said.json"
    with writer_lock(place):
        if not said.is_file():
            cut_sample(home / "data" / "sample")
            done = subprocess.run(
                command("submit", SERIAL), env=environment(home), cwd=home, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            write_json(said, vars(done))
    return home, subprocess.CompletedProcess(**read_json(said))


@pytest.fixture
def home(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished home, as this process's own."""
    shutil.copytree(finished[0], tmp_path / "home")
    for name, value in environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"
