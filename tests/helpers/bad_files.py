"""Ways to spoil any file, whatever it holds: for every loader alike."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fastslow.core.errors import DataError

MARK = "executed"
"""Name of the file that code hidden in a file would create in the working directory."""


class Bomb:
    """Creates a file when it is unpickled."""

    def __reduce__(self):
        return open, (MARK, "w")


def workplace(tmp_path, monkeypatch):
    """An empty working directory; afterwards, no code that a file hid was run."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / MARK).exists()


def refused(read, path, said=None):
    """Check that a file or folder is refused: the error names it, says what is wrong and what to do."""
    with pytest.raises(DataError, match=said) as caught:
        read()
    named, problem, remedy = caught.value.args
    assert Path(path).name in str(named) and problem and remedy
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


def replace(content):
    """Return a mutation that gives a file another content."""

    def change(path):
        path.unlink()
        path.write_bytes(content)

    return change


def _lose(path):
    path.unlink()


def _folder(path):
    path.unlink()
    path.mkdir()


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _link(target):
    def change(path):
        path.unlink()
        path.symlink_to(target)

    return change


def _loop(path):
    path.unlink()
    path.symlink_to(path.name)


def _truncate(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


ANY_FILE = {
    "lost": _lose,
    "empty": replace(b""),
    "a folder": _folder,
    "a named pipe": _pipe,
    "a link to /dev/zero": _link("/dev/zero"),
    "a dangling link": _link("nowhere"),
    "a link to itself": _loop,
    "random bytes": replace(np.random.default_rng(0).bytes(3000)),
    "a pickle with code": replace(pickle.dumps(Bomb())),
}
"""Every loader refuses these."""
BINARY = {**ANY_FILE, "half of it": _truncate, "text": replace(b"hello, world\n" * 30)}
"""Every loader of a format with a structure of its own refuses these as well."""
DOOR = {name: ANY_FILE[name] for name in ("lost", "empty", "a named pipe", "a pickle with code")}
"""They show that a loader uses a reader which another test holds to all of the above."""


def npy(shape, descr="<f4", data=b"", magic=(1, 0), text=None):
    """Bytes of an npy member with any header."""
    header = text or f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"
    length = len(header).to_bytes(2 if magic == (1, 0) else 4, "little")
    return np.lib.format.magic(*magic) + length + header.encode() + data


def member(key, data, method=zipfile.ZIP_DEFLATED):
    """Return a mutation that puts these bytes in the place of an npz's member."""

    def change(path):
        with zipfile.ZipFile(path) as archive:
            others = {name: archive.read(name) for name in archive.namelist() if name != f"{key}.npy"}
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in {**others, f"{key}.npy": data}.items():
                archive.writestr(name, content)

    return change


def pickled(key):
    """Return a mutation that puts a pickle with code in the place of an npz's member."""
    handle = io.BytesIO()
    np.save(handle, np.array([Bomb()], object), allow_pickle=True)
    return member(key, handle.getvalue())


def twice(key):
    """Return a mutation that adds a member a second time."""

    def change(path):
        import warnings

        with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(f"{key}.npy", archive.read(f"{key}.npy"))

    return change


def absurd_members(key):
    """Mutations of one member of an npz: headers that claim what is not there, or hide code."""
    code = "{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os').getcwd()}"
    return {
        "a header of 10**15 numbers": member(key, npy((10**15,))),
        "a header of 4 GB": member(key, np.lib.format.magic(2, 0) + b"\xff" * 4 + b" " * 1000),
        "a header with a negative shape": member(key, npy((-1, -1), data=b"\0" * 4)),
        "a header with a type of no bytes": member(key, npy((10**12,), "|V0")),
        "a header with code": member(key, npy(None, text=code)),
        "a header of nested brackets": member(key, npy(None, text="(" * 5000)),
        "a member that is no array": member(key, b"hello"),
        "an empty member": member(key, b""),
        "a member packed by bzip2": member(key, npy((1,), data=b"\0" * 4), zipfile.ZIP_BZIP2),
        "a member packed by lzma": member(key, npy((1,), data=b"\0" * 4), zipfile.ZIP_LZMA),
        "a pickle with code in a member": pickled(key),
        "a member that is there twice": twice(key),
    }
