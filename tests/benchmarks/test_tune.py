"""The benchmark of searches counts evaluations as it describes."""

import numpy as np
import pytest

from helpers.cases import cases

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from common.needs import GUIDED, needs_of, summarise  # noqa: E402
from common.samplers import Learner, Sampler  # noqa: E402
from common.searches import distinct, replay_target, search  # noqa: E402
from fastslow_programs.tuning.search.guided import Guided  # noqa: E402
from helpers.competition_files import layout_arrays, tile_arrays, write_npz  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")


def test_evaluations_are_counted_and_compared_from_the_same_starts():
    one, two = needs_of(np.array([0.5, 0.2, 0.03, 0.03, 0.0])), needs_of(np.array([0.5, 0.5]))
    assert list(one.values()) == [3, 5] and list(two.values()) == [2, 2]
    programs = [
        {"counts": {GUIDED: [two, two], "other": [one]}, "size": 5, "near": 0.2},
        {"counts": {GUIDED: [two, one], "other": [two]}, "size": 7, "near": 0.2},
    ]
    found = summarise(programs)
    assert found["needed"][GUIDED]["within 5%"] == [2.25, 0.25, 0, 0]
    assert found["needed"]["other"]["within 5%"] == [2.5, 0.5, 0.5, 0.5] and found["programs"] == 2
    alone = summarise(programs[:1])["needed"][GUIDED]["within 1%"]
    assert alone == [2, 0, 0, 0], "the error of one program is over its seeds"


@pytest.fixture
def pool(tmp_path):
    arrays = layout_arrays(3, dots=4, configs=40)
    arrays["config_runtime"] = arrays["config_runtime"] // 3 * 3  # so that some are equal
    return distinct(replay_target(write_npz(tmp_path / "a.npz", arrays), "none"))


def test_a_pool_has_each_value_once_and_only_choices_that_differ(tmp_path):
    arrays = layout_arrays(3, dots=4, configs=40)
    half = len(arrays["config_runtime"]) // 2
    arrays["config_runtime"][half:] = arrays["config_runtime"][: len(arrays["config_runtime"]) - half]
    target = replay_target(write_npz(tmp_path / "a.npz", arrays), "none")
    merged = distinct(target)
    assert sorted(merged.labels) == sorted({*target.labels}) and len(merged.labels) < len(target.labels)
    np.testing.assert_array_equal(merged.labels, target.labels[merged.rows])
    assert (merged.space.listed.max(0) > merged.space.listed.min(0)).all()
    assert all("output" in choice.where for choice in merged.space.choices)
    for row, value in zip(merged.rows, merged.labels, strict=True):
        equal = target.space.listed[target.labels == value]
        away = (equal != target.space.default).sum(1)
        assert (target.space.listed[row] != target.space.default).sum() == away.min()


def test_a_pool_of_tiles_has_all_choices_that_the_file_has(tmp_path):
    target = replay_target(write_npz(tmp_path / "a.npz", tile_arrays(configs=30)), "none")
    merged = distinct(target)
    assert len(merged.rows) == target.space.size, "all runtimes differ"
    assert len(target.space.choices) > 1
    assert [c.where for c in merged.space.choices] == [c.where for c in target.space.choices]
    assert all(choice.ordered for choice in merged.space.choices)


def strategies(pool):
    follow = pool.follow(np.arange(1000.0))
    return {
        "guided": Guided(pool.space),
        "tpe": Sampler("tpe", pool.space, 2),
        "learner": Learner(pool.space, follow, np.zeros((pool.space.size, 1))),
    }


@cases("name", ["guided", "tpe", "learner"])
def test_searches_of_a_seed_start_alike_and_see_the_labels(pool, name):
    history = search(pool.space, pool.labels, strategies(pool)[name], 9, 4, seed=2)
    other = search(pool.space, pool.labels, Guided(pool.space), 1, 1, seed=2)
    assert len(history) <= 9 and history.done[0] == other.done[0]
    assert len(history) == 9 or history.best[1] == pool.labels.min()
    np.testing.assert_array_equal(history.values, pool.labels[pool.space.rows(history.codes)])


def test_an_order_that_never_changes_evaluates_nothing_twice(pool):
    prediction = np.random.default_rng(0).permutation(1000).astype(float)
    order = Guided(pool.space, pool.follow(prediction), start=10**9)
    history = search(pool.space, pool.labels, order, 1000, 1, seed=1)
    rows = pool.space.rows(history.codes)
    assert len({*rows}) == len(rows)
    rest = prediction[pool.rows][rows[1:]]
    assert (np.diff(rest) > 0).all(), "after the start in the order of the prediction"


def test_a_space_is_measured_and_searched(monkeypatch, capsys):
    own_space = pytest.importorskip("own_space", reason="numba, an optional requirement, is not installed")
    for name, value in (("unroll", 2), ("fastmath", False)):
        monkeypatch.setitem(own_space.SPACE["choices"], name, [value])
    monkeypatch.setattr(own_space, "PRODUCTS", dict([*own_space.PRODUCTS.items()][:1]))
    assert own_space.main(["--quick"]) == 0
    assert "| guided " in capsys.readouterr().out
