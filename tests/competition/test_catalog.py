"""The five collections and where their files lie."""

import pytest

from fastslow.competition.catalog import get_collection, list_programs
from fastslow.core.errors import DataError, SettingsError
from helpers.cases import cases
from helpers.competition_files import write_data_root


@cases("name", ["", "layout:xla:Random", "tile"])
def test_an_unknown_collection_is_refused_with_the_known_ones(name):
    with pytest.raises(SettingsError, match="collection: .* is none of tile:xla, layout:xla:default"):
        get_collection(name)


def test_programs_are_sorted_and_named_by_stem(tmp_path):
    collection = get_collection("layout:xla:random")
    names = ("b", "unet_3d.4x4.bf16", "a")
    write_data_root(tmp_path, collection.name, train=names)
    folder = collection.folder(tmp_path, "train")
    for other in ("notes.txt", ".a.npz.123.tmp.npz", "._b.npz"):  # left by a killed writer, by macOS
        (folder / other).touch()
    programs = list_programs(tmp_path, collection, "train")
    assert [p.name for p in programs] == ["a", "b", "unet_3d.4x4.bf16"]
    assert programs[2].id == "layout:xla:random:unet_3d.4x4.bf16"
    assert programs[2].path == folder / "unet_3d.4x4.bf16.npz"


@cases("make", [False, True])
def test_a_split_without_files_is_refused(tmp_path, make):
    collection = get_collection("tile:xla")
    folder = collection.folder(tmp_path, "test")
    if make:
        folder.mkdir(parents=True)
    with pytest.raises(DataError, match=f"{folder}: no npz files.*make data"):
        list_programs(tmp_path, collection, "test")
