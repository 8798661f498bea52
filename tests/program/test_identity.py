"""The identity of a configuration is what it chooses: in any order, file or draw."""

import numpy as np

from fastslow_programs.program.identity import identify
from helpers.cases import cases
from helpers.competition_files import layout_arrays, npz_program, tile_arrays, write_npz

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
        name: own[part] if name.startswith("config_") or name == key else own for name, own in arrays.items()
    }
    again = identify(npz_program(write_npz(tmp_path / "b.npz", fewer), kind))
    np.testing.assert_array_equal(again, whole[part])
