"""Competition files that are small on disk and huge when read: refused before the memory is filled."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from fastslow.competition import reader
from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.competition.reader import read_choices
from fastslow.competition.schema import LARGEST, SCHEMA, check_schema
from fastslow.core import npz_io
from fastslow.core.errors import DataError
from fastslow.core.npz_io import Header
from fastslow.features.configs.default_layouts import find_default_layouts
from helpers.bad_files import npy
from helpers.cases import cases
from helpers.competition_files import competition_arrays, layout_arrays, npz_program, write_npz

DESCR = {"f": "<f4", "iu": "|i1", "fiu": "|i1"}
ONES = {"N": 4, "E": 2, "C": 3, "K": 1}


def bomb(path, kind, letter, count):
    """Write a file whose arrays are zeros, one size of them ``count``; they deflate to a thousandth."""
    sizes = ONES | {letter: count}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, (kinds, shape) in SCHEMA[kind].items():
            shape = tuple(sizes.get(size, size) for size in shape or (1,))
            left = int(np.prod(shape)) * np.dtype(DESCR[kinds]).itemsize
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                member.write(npy(shape, DESCR[kinds]))
                for start in range(0, left, 1 << 20):
                    member.write(bytes(min(1 << 20, left - start)))
    return path


BOMBS = {
    "configurations of a layout": ("layout", "C", 1_500_000, "declares 1,500,000 configurations"),
    "edges": ("tile", "E", 20_000_000, "declares 20,000,000 edges"),
}


@cases("name", BOMBS)
def test_a_bomb_is_refused_before_memory_is_filled(tmp_path, name):
    kind, letter, count, said = BOMBS[name]
    path = bomb(tmp_path / "x.npz", kind, letter, count)
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(DataError, match=rf"x\.npz: {said}, at most {LARGEST[letter][1]:,} are read"):
        npz_program(path, kind)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def headers(kind, **sizes):
    """Headers of a file of these sizes, node_config_feat in float32 as published."""
    kinds = {"f": np.float32, "iu": np.int64, "fiu": np.float32}
    return {
        key: Header(tuple(sizes.get(size, size) for size in shape or (1,)), np.dtype(kinds[of]), False)
        for key, (of, shape) in SCHEMA[kind].items()
    }


def test_the_largest_file_of_the_competition_is_allowed_on_a_small_machine(monkeypatch):
    monkeypatch.setattr(npz_io, "machine_memory", lambda: 1 << 30)
    largest = {"N": 43_614, "E": 100_000, "K": 3_143, "C": 100_040}
    assert check_schema("x.npz", "layout", headers("layout", **largest)) == largest


def test_a_file_that_the_memory_cannot_hold_is_refused(monkeypatch):
    monkeypatch.setattr(npz_io, "machine_memory", lambda: 1 << 30)
    large = headers("layout", N=1_000_000, E=1, K=1, C=1)
    with pytest.raises(DataError, match=r"x\.npz: reading it needs 1\.7 GB of memory, this machine has 1\.1"):
        check_schema("x.npz", "layout", large)


def test_streamed_choices_are_held_to_the_memory(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "x.npz", layout_arrays(configs=4000))
    _, expected = read_choices(path)
    needed = reader._COPIES * expected.values.nbytes
    monkeypatch.setattr(npz_io, "machine_memory", lambda: needed)
    assert len(read_choices(path)[1]) == 4000
    monkeypatch.setattr(npz_io, "machine_memory", lambda: needed // 4)
    with pytest.raises(DataError, match=r"x\.npz: holding the \d+ separate choices of its first [\d,]+ conf"):
        read_choices(path)


def test_a_bomb_beside_a_file_is_refused_too(tmp_path):
    """The default search's file of the same program."""
    collection = get_collection("layout:xla:random")
    random_file = write_npz(collection.folder(tmp_path, "train") / "a.npz", competition_arrays("layout"))
    other = get_collection("layout:xla:default").folder(tmp_path, "train") / "a.npz"
    other.parent.mkdir(parents=True)
    bomb(other, "layout", "K", LARGEST["K"][1] + 1)
    program = reader.read_npz(ProgramFile(collection, "train", random_file))
    with pytest.raises(DataError, match=r"default.*a\.npz: declares"):
        find_default_layouts(program)
