"""What is learnt of a program's configurations after some of their runtimes are known."""

import os
import warnings
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, t
from tests.helpers.cases import cases

from fastslow.core.errors import DataError
from fastslow_programs.ranking import known_models, known_runtimes
from fastslow_programs.ranking.known_models import Configurations, Encoder, Known, Stack, _spread, _stack
from fastslow_programs.ranking.known_runtimes import check_known, is_faster, learn, read_known

CONFIGS, GROUPS, RULES = 300, 6, 8


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """A quarter of the trees: what is tested does not depend on how smooth their mean is."""
    monkeypatch.setattr(known_models, "_TREES", known_models._TREES // 4)


def program(seed=0, noise=0.02, pretrained=True):
    """Return configurations whose log runtime is additive in choices with a pair, and measured runtimes."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 3, (CONFIGS, GROUPS))
    effects = rng.normal(size=(GROUPS, 3)) * 0.1
    true = effects[np.arange(GROUPS), choices].sum(1) + 0.1 * (choices[:, 0] == choices[:, 1])
    columns = np.stack([true + rng.normal(size=CONFIGS) * s for s in np.linspace(0.2, 2, RULES)], 1)
    prediction = true + rng.normal(size=CONFIGS) * 0.1 if pretrained else np.zeros(CONFIGS)

    def measure(config):
        return np.exp(true[config] + noise * rng.normal(size=np.shape(config)))

    return Configurations(choices, columns, prediction[:, None], prediction), true, measure


def drawn(measure, config):
    return pd.DataFrame({"config": config, "runtime": measure(config)})


def test_the_prior_orders_as_the_run():
    made, *_ = program()
    skewed = np.exp(3 * np.random.default_rng(2).normal(size=CONFIGS))
    given = replace(made, prediction=skewed)
    prior = Encoder(given)(given).prior
    assert kendalltau(prior, skewed)[0] == pytest.approx(1.0)
    assert prior.std() == pytest.approx(0.75)


def test_one_measurement_leaves_the_order():
    made, _, measure = program()
    for config in (3, int(made.prediction.argmin())):
        found = learn(made, drawn(measure, [config]))
        assert kendalltau(found.mean, made.prediction)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("count", [4, 8, 64])
def test_measuring_the_first_of_a_ranking_does_not_spoil_the_others(count):
    """Known scores have a mean of 0: the first ones once counted as average ones, and came last."""
    for seed in range(3):
        made, true, measure = program(seed)
        known, others = np.split(made.prediction.argsort(), [count])
        before, after = (
            kendalltau(order[others], true[others])[0]
            for order in (made.prediction, learn(made, drawn(measure, known)).mean)
        )
        assert after > before - 0.05
        first = true.argsort()[:count]
        exact = pd.DataFrame({"config": first, "runtime": np.exp(true[first])})
        assert kendalltau(learn(replace(made, prediction=true), exact).mean, true)[0] > 0.9


def test_the_spread_of_known_scores_follows_from_their_predictions(rng):
    score = rng.normal(size=400)
    score = (score - score.mean()) / score.std()
    assert _spread(0.75 * score, score) == pytest.approx(1.0), "as all configurations differ"
    assert _spread(0.01 * score, score) == pytest.approx(0.01 / 0.75), "all alike, and rightly ordered"
    assert _spread(-0.01 * score, score) == pytest.approx(0.661, abs=0.01), "what predictions do not explain"
    assert _spread(np.full(400, 0.3), score) == 1.0


@cases(
    "logs, bounded",
    [
        ([*np.arange(8) / 8, 50.0], [*np.arange(8) / 8, 2.0]),
        ([-50.0, *np.arange(8) / 8], [-1.125, *np.arange(8) / 8]),
        ([0.0] * 8 + [1.0], [0.0] * 8 + [1.0]),
    ],
)
def test_logarithms_are_bounded_at_three_spreads_of_the_middle_half(logs, bounded):
    """One configuration that is many times slower does not rule the unit; equal ones bound nothing."""
    assert Known(np.arange(9), np.exp(logs)).unit == pytest.approx(np.std(bounded))


def test_between_measured_configurations_the_measurements_decide():
    made, true, _ = program(2)
    for repeats in (1, 5):
        known = pd.DataFrame({"config": np.repeat(np.arange(40), repeats)})
        known["runtime"] = np.exp(true)[known["config"]].round(2)
        found = learn(made, known)
        runtime = known.groupby("config")["runtime"].first().to_numpy()
        for than in (0, 7):
            chance = found.faster(than)[:40]
            np.testing.assert_array_equal(chance > 0.5, runtime < runtime[than])
            np.testing.assert_array_equal(chance == 0.5, runtime == runtime[than])


def test_a_block_of_inputs_has_the_weight_of_its_kind_however_many_columns_it_has():
    made, *_ = program()
    for copies in (1, 7):
        constant = np.full((CONFIGS, 3), 1e6)
        columns = np.concatenate([np.tile(made.columns, copies), constant], 1)
        given = replace(made, columns=columns, members=np.tile(made.members, copies))
        inputs = Encoder(given)(given)
        squares = (inputs.features**2).mean(0)
        widths = [columns.shape[1], 3 * GROUPS, copies, 1]
        sums = [block.sum() for block in np.split(squares, np.cumsum(widths)[:-1])]
        np.testing.assert_allclose(sums, [1, 1, 4, 0.75**2])
        np.testing.assert_allclose(inputs.take(np.array([4, 2])).features, inputs.features[[4, 2]])


def test_measurements_help_more_than_the_prediction_and_than_chance():
    made, true, measure = program()
    config = np.random.default_rng(1).permutation(CONFIGS)[:64]
    prior = kendalltau(made.prediction, true)[0]
    few, many = (kendalltau(learn(made, drawn(measure, config[:n])).mean, true)[0] for n in (16, 64))
    assert prior > 0.5 and many > max(prior, few) + 0.05


def test_each_measurement_is_left_out_of_its_own_prediction():
    """Of the process in closed form: as if it was fitted again without the configuration."""
    made, _, measure = program(3)
    known = Known(np.arange(7), measure(np.arange(7)))  # too few for trees
    inputs = Encoder(made)(made).take(known.config)
    whole = Stack(inputs, known)
    weight = whole._weights["process"]
    assert 0 < weight < 1 and weight + whole._weights["prediction"] == pytest.approx(1)
    covariance = whole._process.kernel_(inputs.features)
    spread = _spread(inputs.prior, known.score)
    noisy = covariance + 0.1 * spread**2 * np.eye(7)
    score = inputs.prior.mean() + spread * known.score
    away = score - inputs.prior
    for left in range(7):
        rest = np.delete(np.arange(7), left)
        alone = covariance[left, rest] @ np.linalg.solve(noisy[np.ix_(rest, rest)], away[rest])
        assert whole.left_out[left] == pytest.approx(inputs.prior[left] + weight * alone)
    variance = covariance - covariance @ np.linalg.solve(noisy, covariance)
    np.testing.assert_allclose(whole.covariance(inputs), whole.inflation * variance, atol=1e-8)
    squares = ((score - whole.left_out) ** 2 * np.linalg.inv(noisy).diagonal()).sum()
    assert whole.inflation == pytest.approx((squares + 4) / (7 + 4)) and whole.degrees == 11


def test_the_weights_are_of_the_least_squared_error_pulled_to_the_shares(rng):
    """Of two models in closed form: four known configurations hold the shares, which are 11 to 6."""
    share = 11 / 17
    for slope in (1.0, 0.3, -2.0, 4.0):
        target, process = rng.normal(size=(2, 20))
        prediction = slope * target + (1 - slope) * process + 0.1 * rng.normal(size=20)
        away = prediction - process
        free = ((target - process) @ away + 2 * 4 * share) / (away @ away + 2 * 4)
        weights = _stack(target, {"prediction": prediction, "process": process})
        assert weights["prediction"] == pytest.approx(np.clip(free, 0, 1), abs=1e-4)
        assert weights["prediction"] + weights["process"] == pytest.approx(1)


def test_known_configurations_are_told_apart_by_students_t():
    """As often as each was measured, with a degree of freedom for each repeat and four for the guess."""
    config = np.array([0, 0, 0, 0, 1, 2, 2])
    known = Known(config, np.array([1.0, 1.1, 1.2, 1.0, 1.3, 1.05, 1.2]))
    for than in range(3):
        errors = np.sqrt(known.noise * (1 / known.count + 1 / known.count[than]))
        law = t((len(config) - 3) + 4)
        expected = law.cdf((known.score[than] - known.score) / errors)
        np.testing.assert_allclose(known.faster(than), expected)
        assert np.argmax(expected) == 0


def test_order_of_rows_and_configurations_and_the_unit_do_not_matter():
    made, _, measure = program(4)
    rng = np.random.default_rng(0)
    known = drawn(measure, np.append(rng.permutation(CONFIGS)[:20], [3, 3]))
    first = learn(made, known).mean
    order = rng.permutation(CONFIGS)
    place = np.argsort(order)
    shuffled = learn(made, known.sample(frac=1, random_state=0)).mean
    scaled = learn(made, known.assign(runtime=known["runtime"] * 1e6)).mean
    moved = learn(made.take(order), known.assign(config=place[known["config"]])).mean
    for other in (shuffled, scaled, moved[place]):
        np.testing.assert_allclose(other, first, atol=2e-3)
        assert kendalltau(other, first)[0] > 0.995


def test_repeats_give_the_noise_and_make_it_surer():
    made, _, measure = program(5, noise=0.1)
    once = np.random.default_rng(0).permutation(CONFIGS)[:24]
    few, many = (drawn(measure, np.repeat(once, n)) for n in (1, 8))
    guess, measured = (
        Known(measurements["config"].to_numpy(), measurements["runtime"].to_numpy())
        for measurements in (few, many)
    )
    assert guess.noise == pytest.approx(0.1) and (measured.count == 8).all()
    assert 0.5 < np.sqrt(measured.noise) / (0.1 / measured.unit) < 1.5
    inputs = Encoder(made)(made)
    stacks = (Stack(inputs.take(known.config), known) for known in (guess, measured))
    wide, narrow = (stack.covariance(inputs).diagonal() for stack in stacks)
    assert narrow.mean() < wide.mean()


def test_probabilities_are_calibrated_on_simulated_programs():
    expected, right = [], []
    for seed in range(4):
        made, true, measure = program(seed, noise=0.05)
        rng = np.random.default_rng(seed)
        order = rng.permutation(CONFIGS)
        found = learn(made, drawn(measure, order[:40]))
        one, *others = order[40:]
        for other, chance in zip(others, found.faster(one)[others], strict=True):
            expected.append(max(chance, 1 - chance))
            right.append((chance > 0.5) == (true[other] < true[one]))
    assert abs(np.mean(expected) - np.mean(right)) < 0.08


def test_the_probability_is_of_students_t(monkeypatch):
    made, _, measure = program(9, noise=0.05)
    found = learn(made, drawn(measure, np.arange(30)))
    covariance = found.stack.covariance(found.inputs.take(np.array([40, 50])))
    scale = np.sqrt(np.array([1, -1]) @ covariance @ [1, -1])
    law = t(found.stack.degrees, found.mean[40] - found.mean[50], scale)
    assert found.faster(50)[40] == pytest.approx(law.cdf(0))
    assert found.faster(40)[50] == pytest.approx(law.sf(0)) and found.faster(40)[40] == 0.5
    whole = found.faster(50)
    monkeypatch.setattr(known_runtimes, "_BLOCK", 7)
    np.testing.assert_allclose(found.faster(50), whole)


def test_the_score_to_expect_is_for_labels_as_noisy_as_the_known_ones():
    """Of the same program: near what is reached, and lower where runtimes are noise."""
    promised, reached = {}, {}
    for noise in (0.02, 1.0):
        for seed in range(3):
            made, _, measure = program(seed, noise)
            found = learn(made, drawn(measure, np.arange(64)))
            others = measure(np.arange(64, CONFIGS))
            promised.setdefault(noise, []).append(found.stack.expected_tau)
            reached.setdefault(noise, []).append(kendalltau(found.mean[64:], others)[0])
        assert abs(np.mean(promised[noise]) - np.mean(reached[noise])) < 0.1
    assert np.mean(promised[1.0]) < np.mean(promised[0.02]) - 0.4
    assert f"if they are measured as these: {found.stack.expected_tau:.2f}" in found.words()
    assert not replace(found, changed=(3.0, 4.0)).are_neighbours
    near = replace(found, changed=(1.0, 4.0))
    assert near.expected_tau is None and found.expected_tau == found.stack.expected_tau
    assert "differ from the default in 4.0 choices on average, the known ones in 1.0" in near.words()
    few = learn(made, drawn(measure, np.arange(7)))
    assert few.stack.expected_tau is None and few.words().endswith("too few to tell the score to expect")
    assert few.faster(3) is None and near.faster(3) is None


def test_noise_supports_no_order():
    """A tau of 0 or below was stated beside how sure the first is."""
    made, _, _ = program(4)
    rng = np.random.default_rng(1)
    learnt = [
        learn(made, pd.DataFrame({"config": np.arange(16), "runtime": rng.uniform(1, 2, 16)}))
        for _ in range(6)
    ]
    assert {one.has_order for one in learnt} == {True, False}
    for one in learnt:
        assert one.has_order == (one.stack.expected_tau > 0)
        assert one.words().endswith("; the measurements support no order") != one.has_order


@pytest.mark.parametrize("rounds", [True, False])
def test_the_fastest_of_noise_is_rarely_faster_beyond_noise(rounds, rng):
    """A slow round slows all its runs, so that only a ratio within the round sees 5 %."""
    many, taken = 60, []
    for gain in (0.0, 0.05):
        faster = 0
        for _ in range(many):
            drift = rng.normal(0, 0.3 if rounds else 0, 15)[:, None]
            logs = drift + rng.normal(0, 0.02, (15, 20)) - gain * (np.arange(20) == 7)
            number, config = np.indices(logs.shape)
            known = pd.DataFrame(
                {"id": config.ravel(), "round": number.ravel(), "runtime": np.exp(logs).ravel()}
            )
            known = known if rounds else known.drop(columns="round")
            fastest = known.groupby("id")["runtime"].mean()[1:].idxmin()
            faster += is_faster(known, fastest, 0)
        taken.append(faster / many)
    assert taken[0] <= 0.03 and taken[1] > 0.8


def test_of_repeated_measurements_the_median_counts():
    """Five of fifteen runs were disturbed: the order had another configuration first than the words."""
    for rounds in (15, 14):
        disturbed = np.r_[np.full(rounds - 5, 100.0), np.full(5, 1000.0)]
        config = np.repeat([0, 1, 2], [rounds, 15, 1])
        known = Known(config, np.r_[disturbed, np.full(15, 110.0), 500.0])
        assert known.config.tolist() == [0, 1, 2] and (np.diff(known.score) > 0).all()
    even = Known(np.array([0, 0, 1]), np.array([90.0, 160.0, 110.0]))
    assert even.config.tolist() == [1, 0], "of two the middle, in logarithms: 120"


def test_without_a_repeated_measurement_the_noise_is_not_known():
    known = pd.DataFrame({"id": ["a", "b", "b"], "runtime": [1.0, 2.0, 2.002]})
    assert is_faster(known, "a", "b") is True and is_faster(known, "b", "a") is False
    assert is_faster(known.head(2), "a", "b") is None and is_faster(known, "a", "c") is None
    assert is_faster(known.assign(round=[0, 0, 1]), "a", "b") is None, "one round has both"


def test_degenerate_programs_are_ranked():
    plain = Configurations(np.zeros((5, 0), int), np.zeros((5, 0)), np.zeros((5, 0)), np.zeros(5))
    made, _, _ = program(8)
    bare = replace(made, members=np.zeros((CONFIGS, 0)), prediction=np.zeros(CONFIGS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given, config in ((plain, [0, 1]), (made, [3]), (made, [3, 3]), (bare, [1, 2]), (plain, [1])):
            found = learn(given, pd.DataFrame({"config": config, "runtime": 2.0}))
            assert np.isfinite(found.mean).all() and found.faster(1) is None
            assert np.isfinite(found.stack.covariance(found.inputs)).all() and found.words()


BAD = [
    ("", "holds no row below a header"),
    ("a,b\n0,1\n", "no column config or runtime"),
    ("config,runtime\n0,nan\n", "row 1 has runtime nan"),
    ("config,runtime\n0,1\n1,inf\n", "row 2 has runtime inf"),
    ("config,runtime\n0,fast\n", "row 1 has runtime fast"),
    ("config,runtime\n7,1\n", "row 1 has config 7, not a whole number from 0 to 6"),
    ("config,runtime,round\n1,5,0\n1,6,x\n", "row 2 has round x, not a whole number from 0"),
    ("config,runtime,round\n1,5,0\n1,6,9007199254740992\n", "row 2 has round 9007199254740992, not a whole"),
    ("config,runtime,round\n1,5,1e300\n", "row 1 has round 1e300, not a whole number from 0 to 900719925474"),
    ("config,runtime,round\n1,5,-1\n", "row 1 has round -1, not a whole number"),
    ("config,runtime,round\n1,5,0\n2,5,0\n1,5,0\n", "row 3 repeats the configuration, the round and"),
    ("config,runtime\n-1,1\n", "row 1 has config -1"),
    ("config,runtime\n1.5,1\n", "row 1 has config 1.5"),
    ("config,runtime\n,1\n", "row 1 has config nothing"),
    ("config,runtime\n1,2\n1,2,3,4\n", "line 3 has 4 cells, the header 2"),
    ("config,runtime,config\n0,1,2\n", "has the column config twice"),
    ("config,runtime,note\n0,1,x\n", "has the unknown column note. Write"),
    (",config,runtime\n0,1,2\n", "column 1 has no name, as an index of pandas; leave it out. Write"),
    ("config,runtime,\n1,2,\n", "column 3 has no name"),
    ("config;runtime\n0;1\n", "separated by a semicolon, a comma is wanted"),
    ("config\truntime\n0\t1\n", "separated by a tab, a comma is wanted"),
]


@cases("text, said", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        read_known(path, 7)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_known_files_are_read(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text("runtime, config, round\n2.5, 3, 0\n1e3, 0, 0\n2.75, 3, 1\n")
    known = read_known(path, 4)
    assert known["config"].tolist() == [3, 0, 3] and known["runtime"].tolist() == [2.5, 1000.0, 2.75]
    assert known["round"].tolist() == [0, 0, 1], "which a comparison of two configurations pairs"
    with pytest.raises(DataError, match="no such file"):
        read_known(tmp_path / "other.csv", 4)
    for encoding in ("utf-8-sig", "utf-16"):  # with a byte-order mark
        path.write_text("config,runtime\n1,2\n", encoding=encoding)
        assert read_known(path, 4)["config"].tolist() == [1]
    for ending in (b"\r", b"\r\n"):
        path.write_bytes(b"config,runtime%b1,2%b" % (ending, ending))
        assert read_known(path, 4)["config"].tolist() == [1]
    path.write_text("config , runtime \n 1 , 2 \n")
    assert read_known(path, 4)["config"].tolist() == [1], "blanks around a cell are no part of it"
    with pytest.raises(DataError, match="is no UTF-8 text .byte 128.*Write a CSV file"):
        (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
        read_known(tmp_path / "binary.csv", 4)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="pipe.csv: is a named pipe"):
        read_known(tmp_path / "pipe.csv", 4)
    os.truncate(path, 3 << 30)
    with pytest.raises(DataError, match="has 3,221,225,472 bytes, at most"):
        read_known(path, 4)
    with pytest.raises(DataError, match="row 1 has config True"):
        check_known(pd.DataFrame({"config": [True], "runtime": [1.0]}), 4)


IDS = np.array(["c0", "c1", "c2", "c1"])  # the second and the last one are equal


def named(**columns):
    return pd.DataFrame({"runtime": 1.0, **columns})


NO_TABLE = {
    "dict": (
        {"config": [0], "runtime": [1.0]},
        "known: is a dict, a table of pandas is wanted. Give a pandas.DataFrame with the columns id",
    ),
    "no column": (named(id=["c0"]).drop(columns="runtime"), "no column runtime. Give a pandas.DataFrame"),
    "column": (pd.Series([1.0]), "is a Series"),
    "array": (np.zeros((1, 2)), "is an ndarray"),
    "an id that is a list": (named(id=[["c0"]]), r"row 1 has id \['c0'\], which is no configuration"),
    "an id that is a dict": (named(id=[{}]), "row 1 has id {}, which is no configuration"),
    "a date": (named(config=[0], runtime=pd.to_datetime(["2020-01-01"])), "row 1 has runtime 2020-01-01"),
    "a span of time": (named(config=[0], runtime=pd.to_timedelta([1], unit="s")), "row 1 has runtime 0 days"),
    "a complex number": (named(config=[0], runtime=[1 + 5j]), "row 1 has runtime .1.5j."),
    "a complex position": (named(config=[1j]), "row 1 has config 1j, not a whole number"),
    "a number beyond float64": (
        named(config=[0], runtime=[10**400]),
        "row 1 has runtime 1000.* not a number",
    ),
}


@cases("name", NO_TABLE)
def test_what_is_no_table_of_measurements_is_refused(name):
    known, said = NO_TABLE[name]
    with pytest.raises(DataError, match=said):
        check_known(known, 4, ids=IDS)


@cases(
    "given, said",
    [
        (named(config=[0, 2], id=["c0", "c1"]), "row 2 has config 2 and id c1, which are two configurations"),
        (named(config=[9], id=["c1"]), "row 1 has config 9 and id c1"),
        (named(config=[""], id=["c1"]), "row 1 has config nothing and id c1"),
        (named(config=[0.5], id=["c0"]), "row 1 has config 0.5 and id c0"),
    ],
)
def test_a_position_and_an_identity_that_contradict_each_other_are_refused(given, said):
    with pytest.raises(DataError, match=said):
        check_known(given, 4, ids=IDS)


def test_numbers_of_any_type_are_read():
    """Of a sparse column, too, and of texts, as of a CSV file."""
    sparse = pd.Series(pd.arrays.SparseArray([0.0, 2.0], fill_value=0.0))
    assert check_known(named(config=sparse), 4)["config"].tolist() == [0, 2]
    assert check_known(named(config=["1", " 2 "]), 4)["config"].tolist() == [1, 2]
    assert check_known(named(config=[0], runtime=[Decimal("1.5")]), 4)["runtime"].tolist() == [1.5]


def test_an_identity_names_a_configuration_and_a_position_only_one_of_a_file():
    both = named(config=["3", "1"], id=["c1", "c1"])
    assert check_known(both, 4, ids=IDS)["config"].tolist() == [1, 1], "equal configurations are one"
    assert check_known(named(id=["c2"]), 4, ids=IDS, of_file=False)["config"].tolist() == [2]
    assert check_known(named(config=[2]), 4, ids=IDS)["config"].tolist() == [2]
    with pytest.raises(DataError, match="by config without id.*Give the column id"):
        check_known(named(config=[2]), 4, ids=IDS, of_file=False)


def test_a_header_of_many_columns_is_read_in_no_time(tmp_path):
    """Where each column is counted among all, this test takes as long as all others."""
    names = ["config", "runtime", *(f"c{n}" for n in range(20_000))]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    with pytest.raises(DataError, match="has the unknown column c0, c1, c2, c3, c4 and 19995 more"):
        read_known(path, 4)
