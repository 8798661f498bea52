"""The noisy sample is as noisy as it is asked to be; the benchmark runs on a cut one."""

import json

import numpy as np
import pytest

import noise
from common.noisy_sample import DEFAULT_RUNS, Level, noise_for, noisy_rows
from fastslow.competition.data_quality import quality_of
from fastslow.competition.metrics import kendall_tau
from helpers.workspace import cut_sample


@pytest.mark.parametrize("tau", [0.28, 0.59, 0.83])
def test_two_runs_agree_as_wanted(rng, tau):
    values = rng.normal(size=200)
    spread = noise_for(values, tau, rng)
    found = [kendall_tau(*(values + spread * rng.normal(size=(2, 200)))) for _ in range(20)]
    assert np.mean(found) == pytest.approx(tau, abs=0.03)


def test_rows_repeat_and_jump(rng):
    runtime = np.round(1e6 * np.exp(0.3 * rng.normal(size=400))).astype(np.int64)
    sound, damaged = (noisy_rows(runtime, Level(0.8, 0.3, 3.0), own, rng) for own in (False, True))
    for rows, noisy in (sound, damaged):
        count = np.bincount(rows)
        assert count.min() == 1 and count[0] >= DEFAULT_RUNS and 0.2 < (count > 1).mean() < 0.4
        assert noisy.dtype == np.int64 and len(noisy) == len(rows)
    quality, worse = (quality_of(noisy, rows) for rows, noisy in (sound, damaged))
    assert quality.repeat_tau == pytest.approx(0.8, abs=0.1) and quality.jumps < 0.05 < worse.jumps
    assert worse.ceiling < quality.ceiling


def test_the_benchmark_runs(tmp_path, capsys):
    """Three arms each build features of four collections and train ensembles, which takes seconds."""
    cut_sample(tmp_path / "sample")
    assert noise.main(["--quick", "--data-root", str(tmp_path / "sample")]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed.splitlines()[-1])["arms"]
    assert [*found] == [noise.NOISY, f"{noise.NOISY}, denoise", noise.SINGLE]
    assert all(-1 <= own["test"] <= 1 for (own,) in found.values())
    assert "| train and valid: best" in printed
