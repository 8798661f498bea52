"""How far to trust a ranking: the score to expect at a distance, and what no train program has."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow_programs.ranking.experience import COVERED, Experience

MEMBERS = [np.array([0, 1, 2]), np.array([0, 2, 1])]  # they agree by one third
LAYOUTS = [number for number, own in enumerate(COLLECTIONS) if own.kind == "layout"]


def experience(slope=1.0, noise=0.0, count=400, seed=0):
    """Programs whose score is a line of the agreement, another one in each collection."""
    rng = np.random.default_rng(seed)
    collection = rng.choice(LAYOUTS, count)
    distance = rng.uniform(0, 0.4, count)
    agreed = rng.uniform(0.4, 0.8, count)
    score = 0.2 - 0.02 * collection + slope * agreed + rng.normal(0, noise, count)
    shares = np.zeros((2, 256))
    shares[0, DOT], shares[1, [DOT, RESHAPE]] = 1, 0.5
    return Experience(shares, np.array([4, 6]), np.array([1, 2]), collection, distance, agreed, score)


def graph(*opcodes, choices=1):
    """A program with only what the experience reads."""
    options = SimpleNamespace(options=np.full(choices, 2))
    return SimpleNamespace(node_opcode=np.array(opcodes, np.uint8), num_nodes=len(opcodes), choices=options)


@given(slope=st.floats(-2, 2), agreed=st.floats(0, 1))
def test_the_line_is_found_and_never_falls(slope, agreed):
    own = experience(slope)
    for number in LAYOUTS:
        found = own.expect(COLLECTIONS[number], 0.1, agreed)
        mean = own.score[own.collection == number].mean()
        wanted = 0.2 - 0.02 * number + slope * agreed if slope > 0 else mean
        assert found.score == pytest.approx(np.clip(wanted, -1, 1), abs=1e-9)
        assert -1 <= found.low <= found.score + 1e-9 and found.score - 1e-9 <= found.high <= 1


def test_the_interval_covers_new_programs_as_often_as_it_says():
    own, new = experience(noise=0.05), experience(noise=0.05, seed=1)
    found = [
        own.expect(COLLECTIONS[number], 0.1, agreed)
        for number, agreed in zip(new.collection, new.agreement, strict=True)
    ]
    inside = [e.low <= score <= e.high for e, score in zip(found, new.score, strict=True)]
    assert np.mean(inside) == pytest.approx(COVERED, abs=0.06)


def test_farther_than_every_scored_program_nothing_is_expected():
    own = experience()
    collection = COLLECTIONS[LAYOUTS[0]]
    assert own.expect(collection, own.distance.max() + 1e-6, 0.9) is None
    assert own.expect(COLLECTIONS[0], 0.1, 0.9) is None, "no program of tile was scored"
    words = own.judge(collection, graph(*[CONVOLUTION] * 3, choices=5), MEMBERS).words()
    assert words[0].startswith("trust: 100% of its nodes would need another opcode")
    assert words[1].startswith("expected score: unknown")
    assert words[2] == "no train program has: convolution (100% of its nodes); 5 choices, at most 2 there"


def test_a_familiar_program_has_nothing_unfamiliar():
    trust = experience().judge(COLLECTIONS[LAYOUTS[0]], graph(DOT, DOT, DOT, RESHAPE), MEMBERS)
    assert trust.nearest == 0.25 and not trust.unfamiliar and len(trust.words()) == 2
    assert replace(trust, kind="tile").words()[1].startswith("expected 1 - slowdown of the top 5: 0.")


def test_it_is_written_and_read(tmp_path):
    own = experience()
    own.write(tmp_path, "layout")
    again = Experience.of(tmp_path, "layout")
    assert all(np.array_equal(vars(own)[key], vars(again)[key]) for key in vars(own))
    assert Experience.of(tmp_path, "tile") is None
