"""Arrays in npz files: read whole or in rows; a broken file is a DataError and nothing else."""

import io
import os
import socket
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fastslow.core import npz_io
from fastslow.core.errors import DataError
from fastslow.core.npz_io import file_fingerprint, read_arrays, read_headers, stream_rows
from helpers.cases import cases


def write_member(path, name, data):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def npy_bytes(array, claimed_shape=None):
    """Bytes of an npy file, whose header may claim another shape."""
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": claimed_shape or array.shape}
    handle = io.BytesIO()
    np.lib.format.write_array_header_1_0(handle, header)
    return handle.getvalue() + array.tobytes()


def test_arrays_come_back_whole(tmp_path, rng):
    arrays = {
        "f": rng.normal(size=(5, 3)).astype(">f4"),
        "fortran": np.asfortranarray(rng.integers(0, 9, (4, 6))),
        "empty": np.zeros((0, 7), np.int8),
        "scalar": np.array("text"),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    read = read_arrays(tmp_path / "x.npz")
    assert list(read) == list(arrays)
    for key, array in arrays.items():
        np.testing.assert_array_equal(read[key], array)
        assert read_headers(tmp_path / "x.npz")[key].shape == array.shape
    assert read_headers(tmp_path / "x.npz")["fortran"].fortran_order
    assert list(read_arrays(tmp_path / "x.npz", ["empty"])) == ["empty"]


def test_a_zip_archive_of_other_files_is_named_as_one(tmp_path):
    with pytest.raises(DataError, match="x.npz: is a zip archive without arrays, no npz file. Unpack it"):
        read_headers(write_member(tmp_path / "x.npz", "program.hlo", b"HloModule m"))


def test_other_files_beside_the_arrays_do_not_count(tmp_path):
    """An npz that a file manager packed again has such files; numpy reads it, too."""
    np.savez(tmp_path / "x.npz", one=np.arange(3), two=np.ones(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        for name in ("README.txt", ".DS_Store", "folder/", "__MACOSX/._one.npy"):
            archive.writestr(name, b"\0\x05\x16\x07" * 30)
    assert list(read_headers(tmp_path / "x.npz", whole=True)) == ["one", "two"]
    read = read_arrays(tmp_path / "x.npz")
    assert list(read) == ["one", "two"] and read["one"].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_twice_in_a_file_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for value in (1.0, 2.0):
            archive.writestr("x.npy", npy_bytes(np.array([value])))
    for read in (read_headers, read_arrays, file_fingerprint, lambda p: next(stream_rows(p, "x"))):
        with pytest.raises(DataError, match="x.npy is in it 2 times, and it is unclear which counts"):
            read(tmp_path / "x.npz")


@pytest.mark.parametrize("chunk_bytes", [1, 24, 100, 10**6])
def test_rows_are_streamed_in_order_within_the_chunk(tmp_path, rng, chunk_bytes):
    array = rng.normal(size=(17, 2, 3)).astype(np.float32)
    np.savez_compressed(tmp_path / "x.npz", x=array)
    chunks = list(stream_rows(tmp_path / "x.npz", "x", chunk_bytes))
    np.testing.assert_array_equal(np.concatenate(chunks), array)
    assert max(len(chunk) for chunk in chunks) == min(17, max(1, chunk_bytes // 24))


def test_a_column_by_column_array_is_not_streamed(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.asfortranarray(np.ones((3, 4))))
    with pytest.raises(DataError, match="x is stored column by column.*ascontiguousarray"):
        next(stream_rows(tmp_path / "x.npz", "x"))


def test_a_missing_key_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    for read in (lambda p: read_arrays(p, ["y"]), lambda p: next(stream_rows(p, "y"))):
        with pytest.raises(DataError, match=r"y\.npy"):
            read(tmp_path / "x.npz")


@cases("claimed", [(10**13, 4), (2, 4), (4, 4), (-3, 4)])
def test_a_header_that_does_not_fit_the_bytes_is_refused_before_memory_is_asked_for(tmp_path, claimed):
    path = write_member(tmp_path / "x.npz", "x.npy", npy_bytes(np.ones((3, 4)), claimed))
    for read in (read_headers, read_arrays, lambda p: next(stream_rows(p, "x"))):
        with pytest.raises(DataError, match="by its header"):
            read(path)


@cases(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': (}",  # tokenize.TokenError
        "{'descr': '<08', 'fortran_order': False, 'shape': (1,)}",  # SyntaxError or ValueError
        "{'descr': '<f8', 'fortran_order': False, b'shape': (1,)}",  # TypeError
        "{'descr': '<f8', 'fortran_order': False}",  # ValueError
    ],
)
def test_any_nonsense_in_a_header_is_refused(tmp_path, header):
    data = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 8
    with pytest.raises(DataError, match="cannot be read"):
        read_headers(write_member(tmp_path / "x.npz", "x.npy", data))


def test_checksums_tell_the_content_not_the_packing(tmp_path, rng):
    array = rng.integers(0, 3, 1000)
    np.savez(tmp_path / "plain.npz", x=array)
    np.savez_compressed(tmp_path / "packed.npz", x=array)
    array[500] += 1
    np.savez(tmp_path / "other.npz", x=array)
    plain, packed, other = (file_fingerprint(tmp_path / f"{n}.npz") for n in ("plain", "packed", "other"))
    assert plain == packed != other


@cases("kind", ["pipe", "device", "socket"])
def test_what_never_ends_is_refused_unopened(tmp_path, kind):
    path = tmp_path / "x.npz"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path = Path(tempfile.mkdtemp()) / "x"  # a socket's path is at most 107 characters long
        socket.socket(socket.AF_UNIX).bind(str(path))
    for read in (read_headers, read_arrays, file_fingerprint, lambda p: next(stream_rows(p, "x"))):
        with pytest.raises(DataError, match=rf"is a (named )?{kind}, a file is wanted"):
            read(path)


def test_an_array_too_large_to_be_read_whole_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(npz_io, "MAX_ARRAY_BYTES", 100)
    np.savez(tmp_path / "x.npz", x=np.ones(3), y=np.ones(30))
    assert list(read_arrays(tmp_path / "x.npz", ["x"])) == ["x"]
    with pytest.raises(DataError, match="y has 240 bytes, at most 100 are read whole"):
        read_arrays(tmp_path / "x.npz")


@cases(
    "folder, said",
    [("npz_all/npz/tile/xla/train", "run `make data` again"), ("mine", "write or copy it again")],
)
def test_the_remedy_depends_on_where_the_file_lies(tmp_path, folder, said):
    path = tmp_path / folder / "x.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(DataError, match=said):
        read_headers(path)
