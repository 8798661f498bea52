"""Statistics of configurations: as counted by hand; recorded as computed; the sample's as the real ones."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.catalog import get_collection
from fastslow.competition.choice_statistics import (
    REAL_FILES,
    ChoiceStatistics,
    as_row,
    choice_statistics,
    real_statistics,
    survey_choices,
)
from fastslow.competition.reader import read_choices
from fastslow.competition.tied_choices import factorise
from helpers.competition_files import REAL, ROOT, needs_real, write_data_root


def by_hand(codes):
    """The statistics, column by column and pair by pair."""
    columns = codes.reshape(len(codes), -1).T
    varying = [column for column in columns if len(set(column)) > 1]
    pairs = list(combinations(range(len(codes)), 2))
    patterns = [tuple(column[a] == column[b] for a, b in pairs) for column in varying]
    sizes = sorted((patterns.count(pattern) for pattern in set(patterns)), reverse=True)

    def mean(values):
        return sum(values) / max(1, len(varying))

    return ChoiceStatistics(
        configs=len(codes),
        nodes=codes.shape[1],
        columns=len(varying),
        groups=len(sizes),
        largest=tuple(sizes[:5]),
        layouts=mean(len(set(column)) for column in varying),
        left=float((codes == 0).mean()),
        commonest=mean(max(map(list(column).count, column)) / len(column) for column in varying),
        hamming=mean(1 - sum(pattern) / len(pairs) for pattern in patterns),
    )


@st.composite
def tied_codes(draw):
    """Codes (C, K, 3) in which some tensors copy the choice of another, with layouts of their own."""
    num_configs, num_nodes = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, draw(st.integers(1, 4)), (num_configs, draw(st.integers(1, 4))))
    of_column = rng.integers(0, values.shape[1], num_nodes * 3)
    tables = np.array([rng.permutation(5)[:4] for _ in of_column])
    codes = tables[np.arange(len(of_column)), values[:, of_column]]
    return codes.reshape(num_configs, num_nodes, 3).astype(np.uint8)


@given(tied_codes())
def test_as_counted_by_hand(codes):
    found, wanted = as_row(choice_statistics(factorise(codes))), as_row(by_hand(codes))
    assert found == pytest.approx(wanted)


@given(tied_codes())
def test_options_that_no_configuration_takes_do_not_count(codes):
    some = slice(None, None, 2)
    rest = choice_statistics(factorise(codes).take(some))
    wanted = choice_statistics(factorise(codes[some]))
    assert (rest.columns, rest.layouts, rest.hamming) == pytest.approx(
        (wanted.columns, wanted.layouts, wanted.hamming)
    )


def test_one_row_per_layout_file(tmp_path):
    for name in ("xla:random", "xla:default", "nlp:random", "nlp:default"):
        write_data_root(tmp_path, f"layout:{name}", train=("a", "b"))
    assert survey_choices(tmp_path, 3)["collection"].value_counts().to_dict() == {
        f"layout:{name}": 3 for name in ("xla:random", "xla:default", "nlp:random", "nlp:default")
    }
    path = get_collection("layout:xla:default").folder(tmp_path, "train") / "b.npz"
    row = survey_choices(tmp_path).query("collection == 'layout:xla:default'").iloc[1]
    wanted = as_row(choice_statistics(read_choices(path)[1]))
    assert row.drop("collection").to_dict() == pytest.approx(wanted)


@needs_real
@pytest.mark.parametrize("name", REAL_FILES)
def test_the_recorded_numbers_are_those_of_the_real_files(name):
    collection, split, start = name.split()
    (path,) = get_collection(f"layout:{collection}").folder(REAL, split).glob(f"{start}*.npz")
    codes = read_choices(path)[1].layout_codes()
    found = as_row(choice_statistics(factorise(codes)))
    assert found == pytest.approx(as_row(REAL_FILES[name]), abs=5e-5)


@pytest.fixture(scope="module")
def sample():
    """The medians of each of the sample's collections."""
    return survey_choices(ROOT / "data" / "sample").groupby("collection", sort=False).median()


@pytest.mark.parametrize("column", [name for name in real_statistics() if name != "configs"])
def test_the_sample_is_drawn_as_the_real_data_is(sample, column):
    real = real_statistics()[column]
    outside = sample[column][~sample[column].between(real.min(), real.max())]
    assert outside.empty, f"{column}: real {real.min()} to {real.max()}, sample {outside.to_dict()}"
