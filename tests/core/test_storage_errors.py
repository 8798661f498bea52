"""What the operating system refuses is said in one line, with the file and the remedy; nothing is lost."""

import errno
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fastslow import cli
from fastslow.cli import describe_error
from fastslow.core import files
from fastslow.core.errors import DataError, StorageError, explain_storage
from fastslow.core.files import atomic_path, check_writable, read_json, write_json, writer_lock
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.core.settings import PROJECT
from fastslow.runs.tensors import write_tensors
from fastslow.workflow import execution
from helpers.cases import cases

SAID = {
    errno.ENOSPC: "the disk is full. Free space, or set FASTSLOW_HOME",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only. Make it writable",
    errno.EACCES: "permission denied. Change its owner or mode",
    errno.ESTALE: r"the network drive lost this file \(stale file handle\). Check the",
    errno.EIO: "the drive reports an input/output error",
    errno.EMFILE: "too many open files in this process. Raise the limit",
    errno.EFBIG: "the file would be larger than",
}


def fail(number):
    """A function that fails as the operating system does."""

    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    return failing


@cases("number, place", [*((n, "replace") for n in SAID), (errno.EIO, "open"), (errno.ENOSPC, "fsync")])
def test_a_refused_write_names_file_and_remedy_and_keeps_the_old_file(tmp_path, monkeypatch, number, place):
    write_json(tmp_path / "x.json", "old")
    with monkeypatch.context() as patch:
        patch.setattr(files.os, place, fail(number))
        with pytest.raises(StorageError, match=f"x.json: {SAID[number]}"):
            write_json(tmp_path / "x.json", "new")
    assert read_json(tmp_path / "x.json") == "old"
    assert os.listdir(tmp_path) == ["x.json"]


WRITERS = {
    "npz": lambda path: write_arrays(path, {"a": np.zeros(10_000)}),
    "pt": lambda path: write_tensors(path, {"a": torch.zeros(10_000)}, sealed=True),
}


@pytest.fixture
def small_files():
    """This process may write files of 4 KB."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@cases("kind", WRITERS)
def test_a_file_beyond_the_limit_of_the_process(tmp_path, small_files, kind):
    """A real limit instead of a patch: the operating system refuses the write itself."""
    with pytest.raises(StorageError, match=f"x.{kind}: the file would be larger than"):
        WRITERS[kind](tmp_path / f"x.{kind}")
    assert not list(tmp_path.iterdir())


@cases("number", [errno.EACCES, errno.EIO])
def test_an_array_file_that_cannot_be_read_is_not_called_corrupt(tmp_path, monkeypatch, number):
    write_arrays(tmp_path / "x.npz", {"a": np.zeros(3)})
    monkeypatch.setattr(zipfile, "ZipFile", fail(number))
    with pytest.raises(StorageError, match=f"x.npz: {SAID[number]}") as caught:
        read_arrays(tmp_path / "x.npz")
    assert "corrupt" not in str(caught.value) and "elete" not in str(caught.value)


@cases("number", [errno.EROFS, errno.EACCES, errno.ENOLCK])
def test_a_folder_that_cannot_be_locked(tmp_path, monkeypatch, number):
    monkeypatch.setattr(files.fcntl, "flock", fail(number))
    with pytest.raises(StorageError, match=str(tmp_path)), writer_lock(tmp_path):
        raise AssertionError("nobody may write without the lock")


def test_a_folder_where_none_can_be_made():
    with pytest.raises(StorageError, match="no folder can be made there. Set FASTSLOW_HOME"):
        write_json("/proc/none/x.json", 1)


def test_other_errors_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), explain_storage(tmp_path):
        (tmp_path / "missing").read_bytes()
    with pytest.raises(DataError, match="y.npz: no such file"):
        read_arrays(tmp_path / "y.npz")


def test_the_error_travels_between_processes():
    for kind in (StorageError, DataError):
        error = pickle.loads(pickle.dumps(kind("x", "the disk is full", "Free space")))
        assert str(error) == "x: the disk is full. Free space" and isinstance(error, kind)


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(execution, "run_steps", fail(errno.ESTALE))
    assert cli.main(["submission", "preset=smoke", f"data={PROJECT / 'data' / 'sample'}"]) == 1
    said = capsys.readouterr().err
    assert "error: " in said and "stale file handle" in said and "mount it again" in said
    assert describe_error(OSError(errno.EEXIST, "File exists", "x")) == "x: File exists"
    assert describe_error(OSError("only words")) == "only words"
    assert describe_error(PermissionError(errno.EACCES, "denied", "/x")).startswith("/x: permission denied")


PROCESSES = {  # a shell's line, in which $FASTSLOW is a command that prints: what is said
    "$FASTSLOW > /dev/full": "error: output: the disk is full. Free space",
    "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 $FASTSLOW": "UTF-8 wanted. Type `export PYTHONUTF8=1`",
    "ulimit -v 600000; $FASTSLOW": "error: `ulimit -v` allows 0.6 GB of memory, at least 1 wanted. Type",
    "$FASTSLOW root=hungry": "error: the memory that this process may have is used up. Allow more",
}


@cases("line", PROCESSES)
def test_a_process_in_which_nothing_works_says_why(line):
    """Four processes start one after the other, which takes seconds."""
    if "LC_ALL=C" in line and not str(PROJECT).isascii():
        pytest.skip("in an ASCII locale Python itself ends where its environment's path has an accent")
    code = (
        "from fastslow import cli\n"
        "def show(settings):\n"
        "    if settings.root == 'hungry':\n        raise MemoryError\n"
        "    print(settings)\n"
        "cli.show = show\n"
        "command = cli.Command('x', 'fastslow.kaggle.download:DownloadSettings', 'fastslow.cli:show')\n"
        "cli.COMMANDS['data'] = command\n"
        "cli.run_process()\n"
    )
    shell = {**os.environ, "CODE": code, "PYTHON": sys.executable}
    command = line.replace("$FASTSLOW", '"$PYTHON" -c "$CODE" data')
    done = subprocess.run(["bash", "-c", command], env=shell, capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert PROCESSES[line] in done.stderr


@cases(
    "output, problem",
    [
        ("/dev/full", "is a device, a file is wanted"),
        ("folder", "is a folder, a file is wanted"),
        ("pipe", "is a named pipe, a file is wanted"),
        ("file/x.csv", ".*/file is no folder"),
        ("file/y/x.csv", ".*/file is no folder"),
        ("/proc/x.csv", "no file can be made there"),
        ("/proc/none/y/x.csv", "no folder can be made there"),
    ],
)
def test_an_output_that_can_be_no_file_is_refused_by_the_path_that_was_typed(tmp_path, output, problem):
    (tmp_path / "folder").mkdir(exist_ok=True)
    (tmp_path / "file").write_text("kept")
    if not (tmp_path / "pipe").exists():
        os.mkfifo(tmp_path / "pipe")
    path = tmp_path / output
    with pytest.raises(StorageError, match=f"^{path}: {problem}"):
        write_json(path, 1)
    assert (tmp_path / "file").read_text() == "kept"


def test_no_folder_is_left_where_nothing_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    for error in (KeyError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), atomic_path(tmp_path / "there" / "new" / "newer" / "x.csv"):
            raise error
        assert not any((tmp_path / "there").iterdir())
    write_json(tmp_path / "there" / "new" / "y.json", 1)
    with pytest.raises(KeyError), atomic_path(tmp_path / "there" / "new" / "newer" / "x.csv"):
        raise KeyError
    assert os.listdir(tmp_path / "there" / "new") == ["y.json"]


def test_a_folder_that_takes_no_file_is_named_by_the_file_that_was_typed(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(StorageError, match=f"^{tmp_path / 'x.csv'}: permission denied"):
        write_json(tmp_path / "x.csv", 1)


@cases("there", [True, False])
def test_an_output_that_is_a_link_is_written_where_it_leads(tmp_path, there):
    """A folder of results that is kept on another disk, or a name such as latest.json."""
    (tmp_path / "disk").mkdir()
    file = tmp_path / "disk" / "run.json"
    if there:
        write_json(file, "old")
    first, second = tmp_path / "latest.json", tmp_path / "newest.json"
    first.symlink_to(Path("disk", "run.json"))
    second.symlink_to(first)
    write_json(second, "new")
    assert read_json(file) == "new" and os.listdir(tmp_path / "disk") == ["run.json"]
    assert second.is_symlink() and first.is_symlink()


def test_a_refused_link_is_named_as_it_was_typed(tmp_path):
    (tmp_path / "file").write_text("kept")
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "file" / "run.json")
    with pytest.raises(StorageError, match=f"^{link}: "):
        write_json(link, 1)
    assert link.is_symlink() and (tmp_path / "file").read_text() == "kept"


def test_a_name_that_is_no_text_can_be_printed():
    error = DataError("runs/a\udcff", "broken", "Delete it")
    assert str(error).encode() == b"runs/a\\udcff: broken. Delete it"


def test_a_path_is_tried_before_the_work_and_nothing_is_made(tmp_path):
    """A measurement of minutes ended in an error that its first second could have told."""
    file = tmp_path / "file"
    file.write_text("kept")
    check_writable(tmp_path / "new" / "folder" / "x.csv")
    check_writable(file)
    for path, said in (
        (tmp_path, "is a folder, a file is wanted"),
        (file / "x.csv", "file is no folder. Name another"),
        (Path("/dev/full/measured/x.csv"), "/dev/full is no folder"),
        (Path("/dev/full"), "is a device"),
    ):
        with pytest.raises(StorageError, match=said):
            check_writable(path)
    assert [*tmp_path.iterdir()] == [file] and file.read_text() == "kept"
