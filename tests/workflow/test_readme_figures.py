"""`fastslow figures`: three small PNGs, the same bytes each time."""

import pytest
from PIL import Image

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import PROJECT
from fastslow.workflow.readme_figures import FiguresSettings, make_figures
from helpers.cases import cases

NAMES = ["scores.png", "states.png", "feature.png"]
LIMIT = 60_000  # bytes


def test_three_small_figures_with_the_same_bytes(home):
    settings = FiguresSettings(name="smoke")
    paths = make_figures(settings)
    assert [path.name for path in paths] == NAMES and paths[0].parent == home / "docs" / "figures"
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in make_figures(settings)] == first
    for path in paths:
        assert path.stat().st_size <= LIMIT
        with Image.open(path) as image:
            assert image.format == "PNG" and 1190 <= image.width <= 1210


@cases("name", NAMES)
def test_the_committed_figures_are_small(name):
    assert (PROJECT / "docs" / "figures" / name).stat().st_size <= LIMIT


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"graph": "other"}, SettingsError, "graph: 'other' is not a train graph of"),
        ({"column": "speed"}, SettingsError, "column: 'speed' is not a configuration feature"),
        ({"name": "other"}, DataError, "submissions/other.json: no such file"),
    ],
)
def test_what_is_not_there_is_refused(home, options, error, said):
    with pytest.raises(error, match=said):
        make_figures(FiguresSettings(**{"name": "smoke", **options}))
