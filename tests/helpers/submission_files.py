"""Submission CSVs for tests."""

from pathlib import Path

from fastslow.competition.submission_csv import format_submission


def write_submission(path: Path, predictions, data_root: Path | None = None) -> None:
    """Write the CSV of predictions by ID, see :func:`format_submission`."""
    path.write_bytes(format_submission(path, predictions, data_root))
