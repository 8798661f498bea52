"""A progress bar does not flood a log."""

from fastslow.core.progress import progress


def test_a_log_gets_few_lines(capsys):
    assert list(progress(range(2_000), desc="graphs")) == list(range(2_000))
    assert 1 <= capsys.readouterr().err.count("graphs") <= 3
