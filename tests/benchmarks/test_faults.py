"""The benchmark of faults: its verdicts; the whole of it takes minutes and is run by hand."""

import contextlib
import random
import subprocess
import sys

import psutil
import pytest

import faults

GOOD = {"completed": True, "different": [], "temporary files": [], "survivors": []}


@pytest.mark.parametrize(
    "harm",
    [
        {"completed": False},
        {"different": ["runs/smoke/x/model.pt"]},
        {"temporary files": [".x.tmp"]},
        {"survivors": [7]},
        {"clear": False},
    ],
)
def test_any_harm_is_counted(harm):
    assert faults.is_good(GOOD) and faults.is_good({**GOOD, "clear": True})
    assert not faults.is_good(GOOD | harm)


SLEEP = [sys.executable, "-c", "import time; time.sleep(4)"]
START = f"import subprocess; child = subprocess.Popen({SLEEP!r}); print('started', flush=True); child.wait()"
PARENT = [sys.executable, "-c", START]


def test_a_kill_hits_the_command_or_a_child_of_it():
    seen = set()
    for seed in range(20):
        if len(seen) == 2:
            break
        process = subprocess.Popen(PARENT, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "started\n"
        victim, below = faults.kill_at(process, 0.1, random.Random(seed))
        seen.add(victim)
        assert below and (process.returncode == -9) == (victim == "command")
        for child in below:  # of a killed command: these know nothing of their parent
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    assert seen == {"command", "child"}


def test_a_kill_that_comes_too_late_is_said():
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert faults.kill_at(process, 60, random.Random(0)) == ("too late", [])


def test_a_chain_of_kills_has_one_verdict(tmp_path, monkeypatch):
    ends = iter([("command", []), ("child", []), ("too late", [])])
    monkeypatch.setattr(faults, "kill_at", lambda process, seconds, rng: next(ends))
    monkeypatch.setattr(faults, "survivors", lambda processes: [])
    monkeypatch.setattr(faults.Home, "fork", lambda home: None)
    monkeypatch.setattr(faults.Home, "finish", lambda home: "")
    (tmp_path / "features/smoke/a").mkdir(parents=True)
    home = faults.Home(tmp_path)
    rows = faults.kill(home, {"x.pt": "lost"}, "features", 9.0, random.Random(0), 3)
    assert [row["fault"] for row in rows] == ["kill command", "kill child"]
    assert all(row["different"] == ["x.pt"] and row["completed"] and row["seconds"] <= 9 for row in rows)


def test_a_forked_command_is_a_process_of_its_own(tmp_path):
    with faults.ForkedCommand(["submission", "jobs=-1"], {**faults.os.environ, "X": "1"}) as command:
        said, _ = command.communicate()
    assert (command.returncode, said) == (1, "error: jobs: -1 is not 0 or more, at most 4096\n")
    command.kill()


def test_a_step_is_taken_away_and_its_loss_is_seen(tmp_path):
    home = faults.Home(tmp_path)
    for name in ("ranker-a-s0", "ranker-b-s0", "training-tile-s0"):
        (tmp_path / "runs/smoke" / name).mkdir(parents=True)
        (tmp_path / "runs/smoke" / name / "model.pt").write_text(name)
    whole = home.results()
    assert len(whole) == 3
    assert home.take_away("network", random.Random(0)) == "training-tile-s0"
    assert set(whole) - set(home.results()) == {"runs/smoke/training-tile-s0/model.pt"}
    (tmp_path / "runs/.x.json.0123.tmp.json").write_text("half")
    assert home.temporaries() == ["runs/.x.json.0123.tmp.json"]


def test_the_failing_drive_fails_from_the_given_write_on(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(faults._FAILING_DRIVE)
    code = (
        "from pathlib import Path\nfrom fastslow.core.files import write_json\n"
        "for name in 'abc': write_json(Path(name), 1)"
    )
    own = {**faults.os.environ, "FAULT_ERRNO": "28", "FAULT_AFTER": "2"}
    own["PYTHONPATH"] = faults.os.pathsep.join([str(tmp_path), own.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env=own, cwd=tmp_path, capture_output=True, text=True)
    assert "c: the disk is full" in done.stderr
    assert (tmp_path / "b").exists() and not (tmp_path / "c").exists()


def test_faults_go_on_where_the_kept_rows_end():
    rows = [{"fault": "none", "seconds": 110.0}]
    assert faults.next_fault(rows, 2, 1) == ("kill", "features", 20.0)
    rows.append({"fault": "kill too late", "stage": "features", "after": 12.0, "seconds": 3.0})
    assert faults.next_fault(rows, 2, 1) == ("kill", "features", 12.0), "again, earlier"
    rows.append({"fault": "kill child", "stage": "features", "after": 5.0, "seconds": 17.0})
    assert faults.next_fault(rows, 2, 1) == ("kill", "network", 17.0), "as long as the last one"
    rows.append({"fault": "kill command", "stage": "network", "after": 5.0, "seconds": 30.0})
    assert faults.next_fault(rows, 2, 1) == ("error", "features", 17.0)
    rows.append({"fault": "error EIO", "stage": "features", "after": 1, "seconds": 9.0})
    assert faults.next_fault(rows, 2, 1) is None
    assert faults.next_fault(rows, 8, 1) == ("kill", "ranker", 9.0)
