"""A statement does one thing, and a local name says what the thing is."""

import ast
from pathlib import Path

import pytest

import fastslow
from fastslow.core.settings import PROJECT
from helpers.plain_code import (
    assigned_names,
    folded_assignments,
    modules,
    nested_conditions,
    split_collections,
)

SOURCE = Path(fastslow.__file__).parents[1]
PACKAGES = sorted({path.parent for root in SOURCE.glob("fastslow*/") for path in root.rglob("__init__.py")})
FOLDED_PER_1000_LINES = 4
OWN = {"src": 10, "benchmarks": 0, "tests": 0}  # most places where it is a name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_few_statements_of_a_package_do_two_things(package):
    folded = [
        f"{path.name}:{node.lineno}"
        for path, tree in modules(package).items()
        for node in folded_assignments(tree)
    ]
    lines = sum(len(path.read_text().splitlines()) for path in modules(package))
    assert len(folded) <= max(1, FOLDED_PER_1000_LINES * lines / 1000), folded


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tests", "data/make_sample"])
def test_no_condition_is_inside_another_one(folder):
    nested = [
        f"{path.name}:{node.lineno}"
        for path, tree in modules(PROJECT / folder).items()
        for node in nested_conditions(tree)
    ]
    assert not nested


@pytest.mark.parametrize("folder", ["src", "benchmarks", "tests", "data/make_sample"])
def test_no_collection_is_split_against_the_formatter(folder):
    split = [
        f"{path.name}:{node.lineno}"
        for path, tree in modules(PROJECT / folder).items()
        for node in split_collections(tree)
    ]
    assert not split


@pytest.mark.parametrize(("folder", "most"), OWN.items())
def test_own_is_a_name_in_few_places(folder, most):
    places = [
        path.name
        for path, tree in modules(PROJECT / folder).items()
        for name in assigned_names(tree)
        if name == "own"
    ]
    assert len(places) <= most, places


def test_the_counts_find_what_they_count():
    text = "a, b = f(x), y\nc, d = x, y.z\ne = 1 if x else (2 if y else 3)\nown = 4\ng, h = [], f(x)"
    tree = ast.parse(text)
    assert [node.lineno for node in folded_assignments(tree)] == [1, 5]
    assert len([*nested_conditions(tree)]) == 1
    assert [*assigned_names(tree)].count("own") == 1
    assert len([*split_collections(ast.parse('a = (*("b", "c"), *d)\nf(*("b", c), *d)'))]) == 2
