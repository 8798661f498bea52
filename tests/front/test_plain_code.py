"""A statement does one thing, and a local name says what the thing is."""

from pathlib import Path

import pytest

import fastslow
from fastslow.core.settings import PROJECT
from helpers.plain_code import count, modules

SOURCE = Path(fastslow.__file__).parents[1]
PACKAGES = sorted({path.parent for root in SOURCE.glob("fastslow*/") for path in root.rglob("__init__.py")})
FOLDED_PER_1000_LINES = 4
OWN = {"src": 10, "benchmarks": 0, "tests": 0}  # most places where it is a name


def places(folder, what):
    """Where the modules of a folder hold something that is counted: ``module.py:line``."""
    return [
        f"{path.name}:{line}" for path, counts in modules(folder).items() for line in getattr(counts, what)
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_few_statements_of_a_package_do_two_things(package):
    folded = places(package, "folded")
    lines = sum(counts.lines for counts in modules(package).values())
    assert len(folded) <= max(1, FOLDED_PER_1000_LINES * lines / 1000), folded


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tests", "data/make_sample"])
def test_no_condition_is_inside_another_one(folder):
    assert not places(PROJECT / folder, "nested")


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tests", "data/make_sample"])
def test_no_collection_is_split_against_the_formatter(folder):
    assert not places(PROJECT / folder, "split")


@pytest.mark.parametrize(("folder", "most"), OWN.items())
def test_own_is_a_name_in_few_places(folder, most):
    counted = {path: counts.names.count("own") for path, counts in modules(PROJECT / folder).items()}
    assert sum(counted.values()) <= most, [path.name for path, number in counted.items() if number]


def test_the_counts_find_what_they_count():
    text = "a, b = f(x), y\nc, d = x, y.z\ne = 1 if x else (2 if y else 3)\nown = 4\ng, h = [], f(x)"
    counts = count(text)
    assert counts.folded == [1, 5] and counts.nested == [3] and counts.lines == 5
    assert counts.names.count("own") == 1
    assert len(count('a = (*("b", "c"), *d)\nf(*("b", c), *d)').split) == 2
