"""How far to trust a ranking: bands of scores, sure pairs, and what no train program has."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow_programs.ranking.trust import LEVELS, NEAREST, TOLD, Seen, Trust, _steepness
from helpers.cases import cases

TILE, LAYOUT = COLLECTIONS[0], COLLECTIONS[-1]


def seen(distance, score, collection=LAYOUT):
    """Models that learned from two programs and were scored on others."""
    shares = np.zeros((2, 256))
    shares[0, DOT], shares[1, [DOT, RESHAPE]] = 1, 0.5
    number = np.full(len(score), COLLECTIONS.index(collection))
    given = np.asarray(distance), np.asarray(score), np.full(len(score), 4.0)
    return Seen(shares, np.array([4, 6]), number, *given)


def at(own, near, collection=LAYOUT):
    """What is expected at a distance."""
    return Trust(collection.kind, near, *own.at(collection, near), [])


def graph(*opcodes):
    """A program with only what is read of it."""
    return SimpleNamespace(node_opcode=np.array(opcodes, np.uint8), num_nodes=len(opcodes))


@cases(("count", "level"), [(3, 0.5), (9, 0.8), (19, 0.9), (39, 0.5), (60, 0.8), (60, 0.9)])
def test_the_band_holds_new_programs_as_often_as_it_says(count, level):
    """Scores that depend on the distance: the mean over draws of programs and of a new one."""
    rng, inside = np.random.default_rng(count), []
    for _ in range(1500):
        distance = rng.uniform(0, 0.4, count + 1)
        score = rng.normal(0.8 - distance, 0.05 + 0.2 * distance)
        order = np.argsort(distance)[:-1]  # the new one is not the farthest
        new = rng.choice(order)
        own = seen(np.delete(distance, new), np.delete(score, new))
        low, high = at(own, distance[new]).band(level)
        inside.append(low <= score[new] <= high)
    assert level - 0.04 < np.mean(inside) < level + 0.08
    few = seen(np.zeros(count), np.zeros(count))
    assert [at(few, 0.0).band(own) is None for own in LEVELS] == [count < least for least in (3, 9, 19)]


def test_pairs_are_ordered_as_they_are_said_to_be():
    """Programs of different noise: what nine tenths promise of the others' pairs, by the probability said."""
    rng, programs = np.random.default_rng(0), []
    for noise in rng.uniform(0.1, 1.5, 60):
        prediction = rng.normal(size=40)
        programs.append((prediction, np.round(prediction + noise * rng.normal(size=40), 1)))
    steepness = np.array([_steepness(*program) for program in programs])
    said, has = [], []
    for number, (prediction, runtime) in enumerate(programs):
        own = Trust("layout", 0.0, np.zeros(39), np.delete(steepness, number), [])
        for one in range(40):
            said.append(np.delete(own.faster(prediction, one), one))
            has.append(np.delete(0.5 + 0.5 * np.sign(runtime[one] - runtime), one))
    said, has = np.concatenate(said), np.concatenate(has)
    for low, high in ((0.06, 0.14), (0.15, 0.25), (0.45, 0.55), (0.75, 0.85), (0.86, 0.94)):
        within = (low <= said) & (said <= high)
        assert within.sum() > 1000 and low - 0.02 < has[within].mean() < high + 0.02


def test_the_probability_of_a_pair_knows_no_unit_and_has_two_sides():
    prediction, own = np.array([3.0, 1.0, 2.0, 3.0]), at(seen(np.zeros(9), np.zeros(9)), 0.0)
    each = np.array([own.faster(prediction, than) for than in range(4)])
    np.testing.assert_allclose(each + each.T, 1)
    assert each[0, 1] > each[0, 2] > each[0, 3] == each[0, 0] == 0.5
    np.testing.assert_allclose(own.faster(7 + 100 * prediction, 1), each[1])
    np.testing.assert_allclose(own.faster(np.ones(3), 1), 0.5)
    assert at(seen(np.zeros(8), np.zeros(8)), 0.0).faster(prediction, 0) is None
    ordered, tied = np.arange(30.0), np.repeat([1.0, 2.0], 15)
    assert _steepness(ordered, ordered) > 10 > _steepness(ordered, tied) > 0 > _steepness(ordered, -ordered)
    assert abs(_steepness(np.ones(1), np.ones(1))) < 1e-3, "without a pair it is chance"


def test_it_is_of_the_programs_at_most_like_distance():
    distance = np.linspace(0, 0.4, 100)
    low, high = at(seen(distance, distance), 0.2).band(TOLD)
    assert low < 0.2 < high and high - low == pytest.approx((NEAREST - 7) * 0.4 / 99, abs=1e-9)


def test_without_programs_at_such_a_distance_nothing_is_expected():
    own = seen(np.linspace(0, 0.3, 20), np.linspace(0.5, 0.9, 20))
    assert at(own, 0.3 + 1e-6).band(0.5) is None and at(own, 0.1, TILE).band(0.5) is None
    words = own.judge(LAYOUT, graph(*[CONVOLUTION] * 7)).words()
    assert words[0].startswith("trust: 100% of its nodes would need another opcode")
    assert words[1].startswith("expected Kendall's tau: unknown (50%, 80%, 90%: too few")
    assert words[2] == "no train program has: convolution (100% of its nodes); 7 nodes, at most 6 there"


def test_a_familiar_program_has_nothing_unfamiliar():
    own = seen(np.linspace(0, 0.3, 20), np.linspace(0.5, 0.9, 20))
    trust = own.judge(LAYOUT, graph(DOT, DOT, DOT, RESHAPE))
    assert trust.nearest == 0.25 and not trust.unfamiliar and len(trust.words()) == 2
    told = "0.58 to 0.82 for 50%, 0.52 to 0.88 for 80%, 0.50 to 0.90 for 90% of such programs, with labels"
    assert trust.words()[1].startswith(f"expected Kendall's tau: {told}")
    few = replace(trust, scores=trust.scores[:9])
    assert "for 80% of such programs (90%: too few programs this far" in few.words()[1]
    assert replace(trust, kind="tile").words()[1].startswith("expected 1 - slowdown of the top 5: 0.5")
    assert few.facts()["bands"]["90%"] is None and few.facts()["bands"]["80%"] == (0.5, few.scores[-1])


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
