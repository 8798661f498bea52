"""`make figures`: three small PNGs, the same bytes each time."""

import pytest
from PIL import Image

from common.readme_figures import make_figures
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT

NAMES = ["scores.png", "states.png", "feature.png"]
LIMIT = 60_000  # bytes


def test_three_small_figures_with_the_same_bytes(home):
    paths = make_figures("smoke")
    assert [path.name for path in paths] == NAMES and paths[0].parent == home / "docs" / "figures"
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in make_figures("smoke")] == first
    for path in [*paths, *(PROJECT / "docs" / "figures" / name for name in NAMES)]:
        assert path.stat().st_size <= LIMIT
        with Image.open(path) as image:
            assert image.format == "PNG" and 990 <= image.width <= 1020


def test_a_run_that_is_not_there_is_refused(home):
    with pytest.raises(DataError, match="submissions/other.json: no such file"):
        make_figures("other")
