"""Figures as PNG files."""

from pathlib import Path

from matplotlib.figure import Figure

from fastslow.core.files import atomic_path


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=120)
