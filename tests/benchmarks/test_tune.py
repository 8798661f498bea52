"""The benchmark of searches: what it counts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

import tune  # noqa: E402
from common import in_order  # noqa: E402
from common.in_order import curve  # noqa: E402
from common.pools import LARGE  # noqa: E402
from common.searches import replay_target, search  # noqa: E402
from fastslow.evaluation.baselines import Columns  # noqa: E402
from helpers.competition_files import layout_arrays, write_npz  # noqa: E402


def test_evaluations_needed():
    curve = np.array([0.5, 0.2, 0.03, 0.03, 0.0])
    assert [tune.needed(curve, within) for within in (1.0, 0.05, 0.01)] == [1, 3, 5]
    assert tune.needed(np.array([0.5, 0.5]), 0.01) == 2


@pytest.mark.parametrize("strategy", ["random", "guided evolutionary", "tpe"])
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
    np.testing.assert_allclose(curve(np.array([9.0, 3.0, 2.0, 1.0]), runtime, seed=5), best)


def test_rules_order_drawn_layouts_by_their_columns(monkeypatch):
    """The only column says the opposite of the run, whose first choice is the best."""
    runtime = np.array([3.0, 2.0, 1.0])
    pool = SimpleNamespace(
        name=LARGE,
        space=SimpleNamespace(listed=np.arange(3)[:, None]),
        labels=runtime,
        pretrained=lambda codes: (runtime[codes[:, 0]], -runtime[codes]),
    )
    monkeypatch.setattr(in_order, "Features", str)
    monkeypatch.setattr(in_order, "fit_baselines", lambda folder: {"single": Columns((0,), 1)})
    single, ensemble = in_order.pools_in_order(Path("runs/x"), [pool] * 2, seeds=4)
    starts = [np.random.default_rng([seed, 1]).integers(3) for seed in range(4)]
    best = np.mean([1 if start == 2 else 2 for start in starts])
    worst = np.mean([1 if start == 2 else 4 for start in starts])
    assert (single["in the order of"], single["within 1%"]) == ("single", worst.round(1))
    assert (ensemble["in the order of"], ensemble["within 1%"]) == ("ensemble", best.round(1))
