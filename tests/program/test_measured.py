"""What was measured of a program: found again, kept by two processes at once, left aside where damaged."""

import random
import subprocess
import sys

import pytest

from fastslow.core.files import digest, read_json, write_json
from fastslow_programs.compiler.layout_choices import draw_configuration, imposable, layouts_of
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.program import measured
from fastslow_programs.program.measured import Measured, find_measured
from helpers.bad_files import ANY_FILE
from helpers.cases import cases
from helpers.dot_module import rich_module, small_module
from helpers.stub_labeller import StubLabeller

MODULE = rich_module()
NODES = configurable_nodes(MODULE)
CHOICES = imposable(NODES)


def kept(folder, evaluator="compiler v3 1", module=MODULE):
    return Measured(folder, module, configurable_nodes(module), evaluator)


@pytest.fixture
def values():
    """Six configurations and their layouts."""
    found, rng = {}, random.Random(0)
    while len(found) < 6:
        configuration = draw_configuration(CHOICES, rng)
        found[configuration] = layouts_of(configuration, CHOICES)
    return found


def test_what_is_added_is_read_of_the_same_program_by_the_same_evaluator(tmp_path, values):
    first, *others = values
    kept(tmp_path).add(
        [
            (values[first], 2.0),
            (values[first], 1.5),
            *((values[configuration], 3.0) for configuration in others),
        ]
    )
    kept(tmp_path).add([(values[first], 1.5), (values[first], 1.0)])  # as a study adds its values again
    assert kept(tmp_path).read() == {first: [2.0, 1.5, 1.0], **dict.fromkeys(others, [3.0])}
    for evaluator in ("compiler v4 1", "compiler v3 2", "device cpu"):
        assert kept(tmp_path, evaluator).read() == {}
    changed = rich_module()
    changed.computations[1].instructions[-1].name = "other"
    assert kept(tmp_path, module=changed).read() == {} == kept(tmp_path, module=small_module(2)).read()


def test_what_the_device_measured_comes_before_what_the_compiler_estimated(tmp_path, values, monkeypatch):
    labeller, (one, other, *_) = StubLabeller(tmp_path, "v3", 1.0), values
    monkeypatch.setattr(measured, "device_identity", lambda: pytest.fail("nothing is there to look for"))
    assert find_measured(tmp_path, labeller, MODULE, NODES) == ({}, "")
    monkeypatch.setattr(measured, "device_identity", lambda: "device cpu")
    kept(tmp_path).add([(values[one], 9.0)])
    found, source = find_measured(tmp_path, labeller, MODULE, NODES)
    assert found == {one: [9.0]} and source == f"{kept(tmp_path).path}, compiler v3 1"
    kept(tmp_path, "device cpu").add([(values[other], 1.0)])
    assert find_measured(tmp_path, labeller, MODULE, NODES)[0] == {other: [1.0]}
    assert find_measured(tmp_path, StubLabeller(tmp_path, "v4", 1.0), small_module(), [])[0] == {}


def ten_times(path):
    path.write_bytes(path.read_bytes().replace(b"3.0", b"30.0"))


@cases("name, spoil", [*({**ANY_FILE, "ten times a value": ten_times}.items())])
def test_a_damaged_file_is_named_and_left_aside(tmp_path, values, capsys, name, spoil):
    measured_file = kept(tmp_path)
    measured_file.add([(layouts, 3.0) for layouts in values.values()])
    spoil(measured_file.path)
    status = measured_file.path.lstat() if name != "lost" else None
    if name in ("lost", "a dangling link", "a link to itself"):  # as if nothing was measured
        assert measured_file.read() == {} and not capsys.readouterr().err
        return
    assert measured_file.read() == {}
    measured_file.add([(layouts, 5.0) for layouts in values.values()])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all(f"warning: {measured_file.path}: " in line for line in said)
    assert measured_file.path.lstat() == status, "it stays as it is"


@cases("value", [[0], [-1.0], [None], ["3.0"], [True], [float("inf")], [10**400], 3.0, None, [[3.0]]])
def test_values_that_are_no_times_are_named_and_left_aside(tmp_path, values, capsys, value):
    measured_file = kept(tmp_path)
    measured_file.add([(layouts, 3.0) for layouts in values.values()])
    facts = read_json(measured_file.path)
    facts["values"][next(iter(facts["values"]))] = value
    del facts["checksum"]
    write_json(measured_file.path, facts | {"checksum": digest(facts)})
    assert measured_file.read() == {}
    said = f"warning: {measured_file.path}: holds values that are no lists of runtimes"
    assert said in capsys.readouterr().err


def test_where_nothing_can_be_written_a_warning_says_so(tmp_path, values, capsys, monkeypatch):
    (tmp_path / "file").touch()
    for place, said in (
        ("/proc/none", "no folder can be made there"),
        (tmp_path / "file", "is a file, a folder is wanted"),
    ):
        monkeypatch.setattr(measured, "MEASURED_FOLDER", place)
        kept(tmp_path).add([(layouts, 3.0) for layouts in values.values()])
        found = capsys.readouterr().err
        assert found.startswith("warning: ") and said in found and str(place) in found


def test_a_configuration_of_other_choices_is_passed_over(tmp_path, values):
    """As where the compiler's own layouts are known, which tie other nodes."""
    kept(tmp_path).add([({}, 2.0), *((layouts, 3.0) for layouts in values.values())])
    assert len(kept(tmp_path).read()) == 6


WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from program.test_measured import CHOICES, kept, layouts_of
default = layouts_of(tuple(choice.default for choice in CHOICES), CHOICES)
for number in range(40):
    kept(Path(sys.argv[1])).add([(default, float(sys.argv[3]) + number)])
"""


def test_two_processes_write_at_once(tmp_path):
    tests = __file__.rpartition("/program/")[0]
    runs = [
        subprocess.Popen([sys.executable, "-c", WRITE, tmp_path, tests, start], stderr=subprocess.PIPE)
        for start in ("100", "200")
    ]
    assert not any(run.wait(timeout=120) for run in runs), [run.stderr.read() for run in runs]
    (found,) = kept(tmp_path).read().values()
    assert sorted(found) == [float(start + number) for start in (100, 200) for number in range(40)]
