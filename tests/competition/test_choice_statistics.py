"""Statistics of configurations: recorded as those of the real files, which the sample's are like."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS, SPLITS, get_collection, list_programs
from fastslow.competition.opcodes import DOT, RESHAPE
from fastslow.competition.reader import read_checked, read_choices
from fastslow.competition.tied_choices import Choices
from helpers.cases import cases
from helpers.competition_files import REAL, ROOT, needs_real

SAMPLE_ROWS = 24  # configurations of most files of the sample competition
AT_ROWS_COLUMNS = (
    "nodes",
    "columns",
    "groups",
    "largest_1",
    "layouts",
    "left",
    "commonest",
    "hamming",
    "reshapes",
    "left_dots",
    "left_reshapes",
)
_NONE = float("nan")
REAL_AT_SAMPLE_ROWS = {
    "nlp:random test 23559853": (56, 139, 28, 12, 2.128, 0.237, 0.567, 0.518, 0.375, 0.011, 0.428),
    "nlp:default test 3a0c5517": (848, 1967.38, 46.1, 144, 2.013, 0.045, 0.726, 0.372, 0.057, 0.004, 0.622),
    "xla:random test cd708819": (38, 93, 23, 18, 2.437, 0.25, 0.549, 0.545, 0.395, 0.092, 0.307),
    "xla:default test cd708819": (38, 81.44, 21.7, 18, 2.534, 0.28, 0.585, 0.511, 0.395, 0.179, 0.289),
    "xla:default train alexnet": (26, 67.82, 19.53, 8, 2.26, 0.101, 0.654, 0.436, 0.115, 0.186, 0.255),
    "xla:default train unet3d": (56, 124.76, 16.58, 31, 2, 0.046, 0.798, 0.318, 0.054, _NONE, 0.799),
    "xla:default valid unet_3d": (62, 133.3, 17.68, 31, 2.205, 0.092, 0.721, 0.396, 0.145, _NONE, 0.454),
}
"""Means of these columns over random subsets of the real files' configurations, of the sample's size."""


def choice_statistics(choices: Choices, opcodes: np.ndarray) -> dict[str, float]:
    """Return :data:`AT_ROWS_COLUMNS` of the configurations of nodes with these opcodes ``(K,)``.

    A *column* is a tensor of ``node_config_feat``: the layout of a node's output, input or kernel. It varies
    if two configurations give it different layouts. Counts are of configurable ``nodes``, ``columns`` that
    vary, ``groups`` of columns that determine each other, and columns of the largest group. Means over the
    columns that vary: number of ``layouts``, share of the ``commonest`` layout (fewer configurations raise
    it) and ``hamming``, the share of pairs of configurations that differ. The share ``left`` to the compiler
    of all entries, of operands of dots and of outputs and operands of reshapes, NaN without such nodes. The
    share of ``reshapes`` among the nodes.
    """
    num_configs = len(choices)
    counts = np.zeros((choices.num_groups, choices.options.max(initial=1)))
    for group, values in enumerate(choices.values.T):
        counts[group] = np.bincount(values, minlength=counts.shape[1])
    used = (counts > 0).sum(1)
    sizes = np.bincount(choices.group.ravel(), minlength=choices.num_groups) * (used > 1)
    alike = (counts * (counts - 1)).sum(1) / (num_configs * (num_configs - 1))
    left = ((choices.codes == 0) * counts[choices.group]).sum(2) / num_configs
    sums = len(choices.group), sizes.sum(), (sizes > 0).sum(), sizes.max()
    shares = used, counts.max(1) / num_configs, 1 - alike
    layouts, commonest, hamming = (of_group @ sizes / sizes.sum() for of_group in shares)
    dots, reshapes = left[opcodes == DOT, 1:], left[opcodes == RESHAPE, :2]
    of_kind = (kind_left.mean() if kind_left.size else _NONE for kind_left in (dots, reshapes))
    means = layouts, left.mean(), commonest, hamming, (opcodes == RESHAPE).mean(), *of_kind
    return dict(zip(AT_ROWS_COLUMNS, (*sums, *means), strict=True))


def read_file(path: Path) -> tuple[Choices, np.ndarray]:
    """Read the configurations of a layout file, and the opcodes ``(K,)`` of its configurable nodes."""
    arrays = read_checked(path, "layout", ["node_opcode", "node_config_ids"])
    return read_choices(path)[1], arrays["node_opcode"][arrays["node_config_ids"]]


def at_rows(choices, opcodes):
    """The statistics that a file would have with fewer configurations: the mean of random subsets."""
    rng, rows = np.random.default_rng(0), min(SAMPLE_ROWS, len(choices))
    subsets = (rng.choice(len(choices), rows, replace=False) for _ in range(100))
    return (
        pd.DataFrame(choice_statistics(choices.take(subset), opcodes) for subset in subsets).mean().to_dict()
    )


def first_rows(choices, opcodes):
    """The statistics of the first rows of a file of the sample, whose order is random."""
    return choice_statistics(choices.take(np.arange(min(SAMPLE_ROWS, len(choices)))), opcodes)


def real_at_sample_rows():
    return pd.DataFrame(REAL_AT_SAMPLE_ROWS, index=AT_ROWS_COLUMNS).T


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
    rows = [
        {"search": collection.name.rpartition(":")[2], **first_rows(*read_file(program.path))}
        for collection in COLLECTIONS
        if collection.kind == "layout"
        for split in SPLITS
        for program in list_programs(ROOT / "data" / "sample", collection, split)
    ]
    return pd.DataFrame(rows).groupby("search").median()


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
