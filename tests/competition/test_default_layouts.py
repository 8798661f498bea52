"""The compiler's own layouts: the commonest ones of a default file, or as a file names them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.catalog import ProgramFile, get_collection
from fastslow.competition.reader import read_npz
from fastslow.competition.schema import DEFAULTS
from fastslow.core.errors import DataError
from fastslow.features.configs.default_layouts import commonest_layouts, find_default_layouts, is_off_default
from fastslow.steps.features import FeatureSettings
from helpers.competition_files import REAL, layout_arrays, needs_real, write_npz
from helpers.factorised import factorise


def write(root, search, split="train", name="a", **changed):
    """Write a layout file where the competition has it, and return its program."""
    collection = get_collection(f"layout:xla:{search}")
    arrays = layout_arrays(seed=3 if search == "random" else 4) | changed
    arrays["node_config_ids"] = layout_arrays(seed=3)["node_config_ids"]
    for key in ("node_feat", "node_opcode", "edge_index"):
        arrays[key] = changed.get(key, layout_arrays(seed=3)[key])
    return ProgramFile(collection, split, write_npz(collection.folder(root, split) / f"{name}.npz", arrays))


def found(program):
    return find_default_layouts(read_npz(program))


def by_hand(rows):
    """(K, 3, 6) commonest given layout of each tensor of node_config_feat (C, K, 18)."""
    tensor_layouts = rows.reshape(*rows.shape[:2], 3, 6).astype(int)
    result = np.full(tensor_layouts.shape[1:], -1)
    for node, role in np.ndindex(tensor_layouts.shape[1:3]):
        given = [tuple(layout) for layout in tensor_layouts[:, node, role].tolist() if layout[0] >= 0]
        if given:
            most = max(map(given.count, given))
            often = [layout for layout in given if given.count(layout) == most]
            result[node, role] = min(often, key=lambda layout: layout[::-1])  # as the reader sorts layouts
    return result


@given(st.integers(0, 10**6))
def test_commonest_as_counted_by_hand(seed):
    rng = np.random.default_rng(seed)
    layouts = np.array([[-1] * 6, [0, 1, *[-1] * 4], [1, 0, *[-1] * 4]], np.int8)
    codes = rng.integers(0, 3, (int(rng.integers(1, 9)), 4, 3)).astype(np.uint16)
    commonest = commonest_layouts(layouts, factorise(codes))
    for node, role in np.ndindex(4, 3):
        counts = np.bincount(codes[:, node, role], minlength=3)[1:]
        # equally common ones: the first of the two
        wanted = layouts[1 + counts.argmax()] if counts.any() else layouts[0]
        assert commonest[node, role].tolist() == wanted.tolist()
    shuffled = commonest_layouts(layouts, factorise(rng.permutation(codes)))
    assert (shuffled == commonest).all()


def test_a_default_file_tells_them_for_its_random_file_too(tmp_path):
    default, random = write(tmp_path, "default"), write(tmp_path, "random")
    wanted = by_hand(np.load(default.path)["node_config_feat"])
    assert (wanted >= 0).any()
    assert (found(default) == wanted).all() and (found(random) == wanted).all()


def test_without_a_default_file_of_the_same_program_they_are_unknown(tmp_path):
    random = write(tmp_path, "random")
    assert (found(random) == -1).all()
    other = write(tmp_path, "default")
    assert (found(random) >= 0).any()
    opcodes = np.load(other.path)["node_opcode"]
    write(tmp_path, "default", node_opcode=np.where(np.arange(len(opcodes)) == 0, 1 + opcodes % 100, opcodes))
    assert (found(random) == -1).all()
    other.path.unlink()
    write(tmp_path, "default", split="valid")
    assert (found(random) == -1).all()


def test_a_file_may_name_them_itself(tmp_path):
    random = write(tmp_path, "random")
    row = np.load(random.path)["node_config_feat"][0]
    defaults = found(write(tmp_path, "random", **{DEFAULTS: row}))
    assert (defaults.reshape(row.shape) == row).all()


def test_what_a_file_names_is_checked(tmp_path):
    row = np.load(write(tmp_path, "random").path)["node_config_feat"][0]
    with pytest.raises(DataError, match=rf"{DEFAULTS} has shape"):
        found(write(tmp_path, "random", **{DEFAULTS: row[:1]}))
    with pytest.raises(DataError, match=rf"{DEFAULTS}\[0, 0, 0\] is 7.*-1 to 5"):
        found(write(tmp_path, "random", **{DEFAULTS: np.full_like(row, 7)}))
    with pytest.raises(DataError, match=rf"{DEFAULTS}.* names twice"):
        found(write(tmp_path, "random", **{DEFAULTS: np.full_like(row, 1)}))


def test_a_broken_default_file_is_named(tmp_path):
    default, random = write(tmp_path, "default"), write(tmp_path, "random")
    default.path.write_bytes(default.path.read_bytes()[:500])
    with pytest.raises(DataError, match=str(default.path)):
        found(random)


def test_features_of_a_random_file_depend_on_the_default_file(tmp_path):
    settings = FeatureSettings(collection="layout:xla:random", data_root=str(tmp_path))
    random = write(tmp_path, "random")
    alone = settings.sources(random)
    write(tmp_path, "default")
    assert settings.sources(random)[: len(alone)] == alone and len(settings.sources(random)) == 2
    assert settings.replace(compiler_defaults=False).sources(random) == alone


@needs_real
def test_a_real_random_file_is_farther_from_them_than_its_default_file():
    shares = {}
    for search in ("default", "random"):
        collection = get_collection(f"layout:xla:{search}")
        (path,) = collection.folder(REAL, "test").glob("cd708819*.npz")
        file = read_npz(ProgramFile(collection, "test", path))
        defaults = find_default_layouts(file)
        assert (defaults[..., 0] >= 0).sum() >= 93  # all that vary
        shares[search] = is_off_default(file.layouts[file.choices.layout_codes()], defaults).mean()
    assert 0 < shares["default"] < shares["random"]
