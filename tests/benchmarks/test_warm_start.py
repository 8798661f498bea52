"""The benchmark of warm starts trains both ways, and compares them program by program."""

import json

import pytest

import warm_start
from fastslow.core.settings import resolve


def test_differences_are_paired_by_program():
    def scores(one, other):
        return {"valid": {}, "test": {"a": one, "b": other}}

    results = [[1, warm_start.WARM, "x", scores(0.6, 0.9)], [1, warm_start.WARM, "x", scores(0.8, 0.9)]]
    results += [[1, warm_start.COLD, "x", scores(0.5, 0.9)], [0, warm_start.WARM, "x", scores(0.4, 0.4)]]
    first, second = warm_start.rows_of(results, "test")
    assert (first["epochs"], first[warm_start.WARM], first["difference"]) == (0, pytest.approx(0.4), "")
    assert second[warm_start.WARM] == pytest.approx(0.8) and second["difference"] == "+0.100 ± 0.100"


def test_it_trains_both_ways(monkeypatch, capsys):
    if not resolve("data/more/npz_all").is_dir():
        monkeypatch.setattr(warm_start, "MORE", warm_start.SAMPLE)
    assert warm_start.main(["--quick"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["epochs"] for row in result["test"]} == {0, 1}
