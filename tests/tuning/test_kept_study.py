"""The kept study: cut anywhere, it resumes to the same one; what is broken or changed is refused."""

import json
import os
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json, write_json
from fastslow_programs.tuning.confirmation import CONFIRMS
from fastslow_programs.tuning.evaluators import Replay
from fastslow_programs.tuning.history import Evaluation, Proposal
from fastslow_programs.tuning.kept_study import open_study
from fastslow_programs.tuning.result import summarise_study, write_result
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import read_target
from fastslow_programs.tuning.tune import complete_study
from helpers.cases import cases
from helpers.competition_files import layout_arrays, write_npz
from helpers.search_spaces import choices

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

pytestmark = pytest.mark.usefixtures("undrawn")
IDENTITY = {"program": "abc", "evaluator": "replay"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Settings of a study, its journal and its evaluations."""
    folder = tmp_path_factory.mktemp("study")
    npz = write_npz(folder / "labelled.npz", layout_arrays(3, dots=4, configs=40))
    common = {"run": "none", "strategy": "random", "evaluations": 11, "batch": 4, "data_root": str(folder)}
    settings = TuneSettings(source=str(npz), **common)
    done = complete_study(settings).history.done
    return settings, settings.journal.read_bytes(), done


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_study_whose_journal_is_cut_at_any_byte_gives_the_same_result(study, data, capsys):
    settings, journal, done = study
    length = data.draw(st.integers(0, len(journal)))
    settings.journal.write_bytes(journal[:length])
    torn = length and b"\n" not in journal[length - 1 : length + 1]
    resumed = complete_study(settings)
    assert resumed.history.done == done
    assert ("after the last whole record are cut off" in capsys.readouterr().err) == bool(torn)
    assert settings.journal.read_bytes().count(b"\n") == journal.count(b"\n"), "nothing is evaluated twice"


@cases("rest", [b"\n", b"\0" * 4096, b"\r\n \n", b'{"op_code":4\0\0', b"\0\n"])
def test_what_a_crash_leaves_after_the_last_record_is_cut(study, rest, capsys):
    settings, journal, done = study
    settings.journal.write_bytes(journal + rest)
    assert complete_study(settings).history.done == done
    assert f"{len(rest)} bytes after the last whole record are cut off" in capsys.readouterr().err
    assert settings.journal.read_bytes() == journal


@cases("rest", [b"", b"\r\n", b"\0\0", b" \n \n"])
def test_a_whole_last_record_without_its_line_end_is_kept(study, rest, capsys):
    """An editor takes the line end, or writes others; its checksum shows that the record is whole."""
    settings, journal, done = study
    cut = len(journal) - 1
    settings.journal.write_bytes(journal[:cut].replace(b"\n", rest if rest == b"\r\n" else b"\n") + rest)
    before = settings.journal.read_bytes()
    assert complete_study(settings).history.done == done
    assert settings.journal.read_bytes() == before[: len(before) - len(rest)] + b"\n"
    assert "cut off" not in capsys.readouterr().err


@cases("records", [0, 2, 12])
def test_a_shortened_journal_of_a_finished_study_is_refused_and_kept(study, tmp_path, records):
    settings = study[0].model_copy(update={"data_root": str(tmp_path)})
    folder = write_result(complete_study(settings))
    files = {path: path.read_bytes() for path in folder.iterdir()}
    lines = files[settings.journal].splitlines(keepends=True)
    assert len(lines) == 13
    settings.journal.write_bytes(b"".join(lines[:records]))
    held = max(0, records - 2)
    with pytest.raises(
        DataError, match=f"journal: holds {held} evaluations?, 11 were kept .* Restore it. Give"
    ):
        complete_study(settings)
    assert settings.journal.read_bytes() == b"".join(lines[:records])
    manifest = read_json(folder / "manifest.json")
    del manifest["kept"]  # which older versions do not write
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match=f"journal: holds {held} evaluations?, 11 were kept"):
        complete_study(settings)
    for damaged in ("", "[]", '{"kept": "x"}', '{"summary": {"evaluations": 3}}'):
        (folder / "manifest.json").write_text(damaged)
        settings.journal.write_bytes(b"".join(lines[:records]))
        complete_study(settings)
    settings.journal.write_bytes(files[settings.journal])
    assert write_result(complete_study(settings.replace(evaluations=13))) == folder
    assert read_json(folder / "manifest.json")["kept"] == 13


@cases("strategy", ["guided", "random"])
def test_an_interrupted_batch_is_completed_as_if_it_had_not_been(study, tmp_path, strategy):
    settings = study[0].model_copy(update={"strategy": strategy, "data_root": str(tmp_path)})
    done = complete_study(settings).history.done
    lines = settings.journal.read_bytes().splitlines(keepends=True)
    settings.journal.write_bytes(b"".join(lines[:8]))  # two of the second batch
    assert complete_study(settings).history.done == done


def test_a_study_that_an_older_strategy_began_is_continued(study, tmp_path):
    settings = study[0].model_copy(update={"data_root": str(tmp_path), "strategy": "guided"})
    target = read_target(settings)
    identity = {"program": target.digest, "evaluator": target.evaluator.identity}
    identity["choices"] = " ".join(map(str, target.space.options.tolist()))
    begun = [Proposal(tuple(map(int, codes)), "guided: process") for codes in target.space.listed[:5]]
    with open_study(settings.journal, identity, target.space) as kept:
        for number, proposal in enumerate(begun):  # the second batch of four was interrupted
            kept.keep(proposal, Evaluation(2.0 + number), (4 * (number // 4), 4, 4))
    done = complete_study(settings).history.done
    assert [proposal for proposal, _ in done[:5]] == begun and len(done) == 11
    assert len({proposal.codes for proposal, _ in done}) == 11
    assert {proposal.by for proposal, _ in done[5:]} <= {"default", "guided"}


def test_interrupted_paired_rounds_are_completed_as_if_they_had_not_been(study, tmp_path, monkeypatch):
    """Screening of contenders, and either half of a pair."""
    monkeypatch.setattr(Replay, "noisy", True)
    changes = {"evaluations": 64, "data_root": str(tmp_path)}
    settings = study[0].model_copy(update=changes)
    whole = complete_study(settings)
    lines = settings.journal.read_bytes().splitlines(keepends=True)
    done = whole.history.done
    first = next(place for place, (proposal, _) in enumerate(done) if proposal.by == CONFIRMS)
    assert whole.verdict.rounds == 13 and len(done) - first == 6 + 26
    for kept in range(first, first + 8):
        settings.journal.write_bytes(b"".join(lines[: 2 + kept]))
        again = complete_study(settings)
        assert again.history.done == done and again.verdict == whole.verdict


@cases(
    "first, budget, found",
    [
        (24, 48, (24, 12 + 12, 5)),  # searched, in rounds, rounds of the verdict
        (24, 35, (13, 12 + 10, 5)),  # the least that a verdict needs
        (24, 34, (12, 12 + 4, 7)),  # a search would leave too little for one: more rounds
        (24, 25, (12, 12, 5)),
        (40, 48, (20, 20 + 4, 10)),  # as many evaluations as configurations, half of which are left
    ],
)
def test_a_larger_budget_searches_on_and_confirms_anew(study, tmp_path, monkeypatch, first, budget, found):
    """Earlier rounds counted as search, and 24 of 80 evaluations were not spent."""
    monkeypatch.setattr(Replay, "noisy", True)
    settings = study[0].model_copy(update={"evaluations": first, "data_root": str(tmp_path)})
    assert complete_study(settings).verdict.rounds >= 5
    more = settings.model_copy(update={"evaluations": budget})
    whole = complete_study(more)
    done, lines = whole.history.done, settings.journal.read_bytes().splitlines(keepends=True)
    confirming = sum(proposal.by == CONFIRMS for proposal, _ in done)
    assert (len(done) - confirming, confirming, whole.verdict.rounds) == found
    said = summarise_study(whole)["evaluations"]
    assert ("not spent" in said) is (budget - len(done) > 1) and not whole.exhausted
    for kept in range(first, len(done), 3):
        settings.journal.write_bytes(b"".join(lines[: 2 + kept]))
        assert complete_study(more).history.done == done


def test_a_share_of_all_leaves_a_verdict(study, tmp_path, monkeypatch):
    """Contenders were measured at the cost of the fifth round."""
    monkeypatch.setattr(Replay, "noisy", True)
    changes = {"evaluations": 12, "confirm": 1.0, "data_root": str(tmp_path)}
    assert complete_study(study[0].model_copy(update=changes)).verdict.rounds == 5


def change(key, value, number=4):
    """Change a part of the record of an evaluation."""

    def changed(lines):
        record = json.loads(lines[number])
        part = record if key in record else record["user_attrs"]
        assert key in part, record
        part[key] = value
        return [*lines[:number], json.dumps(record).encode(), *lines[number + 1 :]]

    return changed


def without_checksum(lines):
    record = json.loads(lines[-1])
    del record["user_attrs"]["checksum"]
    return [*lines[:-1], json.dumps(record).encode()]


def a_tenth(lines):
    return change("value", json.loads(lines[-1])["value"] / 10, -1)([*lines])


def identity(value):
    """Change what the study is of."""
    return lambda lines: change("user_attr", {"identity": value}, 1)([*lines])


WRONG = {
    **{f"identity {value!r}": identity(value) for value in (None, 7, True, "x", [], {})},
    "a tenth of the value": a_tenth,
    "no checksum": without_checksum,
    **{f"value {value}": change("value", value) for value in (float("nan"), -5, True, "x", [], None)},
    **{f"codes {codes!r}": change("codes", codes) for codes in ("", "-1 0 0", "a", "0 " * 30, ["0"], None)},
    **{
        key: change(key, value)
        for key, value in {"failure": "f", "seconds": 9, "notes": "t", "by": 0}.items()
    },
    "batch": change("batch", [0, 0, 0]),
    "checksum": change("checksum", "0" * 16),
    "attributes": change("user_attrs", []),
    "study": change("study_id", 7, -1),
    "operation": change("op_code", 99),
    "first line lost": lambda lines: lines[1:],
    "middle line lost": lambda lines: [*lines[:6], *lines[7:]],
    "lines exchanged": lambda lines: [*lines[:6], lines[7], lines[6], *lines[8:]],
    "a line twice": lambda lines: [*lines, lines[-1]],
    "a torn line in the middle": lambda lines: [*lines[:6], lines[6][:20] + lines[7], *lines[8:]],
    "a broken last line": lambda lines: [*lines[:-1], lines[-1][:-5]],
    "deep": lambda lines: [*lines[:6], b'{"op_code":' + b"[" * 100_000, *lines[6:]],
    "another kind": lambda lines: [b"text", *lines],
}


@cases("wrong", WRONG.values())
def test_a_record_that_is_wrong_is_refused_and_kept(study, wrong):
    settings, journal, _ = study
    content = b"\n".join(wrong(journal.splitlines())) + b"\n"
    settings.journal.write_bytes(content)
    with pytest.raises(DataError, match=r"study\.journal: .*(Restore it|delete it)"):
        complete_study(settings)
    assert settings.journal.read_bytes() == content, "nothing is written to it"


@cases("content", [b"\xef\xbb\xbf", b"text without an end", b"\0" * 50])
def test_a_file_of_another_kind_is_refused_and_kept(study, content):
    settings, journal, _ = study
    for whole in (content, content + journal):
        settings.journal.write_bytes(whole)
        with pytest.raises(DataError, match="line 1 is no record of a study"):
            complete_study(settings)
        assert settings.journal.read_bytes() == whole


def test_a_study_of_an_older_version_is_refused_by_name(study):
    settings, _, _ = study
    start = {"worker_id": "w", "study_id": 0}
    old = [
        {"op_code": 0, "worker_id": "w", "study_name": "tuning", "directions": [1], "line": 1},
        {"op_code": 2, **start, "user_attr": {"identity": {"program": "x"}}, "line": 2},
        {"op_code": 4, **start, "datetime_start": "2026-01-01T00:00:00", "line": 3},
    ]
    settings.journal.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in old))
    with pytest.raises(DataError, match="study.journal: is the study of an older version.*another folder"):
        complete_study(settings)


def test_a_pipe_or_a_device_is_not_waited_for(study):
    settings, _, _ = study
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        settings.journal.unlink(missing_ok=True)
        make(settings.journal)
        with pytest.raises(DataError, match="a file is wanted"):
            complete_study(settings)
    settings.journal.unlink()


def test_a_link_to_nothing_is_refused_by_name(study, tmp_path):
    settings = study[0].model_copy(update={"data_root": str(tmp_path)})
    settings.journal.parent.mkdir(parents=True)
    settings.journal.symlink_to("gone")
    with pytest.raises(DataError, match=r"study\.journal: .*link"):
        complete_study(settings)
    assert settings.journal.is_symlink()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study" / "study.journal"


def test_what_is_kept_comes_back_in_order(path):
    space = Space(choices(2, 3))
    kept = [
        (Proposal((0, 1), "a", {"generation": 2}), Evaluation(3.5, "", 0.25)),
        (Proposal((1, 1), "b"), Evaluation(None, "refused: no")),
        (Proposal((1, 2), "b"), Evaluation(1.5)),
    ]
    with open_study(path, IDENTITY, space) as study:
        for proposal, evaluation in kept:
            study.keep(proposal, evaluation, (0, 3, 3))
    with open_study(path, IDENTITY, space) as study:
        history = study.history
        assert history.done == kept and history.best == (kept[2][0], 1.5) and study.batch == (0, 3, 3)
        assert history.failures == ["refused: no"] and len(history.taken) == 3


def test_a_second_process_waits_for_the_first_and_a_lock_that_a_killed_one_left_is_no_hindrance(path):
    code = f"""
from pathlib import Path
from fastslow_programs.tuning.history import Evaluation, Proposal
from fastslow_programs.tuning.kept_study import open_study
from fastslow_programs.tuning.search.space import Choice, Space
space = Space([Choice('x', ('a', 'b'), 0), Choice('y', ('a', 'b', 'c'), 0)])
with open_study(Path({str(path)!r}), {IDENTITY!r}, space) as study:
    study.keep(Proposal((1, 1), 'a'), Evaluation(2.0), (0, 1, 1))
"""
    with open_study(path, IDENTITY, Space(choices(2, 3))) as study:
        waiting = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        assert "another run is writing here" in waiting.stderr.readline()
        study.keep(Proposal((1, 2), "a"), Evaluation(3.0), (0, 1, 1))
        path.with_name("study.journal.lock").symlink_to("nowhere")  # as if killed while it writes
    began = time.monotonic()
    assert waiting.wait(60) == 0 and time.monotonic() - began < 10
    with open_study(path, IDENTITY, Space(choices(2, 3))) as study:
        assert len(study.history) == 2


def test_without_optuna_it_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with (
        pytest.raises(SettingsError, match=r"optuna keeps the study and is not installed: pip install"),
        open_study(path, IDENTITY, Space(choices(2, 3))),
    ):
        pass
    assert not path.parent.exists()
