"""The journal: cut anywhere it resumes to the same study; a record that is wrong is refused by its line."""

import json
import os
import socket
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastslow.core.errors import DataError
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.tune import tune
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

from fastslow_programs.tuning.ledger import Ledger  # noqa: E402


@pytest.fixture(scope="module")
def dead():
    """Host and number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{socket.gethostname()}:{process.pid}"


@pytest.fixture(scope="module")
def study(tmp_path_factory, dead):
    """Settings of a study of a process that has ended, its journal and its evaluations."""
    folder = tmp_path_factory.mktemp("study")
    npz = write_npz(folder / "labelled.npz", layout_arrays(3, dots=4, configs=40))
    settings = TuneSettings(
        source=str(npz), run="none", strategy="evolutionary", evaluations=11, batch=4, data_root=str(folder)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "process", dead)
        done = tune(settings).history.done
    return settings, settings.ledger.read_bytes(), done


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_study_whose_journal_is_cut_at_any_byte_gives_the_same_result(study, data, capsys):
    settings, journal, done = study
    length = data.draw(st.integers(0, len(journal)))
    settings.ledger.write_bytes(journal[:length])
    torn = length and journal[length - 1 : length] != b"\n"
    resumed = tune(settings)
    assert resumed.history.done == done
    whole = journal[:length].count(b"\n")
    assert (f"line {whole + 1} was torn" in capsys.readouterr().err) == bool(torn)
    lines = [json.loads(line) for line in settings.ledger.read_bytes().splitlines()]
    assert [line["line"] for line in lines] == list(range(1, len(lines) + 1))


def change(key, value):
    """Change a part of the first record that has it."""

    def changed(lines):
        for number, line in enumerate(lines):
            record = json.loads(line)
            own = record.get("user_attr", {})
            parts = [record, own, *own.values()]
            if part := next((p for p in parts if isinstance(p, dict) and key in p), None):
                part[key] = value
                return [*lines[:number], json.dumps(record).encode(), *lines[number + 1 :]], number + 1
        raise KeyError(key)

    return changed


WRONG = {
    **{
        f"value {value}": change("value", value)
        for value in (float("nan"), float("inf"), -5, 0, True, "x", [])
    },
    **{
        f"codes {codes!r}": change("codes", codes)
        for codes in ("", "-1 0 0", "a", "0", "0 " * 30, "999 0 0 0 0 0 0 0", "70000", ["0"], 0, None)
    },
    **{f"process {own!r}": change("process", own) for own in ("host:abc", "host:" + "9" * 30, 7, "")},
    "an outcome without a reason": change("failure", None),
    "seconds": change("seconds", "long"),
    "notes": change("notes", "text"),
    "time": change("time", "noon"),
    "identity": change("identity", "text"),
    "proposal": change("proposal", []),
    "operation": change("op_code", 99),
    "trial": change("trial_id", "first"),
    "first line lost": lambda lines: (lines[1:], 1),
    "middle line lost": lambda lines: ([*lines[:9], *lines[10:]], 10),
    "lines exchanged": lambda lines: ([*lines[:9], lines[10], lines[9], *lines[11:]], 10),
    "a line twice": lambda lines: ([*lines[:9], lines[8], *lines[9:]], 10),
    "a torn line in the middle": lambda lines: ([*lines[:9], lines[9][:20] + lines[10], *lines[11:]], 10),
    "deep": lambda lines: ([*lines[:9], b"[" * 100_000, *lines[9:]], 10),
}


@cases("wrong", WRONG.values())
def test_a_wrong_record_is_refused_with_its_line_and_the_remedy(study, wrong):
    settings, journal, _ = study
    lines, number = wrong(journal.splitlines())
    content = b"\n".join(lines) + b"\n"
    settings.ledger.write_bytes(content)
    with pytest.raises(
        DataError, match=f"study.journal: line {number} is no record.*keep its first {number - 1} "
    ):
        tune(settings)
    assert settings.ledger.read_bytes() == content, "nothing is written to it"


@cases("content", [b"\xef\xbb\xbf", b"text without an end", b"\0" * 50])
def test_a_file_of_another_kind_is_refused_and_kept(study, content):
    settings, journal, _ = study
    settings.ledger.write_bytes(content + journal)
    with pytest.raises(DataError, match="is not the journal of a study"):
        tune(settings)
    assert settings.ledger.read_bytes() == content + journal


def test_a_pipe_or_a_device_is_not_waited_for(study):
    settings, _, _ = study
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        settings.ledger.unlink(missing_ok=True)
        make(settings.ledger)
        with pytest.raises(DataError, match="a file is wanted"):
            tune(settings)
    settings.ledger.unlink()
