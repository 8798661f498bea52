import re
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.metrics import fastest_first
from fastslow.competition.submission_checks import (
    check_submission,
    expected_counts,
    read_any_submission,
    read_submission,
)
from fastslow.competition.submission_csv import collection_of
from fastslow.core.errors import DataError
from helpers.cases import cases
from helpers.competition_files import REAL, needs_real, write_submission

COUNTS = {"tile:xla:small": 3, "tile:xla:big": 9, "layout:xla:random:net": 4}
ROWS = {"tile:xla:small": "2;0;1", "tile:xla:big": "8;0;3;4;1", "layout:xla:random:net": "3;1;0;2"}


def csv_text(rows=ROWS):
    return "ID,TopConfigs\n" + "".join(f"{key},{value}\n" for key, value in rows.items())


def write_npz(root, row_id, count, runtimes=None):
    """A test file of the competition's form with the least inside."""
    collection = collection_of(row_id)
    arrays = {
        "node_feat": np.zeros((2, 140), np.float32),
        "node_opcode": np.zeros(2, np.uint8),
        "edge_index": np.zeros((1, 2), np.int64),
        "config_runtime": np.zeros(count if runtimes is None else runtimes, np.int64),
    }
    if collection.kind == "layout":
        arrays["node_config_ids"] = np.zeros(1, np.int64)
        arrays["node_config_feat"] = np.zeros((count, 1, 18), np.float32)
        arrays["node_splits"] = np.zeros((1, 1), np.int64)
    else:
        arrays["config_feat"] = np.zeros((count, 24), np.float32)
        arrays["config_runtime_normalizers"] = np.ones(count, np.int64)
    path = collection.folder(root, "test") / f"{row_id.rpartition(':')[2]}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


@pytest.fixture
def root(tmp_path):
    """A competition of five collections with a graph each, no sample_submission.csv."""
    for n, collection in enumerate(COLLECTIONS):
        write_npz(tmp_path / "data", f"{collection.name}:g{n}", 2 + n)
    return tmp_path / "data"


def predictions_of(counts):
    rng = np.random.default_rng(1)
    return {row_id: rng.permutation(count).astype(float) for row_id, count in counts.items()}


# Ranking


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_ranking_is_fastest_first_and_stable(prediction):
    expected = sorted(range(len(prediction)), key=lambda config: (prediction[config], config))
    assert fastest_first(prediction, "layout").tolist() == expected
    assert fastest_first(prediction, "tile").tolist() == expected[:5]


@cases("prediction", [[], [1, np.nan], [np.inf, 0], [[1, 2]]])
def test_ranking_refuses_what_is_no_ranking(prediction):
    said = r"not a 1-D array of at least one number|prediction\[\d\] is (nan|inf), finite numbers are wanted"
    with pytest.raises(ValueError, match=said):
        fastest_first(prediction, "layout")


# Writing


def test_written_text_is_exact(tmp_path):
    predictions = {
        "layout:nlp:default:b": [0.2, 0.1],
        "layout:xla:random:c": [2, 1, 3],
        "tile:xla:z": np.arange(7.0),
    }
    write_submission(tmp_path / "s.csv", predictions)
    expected = "ID,TopConfigs\ntile:xla:z,0;1;2;3;4\nlayout:xla:random:c,1;0;2\nlayout:nlp:default:b,1;0\n"
    assert (tmp_path / "s.csv").read_bytes() == expected.encode()


def test_rows_are_in_the_order_of_the_competitions_sample(tmp_path):
    ids = ["layout:xla:random:b", "tile:xla:z", "tile:xla:a"]
    (tmp_path / "sample_submission.csv").write_text(csv_text(dict.fromkeys(ids, "0;1;2;3;4")))
    write_submission(tmp_path / "s.csv", predictions_of(dict.fromkeys(sorted(ids), 5)), tmp_path)
    assert [line.split(",")[0] for line in (tmp_path / "s.csv").read_text().splitlines()] == ["ID", *ids]


@cases(
    "predictions, message",
    [
        ({"tile:xla:a": [1.0, np.nan]}, r"tile:xla:a: prediction\[1\] is nan"),
        ({"layout-xla-random:a": [1, 2]}, "'layout-xla-random:a' belongs to no collection"),
        *(
            ({f"layout:xla:random:a{odd}": [1, 2]}, "holds a comma, quote or line end")
            for odd in (",b", '"', "\nlayout:xla:random:b,0")
        ),
        (
            {"layout:xla:random:a": ["1", "2"]},
            r"shape \(2,\) is not a 1-D array of at least one number",
        ),
        (
            {"layout:xla:random:a": [None, 2]},
            r"shape \(2,\) is not a 1-D array of at least one number",
        ),
    ],
)
def test_nothing_is_written_from_broken_predictions(tmp_path, predictions, message):
    (tmp_path / "s.csv").write_text("the last good one")
    with pytest.raises(DataError, match=message):
        write_submission(tmp_path / "s.csv", predictions)
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]
    assert (tmp_path / "s.csv").read_text() == "the last good one"


# Reading and refusing


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from([f"{c.name}:g" for c in COLLECTIONS]), st.integers(1, 12), min_size=1))
def test_what_is_written_is_read_back(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("s") / "s.csv"
    predictions = predictions_of(counts)
    write_submission(path, predictions)
    read = read_submission(path, counts)
    assert {key: order.tolist() for key, order in read.items()} == {
        key: fastest_first(prediction, collection_of(key).kind).tolist()
        for key, prediction in predictions.items()
    }


@cases(
    "text",
    [
        csv_text(),
        csv_text().replace("\n", "\r\n"),
        csv_text() + "\n\n",
        csv_text().replace("\n", "\r\n") + "\r\n",
        csv_text().replace("\n", "\r"),
        "\ufeff" + csv_text(),
        csv_text().rstrip("\n"),
        re.sub(r"([^,\n]+)", r'"\1"', csv_text()),
    ],
)
def test_forms_that_kaggle_reads_are_taken(tmp_path, text):
    path = tmp_path / "s.csv"
    path.write_bytes(text.encode())
    assert {key: order.tolist() for key, order in read_submission(path, COUNTS).items()} == {
        key: [int(index) for index in value.split(";")] for key, value in ROWS.items()
    }


VALUES = [  # of one row: its ID, the value, what is wrong with it
    ("tile:xla:small", "", "'' is not an index"),
    ("tile:xla:small", "2;0;1;", "'' is not an index"),
    ("tile:xla:small", "9" * 5000, "'9999"),
    *(
        ("tile:xla:small", f"2;0;{text}", f"{text!r} is not an index")
        for text in (" 1", "-1", "٢", "2.0", "01", "0x1", "0_1", "\0")
    ),
    ("tile:xla:small", "1;2;3", "index 3 is outside 0 to 2: the graph has 3 configurations"),
    ("tile:xla:small", "0;1", "2 indices, 3 expected: the graph has 3 configurations"),
    ("tile:xla:big", "8;0;3;8;1", "index 8 occurs more than once"),
    ("tile:xla:big", "8;0;3;4", "4 indices, 5 expected: the graph has 9 configurations"),
    ("tile:xla:big", "8;0;3;4;1;2", "6 indices, 5 expected: the graph has 9 configurations"),
    ("layout:xla:random:net", "3;1;0", "3 indices, 4 expected: the graph has 4 configurations"),
    ("layout:xla:random:net", "3;1;0;2;0", "index 0 occurs more than once"),
]
AGAIN = csv_text() + "tile:xla:small,0;1;2\n"
TEXTS = [
    ("", "the file is empty"),
    (csv_text().replace("ID,TopConfigs\n", ""), "line 1: the header is 'tile:xla:small,2;0;1'"),
    (csv_text().replace("TopConfigs", "TopConfigs,Usage"), "line 1: the header is"),
    (csv_text().replace("tile:xla:big", "0,tile:xla:big"), "line 3: 3 columns"),
    (csv_text().replace("tile:xla:big,", "tile:xla:big;"), "line 3: 1 column or"),
    (csv_text().replace("2;0;1", '"2;0;1'), "line 2: 2 columns or stray quotes"),
    (csv_text().replace("tile:xla:big", "\ntile:xla:big"), "line 3: the row is empty"),
    (AGAIN, "line 5 (tile:xla:small): a second row for this ID, after line 2. Keep one of them"),
    (csv_text(ROWS | {"tile:xla:other": "0;1;2"}), "line 5 (tile:xla:other): no test graph has this ID"),
    (csv_text({}), f"3 of 3 IDs have no row: {', '.join(ROWS)}. Predict"),
    (
        csv_text({"tile:xla:big": "8;0;3;4;1"}),
        "2 of 3 IDs have no row: tile:xla:small, layout:xla:random:net",
    ),
    *(
        (csv_text(ROWS | {row_id: value}), f"line {2 + [*ROWS].index(row_id)} ({row_id}): {message}")
        for row_id, value, message in VALUES
    ),
]


@cases("text, message", TEXTS)
def test_a_wrong_csv_is_refused_with_row_and_reason(tmp_path, text, message):
    path = tmp_path / "wrong.csv"
    path.write_bytes(text.encode())
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}: {message}')}"):
        read_submission(path, COUNTS)


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes(csv_text().encode() + b"tile:xla:caf\xe9,0;1\n")
    with pytest.raises(DataError, match="line 5: not UTF-8"):
        read_submission(path, COUNTS)
    path.write_bytes(csv_text().encode("utf-16"))
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        read_submission(path, COUNTS)


def test_a_very_long_row_is_read(tmp_path):
    count = 100_040  # the largest layout graph; its row passes the csv module's field limit
    write_submission(tmp_path / "s.csv", {"layout:nlp:random:g": -np.arange(count)})
    read = read_submission(tmp_path / "s.csv", {"layout:nlp:random:g": count})
    np.testing.assert_array_equal(read["layout:nlp:random:g"], np.arange(count)[::-1])


def test_partial_allows_missing_rows_but_nothing_else(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("ID,TopConfigs\ntile:xla:small,2;0;1\n")
    assert list(read_submission(path, COUNTS, partial=True)) == ["tile:xla:small"]
    for text, message in (
        ("ID,TopConfigs\n", "3 of 3 IDs have no row"),
        ("ID,TopConfigs\ntile:xla:small,2;0\n", "line 2"),
        ("ID,TopConfigs\ntile:xla:other,2;0\n", "no test graph"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_submission(path, COUNTS, partial=True)


def test_a_csv_of_which_no_row_is_known_is_refused(tmp_path):
    """Without IDs to look for, a row ended in a StopIteration, and no row lacked an ID that nobody has."""
    path = tmp_path / "s.csv"
    path.write_text("ID,TopConfigs\nlayout:xla:random:net,0;1\n")
    with pytest.raises(DataError, match=r"line 2 \(layout:xla:random:net\): no test graph has this ID"):
        read_submission(path, {})
    path.write_text("ID,TopConfigs\n")
    with pytest.raises(DataError, match=r"s\.csv: it has no row\. Predict every test graph"):
        read_any_submission(path)


@cases(
    "row, value, message",
    [
        ("tile:xla:a", "700;3;2;1;0", None),
        ("tile:xla:a", "1;0", None),
        ("tile:xla:a", "1;7", "index 7 is outside 0 to 1"),
        ("tile:xla:a", "5;4;3;2;1;0", "6 indices, 5 expected. "),
        ("layout:xla:random:a", "2;0;1", None),
        (
            "layout:xla:random:a",
            "2;0;3",
            "lists 3 configurations, the highest is 3: a layout row lists all of its program's. ",
        ),
    ],
)
def test_an_unknown_number_of_configurations_leaves_what_can_be_told(tmp_path, row, value, message):
    path = tmp_path / "s.csv"
    path.write_text(f"ID,TopConfigs\n{row},{value}\n")
    if message is None:
        assert ";".join(map(str, read_submission(path, {row: None})[row])) == value
    else:
        with pytest.raises(DataError, match=re.escape(f"line 2 ({row}): {message}")):
            read_submission(path, {row: None})


# What the competition's files say


def test_npz_decides_where_there_is_no_sample(root, tmp_path):
    counts = expected_counts(root)
    assert counts == {f"{collection.name}:g{n}": 2 + n for n, collection in enumerate(COLLECTIONS)}
    write_submission(tmp_path / "s.csv", predictions_of(counts), root)
    assert check_submission(tmp_path / "s.csv", root)["rows"] == dict.fromkeys(
        (c.name for c in COLLECTIONS), 1
    )


def test_npz_decides_against_the_samples_placeholders(root, tmp_path):
    ids = list(expected_counts(root))
    placeholder = {row_id: "0;1;2;3;4" for row_id in ids}
    (root / "sample_submission.csv").write_text(csv_text(placeholder))
    assert expected_counts(root)["tile:xla:g0"] == 2
    with pytest.raises(DataError, match=re.escape("line 2 (tile:xla:g0): index 4 is outside 0 to 1")):
        check_submission(root / "sample_submission.csv", root)
    write_submission(tmp_path / "s.csv", predictions_of(expected_counts(root)), root)
    assert check_submission(tmp_path / "s.csv", root)["without_npz"] == 0
    shutil.rmtree(COLLECTIONS[0].folder(root, "test"))
    assert [*expected_counts(root).values()] == [None, 3, 4, 5, 6]


def test_sample_alone_decides_the_ids(root, tmp_path):
    counts = expected_counts(root)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "sample_submission.csv").write_text(csv_text({row_id: "0;1;2;3;4" for row_id in counts}))
    assert expected_counts(alone) == dict.fromkeys(counts)
    write_submission(tmp_path / "s.csv", predictions_of(counts), alone)
    assert check_submission(tmp_path / "s.csv", alone)["without_npz"] == 5
    write_submission(tmp_path / "s.csv", predictions_of({"tile:xla:g0": 2}), alone)
    first = ", ".join([row_id for row_id in counts if row_id != "tile:xla:g0"][:3])
    with pytest.raises(DataError, match=f"4 of 5 IDs have no row: {first} and 1 more"):
        check_submission(tmp_path / "s.csv", alone)


def test_files_of_two_competitions_are_refused(root):
    (root / "sample_submission.csv").write_text("ID,TopConfigs\ntile:xla:g0,0;1\n")
    with pytest.raises(DataError, match="g1.npz: not in sample_submission.csv"):
        expected_counts(root)
    (root / "sample_submission.csv").write_text("ID,TopConfigs\n17,0\n")
    with pytest.raises(DataError, match="sample_submission.csv: line 2: '17' belongs to no collection"):
        expected_counts(root)
    (root / "sample_submission.csv").write_text("ID,TopConfigs\n")
    with pytest.raises(DataError, match="sample_submission.csv: no rows"):
        expected_counts(root)


def test_a_collection_without_files_is_refused(tmp_path):
    write_npz(tmp_path, "tile:xla:a", 7)
    with pytest.raises(DataError, match="layout/xla/default/test: no npz files"):
        expected_counts(tmp_path)


def test_rows_in_the_order_of_the_file_are_counted(root, tmp_path):
    counts = expected_counts(root)
    write_submission(tmp_path / "s.csv", {row_id: np.zeros(count) for row_id, count in counts.items()})
    assert check_submission(tmp_path / "s.csv", root)["file_order"] == 4
    write_npz(root, "layout:xla:random:single", 1)  # one configuration has no order
    both = counts | {"layout:xla:random:single": 1}
    write_submission(tmp_path / "both.csv", {row_id: np.zeros(count) for row_id, count in both.items()})
    assert check_submission(tmp_path / "both.csv", root)["file_order"] == 4
    (root / "npz_all/npz/layout/xla/random/test/single.npz").unlink()
    write_submission(tmp_path / "s.csv", {row_id: -np.arange(count) for row_id, count in counts.items()})
    assert check_submission(tmp_path / "s.csv", root)["file_order"] == 0


# The embedded sample and the real competition


@needs_real
def test_real_competition_ids_and_row_counts(tmp_path):
    counts = expected_counts(REAL)
    rows = Counter(collection_of(row_id).name for row_id in counts)
    assert dict(rows) == {
        "tile:xla": 844,
        "layout:xla:default": 8,
        "layout:xla:random": 8,
        "layout:nlp:default": 17,
        "layout:nlp:random": 17,
    }
    known = {row_id: count for row_id, count in counts.items() if count is not None}
    assert sorted(known.values()) == [25, 1000, 1000, 1000, 1001]
    full = {row_id: 1000 if row_id.startswith("layout") else 5 for row_id in counts} | known
    write_submission(tmp_path / "s.csv", predictions_of(full), REAL)
    assert check_submission(tmp_path / "s.csv", REAL) == {
        "rows": dict(rows),
        "without_npz": 889,
        "file_order": 0,
    }
