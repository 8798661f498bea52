"""Quality of labels against simulations whose truth is known, and against what is known of genuine files."""

import numpy as np
import pytest

from fastslow.competition.data_quality import MIN_RUNS, config_groups, measure_quality, quality_of
from fastslow.competition.metrics import ranking_tau
from helpers.cases import cases
from helpers.competition_files import REAL, layout_arrays, needs_real, npz_program, tile_arrays, write_npz

DEFAULT = REAL / "npz_all" / "npz" / "layout" / "xla" / "default"
SHAPES = {
    "normal": lambda rng, count: rng.normal(size=count),
    "clusters": lambda rng, count: rng.choice(rng.normal(size=30), count) + 0.02 * rng.normal(size=count),
    "long tail": lambda rng, count: rng.exponential(size=count) ** 2,
}


def simulate(shape, noise, rng, count=1500, repeats=500):
    """Return log runtimes of rows, some of equal configurations, the configurations and the true values."""
    true = SHAPES[shape](rng, count)
    group = rng.permutation(np.concatenate([np.arange(count), rng.integers(count, size=repeats)]))
    return true[group] + noise * rng.normal(size=len(group)), group, true[group]


@cases("shape, noise", [(shape, noise) for shape in SHAPES for noise in (0.02, 0.1, 0.3, 1.0)])
def test_the_ceiling_is_what_the_truth_scores(rng, shape, noise):
    values, group, true = simulate(shape, noise, rng)
    found = quality_of(np.exp(values), group)
    assert found.noise == pytest.approx(noise, rel=0.12)
    assert found.ceiling == pytest.approx(ranking_tau(values, true), abs=0.02 if noise < 0.2 else 0.07)
    assert found.repeat_tau < found.ceiling, "two noisy runs agree less than a noisy one and the truth"


def test_the_ceiling_of_a_file_of_repeats_is_what_the_truth_scores(rng):
    """A perfect predictor cannot order rows of one configuration; by tau-b the ceiling was 0.18 too high."""
    group = rng.permutation(np.concatenate([np.zeros(1200, int), np.arange(800)]))
    true = np.r_[0.0, 0.1 * rng.normal(size=799)]
    values = true[group] + 0.02 * rng.normal(size=2000)
    ceiling = quality_of(np.exp(values), group).ceiling
    assert ceiling == pytest.approx(ranking_tau(values, true[group]), abs=0.1)


def test_equal_runtimes_are_no_blocks_of_rows(rng):
    """Ranked by their rows, two values of random rows had jumps of 0.23."""
    found = quality_of(rng.choice([1.0, 2.0], 2000), np.arange(2000))
    assert found.jumps < 0.02 and not found.doubts


def test_labels_without_noise_have_a_ceiling_of_one(rng):
    values, group, _ = simulate("normal", 0.0, rng)
    found = quality_of(np.exp(values), group)
    assert found.noise == found.spread == 0
    assert found.repeat_tau == pytest.approx(1)
    assert found.ceiling == pytest.approx(ranking_tau(values, values)) == pytest.approx(1, abs=1e-3)
    assert found.doubts == ""


def test_with_few_repeats_the_noise_is_not_known(rng):
    values = rng.normal(size=600)
    for repeats in (0, MIN_RUNS - 1, MIN_RUNS):
        group = np.arange(600)
        group[:repeats] = np.arange(repeats) + 300
        found = quality_of(np.exp(values), np.unique(group, return_inverse=True)[1])
        assert found.repeated == repeats and found.distinct == 600 - repeats
        known = repeats >= MIN_RUNS
        assert np.isfinite([found.noise, found.ceiling]).all() == known
        assert np.isfinite([found.drift, found.jumps]).all() and np.isnan(found.repeat_tau)
    one = quality_of(np.ones(1), np.zeros(1, int))
    assert one.configs == 1 and one.doubts == ""


def test_blocks_that_jump_and_runtimes_that_drift_are_seen(rng):
    values, group, _ = simulate("normal", 0.05, rng)
    sound = quality_of(np.exp(values), group)
    assert sound.jumps < 0.02 and abs(sound.drift) < 0.05 and sound.doubts == ""
    blocks = np.repeat(rng.choice([0.0, 1.0], 20), 100)
    jumping = quality_of(np.exp(values + blocks), group)
    assert jumping.jumps > 0.1 and "blocks of rows differ" in jumping.doubts
    drifting = quality_of(np.exp(values + np.linspace(0, 3, len(values))), group)
    assert drifting.drift > 0.3 and "drift over the rows" in drifting.doubts
    values, group, _ = simulate("normal", 1.0, rng)
    assert "a perfect predictor would reach 0.5" in quality_of(np.exp(values), group).doubts


def test_equal_rows_are_one_configuration(tmp_path, rng):
    arrays = layout_arrays(3, dots=4, configs=40)
    rows = np.concatenate([np.arange(40), rng.integers(40, size=20)])
    arrays |= {key: arrays[key][rows] for key in ("node_config_feat", "config_runtime")}
    file = npz_program(write_npz(tmp_path / "x.npz", arrays), "layout")
    runtime, group = config_groups(file)
    distinct = np.unique(arrays["node_config_feat"].reshape(60, -1), axis=0, return_inverse=True)[1]
    np.testing.assert_array_equal(group[:, None] == group, distinct[:, None] == distinct)
    np.testing.assert_array_equal(runtime, arrays["config_runtime"])
    tile = tile_arrays()
    runtime, group = config_groups(npz_program(write_npz(tmp_path / "t.npz", tile), "tile"))
    np.testing.assert_allclose(runtime, tile["config_runtime"] / tile["config_runtime_normalizers"])
    assert len(group) == len(runtime)


@needs_real
@cases(
    "path, repeat_tau, doubt",
    [
        ("train/alexnet_train_batch_32.npz", 0.59, ""),
        ("train/unet3d.npz", 0.83, "blocks of rows differ"),
        ("valid/unet_3d.4x4.bf16.npz", 0.28, "a perfect predictor would reach 0.5"),
    ],
)
def test_genuine_files(path, repeat_tau, doubt):
    """The tau between two runs is that of ``competition.md``, measured by others on the same files."""
    found = measure_quality(npz_program(DEFAULT / path, "layout", labelled=True))
    assert found.repeat_tau == pytest.approx(repeat_tau, abs=0.03)
    assert found.repeat_tau < found.ceiling < 1
    assert doubt in found.doubts if doubt else not found.doubts


@pytest.mark.parametrize("repeated", [0, 5, 12_000])
def test_a_large_file_is_measured_whatever_repeats_in_it(rng, repeated):
    """One configuration; thousands with few repeats; many repeats, of which some are looked at."""
    group = np.repeat(np.arange(12_000 if repeated else 1), 1 if repeated else 20_000)
    group = np.concatenate([group, *[np.arange(repeated)] * 3])
    true = rng.lognormal(10, 0.2, group.max() + 1)
    found = quality_of(true[group] * np.exp(0.05 * rng.standard_normal(len(group))), group)
    assert (found.configs, found.distinct) == (len(group), group.max() + 1)
    assert found.noise == pytest.approx(0.05, rel=0.35)
    if repeated > 100:
        assert 0.7 < found.repeat_tau < found.ceiling < 1
