"""A record of the label cache is what it should be, or refused with file, record and remedy."""

import contextlib
import json
import sqlite3

import pytest

from fastslow.core.errors import DataError, StorageError
from fastslow_programs.compiler.label_cache import open_cache
from helpers.cases import cases

KEY = "k" * 64
CYCLES = {"compiler": "libtpu 1", "topology": "v3:2x2", "cycles": 7}


def cache_with(path, text):
    """A cache whose record is this text."""
    with open_cache(path) as cache:
        cache.write(KEY, CYCLES)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (written,) = connection.execute("SELECT record FROM labels").fetchone()
        connection.execute("UPDATE labels SET record = ?", (text(written),))
    return path


def read(path):
    with open_cache(path) as cache:
        return cache.read(KEY)


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "labels.sqlite"
    assert read(path) is None
    assert read(cache_with(path, lambda written: written)) == CYCLES
    assert read(cache_with(path, lambda _: json.dumps(CYCLES))) == CYCLES, "of an older version"


def test_a_folder_in_its_place_and_a_full_disk_are_no_tracebacks(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder: the cache of labels cannot be opened or written .unable"):
        read(tmp_path / "folder")
    with open_cache(tmp_path / "full") as cache:
        cache._connection.execute("PRAGMA max_page_count = 3")
        with pytest.raises(StorageError, match="full: .* or written .database or disk is full.. Free space"):
            cache.write(KEY, {"long": "x" * 100_000})
        assert cache.read(KEY) is None


BROKEN = {
    "ten times the cycles": lambda written: written.replace(": 7,", ": 70,"),
    "cut": lambda written: written[:-3],
    "empty": lambda _: "",
    "bytes": lambda _: b"\xff\xfe\x00",
    "deep": lambda _: "[" * 100_000,
    "null": lambda _: "null",
    "a list": lambda _: "[1]",
}


@cases("name", BROKEN)
def test_a_damaged_record_is_refused_by_name(tmp_path, name):
    path = cache_with(tmp_path / "labels.sqlite", BROKEN[name])
    with pytest.raises(DataError, match="labels.sqlite: the record k{12} is damaged") as caught:
        read(path)
    assert "Delete the file, or this record (DELETE FROM labels WHERE key = 'kkk" in str(caught.value)
    _, _, remedy = caught.value.args
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(remedy.partition("(")[2].partition(")")[0])
    assert read(path) is None
