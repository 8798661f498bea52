import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

pytest.importorskip("numba")

import list_placement
from common.held_out_placement import ratio
from fastslow_placement.programs.problems import PlacementProblem
from helpers.cost_graphs import DEVICE, random_graph


@pytest.fixture
def problems():
    return [PlacementProblem(random_graph(seed, 30, 0.1), 3, DEVICE, learned=False) for seed in range(5)]


def test_learned_sets_are_the_best_of_their_pool_and_changes_only_improve_them(problems):
    pool = list_placement.draw(60, np.random.default_rng(4))
    alone = list_placement.costs(problems, pool).mean(0).min()
    chosen = list_placement.learn(problems, 60, 0, seed=4)
    changed = list_placement.learn(problems, 60, 30, seed=4)
    assert chosen.shape == changed.shape == (list_placement.SETS, pool.shape[1])
    assert {tuple(weights) for weights in chosen} <= {tuple(weights) for weights in pool}
    first, later = (list_placement.costs(problems, sets).min(1).mean() for sets in (chosen, changed))
    assert later <= first <= alone and (changed >= 0).all()
    assert np.array_equal(changed, list_placement.learn(problems, 60, 30, seed=4))


def test_a_comparison_has_logarithms_over_the_human_split(problems):
    pytest.importorskip("pymetis")
    sets = list_placement.draw(3, np.random.default_rng(0))
    table = list_placement.compare(problems, [sets])
    assert (table["human"] == 0).all() and (table["best start"] <= table["m-ETF"]).all()
    assert (table["learned"] <= table["first set"]).all() and (
        table["learned and starts"] <= table["learned"]
    ).all()
    assert ratio(table, "learned", "learned") == "1.000 (1.000 to 1.000)"


def test_an_interval_of_programs_is_students():
    """Two problems of each of three programs; with one program there is no interval."""
    logs = {"a on 2": 0.1, "a on 4": 0.3, "b on 2": 0.0, "b on 4": 0.0, "c on 2": -0.1, "c on 4": 0.5}
    table = pd.DataFrame({"one": logs, "other": dict.fromkeys(logs, 0.0)})
    means = np.array([0.2, 0.0, 0.2])
    low, high = student.interval(0.95, 2, means.mean(), means.std(ddof=1) / 3**0.5)
    expected = f"{np.exp(means.mean()):.3f} ({np.exp(low):.3f} to {np.exp(high):.3f})"
    assert ratio(table, "one", "other") == expected
    assert ratio(table[:2], "one", "other") == "1.221 (nan to nan)"
