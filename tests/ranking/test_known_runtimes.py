"""The posterior over a program's configurations after some of their runtimes are known."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, t
from tests.helpers.cases import cases

from fastslow.core.errors import DataError
from fastslow.evaluation.ensemble_weights import min_max
from fastslow_programs.ranking.known_models import Configurations, Encoder, GaussianProcess, Known
from fastslow_programs.ranking.known_runtimes import check_known, posterior, read_known, score

CONFIGS, GROUPS, RULES = 300, 6, 8


def program(seed=0, noise=0.02, pretrained=True):
    """Return configurations whose log runtime is additive in choices with a pair, and measured runtimes."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 3, (CONFIGS, GROUPS))
    effects = rng.normal(size=(GROUPS, 3)) * 0.1
    true = effects[np.arange(GROUPS), choices].sum(1) + 0.1 * (choices[:, 0] == choices[:, 1])
    columns = np.stack([true + rng.normal(size=CONFIGS) * s for s in np.linspace(0.2, 2, RULES)], 1)
    predictions = (true + rng.normal(size=CONFIGS) * 0.1)[:, None] if pretrained else np.zeros((CONFIGS, 0))

    def measure(config):
        return np.exp(true[config] + noise * rng.normal(size=np.shape(config)))

    return Configurations(choices, columns, predictions), true, measure


def drawn(measure, config):
    return pd.DataFrame({"config": config, "runtime": measure(config)})


def test_without_measurements_the_order_is_that_of_the_ensemble():
    made, *_ = program()
    rng = np.random.default_rng(2)
    skewed = np.exp(3 * rng.normal(size=(CONFIGS, 3)))  # ranks and values join differently
    found = posterior(Configurations(made.choices, made.columns, skewed)).mean
    wanted = sum(min_max(own) for own in skewed.T)
    assert kendalltau(found, wanted)[0] == pytest.approx(1.0)
    assert kendalltau(found, skewed.argsort(0).argsort(0).sum(1))[0] < 0.95


def test_measurements_help_more_than_the_prediction_and_than_chance():
    made, true, measure = program()
    config = np.random.default_rng(1).permutation(CONFIGS)[:64]
    tau = {n: kendalltau(posterior(made, drawn(measure, config[:n])).mean, true)[0] for n in (0, 16, 64)}
    assert tau[0] > 0.5  # the prediction
    assert tau[64] > max(tau[0], tau[16]) + 0.1


@cases("seed", [0, 1, 2])
def test_process_agrees_with_the_dense_formula(seed):
    made, true, measure = program(seed)
    rows, rng = np.arange(20), np.random.default_rng(seed)
    inputs = Encoder(made)(made)
    known = Known(rng.normal(size=20), rng.integers(1, 4, 20).astype(float), 0.3)
    weights = np.full(inputs.pool.shape[1], 1 / inputs.pool.shape[1])
    process = GaussianProcess(inputs.take(rows), known, weights)
    prior = process.covariance(inputs, inputs)  # (C, C), whole
    own = prior[np.ix_(rows, rows)] + np.diag(process.noise / known.count + 1e-8)
    slope = process.predict(inputs)[0] - prior[:, rows] @ np.linalg.solve(
        own, known.mean - _prior_mean(process, inputs.take(rows))
    )
    mean, roots = process.predict(inputs)
    np.testing.assert_allclose(slope, _prior_mean(process, inputs), atol=1e-8)
    covariance = prior - prior[:, rows] @ np.linalg.solve(own, prior[rows])
    np.testing.assert_allclose(prior - roots @ roots.T, covariance, atol=1e-8)
    for left in (0, 7):  # each left out in turn, the variances unchanged
        rest = np.delete(rows, left)
        gain = np.linalg.solve(own[np.ix_(rest, rest)], prior[rest, left])
        away = known.mean[rest] - _prior_mean(process, inputs.take(rest))
        expected = _prior_mean(process, inputs.take(rows[[left]]))[0] + gain @ away
        assert process.left_out[left] == pytest.approx(expected, abs=1e-6)


def _prior_mean(process, inputs):
    empty = Known(np.zeros(0), np.zeros(0), 0.0)
    return GaussianProcess(inputs.take(np.zeros(0, int)), empty, process._weights).predict(inputs)[0]


def test_gradient_of_the_marginal_likelihood_is_its_slope():
    made, _, _ = program(3)
    inputs = Encoder(made)(made).take(np.arange(12))
    known = Known(np.random.default_rng(0).normal(size=12), np.arange(1.0, 13.0), 0.7)
    process = GaussianProcess(inputs, known, np.full(inputs.pool.shape[1], 1 / inputs.pool.shape[1]))
    at = process._prior + 0.3
    for place, slope in enumerate(process._loss(at)[1]):
        step = np.zeros(len(at))
        step[place] = 1e-5
        numeric = (process._loss(at + step)[0] - process._loss(at - step)[0]) / 2e-5
        assert slope == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_order_of_rows_and_configurations_and_the_unit_do_not_matter():
    made, _, measure = program(4)
    rng = np.random.default_rng(0)
    known = drawn(measure, np.append(rng.permutation(CONFIGS)[:20], [3, 3]))
    first = posterior(made, known).mean
    shuffled = posterior(made, known.sample(frac=1, random_state=0)).mean
    scaled = posterior(made, known.assign(runtime=known["runtime"] * 1e6)).mean
    order = rng.permutation(CONFIGS)
    place = np.argsort(order)
    moved = posterior(made.take(order), known.assign(config=place[known["config"]])).mean
    for other in (shuffled, scaled, moved[place]):
        np.testing.assert_allclose(other, first, atol=2e-3)
        assert kendalltau(other, first)[0] > 0.995


def test_repeats_give_the_noise_and_shrink_the_intervals():
    made, _, measure = program(5, noise=0.1)
    once = np.random.default_rng(0).permutation(CONFIGS)[:24]
    few, many = (posterior(made, drawn(measure, np.repeat(once, n))) for n in (1, 8))
    true_noise = 0.1 / few.scale._unit
    assert abs(many.noise / true_noise - 1) < 0.5
    one, other = once[:12], once[12:]
    assert many.difference(one, other)[1].mean() < 0.5 * few.difference(one, other)[1].mean()


def test_intervals_and_probabilities_are_calibrated_on_simulated_programs():
    held, expected, right = [], [], []
    for seed in range(8):
        made, true, measure = program(seed, noise=0.05)
        rng = np.random.default_rng(seed)
        order = rng.permutation(CONFIGS)
        found = posterior(made, drawn(measure, order[:40]))
        one, other = rng.choice(order[40:], (2, 400))
        one, other = one[one != other], other[one != other]
        logs = [np.log(measure(rows)) for rows in (one, other)]
        low, high = found.interval(one, other)
        difference = found.scale(logs[0]) - found.scale(logs[1])
        held.append(((low <= difference) & (difference <= high)).mean())
        chance = found.probability_faster(one, other)
        expected.append(np.maximum(chance, 1 - chance).mean())
        right.append(((chance > 0.5) == (true[one] < true[other])).mean())
    assert 0.82 < np.mean(held) < 0.97
    assert abs(np.mean(expected) - np.mean(right)) < 0.06


def test_intervals_are_of_the_level_asked_for_and_as_wide_as_the_models_errors_tell():
    made, _, measure = program(9, noise=0.05)
    known = drawn(measure, np.arange(30))
    found = posterior(made, known)
    average, (one, other) = found.average, np.arange(40, 80).reshape(2, 20)
    mean, variance = found.difference(one, other)
    for level, runs in ((0.5, 0), (0.9, 1), (0.99, 4)):
        noise = 2 * found.noise**2 * average.inflation / runs if runs else 0
        law = t(average.degrees, mean, np.sqrt(variance + noise))
        low, high = found.interval(one, other, level, runs)
        np.testing.assert_allclose([law.cdf(low), law.sf(high)], (1 - level) / 2)
    np.testing.assert_array_equal(found.interval(one, other), found.interval(one, other, 0.9, 1))
    np.testing.assert_allclose(
        found.probability_faster(one, other), t(average.degrees, mean, np.sqrt(variance)).cdf(0)
    )
    for level, table in ((0.9, found.runtime()), (0.5, found.runtime(0.5))):
        away = found.deviation * t.ppf(0.5 + level / 2, average.degrees)
        for name, side in (("low", -1), ("runtime", 0), ("high", 1)):
            ends = np.exp(found.scale.logs(found.mean + side * away))
            np.testing.assert_allclose(table[name], ends)
    inputs, process = found._inputs, average.process
    roots = process.predict(inputs)[1]
    whole = average.inflation * (process.covariance(inputs, inputs) - roots @ roots.T)
    np.testing.assert_allclose(found.deviation**2, whole.diagonal(), atol=1e-8)
    both = whole[one, one] + whole[other, other] - 2 * whole[one, other]
    np.testing.assert_allclose(variance, both, atol=1e-8)
    evidence = score(known["config"].to_numpy(), known["runtime"].to_numpy())[2]
    left_out = sum(average.weights[name] * model.left_out for name, model in average._models.items())
    squares = ((evidence.mean - left_out) ** 2 / process.left_out_variance).sum()
    assert average.degrees > 30
    assert average.inflation == pytest.approx((squares + average.degrees - 30) / average.degrees)


def test_runtimes_are_in_the_unit_of_the_known_ones():
    made, true, measure = program(6)
    known = drawn(lambda rows: 1e6 * measure(rows), np.arange(40))
    table = posterior(made, known).runtime()
    assert (table["low"] <= table["runtime"]).all() and (table["runtime"] <= table["high"]).all()
    assert abs(np.log(table["runtime"] / 1e6) - true).mean() < 0.1
    with pytest.raises(ValueError, match="no unit"):
        posterior(made).runtime()


def test_advice_changes_as_measurements_come():
    made, _, measure = program(7, noise=0.01)
    few, all_but_noise = (posterior(made, drawn(measure, np.arange(n))) for n in (4, 250))
    assert not few.more_would_not_change and "would raise" in few.advice
    assert all_but_noise.more_would_not_change and "hardly change" in all_but_noise.advice


def test_degenerate_programs_are_ranked():
    plain = Configurations(np.zeros((5, 0), int), np.zeros((5, 0)), np.zeros((5, 0)))
    made, _, measure = program(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for configurations, config in ((plain, [0, 1]), (made, [3]), (made, [3, 3]), (made, [1, 2])):
            found = posterior(configurations, pd.DataFrame({"config": config, "runtime": 2.0}))
            assert np.isfinite(found.mean).all() and np.isfinite(found.deviation).all()
            assert found.advice


BAD = [
    ("", "has no column config or runtime"),
    ("config,runtime\n", "holds no measurement"),
    ("config,time\n0,1\n", "has no column runtime"),
    ("a,b\n0,1\n", "no column config or runtime"),
    ("config,runtime\n0,nan\n", "row 1 has runtime nan"),
    ("config,runtime\n0,1\n1,inf\n", "row 2 has runtime inf"),
    ("config,runtime\n0,0\n", "row 1 has runtime 0"),
    ("config,runtime\n0,-3\n", "row 1 has runtime -3"),
    ("config,runtime\n0,fast\n", "row 1 has runtime fast"),
    ("config,runtime\n7,1\n", "row 1 has config 7, not a whole number from 0 to 6"),
    ("config,runtime\n-1,1\n", "row 1 has config -1"),
    ("config,runtime\n1.5,1\n", "row 1 has config 1.5"),
    ("config,runtime\n,1\n", "row 1 has config nothing"),
    ("config,runtime\n1,2\n1,2,3,4\n", "line 3 has 4 cells, the header 2"),
    ("config,runtime\n0,1,393494\n", "line 2 has 3 cells, the header 2"),
    ("config,runtime,config\n0,1,2\n", "has the column config twice"),
    ("config,runtime\nTrue,2\n", "row 1 has config True"),
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
    path.write_text("runtime, config, note\n2.5, 3, x\n1e3, 0, y\n2.75, 3, z\n")
    known = read_known(path, 4)
    assert known["config"].tolist() == [3, 0, 3] and known["runtime"].tolist() == [2.5, 1000.0, 2.75]
    with pytest.raises(DataError, match="no such file"):
        read_known(tmp_path / "other.csv", 4)
    path.write_text("\ufeffconfig,runtime\n1,2\n")
    assert read_known(path, 4)["config"].tolist() == [1], "with a byte-order mark"
    with pytest.raises(DataError, match="is no UTF-8 text .byte 128.*Write a CSV file"):
        (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
        read_known(tmp_path / "binary.csv", 4)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="pipe.csv: is a named pipe"):
        read_known(tmp_path / "pipe.csv", 4)
    os.truncate(path, 3 << 30)
    with pytest.raises(DataError, match="has 3,221,225,472 bytes, at most"):
        read_known(path, 4)
    with pytest.raises(DataError, match="no column"):
        check_known(pd.DataFrame({"config": [0]}), 4)
    with pytest.raises(DataError, match="row 1 has config True"):
        check_known(pd.DataFrame({"config": [True], "runtime": [1.0]}), 4)
