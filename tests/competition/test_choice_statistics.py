"""Statistics of configurations: as counted by hand; recorded as computed; the sample's as the real ones."""

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import get_collection
from fastslow.competition.opcodes import OPCODES
from helpers.cases import cases
from helpers.choice_statistics import choice_statistics, read_file, survey_choices
from helpers.competition_files import REAL, ROOT, needs_real, write_data_root

CONVOLUTION, DOT, RESHAPE = (OPCODES[name] for name in ("convolution", "dot", "reshape"))
SAMPLE_ROWS = 24  # configurations of a file of the sample competition
AT_ROWS_COLUMNS = (
    *("nodes", "columns", "groups", "largest_1", "layouts", "left", "commonest", "hamming"),
    *("reshapes", "left_dots", "left_reshapes"),
)
_NONE = float("nan")
REAL_AT_SAMPLE_ROWS = {
    "nlp:random test 23559853": (56, 139, 28, 12, 2.128, 0.237, 0.567, 0.518, 0.375, 0.011, 0.428),
    "nlp:default test 3a0c5517": (848, 1967.38, 46.1, 144, 2.013, 0.045, 0.726, 0.372, 0.057, 0.004, 0.622),
    "xla:random test cd708819": (38, 93, 23, 18, 2.437, 0.25, 0.549, 0.545, 0.395, 0.092, 0.307),
    "xla:default test cd708819": (38, 81.44, 21.7, 18, 2.534, 0.28, 0.585, 0.511, 0.395, 0.179, 0.289),
    "xla:default train alexnet": (26, 67.82, 19.53, 8, 2.26, 0.101, 0.654, 0.436, 0.115, 0.186, 0.255),
    "xla:default train unet3d": (56, 124.76, 16.58, 31, 2, 0.046, 0.798, 0.318, 0.054, _NONE, 0.799),
    "xla:default valid unet_3d.4x4.bf16": (
        62,
        133.3,
        17.68,
        31,
        2.205,
        0.092,
        0.721,
        0.396,
        0.145,
        _NONE,
        0.454,
    ),
}
"""Means of these columns over random subsets of the real files' configurations, of the sample's size."""


def at_rows(choices, opcodes, rows=SAMPLE_ROWS, draws=100):
    """The statistics that a file would have with fewer configurations: the mean of random subsets."""
    rng = np.random.default_rng(0)
    subsets = (rng.choice(len(choices), min(rows, len(choices)), replace=False) for _ in range(draws))
    return pd.DataFrame(choice_statistics(choices.take(own), opcodes) for own in subsets).mean().to_dict()


def real_at_sample_rows():
    return pd.DataFrame(REAL_AT_SAMPLE_ROWS, index=AT_ROWS_COLUMNS).T


def test_one_row_per_layout_file(tmp_path):
    for name in ("xla:random", "xla:default", "nlp:random", "nlp:default"):
        write_data_root(tmp_path, f"layout:{name}", train=("a", "b"))
    assert survey_choices(tmp_path, 3)["collection"].value_counts().to_dict() == {
        f"layout:{name}": 3 for name in ("xla:random", "xla:default", "nlp:random", "nlp:default")
    }
    path = get_collection("layout:xla:default").folder(tmp_path, "train") / "b.npz"
    row = survey_choices(tmp_path).query("collection == 'layout:xla:default'").iloc[1]
    wanted = choice_statistics(*read_file(path))
    assert row.drop("collection").to_dict() == pytest.approx(wanted, nan_ok=True)


@needs_real
@cases("name", REAL_AT_SAMPLE_ROWS)
def test_the_recorded_means_are_those_of_the_real_files(name):
    collection, split, start = name.split()
    (path,) = get_collection(f"layout:{collection}").folder(REAL, split).glob(f"{start}*.npz")
    choices, opcodes = read_file(path)
    found, wanted = at_rows(choices, opcodes), real_at_sample_rows().loc[name].to_dict()
    assert {column: found[column] for column in wanted} == pytest.approx(wanted, abs=5e-3, nan_ok=True)


SEARCHES = ("default", "random")
UNLIKE = {("random", "left"), ("random", "reshapes"), ("random", "left_reshapes")}
"""The sample's random files have less of it: fewer reshapes, whose kernel always counts as left, and fewer
options of reshapes that leave both sides; see ``data/README.md``."""


@pytest.fixture(scope="module")
def sample():
    """The medians of each of the sample's searches."""
    table = survey_choices(ROOT / "data" / "sample")
    return table.groupby(table.pop("collection").str.rpartition(":")[2]).median()


@cases("column", AT_ROWS_COLUMNS)
@cases("search", SEARCHES)
def test_each_search_of_the_sample_is_drawn_as_the_real_ones(sample, search, column):
    """At equal numbers of configurations: within the range of the few real files, widened by 5 %."""
    table = real_at_sample_rows()
    real = table.loc[table.index.str.contains(f":{search} "), column]
    found, low, high = sample.loc[search, column], 0.95 * real.min(), 1.05 * real.max()
    assert len(real) > 1
    if (search, column) in UNLIKE:
        assert found < low, "no longer unlike: take it off the list, and out of data/README.md"
    else:
        assert low <= found <= high
