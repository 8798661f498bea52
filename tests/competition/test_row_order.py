"""The order of the rows of layout files, and whether it is that of the launch release."""

from pathlib import Path

import numpy as np
import pytest

from fastslow.competition.row_order import LAUNCH, release_of, releases_in_words, row_order
from fastslow.core.errors import DataError
from fastslow.kaggle.provenance import digest_of_orders, read_row_orders
from helpers.competition_files import REAL, layout_arrays, needs_real, tile_arrays, write_npz

ID, CONFIGS = "layout:xla:random:x", "node_config_feat"


def test_only_the_order_of_the_rows_counts(tmp_path, rng):
    arrays = layout_arrays(3, dots=4, configs=40)
    rows = arrays[CONFIGS]

    def order_of(**changed):
        return row_order(write_npz(tmp_path / "x.npz", arrays | changed))

    first = order_of()
    assert order_of(node_config_feat=rows.astype(np.int8), config_runtime=np.arange(40)) == first
    other = order_of(node_config_feat=rows[rng.permutation(40)])
    assert other.rows == first.rows and other.order != first.order
    assert order_of(node_config_feat=rows[:39]).rows != first.rows
    assert digest_of_orders({ID: first}) != digest_of_orders({ID: other})
    assert [*digest_of_orders({ID: first})] == ["layout:xla:random"]


def test_what_is_no_layout_file_has_no_order(tmp_path):
    with pytest.raises(DataError, match=r"x\.npz: has no node_config_feat\. Give a layout file"):
        row_order(write_npz(tmp_path / "x.npz", tile_arrays(3)))
    for value in (np.inf, 255, 0.5, np.nan):  # as the digests' type it would be another one
        arrays = layout_arrays(3, configs=40)
        arrays[CONFIGS] = arrays[CONFIGS].astype(np.float32)
        arrays[CONFIGS][7, 1, 4] = value
        said = rf"node_config_feat\[7, 1, 4\] is {value}.*, a whole number from -1 to 5 wanted"
        with pytest.raises(DataError, match=said):
            row_order(write_npz(tmp_path / "x.npz", arrays))
    with pytest.raises(
        DataError, match=r"none\.npz: no such file\. Check its name, or write or copy it again$"
    ):
        row_order(tmp_path / "none.npz")
    with pytest.raises(DataError, match=r"none\.npz: no such file\. Run `make data` again$"):
        row_order(tmp_path / "npz_all" / "none.npz")


@needs_real
def test_the_genuine_files_have_the_order_of_the_launch_release(tmp_path):
    assert read_row_orders(REAL).items() < LAUNCH.items()
    assert release_of(REAL, "test") == release_of(REAL, "valid") == "launch"
    for key in [*LAUNCH][:1] + [*LAUNCH][-1:]:
        *folders, name = key.split(":")
        split = "valid" if name == "unet_3d.4x4.bf16" else "test"
        path = Path("npz_all", "npz", *folders, split, f"{name}.npz")
        arrays, root = dict(np.load(REAL / path)), tmp_path / name
        arrays[CONFIGS] = arrays[CONFIGS][::-1]
        write_npz(root / path, arrays)
        assert release_of(root, split) == "reordered"
        assert releases_in_words(root).startswith(f"row order of the layout files of {split}: not as in")
        write_npz(root / path, arrays | {CONFIGS: arrays[CONFIGS] + 1})
        assert release_of(root, split) == "unknown" and releases_in_words(root).count("\n") == 1
