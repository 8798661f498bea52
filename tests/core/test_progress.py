"""A progress bar does not flood a log."""

import time

import fastslow.core.progress
from fastslow.core.progress import progress


def test_a_log_gets_few_lines(capsys):
    assert list(progress(range(2_000), desc="graphs")) == list(range(2_000))
    assert capsys.readouterr().err.count("graphs") <= 3


def test_a_slow_step_shows(capsys, monkeypatch):
    monkeypatch.setattr(fastslow.core.progress, "LOG_SECONDS", 0.01)
    for _ in progress(range(5), desc="graphs"):
        time.sleep(0.03)
    assert capsys.readouterr().err.count("graphs") >= 4
