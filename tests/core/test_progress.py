"""A progress bar does not flood a log, and is shown while its first step takes long."""

import io
import sys
import time

from fastslow.core import progress as module
from fastslow.core.progress import progress, ticking


def test_a_log_gets_few_lines(capsys):
    assert list(progress(range(2_000), desc="graphs")) == list(range(2_000))
    assert 1 <= capsys.readouterr().err.count("graphs") <= 3


def test_a_score_that_is_not_known_yet_is_not_shown():
    shown = io.StringIO()
    with progress(total=1, file=shown) as bar:
        bar.set_postfix({"valid": "nan", "loss": "0.250"})
        assert "nan" not in shown.getvalue() and "loss=0.250" in shown.getvalue()
        bar.set_postfix(valid="0.800")
    assert "valid=0.800" in shown.getvalue()


def test_a_bar_is_shown_again_before_its_first_step_ends(monkeypatch):
    monkeypatch.setattr(module, "TICK_SECONDS", 0.05)
    shown = io.StringIO()
    with progress(total=2, desc="compile", file=shown) as bar, ticking(bar):
        before = shown.getvalue().count("compile")
        time.sleep(0.5)
        assert shown.getvalue().count("compile") >= before + 3
        bar.update()
    with progress(total=1, file=io.StringIO(), disable=True) as bar, ticking(bar):
        time.sleep(0.12)


def test_in_a_notebook_a_bar_is_no_error_and_a_short_step_has_none(monkeypatch):
    """Notebooks show ``stderr`` on red: every notebook had red bars of 0 % and 100 %."""
    kernel = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    shown, errors = kernel(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", errors)
    assert list(progress(range(5), desc="short")) == [*range(5)]
    assert shown.getvalue() == errors.getvalue() == ""
    monkeypatch.setattr(module, "NOTEBOOK_SECONDS", 0.0)
    assert list(progress(range(5), desc="long")) == [*range(5)]
    assert "long: 100%" in shown.getvalue() and errors.getvalue() == ""
