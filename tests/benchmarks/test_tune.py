"""The benchmark of searches counts evaluations as it describes."""

import numpy as np
import pytest

from helpers.cases import cases

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from common.needs import GUIDED, UNGUIDED, curve_in_order, needs_of, summarise  # noqa: E402
from common.searches import replay_target, search  # noqa: E402
from helpers.competition_files import layout_arrays, write_npz  # noqa: E402


def test_evaluations_are_counted_and_summarised():
    one, two = needs_of(np.array([0.5, 0.2, 0.03, 0.03, 0.0])), needs_of(np.array([0.5, 0.5]))
    assert list(one.values()) == [3, 5, 5] and list(two.values()) == [2, 2, 2]
    counts = {name: [one, one] for name in UNGUIDED} | {GUIDED: [two, two]}
    found = summarise([{"counts": counts, "size": 5, "near": 0.2}] * 3)
    assert found["needed"]["tpe"]["within 5%"] == [3, 3, 3, 3] and found["programs"] == 3
    assert list(found["best unguided over guided"].values()) == [1.5, 2.5, 2.5]


@cases("strategy", ["guided", "tpe"])
def test_searches_of_a_seed_start_alike_and_see_the_labels(tmp_path, strategy):
    target = replay_target(write_npz(tmp_path / "a.npz", layout_arrays(3, dots=4, configs=40)), "none")
    history = search(target, strategy, 9, 4, seed=2)
    assert len(history) == 9 and history.done[0] == search(target, "random", 1, 4, seed=2).done[0]
    rows = target.space.rows(history.codes)
    np.testing.assert_array_equal(history.values, target.labels[rows])


def test_a_rule_is_followed_in_its_order_after_the_start():
    runtime = np.array([4.0, 1.0, 2.0, 3.0])
    start = runtime[np.random.default_rng([5, 1]).integers(4)]
    best = np.minimum.accumulate([start, 3.0, 2.0, 1.0, 4.0]) - 1
    np.testing.assert_allclose(curve_in_order(np.array([9.0, 3.0, 2.0, 1.0]), runtime, seed=5), best)


def test_a_space_is_measured_and_searched(monkeypatch, capsys):
    own_space = pytest.importorskip("own_space", reason="numba, an optional requirement, is not installed")
    monkeypatch.setitem(own_space.SPACE["choices"], "unroll", [2])
    assert own_space.main(["--quick"]) == 0
    assert "| guided " in capsys.readouterr().out
