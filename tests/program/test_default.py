"""The compiler's default of a program against plain loops; what makes configurations equal."""

from dataclasses import replace

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.catalog import get_collection
from fastslow.competition.layouts import LEFT_TO_COMPILER, format_layout
from fastslow_programs.program.configurations import find_default, identify
from fastslow_programs.ranking.choices import name_choices
from helpers.cases import cases
from helpers.competition_files import layout_arrays, npz_program, tile_arrays, write_npz

RANDOM = get_collection("layout:xla:random")


@cases("mixed", [False, True])
def test_each_choice_has_the_option_that_the_compilers_own_layouts_name(tmp_path, mixed):
    """Where no configuration is the compiler's own, its options are still known, choice by choice."""
    arrays = layout_arrays(3, dots=4, configs=40)
    default_rows = arrays["node_config_feat"][7].copy()
    if mixed:
        default_rows[1::2] = arrays["node_config_feat"][8][1::2]
    arrays["node_config_default"] = default_rows
    program = npz_program(write_npz(tmp_path / "a.npz", arrays), "layout")
    default = find_default(program)
    off = (arrays["node_config_feat"] != default_rows).reshape(40, -1, 6).any(2)
    given = (arrays["node_config_feat"].reshape(40, -1, 6)[..., 0] >= 0) & (
        default_rows.reshape(-1, 6)[:, 0] >= 0
    )
    count = (off & given).sum(1)
    assert default.known and default.config == count.argmin()
    differ = "differs" if count.min() == 1 else "differ"
    said = f"; {count.min()} of its tensors {differ} from" if count.min() else ", equal to"
    assert default.words == f"configuration {default.config}{said} the compiler's own layouts"
    rows = dict(zip(program.node_config_ids.tolist(), default_rows.reshape(-1, 3, 6), strict=True))
    for choice in name_choices(program, default):
        row = rows[int(choice.node.split()[1])]
        wanted = [row[("output", "input", "kernel").index(tensor)] for tensor in choice.tensors]
        words = [format_layout(layout.astype(int).tolist()) for layout in wanted]
        assert choice.known == any(word != LEFT_TO_COMPILER for word in words)
        if choice.known and " and ".join(words) in choice.options:
            taken = choice.options[choice.default].split(" and ")
            assert all(layout in (LEFT_TO_COMPILER, word) for layout, word in zip(taken, words, strict=True))


def test_a_file_that_tells_no_layouts_has_no_default(tmp_path):
    program = npz_program(write_npz(tmp_path / "a.npz", layout_arrays(3)), "layout")
    default = find_default(replace(program, file=replace(program.file, collection=RANDOM)))
    assert default.config is None and not default.known
    assert not any(choice.known for choice in name_choices(program, default))


@cases("normaliser, config", [(300, 2), (301, None)])
def test_the_normaliser_of_a_tile_names_its_default(tmp_path, normaliser, config):
    arrays = tile_arrays(2, configs=5)
    arrays["config_runtime"] = np.array([100, 200, 300, 400, 500])
    arrays["config_runtime_normalizers"] = np.full(5, normaliser)
    default = find_default(npz_program(write_npz(tmp_path / "t.npz", arrays), "tile"))
    assert default.config == config and default.known == (config is not None)
    assert "the file's normaliser" in default.words


KINDS = [("layout", layout_arrays, "node_config_feat"), ("tile", tile_arrays, "config_feat")]


@cases("kind, make, key", KINDS)
def test_equal_configurations_have_equal_ones_and_no_others(tmp_path, kind, make, key):
    arrays = make(3, configs=30)
    arrays[key][7] = arrays[key][2]
    whole = identify(npz_program(write_npz(tmp_path / "a.npz", arrays), kind))
    rows = arrays[key].reshape(30, -1)
    equal = (rows[:, None] == rows).all(2)
    np.testing.assert_array_equal(whole[:, None] == whole, equal)
    part = np.random.default_rng(0).permutation(30)[:9]
    fewer = {
        name: array[part] if name.startswith("config_") or name == key else array
        for name, array in arrays.items()
    }
    again = identify(npz_program(write_npz(tmp_path / "b.npz", fewer), kind))
    np.testing.assert_array_equal(again, whole[part])


@cases("kind, make, key", KINDS)
def test_configurations_of_another_program_have_others(tmp_path, kind, make, key):
    """A table that was measured with another batch size was believed."""
    program = npz_program(write_npz(tmp_path / "a.npz", make(3, configs=30)), kind)
    shape, opcode = program.node_feat.copy(), program.node_opcode.copy()
    shape[0, node_columns.SHAPE.start] += 1
    opcode[0] += 1
    for changed in ({"node_feat": shape}, {"node_opcode": opcode}, {"edge_index": program.edge_index[1:]}):
        assert not {*identify(program)} & {*identify(replace(program, **changed))}
    turned = replace(program, edge_index=program.edge_index[::-1])
    np.testing.assert_array_equal(identify(turned), identify(program))
