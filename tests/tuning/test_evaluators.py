"""Evaluators: values and every kind of failure, which is an outcome and never an error."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow.hlo.messages import HloProto, Module
from fastslow_programs.tuning import evaluators
from fastslow_programs.tuning.evaluators import CommandEvaluator, Compiled, Replay
from fastslow_programs.tuning.history import Proposal
from fastslow_programs.tuning.search.space import Space
from helpers.cases import cases
from helpers.search_spaces import choices
from helpers.stub_labeller import StubLabeller

PROPOSALS = [Proposal((0, 1), "test"), Proposal((1, 1), "test")]


def program(**facts):
    return SimpleNamespace(module_of=lambda codes: Module(name=f"program {codes}"), **facts)


def outcomes(evaluator, proposals=PROPOSALS):
    with evaluator.running() as evaluate:
        return [outcome for _, outcome in sorted(evaluate(proposals), key=lambda pair: pair[0])]


@pytest.fixture
def script(tmp_path):
    """A function that makes a command of Python source; ``options`` and ``program`` are at hand."""

    def make(source, **limits):
        path = tmp_path / "measure.py"
        head = "import json, os, sys, time\noptions = json.load(open(sys.argv[1]))['options']\n"
        path.write_text(head + source)
        limits = {"seconds": 20.0, "attempts": 1, "processes": 0, "repeats": 1} | limits
        settings = SimpleNamespace(command=f"'{sys.executable}' -IS '{path}'", **limits)
        return CommandEvaluator(settings, program(as_json=lambda c: {"options": list(c)}))

    return make


def test_replay_looks_up(tmp_path):
    settings = SimpleNamespace(origin=SimpleNamespace(path=tmp_path / "file.npz"))
    target = SimpleNamespace(labels=np.array([5.0, 3.0, 4.0, 2.0]), space=Space(choices(2, 2)))
    found = outcomes(Replay(settings, target))
    assert [o.value for o in found] == [3.0, 2.0]


def test_the_compiler_refuses_or_estimates(tmp_path):
    compiled = Compiled(None, program(), StubLabeller(tmp_path / "x", "v3", 1.0))
    first, second = outcomes(compiled)
    assert (first.value, second.value) == (100, None) and second.failure == "refused: no"
    assert "v3" in compiled.name and compiled.identity == "compiler v3 1"


def test_a_command_gets_what_describe_gives_and_the_program(script, tmp_path):
    copy = f"open({str(tmp_path / 'hlo')!r}, 'wb').write(open(sys.argv[2], 'rb').read())"
    command = script(f"print('warming up')\n{copy}\nprint(1 + options[0])\n")
    assert [o.value for o in outcomes(command)] == [1.0, 2.0]
    named = HloProto.FromString((tmp_path / "hlo").read_bytes()).hlo_module.name
    assert named == "program (1, 1)"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sys.exit(3)", "failed: it ended with 3"),
        ("print('boom', file=sys.stderr); sys.exit(1)", "boom"),
        ("print('about 3 ms')", "printed no number: its last line is 'about 3 ms'"),
        ("sys.stdout.buffer.write('٣'.encode())", "printed no number: its last line is '٣'"),
        ("print('1e999')", "a value is a number from 1e-30 to 1e+30"),
        ("print('1e-320')", "a value is a number from 1e-30 to 1e+30"),
        ("sys.stdout.buffer.write(bytes([255, 254]))", "printed no number"),
    ],
)
def test_a_failing_command_is_an_outcome(script, source, said):
    for outcome in outcomes(script(source)):
        assert outcome.value is None and said in outcome.failure


def test_a_hanging_command_is_killed(script):
    (outcome,) = outcomes(script("time.sleep(600)", seconds=1.0), PROPOSALS[:1])
    assert outcome.value is None and outcome.failure == "timed out: it took longer than 1 s"


def test_a_command_that_fails_once_is_tried_again(script, tmp_path):
    source = f"""
flag = {str(tmp_path / "flag")!r}
if not os.path.exists(flag):
    open(flag, 'w')
    sys.exit(1)
print(7)
"""
    assert outcomes(script(source, attempts=2), PROPOSALS[:1])[0].value == 7


def test_a_value_is_the_median_of_runs_in_turn_that_alternate(script, tmp_path):
    """The second run of either is disturbed; the configurations of a batch run forth and back."""
    log = tmp_path / "log"
    source = f"""
with open({str(log)!r}, 'a+') as log:
    log.write(str(options[0]))
    log.seek(0)
    number = log.read().count(str(options[0]))
print((1 + options[0]) * (100 if number == 2 else number))
"""
    assert [o.value for o in outcomes(script(source, repeats=3))] == [3.0, 6.0]
    assert log.read_text() == "011001"


def test_after_a_failed_run_a_configuration_is_not_run_again(script, tmp_path):
    log = tmp_path / "log"
    source = f"open({str(log)!r}, 'a').write('x')\nif options[0]: sys.exit(3)\nprint(1)\n"
    first, second = outcomes(script(source, repeats=3))
    assert first.value == 1.0 and second.value is None and "ended with 3" in second.failure
    assert len(log.read_text()) == 4


def test_commands_run_side_by_side(script, tmp_path):
    meet = f"""
mine = {str(tmp_path)!r} + f'/here-{{options[0]}}'
open(mine, 'w')
while not os.path.exists({str(tmp_path)!r} + f'/here-{{1 - options[0]}}'):
    time.sleep(0.02)
print(1)
"""
    assert [o.value for o in outcomes(script(meet, processes=2))] == [1.0, 1.0]


@cases("command", ["no-such-program-anywhere x", "./nothing here", "'unclosed", ""])
def test_a_command_that_cannot_be_is_refused_before_there_is_a_study(command):
    with pytest.raises(SettingsError, match="command: "):
        CommandEvaluator(SimpleNamespace(command=command), program())


def identity_of(command, repeats=1):
    return CommandEvaluator(SimpleNamespace(command=command, repeats=repeats), program()).identity


def test_an_edited_script_and_other_repeats_are_another_evaluator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    scripts = [tmp_path / "m.sh", tmp_path / "bin" / "measure", tmp_path / "measure.py"]
    for script in scripts:
        script.write_text("#!/bin/sh\necho 1\n")
        script.chmod(0o755)
    commands = ["./m.sh", "measure", "sh measure.py"]
    before = [identity_of(command) for command in commands]
    assert [identity_of(command) for command in commands] == before
    for script in scripts:
        script.write_text("#!/bin/sh\necho 2\n")
    assert not {*before} & {identity_of(command) for command in commands}
    assert identity_of("./m.sh", repeats=3) != identity_of("./m.sh", repeats=1)
    assert identity_of("sh -c 'echo 1'") == "command sh -c 'echo 1', median of 1 run", "no system binary's"
    assert identity_of(f"sh -c '{'echo 1;' * 1000}'"), "too long for a name of a file"


def test_a_file_of_a_command_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("1")
    monkeypatch.setattr(evaluators, "file_digest", lambda path: Path("/no such/file").read_bytes())
    with pytest.raises(SettingsError, match="command: a file that it names cannot be read"):
        identity_of("sh data")
