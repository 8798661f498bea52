"""The ranker's table: several samples from one pass, each as if read alone from the whole table."""

import numpy as np
import pytest

from fastslow.rankers import table
from fastslow.rankers.table import read_table, read_tables
from fastslow.rankers.table_features import tabulate
from helpers.runs import make_features

COLLECTIONS = {"layout": "layout:xla:random", "tile": "tile:xla"}


@pytest.fixture(scope="module", params=COLLECTIONS)
def features(request, tmp_path_factory):
    names = {"train": ("a", "b", "c")}
    place = tmp_path_factory.mktemp("table")
    return make_features(place, COLLECTIONS[request.param], names, merge_duplicates=False)


def test_rows_of_a_sample_are_those_of_the_whole_table(features):
    kind = features.collection.kind
    graph = features.graph("train", "b")
    whole, names = tabulate(graph, kind, features.config_columns)
    rows = np.array([3, 0, 3])
    part, part_names = tabulate(graph, kind, features.config_columns, rows)
    np.testing.assert_array_equal(part, whole[rows])
    assert part_names == names


def test_samples_of_one_pass_are_those_of_one_pass_each(features, monkeypatch):
    made = []
    monkeypatch.setattr(table, "tabulate", lambda graph, *a: made.append(graph.name) or tabulate(graph, *a))
    samples = [(["c", "a"], 3), (["a", "b", "c"], 2), (["b"], None)]
    together = read_tables(features, "train", samples, seed=7)
    assert sorted(made) == ["a", "b", "c"]
    for (names, most), own in zip(samples, together, strict=True):
        alone = read_table(features, "train", names, max_configs=most, seed=7)
        assert (own.names, own.columns, own.sizes) == (names, alone.columns, alone.sizes)
        for part, wanted in zip((*own.rows, *own.runtimes), (*alone.rows, *alone.runtimes), strict=True):
            np.testing.assert_array_equal(part, wanted)
