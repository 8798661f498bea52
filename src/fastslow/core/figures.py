"""Figures as PNG files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from fastslow.core.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: Path, dpi: int = 120, colours: int | None = None) -> None:
    """Write a figure as PNG, atomically; one version of matplotlib always writes the same bytes.

    With ``colours``, 256 or fewer, the file has a third of the size.
    """
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    with Image.open(buffer) as image, atomic_path(path) as temporary:
        kept = image.convert("RGB").quantize(colours, dither=Image.Dither.NONE) if colours else image
        kept.save(temporary, optimize=True)
