"""Faults of files and processes: the same command completes with the same bytes, or says what to do."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import nbformat
import numpy as np
import psutil
import pytest
from jupyter_client.provisioning.local_provisioner import LocalPortCache

from fastslow import cli
from fastslow.competition.submission_checks import check_submission
from fastslow.core.files import file_digest
from fastslow.core.settings import resolve
from fastslow.workflow import execution, forked_kernels
from fastslow.workflow.job_plan import step_environment
from fastslow.workflow.steps import Plan, Step
from helpers.cases import cases
from helpers.workspace import SERIAL, stopped

pytestmark = pytest.mark.usefixtures("undrawn")
RESULTS = ("*.npz", "*.npy", "*.pt", "*.csv", "model.txt", "metrics.jsonl")
TILE = ("features/smoke/tile-xla", "runs/smoke/training-tile-s0", "runs/smoke/ranker-tile-xla-s0")


def run(*arguments):
    """The workflow in this process; its exit status."""
    return cli.main([*arguments, "preset=smoke", "jobs=2", SERIAL])


def results(home):
    """A checksum of every file that a run makes, but logs and pictures."""
    folders = [home / stem for stem in ("features", "runs", "submissions")]
    paths = {path for folder in folders for pattern in RESULTS for path in folder.rglob(pattern)}
    return {str(path.relative_to(home)): file_digest(path) for path in paths}


def lose(path):
    path.unlink()


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def put_nan_in(path):
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[next(iter(arrays))][0] = np.nan
    np.savez(path, **arrays)


def test_what_is_lost_or_broken_is_made_again_with_the_same_bytes(home, capsys):
    """One run mends them all; what nobody broke is not made again. Five kernels take its seconds."""
    whole = results(home)
    damage = {"submissions/smoke.csv": lose, "runs/smoke/ranker-tile-xla-s0/predictions.npz": put_nan_in}
    (mapped,) = (home / "features/smoke/layout-nlp-default/valid").glob("*.choices.npy")
    damage[str(mapped.relative_to(home))] = flip_a_bit
    for name, harm in damage.items():
        harm(home / name)
    lost = home / "runs/smoke/ensemble-tile-xla/notebook.ipynb"
    lost.unlink()
    kept = (home / "runs/smoke/training-layout-s0/manifest.json").stat().st_mtime_ns
    assert run("submission") == 0
    said = capsys.readouterr()
    assert results(home) == whole
    assert lost.is_file()
    assert (home / "runs/smoke/training-layout-s0/manifest.json").stat().st_mtime_ns == kept
    for name, harm in damage.items():
        problem = "lost" if harm is lose else "changed after it was written"
        assert f"{os.path.basename(name)}: {problem}" in said.err, name
    assert "submissions/smoke.csv: 6 rows, read back and checked" in said.out
    assert check_submission(home / "submissions/smoke.csv", home / "data/sample")["rows"]


def test_clocks_that_go_backwards_and_files_of_killed_runs(home, capsys, monkeypatch):
    """Times in the future make nothing anew; what killed runs left goes; the submission is read back."""
    read = []
    monkeypatch.setattr(execution, "check_submission", lambda *a: read.append(a) or check_submission(*a))
    left = [home / f"{stem}/.{name}.0123456789ab.tmp" for stem in (*TILE, "submissions") for name in "ab"]
    for path in left:
        path.write_text("half")
    whole, future = results(home), time.time() + 1e8
    for path in home.rglob("*"):
        os.utime(path, (future, future))
    assert run("submission") == 0
    said = capsys.readouterr().err
    for line in ("features: 5 of 5", "train: 5 of 5", "ensemble: 5 of 5", "submission: 1 of 1"):
        assert f"{line} up to date" in said
    assert results(home) == whole and not any(path.exists() for path in left)
    assert read == [(home / "submissions/smoke.csv", home / "data/sample")]


def small_step(home, source):
    """A step of one cell, in a folder whose name papermill would take for a template."""
    notebook = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python"}})
    notebook.cells = [nbformat.v4.new_code_cell(source)]
    (home / "a {b} {} }").mkdir(parents=True)
    nbformat.write(notebook, home / "a {b} {} }" / "cell.ipynb")
    settings = Plan("sample", "smoke", "smoke", 1, {}, 1).steps()[0].settings
    settings = settings.replace(folder=str(home / "a {b} {} }" / "out"))
    return Step("features", home / "a {b} {} }" / "cell.ipynb", settings)


FULL = "from fastslow.core import errors; raise errors.StorageError('x', 'the disk is full', 'Free space')"

OPEN = "features out: OSError: [Errno 24] Too many open files. Raise the limit (ulimit -n 65536) or run fewer"


@cases(
    "source, options, said",
    [
        ("raise MemoryError", (), "features out: MemoryError: it gives no reason; where memory ran out"),
        ("import os; os.kill(os.getpid(), 9)", (), "features out: the kernel was killed"),
        ("raise OSError(24, 'Too many open files')", (), OPEN),
        ("raise RuntimeError('no: [Errno 28] No space left on device')", (), "device. Free space, or set"),
        (FULL, (), "features out: StorageError: x: the disk is full. Free space"),
        (
            "1",
            ("--IPKernelApp.exec_lines=import os; os._exit(3)",),
            "features out: its kernel did not start: RuntimeError: Kernel died",
        ),
    ],
)
def test_a_notebook_that_ends_without_a_word(tmp_path, monkeypatch, source, options, said):
    monkeypatch.setattr(execution, "_KERNEL_OPTIONS", (*execution._KERNEL_OPTIONS, *options))
    step = small_step(tmp_path, source)
    with pytest.raises(execution.StepError, match=re.escape(said)):
        execution.run_step(step)
    assert {path.name for path in resolve(step.settings.folder).glob("*")} <= {"failed.ipynb"}


FEW = ("ipykernel.kernelapp", "lightgbm")


def test_a_kernel_is_forked_with_the_threads_of_its_step(tmp_path, monkeypatch):
    """Also after the process that forks was killed; the first one, and elsewhere than on Linux, without."""
    # the two processes that fork import a few of the libraries, for their seconds
    assert {*FEW} < {*forked_kernels._LIBRARIES}
    few = f"import {forked_kernels.__name__} as m; m._LIBRARIES, m.ENTRIES = {FEW}, (); "
    monkeypatch.setattr(forked_kernels, "_SERVE", few + forked_kernels._SERVE)
    before = step_environment.set({"OMP_NUM_THREADS": "3"})
    forked = "import sys, threadpoolctl as t; assert 'lightgbm' in sys.modules\n"
    forked += "assert 'fastslow.features' not in sys.modules\n"
    forked += "assert max(own['num_threads'] for own in t.threadpool_info()) == 3"
    new = "import sys; assert 'lightgbm' not in sys.modules"
    for number, source in enumerate([forked, forked, new, new]):
        monkeypatch.setattr(forked_kernels, "_FORKS", number != 2)
        monkeypatch.setattr(forked_kernels, "_started", itertools.count(number < 3))
        execution.run_step(small_step(tmp_path / str(number), source))
        server, _ = forked_kernels._servers["3"]
        server.kill()
        server.wait()
    step_environment.reset(before)


@cases("code", [forked_kernels._LAUNCH, forked_kernels._SERVE])
def test_a_process_that_still_imports_ends_with_the_one_that_started_it(tmp_path, code):
    (tmp_path / "ipykernel").mkdir()
    (tmp_path / "ipykernel/__init__.py").write_text("open('begun', 'w'); import time; time.sleep(600)")
    start = "import pathlib, subprocess, time; from fastslow.workflow.forked_kernels import _leashed; "
    start += f"p = subprocess.Popen(_leashed({code!r}, '0'), stdout=subprocess.DEVNULL); print(p.pid)\n"
    start += "while p.poll() is None and not pathlib.Path('begun').exists(): time.sleep(0.05)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": path}, "text": True}
    number = int(subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, **words).stdout)
    assert (tmp_path / "begun").exists()
    with contextlib.suppress(psutil.NoSuchProcess):
        orphan = psutil.Process(number)
        try:
            orphan.wait(30)
        finally:
            orphan.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked there")
def test_a_server_of_kernels_that_was_killed_is_named_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(forked_kernels, "_servers", {})
    monkeypatch.setattr(forked_kernels, "_SERVE", "import os; os.kill(os.getpid(), 9)")
    said = "its kernel did not start: RuntimeError: the process that forks kernels ended with status -9"
    with pytest.raises(execution.StepError, match=f"{said}; where memory ran out"):
        execution.run_step(small_step(tmp_path, "1"))


@pytest.mark.skipif(sys.platform != "linux", reason="kernels have ports there")
def test_a_kernel_needs_no_port(tmp_path, monkeypatch):
    """A port that was free may have been taken by another process when the kernel takes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(LocalPortCache, "find_available_port", lambda *_: taken)
        execution.run_step(small_step(tmp_path, "1"))


def test_a_kernel_ends_at_once(tmp_path):
    """What Python does at its end is not waited for."""
    source = "import atexit, pathlib; atexit.register(pathlib.Path('the end').touch)"
    execution.run_step(small_step(tmp_path, f"import os; os.chdir({str(tmp_path)!r}); {source}"))
    assert not (tmp_path / "the end").exists()


def test_a_full_disk_under_the_notebook_of_a_step(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(execution.papermill, "execute_notebook", full)
    with pytest.raises(execution.FastslowError, match="notebook.ipynb: the disk is full. Free space"):
        execution.run_step(small_step(tmp_path, "1"))


def is_worker(process):
    try:
        return "popen_loky" in " ".join(process.cmdline())  # not the tracker of their resources
    except psutil.Error:  # it has ended
        return False


def has_two_workers(process):
    return sum(map(is_worker, psutil.Process(process.pid).children(recursive=True))) >= 2


def test_no_process_survives_a_run_stopped_while_features_are_built(home):
    # the seconds are those of three commands, each with a kernel and two processes
    whole = results(home)
    for number, status in ((signal.SIGINT, cli.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)):
        shutil.rmtree(home / TILE[0], ignore_errors=True)
        assert stopped(home, ("features", "features.workers=2"), has_two_workers, number) == (status, []), (
            number
        )
    assert run("features") == 0
    assert results(home) == whole
    assert not list(home.rglob(".*.tmp*"))
