"""Mutation testing finds the modules and tests that it names, and mutates no annotation."""

import mutation
from fastslow.core.settings import PROJECT
from helpers.cases import cases


@cases("target", list(mutation.TARGETS))
def test_every_target_names_modules_and_their_tests(target):
    assert any(len(path.read_text().splitlines()) > 10 for path in mutation.modules_of(target))
    tests = mutation.TARGETS[target][1].split()
    assert tests and [name for name in tests if not (PROJECT / "tests" / name).is_file()] == []


def test_the_copy_has_the_modules_of_every_target(tmp_path):
    mutation.copy_repository(tmp_path)
    for target in mutation.TARGETS:
        for path in mutation.modules_of(target):
            assert (tmp_path / path.relative_to(mutation.ROOT)).is_file()
    assert not (tmp_path / "runs").exists()


def test_annotations_are_found():
    source = "def f(a: int | None = 1) -> list[int]:\n    b: float = 2\n    return a"
    spans = mutation.annotated(source)
    lines = source.splitlines()
    found = {lines[start[0] - 1][start[1] : end[1]] for start, end in spans}
    assert found == {"int | None", "list[int]", "float"}
