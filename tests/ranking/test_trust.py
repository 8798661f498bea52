"""How far to trust a ranking: bands of scores, sure pairs, and when neither is said."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.node_columns import SHAPE_PRODUCT
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow.core.errors import SettingsError
from fastslow_programs.ranking.trust import FEWEST_PROGRAMS, LEVELS, TOLD, Seen, _steepness
from helpers.cases import cases

NODES, LARGEST = 1000, 64.0


def opcodes(far):
    """The opcodes of a program at a distance to the train programs, which have products only."""
    changed = round(far * NODES)
    return np.repeat([DOT, RESHAPE], [NODES - changed, changed])


def counts(*programs):
    return np.array([np.bincount(program, minlength=256) for program in programs])


def seen(distance, score):
    """Models that learned from one program and were scored on others; no two are one, nearly of one size."""
    scored = counts(*map(opcodes, distance))
    largest, steepness = LARGEST + 1e-6 * np.arange(len(score)), np.full(len(score), 4.0)
    return Seen(
        counts([DOT] * 10, [DOT] * 10 + [CONVOLUTION] * 10), scored, largest, np.array(score), steepness
    )


def graph(opcodes, largest=LARGEST, layout=0):
    """A program with only what is read of it."""
    node_feat = np.zeros((1, SHAPE_PRODUCT + 1))
    node_feat[0, SHAPE_PRODUCT] = largest
    layouts = np.full((1, 3, 6), layout, np.int8)
    code = np.array(opcodes, np.uint8)
    return SimpleNamespace(
        node_opcode=code, num_nodes=len(code), node_feat=node_feat, default_layouts=layouts
    )


def at(evidence, far, kind="layout"):
    """What is expected at a distance."""
    return evidence.judge(kind, graph(opcodes(far)))


@cases("count", [39, 60])
def test_the_band_holds_new_programs_as_often_as_it_says(count):
    """Scores that depend on the distance: the mean over draws of programs and of a new one."""
    rng, levels, inside = np.random.default_rng(count), np.array([0.5, 0.8, 0.9]), []
    for _ in range(300):
        distance = rng.uniform(0, 0.4, count + 1)
        score = rng.normal(0.8 - distance, 0.05 + 0.2 * distance)
        order = np.argsort(distance)[:-1]  # the new one is not the farthest
        new = rng.choice(order)
        expected = at(seen(np.delete(distance, new), np.delete(score, new)), distance[new])
        bands = [expected.band(level) for level in levels]
        inside.append([low <= score[new] <= high for low, high in bands])
    share = np.mean(inside, axis=0)
    assert np.all(levels - 0.06 < share) and np.all(share < levels + 0.08)


def test_pairs_are_ordered_as_they_are_said_to_be():
    """Programs of different noise: what nine tenths promise of the others' pairs, by the probability said."""
    rng, programs = np.random.default_rng(0), []
    for noise in rng.uniform(0.1, 1.5, 60):
        prediction = rng.normal(size=40)
        programs.append((prediction, np.round(prediction + noise * rng.normal(size=40), 1)))
    steepness = np.array([_steepness(*program) for program in programs])
    said, has = [], []
    for number, (prediction, runtime) in enumerate(programs):
        trust = replace(
            at(seen([0.0], [0.0]), 0.0), unlike=[], steepness=np.delete(steepness, number), shares=np.ones(59)
        )
        for one in range(40):
            said.append(np.delete(trust.faster(prediction, one), one))
            has.append(np.delete(0.5 + 0.5 * np.sign(runtime[one] - runtime), one))
    said, has = np.concatenate(said), np.concatenate(has)
    for low, high in ((0.06, 0.14), (0.15, 0.25), (0.45, 0.55), (0.75, 0.85), (0.86, 0.94)):
        within = (low <= said) & (said <= high)
        assert within.sum() > 1000 and low - 0.02 < has[within].mean() < high + 0.02


def test_the_probability_of_a_pair_knows_no_unit_and_has_two_sides():
    prediction, trust = np.array([3.0, 1.0, 2.0, 3.0]), at(seen(np.zeros(39), np.zeros(39)), 0.0)
    each = np.array([trust.faster(prediction, than) for than in range(4)])
    np.testing.assert_allclose(each + each.T, 1)
    assert each[0, 1] > each[0, 2] > each[0, 3] == each[0, 0] == 0.5
    np.testing.assert_allclose(trust.faster(7 + 100 * prediction, 1), each[1])
    np.testing.assert_allclose(trust.faster(np.ones(3), 1), 0.5)
    assert at(seen(np.zeros(18), np.zeros(18)), 0.0).faster(prediction, 0) is None
    ordered, tied = np.arange(30.0), np.repeat([1.0, 2.0], 15)
    assert _steepness(ordered, ordered) > 10 > _steepness(ordered, tied) > 0 > _steepness(ordered, -ordered)
    assert abs(_steepness(np.ones(1), np.ones(1))) < 1e-3, "without a pair it is chance"


@cases("count", [19, 39, 79, 100])
def test_a_band_holds_for_at_least_its_share_of_further_scores(count):
    """Split-conformal: of n exchangeable scores, a new one is between the k-th ends with 1 - 2k / (n + 1)."""
    scores = np.arange(float(count))
    for level in LEVELS:
        low, high = at(seen(np.linspace(0, 0.4, count), scores), 0.2).band(level)
        places = [place for place in range(1, count) if 1 - 2 * place / (count + 1) >= level - 1e-9]
        assert (low, high) == (max(places) - 1, count - max(places))


def twice(evidence):
    """The same programs, each with the same score in both searches."""
    again = ("scored", "largest", "score", "steepness")
    return replace(evidence, **{name: np.concatenate([getattr(evidence, name)] * 2) for name in again})


@cases("count", [39, 64, 100])
def test_a_program_that_both_searches_ranked_counts_once(count):
    """A second ranking that is as the first one tells nothing more: bands are over programs."""
    once = seen(np.linspace(0, 0.3, count), np.linspace(0.5, 0.9, count))
    one, both = at(once, 0.1), at(twice(once), 0.1)
    assert [both.band(level) for level in LEVELS] == [one.band(level) for level in LEVELS]
    assert both.words() == one.words() and f"of {count} programs" in both.words()[1]
    assert both.programs == one.programs == count
    kernels = at(twice(once), 0.1, "tile")
    assert kernels.programs == 2 * count, "each kernel is in a tile collection once"


def test_rankings_of_one_program_share_its_place():
    """Of 40 programs the first has 20 further rankings: it weighs as any other, in bands and pairs."""
    once = seen(np.linspace(0, 0.3, 40), np.linspace(0.5, 0.9, 40))
    more = {name: getattr(once, name)[np.r_[:40, [0] * 20]] for name in ("scored", "largest")}
    low, flat = np.r_[once.score, np.zeros(20)], np.r_[once.steepness, np.zeros(20)]
    trust = at(replace(once, **more, score=low, steepness=flat), 0.1)
    assert trust.programs == 40 and trust.band(0.9) == at(once, 0.1).band(0.9)
    prediction = np.array([0.0, 1.0])
    surely = at(once, 0.1).faster(prediction, 1)
    np.testing.assert_allclose(trust.faster(prediction, 1), surely + 20 / 21 / 40 * (0.5 - surely))


@cases(
    ("program", "said"),
    [
        (graph(opcodes(0.301)), "every program that was scored is nearer, at most 30 %"),
        (graph(np.tile(opcodes(0.1), 2)), "it has 2,000 nodes where the scored programs have 1,000 to 1,000"),
        (graph(opcodes(0.1)[::2]), "it has 500 nodes where the scored programs have 1,000 to 1,000"),
        (
            graph(opcodes(0.1), 1e6),
            "1,000,000 elements in its largest tensor where the scored programs have 64",
        ),
        (graph(opcodes(0.1), layout=-1), "the compiler's own layouts are not known"),
    ],
)
def test_where_nothing_like_it_was_scored_nothing_is_expected(program, said):
    evidence = seen(np.linspace(0, 0.3, 60), np.linspace(0.5, 0.9, 60))
    for kind in ("layout", "tile"):
        trust = evidence.judge(kind, program)
        assert trust.faster(np.arange(3.0), 0) is None and trust.facts()["unlike"] == trust.unlike
        assert [trust.band(level) for level in LEVELS] == [None] * len(LEVELS)
        (reason,) = trust.unlike
        assert said in reason and trust.words()[1] == f"no score is expected: {reason}"
        assert replace(trust, remedy="Measure.").words()[1] == f"{trust.words()[1]}. Measure."
    assert at(evidence, 0.1).unlike == [] and at(evidence, 0.1).band(TOLD)
    for level in (0, 0.99, 1.5, 90):
        with pytest.raises(SettingsError, match=f"level: {level} is none of 0.5, 0.8, 0.9"):
            at(evidence, 0.1).band(level)


def test_a_band_needs_as_many_scored_programs_as_it_is_made_of():
    few = seen(np.zeros(FEWEST_PROGRAMS - 1), np.zeros(FEWEST_PROGRAMS - 1))
    assert at(few, 0.0).unlike == ["18 programs were scored, 19 are needed"]
    assert at(seen(np.zeros(FEWEST_PROGRAMS), np.zeros(FEWEST_PROGRAMS)), 0.0).band(0.9) == (0, 0)


def test_what_is_expected_is_told_in_words():
    evidence = seen(np.linspace(0, 0.3, 39), np.linspace(0.51, 0.89, 39))
    words = at(evidence, 0.1).words()
    assert words[0] == "trust: 10 % of its nodes differ in opcode from the nearest train program"
    told = "0.60 to 0.80 for 50 %, 0.54 to 0.86 for 80 %, 0.52 to 0.88 for 90 % of 39 programs that no model"
    assert words[1].startswith(f"expected Kendall's tau: {told} was trained on, with labels like those")
    best = seen(np.linspace(0, 0.3, 60), np.repeat([0.9, 1.0], [15, 45]))
    assert (
        at(best, 0.1, "tile")
        .words()[1]
        .startswith("expected: the fastest is among the first five, as in 75 % of 60 kernels, with labels")
    )
    assert (
        at(best, 0.1, "tile").band(TOLD) is None and at(best, 0.1, "tile").faster(np.ones(2), 0) is not None
    )


def test_opcodes_that_no_train_program_has_are_named():
    evidence = seen(np.linspace(0, 0.3, 60), np.linspace(0.5, 0.9, 60))
    for far in (0.1, 1 / NODES):
        assert at(evidence, far).words()[-1] == "no train program has: reshape", "also of a single node"
    assert not evidence.judge("layout", graph([DOT, CONVOLUTION])).new_opcodes


def test_a_train_program_is_told_from_one_that_has_more_nodes_of_the_same_opcodes():
    evidence = seen(np.linspace(0, 0.3, 60), np.linspace(0.5, 0.9, 60))
    for program, trained_on in (
        ([DOT] * 10, True),
        ([DOT, CONVOLUTION] * 10, True),
        ([DOT] * 5, False),
        ([DOT] * 9 + [RESHAPE], False),
    ):
        trust = evidence.judge("layout", graph(program))
        said = any(line.startswith("the models were trained on this program") for line in trust.words())
        assert trust.trained_on == said == trained_on, program
    assert at(evidence, 0.3).scored_on and not at(evidence, 0.299).scored_on


def test_what_is_written_is_read_again(tmp_path):
    made = seen(np.linspace(0, 0.5, FEWEST_PROGRAMS), np.linspace(1, 0, FEWEST_PROGRAMS))
    made.write(tmp_path, "layout")
    read = Seen.of(tmp_path, "layout")
    for name, values in vars(made).items():
        np.testing.assert_array_equal(getattr(read, name), values)
    assert Seen.of(tmp_path, "tile") is None


def test_the_steepness_is_the_likeliest_of_a_logistic_curve(rng):
    """The derivative of its likelihood is 0, pair by pair; a pair of equal runtime counts half."""
    prediction = rng.normal(size=30)
    runtime = np.round(prediction + rng.normal(size=30))
    slope = _steepness(prediction, runtime)
    derivative = 2e-3 * slope
    for one in range(30):
        for other in range(one):
            gap = abs(prediction[one] - prediction[other]) / prediction.std()
            right = 0.5
            if runtime[one] != runtime[other]:
                right = float((prediction[one] < prediction[other]) == (runtime[one] < runtime[other]))
            derivative += gap * (1 / (1 + np.exp(-slope * gap)) - right)
    assert abs(derivative) < 1e-2 and 0.5 < slope < 5
