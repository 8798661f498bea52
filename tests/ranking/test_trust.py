"""How far to trust a ranking: the band of scores, and what no train program has."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow_programs.ranking.trust import COVERED, NEAREST, Seen
from helpers.cases import cases

TILE, LAYOUT = COLLECTIONS[0], COLLECTIONS[-1]


def seen(distance, score, collection=LAYOUT):
    """Models that learned from two programs and were scored on others."""
    shares = np.zeros((2, 256))
    shares[0, DOT], shares[1, [DOT, RESHAPE]] = 1, 0.5
    number = np.full(len(score), COLLECTIONS.index(collection))
    return Seen(shares, np.array([4, 6]), np.array([1, 2]), number, np.asarray(distance), np.asarray(score))


def graph(*opcodes, choices=1):
    """A program with only what is read of it."""
    options = SimpleNamespace(options=np.full(choices, 2))
    return SimpleNamespace(node_opcode=np.array(opcodes, np.uint8), num_nodes=len(opcodes), choices=options)


@cases("count", [9, 11, 19, 60])
def test_the_band_holds_new_programs_as_often_as_it_says(count):
    """Scores that depend on the distance: the mean over draws of programs and of a new one."""
    rng, inside = np.random.default_rng(count), []
    for _ in range(1500):
        distance = rng.uniform(0, 0.4, count + 1)
        score = rng.normal(0.8 - distance, 0.05 + 0.2 * distance)
        order = np.argsort(distance)[:-1]  # the new one is not the farthest
        new = rng.choice(order)
        low, high = seen(np.delete(distance, new), np.delete(score, new)).band(LAYOUT, distance[new])
        inside.append(low <= score[new] <= high)
    assert COVERED - 0.03 < np.mean(inside) < COVERED + 0.08


def test_it_is_of_the_programs_at_most_like_distance():
    distance = np.linspace(0, 0.4, 100)
    low, high = seen(distance, distance).band(LAYOUT, 0.2)
    assert low < 0.2 < high and high - low == pytest.approx((NEAREST - 3) * 0.4 / 99, abs=1e-9)


def test_without_programs_at_such_a_distance_nothing_is_expected():
    own = seen(np.linspace(0, 0.3, 20), np.linspace(0.5, 0.9, 20))
    assert own.band(LAYOUT, 0.3 + 1e-6) is None and own.band(TILE, 0.1) is None
    assert seen(np.zeros(8), np.zeros(8)).band(LAYOUT, 0.0) is None, "too few for 80 %"
    words = own.judge(LAYOUT, graph(*[CONVOLUTION] * 3, choices=5)).words()
    assert words[0].startswith("trust: 100% of its nodes would need another opcode")
    assert words[1].startswith("expected Kendall's tau: unknown")
    assert words[2] == "no train program has: convolution (100% of its nodes); 5 choices, at most 2 there"
    few, many = (own.judge(LAYOUT, graph(DOT, choices=count)) for count in (1, 50))
    assert few.words()[:2] == many.words()[:2], "drawn configurations change no expected score"


def test_a_familiar_program_has_nothing_unfamiliar():
    own = seen(np.linspace(0, 0.3, 20), np.linspace(0.5, 0.9, 20))
    trust = own.judge(LAYOUT, graph(DOT, DOT, DOT, RESHAPE))
    assert trust.nearest == 0.25 and not trust.unfamiliar and len(trust.words()) == 2
    assert trust.words()[1].startswith("expected Kendall's tau: 0.54 to 0.88 for 80% of such programs")
    assert replace(trust, kind="tile").words()[1].startswith("expected 1 - slowdown of the top 5: 0.5")


def test_a_train_program_is_told_from_one_that_has_more_nodes_of_the_same_opcodes():
    own = seen(np.linspace(0, 0.3, 20), np.linspace(0.5, 0.9, 20))
    for opcodes, trained_on in (
        ([DOT] * 4, True),
        ([DOT, RESHAPE] * 3, True),
        ([DOT] * 5, False),
        ([DOT] * 3 + [RESHAPE], False),
    ):
        trust = own.judge(LAYOUT, graph(*opcodes))
        said = any(line.startswith("the models were trained on this program") for line in trust.words())
        assert trust.trained_on == said == trained_on, opcodes
