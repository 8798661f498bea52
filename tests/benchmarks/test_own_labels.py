"""Models of a program's own labels never see the label that they predict."""

import json

import numpy as np
import pytest

import own_labels
from fastslow.core.errors import DataError


def test_quick(home, monkeypatch, capsys):
    """Fitted to the labels themselves, so that plumbing is tested without Gaussian processes."""
    monkeypatch.setattr(
        own_labels, "own_predictions", lambda _, runtime: dict.fromkeys(own_labels.OWN, runtime)
    )
    assert own_labels.main(["--quick", "--run", "smoke"]) == 0
    printed = capsys.readouterr().out
    result = json.loads(printed.splitlines()[-1])
    assert "Run `smoke`, 4 programs" in printed and result["programs"] == 4 and result["known"] == 47
    for split in ("valid", "test"):
        taus = result["tau"][split]
        assert list(taus) == [*own_labels.UNSEEN, *own_labels.OWN]
        assert all(-1 <= tau <= 1 for own in taus.values() for tau in own.values())
        assert min(taus[own_labels.OWN[0]].values()) > 0.9


def test_a_label_does_not_enter_its_own_prediction():
    rng = np.random.default_rng(0)
    choices, noise = rng.integers(0, 2, (12, 3)).astype(float), rng.normal(size=12)
    runtime = np.exp(choices @ [1.0, 2.0, 0.0] + 0.1 * noise)
    changed = runtime.copy()
    changed[7] *= 3
    for name in own_labels.OWN[:2]:
        before, after = (own_labels.own_predictions(choices, r)[name] for r in (runtime, changed))
        assert before[7] == pytest.approx(after[7], abs=1e-9) and abs(before - after).max() > 1e-3
    fitted = own_labels.own_predictions(choices, runtime)[own_labels.OWN[2]]
    assert np.corrcoef(fitted, np.log(runtime))[0, 1] > 0.99


def test_equal_columns_are_one():
    layouts = np.array([[5, 5, 9, 1], [6, 5, 8, 2], [6, 5, 8, 3]])
    wanted = [[0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]]  # of the last output two, and a constant one
    np.testing.assert_array_equal(own_labels.one_hot(layouts), wanted)


def test_searches_without_common_programs_are_refused(home, monkeypatch):
    monkeypatch.setattr(own_labels, "common_names", lambda pair, split: [])
    with pytest.raises(DataError, match="share no programs"):
        own_labels.main(["--quick", "--run", "smoke"])
