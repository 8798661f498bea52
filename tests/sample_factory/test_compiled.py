"""What the compiler said is kept in files that are whole, ordered and small, or refused by name."""

import lzma
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastslow.core.errors import DataError
from helpers.cases import cases
from helpers.workspace import SAMPLE
from make_sample.compiled import MOST, add_values, read_values

VALUES = {f"{number * 7919:016x}": number for number in range(25)} | {"f" * 16: "crashed"}


def test_what_was_added_is_read_in_files_of_limited_size(tmp_path, monkeypatch):
    monkeypatch.setitem(MOST, "labels", 10)
    items = [*VALUES.items()][::-1]
    for part in (items[:4], items[2:17], items[17:]):
        add_values(tmp_path, "labels", dict(part))
    add_values(tmp_path, "labels", {"f" * 16: 1})
    assert read_values(tmp_path, "labels") == VALUES, "a known key keeps its value"
    assert [path.name for path in sorted(tmp_path.glob("*.xz"))] == [f"labels_0{n}.xz" for n in range(3)]


def test_runs_that_add_at_once_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(MOST, "labels", 4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda item: add_values(tmp_path, "labels", dict([item])), VALUES.items()))
    assert read_values(tmp_path, "labels") == VALUES


WHOLE = b"".join(b"%016x %d\n" % (number, number) for number in range(3))
BROKEN = {
    "cut": (lzma.compress(WHOLE)[:-9], "damaged"),
    "cut line": (lzma.compress(WHOLE[:-1]), "not a key and a value"),
    "no JSON": (lzma.compress(b"f" * 16 + b" {\n"), "damaged"),
    "a key twice": (lzma.compress(WHOLE + WHOLE[-19:]), "keys do not ascend"),
    "not in order": (lzma.compress(WHOLE[19:] + WHOLE[:19]), "keys do not ascend"),
    "in two files": (lzma.compress(b"f" * 16 + b" 1\n"), "repeats 1 keys of the files before it"),
}


@cases("name", BROKEN)
def test_a_broken_file_is_refused_by_name_and_stays(tmp_path, name):
    content, problem = BROKEN[name]
    add_values(tmp_path, "labels", {"f" * 16: 1})
    (tmp_path / "labels_01.xz").write_bytes(content)
    for call in (lambda: read_values(tmp_path, "labels"), lambda: add_values(tmp_path, "labels", VALUES)):
        with pytest.raises(DataError, match=rf"labels_01.xz: .*{problem}.*git checkout\), or delete it"):
            call()
    assert (tmp_path / "labels_01.xz").read_bytes() == content


def test_the_committed_files_are_whole_and_small():
    (folder,) = (SAMPLE.parent / "compiled").glob("*.*.*")
    for name, most in MOST.items():
        paths = sorted(folder.glob(f"{name}_*.xz"))
        assert len(paths) == -(-len(read_values(folder, name)) // most) > 0
        assert max(path.stat().st_size for path in paths) <= 250_000
