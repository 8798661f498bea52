import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastslow.core.errors import DataError
from fastslow.evaluation.scores import read_solution, score_submission
from helpers.cases import cases
from helpers.submission_files import write_submission

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
SOLUTION = {
    "tile:xla:a": np.array([90, 80, 70, 60, 50, 40, 20]),
    "tile:xla:b": np.array([10, 30]),
    "layout:xla:random:c": np.array([10, 20, 30]),
}


def write_solution(path, rows):
    path.write_text("ID,config_index,runtime\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_reads_exact_integers(tmp_path):
    big = 2**53 + 1
    path = write_solution(
        tmp_path / "s.csv", ["tile:xla:a,0,7", "tile:xla:a,1,9", f"layout:nlp:random:b,0,{big}"]
    )
    solution = read_solution(path)
    assert {key: value.tolist() for key, value in solution.items()} == {
        "tile:xla:a": [7, 9],
        "layout:nlp:random:b": [big],
    }
    assert all(value.dtype == np.int64 for value in solution.values())


def test_reads_the_embedded_sample():
    runtimes = defaultdict(dict)
    with open(SAMPLE / "solution.csv", newline="") as lines:
        for row in csv.DictReader(lines):
            runtimes[row["ID"]][int(row["config_index"])] = int(row["runtime"])
    solution = read_solution(SAMPLE / "solution.csv")
    assert {key: dict(enumerate(value.tolist())) for key, value in solution.items()} == dict(runtimes)


@cases(
    "row, message",
    [
        ("tile:xla:a,2,7", r"line 3 \(tile:xla:a\): config_index 2, 1 expected"),
        ("tile:xla:a,0,7", r"line 3 \(tile:xla:a\): config_index 0, 1 expected"),
        ("tile:xla:a,1,0", "line 3: 'tile:xla:a,1,0' is not"),
        ("tile:xla:a,1,-4", "line 3: "),
        ("tile:xla:a,1,7.5", "line 3: "),
        ("tile:xla:a,1", "line 3: "),
        ("tile:xla:a,1,7,8", "line 3: "),
        ("tile-xla:a,0,7", "line 3: 'tile-xla:a,0,7' is not an ID of a collection"),
        ("", "line 3: ''"),
    ],
)
def test_a_broken_line_is_named(tmp_path, row, message):
    path = write_solution(tmp_path / "s.csv", ["tile:xla:a,0,7", row])
    with pytest.raises(DataError, match=message):
        read_solution(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="line 1: the header is 'ID,TopConfigs'"):
        read_solution(SAMPLE / "sample_submission.csv")
    with pytest.raises(DataError, match="no rows"):
        read_solution(write_solution(tmp_path / "s.csv", []))
    with pytest.raises(DataError, match="no such file"):
        read_solution(tmp_path / "none.csv")


def test_sample_scores_equal_an_independent_count(tmp_path):
    solution = read_solution(SAMPLE / "solution.csv")
    rng = np.random.default_rng(3)
    write_submission(
        tmp_path / "s.csv", {key: rng.random(value.size) for key, value in solution.items()}, SAMPLE
    )
    expected = defaultdict(dict)
    with open(tmp_path / "s.csv", newline="") as lines:
        for row in csv.DictReader(lines):
            order = [int(index) for index in row["TopConfigs"].split(";")]
            listed = solution[row["ID"]][order]
            collection = row["ID"].rpartition(":")[0]
            if collection == "tile:xla":
                expected[collection][row["ID"]] = 2 - listed.min() / solution[row["ID"]].min()
            else:
                expected[collection][row["ID"]] = kendalltau(np.arange(len(order)), listed).statistic
    scores = score_submission(tmp_path / "s.csv", solution)
    assert len(scores) == 5
    for collection, per_graph in expected.items():
        assert scores[collection]["per_graph"] == pytest.approx(per_graph)
        assert scores[collection]["mean"] == pytest.approx(np.mean(list(per_graph.values())))


def test_a_csv_that_does_not_fit_the_solution_is_refused(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("ID,TopConfigs\ntile:xla:b,1;0\n")
    with pytest.raises(DataError, match="2 of 3 IDs have no row"):
        score_submission(path, SOLUTION)
    path.write_text("ID,TopConfigs\ntile:xla:a,0;1;2;3\n")
    with pytest.raises(DataError, match="4 indices, 5 expected"):
        score_submission(path, SOLUTION)
