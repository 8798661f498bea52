"""The study as it is kept: resumed, shared, freed of dead processes, refused where it is another's."""

import os
import subprocess
import sys
import threading

import pytest

from fastslow.core.errors import DataError
from fastslow_programs.tuning.history import Outcome, Proposal
from fastslow_programs.tuning.search.space import Space
from helpers.search_spaces import choices

optuna = pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from fastslow_programs.tuning.ledger import INTERRUPTED, Ledger  # noqa: E402

IDENTITY = {"program": "abc", "evaluator": "replay"}


@pytest.fixture
def space():
    return Space(choices(2, 3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study" / "study.journal"


def test_what_is_kept_comes_back_in_order(path, space):
    ledger = Ledger(path, IDENTITY, space)
    kept = [
        (Proposal((0, 1), "a", {"generation": 2}), Outcome(3.5, "", 0.25)),
        (Proposal((1, 1), "b"), Outcome(None, "refused: no")),
        (Proposal((1, 2), "b"), Outcome(1.5)),
    ]
    for proposal, outcome in kept:
        ledger.finish(ledger.start(proposal), outcome)
    history = Ledger(path, IDENTITY, space).read()
    assert history.done == kept and history.best == (kept[2][0], 1.5)
    assert history.failures == ["refused: no"] and len(history.taken) == 3


def test_what_is_running_is_taken_and_not_an_evaluation(path, space):
    first, second = Ledger(path, IDENTITY, space), Ledger(path, IDENTITY, space)
    first.start(Proposal((0, 1), "a"))
    assert len(second.read()) == 0 and len(second.read().taken) == 1 and second.read().running == 1
    assert second.release_dead() == 0, "its process, this one, lives"


def test_evaluations_of_a_dead_process_are_free_again(path, space):
    code = f"""
from pathlib import Path
from fastslow_programs.tuning.history import Proposal
from fastslow_programs.tuning.ledger import Ledger
from fastslow_programs.tuning.search.space import Choice, Space
space = Space([Choice('x', ('a', 'b'), 0), Choice('y', ('a', 'b', 'c'), 0)])
Ledger(Path({str(path)!r}), {IDENTITY!r}, space).start(Proposal((1, 1), 'a'))
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    ledger = Ledger(path, IDENTITY, space)
    assert ledger.read().running == 1 and ledger.release_dead() == 1
    assert ledger.read().running == 0 and not ledger.read().taken and not len(ledger.read())


def test_a_trial_that_another_process_has_just_begun_is_not_free(path, space, monkeypatch):
    first, second = Ledger(path, IDENTITY, space), Ledger(path, IDENTITY, space)
    freed, write = [], optuna.Trial.set_user_attr
    release = threading.Thread(target=lambda: freed.append(second.release_dead()))

    def write_late(trial, name, value):
        release.start()
        release.join(0.3)
        write(trial, name, value)

    monkeypatch.setattr(optuna.Trial, "set_user_attr", write_late)
    with first.proposing():
        first.start(Proposal((0, 1), "a"))
    release.join()
    assert freed == [0] and second.read().running == 1


def test_an_interrupted_evaluation_is_no_failure(path, space):
    ledger = Ledger(path, IDENTITY, space)
    ledger.finish(ledger.start(Proposal((0, 1), "a")), Outcome(None, INTERRUPTED))
    assert not len(ledger.read()) and not ledger.read().taken


def test_a_study_of_another_program_is_refused_and_kept(path, space):
    ledger = Ledger(path, IDENTITY, space)
    ledger.finish(ledger.start(Proposal((0, 1), "a")), Outcome(3.5))
    with pytest.raises(DataError, match="the study of something else .program: abc here xyz"):
        Ledger(path, {**IDENTITY, "program": "xyz"}, space)
    assert len(Ledger(path, IDENTITY, space).read()) == 1


@pytest.mark.parametrize("content", [b"no journal\n", b"\xff\xfe\n", b'{"op_code": 99}\n', b"[1]\n"])
def test_a_file_that_is_no_journal_is_refused(path, space, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DataError, match="study.journal: "):
        Ledger(path, IDENTITY, space).read()
    assert path.read_bytes().startswith(content)
