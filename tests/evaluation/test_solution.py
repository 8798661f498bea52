import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.evaluation.scores import read_solution
from helpers.cases import cases


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


@cases(
    "row, message",
    [
        ("tile:xla:a,2,7", r"line 3 \(tile:xla:a\): config_index 2, 1 expected"),
        ("tile:xla:a,1,0", "line 3: 'tile:xla:a,1,0' is not"),
        ("tile:xla:a,1,7.5", "line 3: "),
        ("tile:xla:a,1,7,8", "line 3: "),
        ("tile-xla:a,0,7", "line 3: 'tile-xla:a,0,7' is not an ID of a collection"),
        ("", "line 3: ''"),
    ],
)
def test_a_broken_line_is_named(tmp_path, row, message):
    path = write_solution(tmp_path / "s.csv", ["tile:xla:a,0,7", row])
    with pytest.raises(DataError, match=message):
        read_solution(path)
