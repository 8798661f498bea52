"""The Makefile: its targets, what they call, and that settings reach the workflow as they were typed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.competition_files import ROOT

MAKEFILE = ROOT / "Makefile"
PHONY = re.search(r"^\.PHONY: (.*)$", MAKEFILE.read_text(), re.M)[1].split()
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments, folder=ROOT, **variables):
    """Run make without what a make around these tests, or the user's environment, would add."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "--no-print-directory", "-f", str(MAKEFILE), "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)


@pytest.fixture
def called(tmp_path):
    """A function that runs make with a script in Python's place; what the script was called with."""
    script, log = tmp_path / "python", tmp_path / "log.json"
    record = f"import json, sys; json.dump(sys.argv[1:], open({str(log)!r}, 'w'))"
    # through a shell: a script's first line cannot name a Python whose path has a space
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(record)} "$@"\n')
    script.chmod(0o755)

    def call(*arguments, **variables):
        ready = [f"{name}=" for name in ("READY", "TESTED", "COMPILER", "TUNING", "PLACER")]
        done = make(*arguments, *ready, f"PY={script}", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(log.read_text())

    return call


def test_help_lists_every_target_without_an_environment(tmp_path):
    done = make(folder=tmp_path)
    assert done.returncode == 0 and done.stdout == make("help").stdout
    described = dict(re.findall(r"^  make (\w+) +(\S.{10,})$", done.stdout, re.M))
    assert set(described) == set(PHONY)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", PHONY)
def test_every_target_has_a_recipe(tmp_path, target):
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    done = make("-n", target, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "Nothing to be done" not in done.stdout


def test_a_dry_run_shows_the_command():
    done = make("-n", "submit", "DATA=kaggle", "SEEDS=2", "SET=gnn.layout.epochs=3")
    assert '"$PY" -m fastslow submit "data=$DATA"' in done.stdout


HOSTILE = (
    "$(shell touch {mark})",
    "$$(touch {mark})",
    "`touch {mark}`",
    "x; touch {mark}",
    "x && touch {mark}",
    "x | touch {mark}",
    "x & touch {mark} &",
    "x > {mark}",
    "x >> {mark}",
    "x\ntouch {mark}",
    "x\n\ttouch {mark}",
    '"; touch {mark}; "',
    "'; touch {mark}; '",
    "$(eval $(shell touch {mark}))",
    "${shell touch {mark}}",
    "$(file >{mark},x)",
    "$(info $(shell touch {mark}))",
    "$(call shell,touch {mark})",
    "$(error x)",
    "$(if x,$(shell touch {mark}))",
    "$",
    "$$",
    "$X$(Y)${HOME}",
    "#x",
    "x # y",
    "\\",
    '"',
    "'",
    "*",
    "~",
    "%",
    "$(wildcard /*)",
    "-n",
    "a:b=c",
    "x) touch {mark} (",
)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_never_run_and_arrives_as_typed(called, tmp_path, value):
    mark = tmp_path / "mark"
    typed = value.replace("{mark}", str(mark))
    assert called("submit", f"DATA={typed}", f"NAME={typed}", f"JOBS={typed}") == [
        *("-m", "fastslow", "submit"),
        *(f"data={typed}", f"name={typed}", f"jobs={typed}"),
    ]
    assert called("submit", f"SET={typed}")[4:] == typed.split()
    assert called("convert", f"SRC={typed}", f"OUT={typed}")[3:] == [typed, f"data_root={typed}"]
    assert not mark.exists()


@pytest.mark.parametrize("name", ["PYTHON", "VENV", "PY", "READY"])
def test_a_place_is_never_run(tmp_path, name):
    """What these name is used; a command in them is no part of a name."""
    for file in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    for value in ("$(shell touch {mark})", "x; touch {mark};", "`touch {mark}`", "$$(touch {mark})"):
        typed = value.replace("{mark}", str(tmp_path / "mark"))
        make(
            "submit",
            f"{name}={typed}",
            *([] if name == "READY" else ["READY="]),
            folder=tmp_path,
            PATH="/bin",
        )
        assert not (tmp_path / "mark").exists(), value


@pytest.mark.parametrize("target", ["submit", "submission", "features", "train", "ensemble", "smoke"])
def test_settings_reach_the_command_as_typed(called, target):
    command = ["-m", "fastslow", target]
    assert called(target) == [*command, "data=sample"]
    typed = ("DATA=/my data/of today", "NAME=two words", "PRESET=kaggle", "SEEDS=2", "JOBS=3")
    typed += ("CLUSTER=tcp://a:1",)
    settings = ["gnn.layout.epochs=3", "ranker.num_iterations=5"]
    options = ["data=/my data/of today", "preset=kaggle", "name=two words", "seeds=2", "jobs=3"]
    options += ["cluster=tcp://a:1", *settings]
    assert called(target, *typed, f"SET={' '.join(settings)}") == [*command, *options]


def test_the_other_targets(called):
    assert called("data") == ["-m", "fastslow", "data"]
    assert called("data", "SET=source=google")[-1] == "source=google"
    assert called("report") == ["-m", "fastslow", "report"]
    assert called("report", "NAME=my run") == ["-m", "fastslow", "report", "name=my run"]
    assert called("figures") == ["-m", "fastslow", "figures"]
    assert called("test") == ["-m", "pytest", "-n", "2", "--dist", "loadfile"]
    assert called("guard") == ["benchmarks/guard.py"]
    assert called("guard", "SET=--record") == ["benchmarks/guard.py", "--record"]


@pytest.mark.parametrize("target", ["submit", "help"])
def test_an_unknown_variable_is_refused(tmp_path, target):
    done = make(target, "SEED=5", folder=tmp_path)
    assert done.returncode != 0 and "no such variable: SEED; known are PYTHON DATA" in done.stderr
    assert not list(tmp_path.iterdir())


def test_convert_takes_a_source_and_settings(called):
    convert = ["-m", "fastslow", "convert"]
    assert called("convert", "SRC=my model.py:make") == [*convert, "my model.py:make"]
    typed = ("SRC=x.pb", "OUT=/my data", "SET=configs=200 seed=1")
    assert called("convert", *typed) == [*convert, "x.pb", "data_root=/my data", "configs=200", "seed=1"]


def test_rank_takes_a_source_a_run_and_settings(called):
    rank = ["-m", "fastslow", "rank"]
    assert called("rank", "SRC=a b.npz") == [*rank, "a b.npz"]
    typed = ("SRC=x.pb", "RUN=runs/my run", "OUT=/my data", "SET=configs=200 estimate=3")
    given = ["run=runs/my run", "data_root=/my data", "configs=200", "estimate=3"]
    assert called("rank", *typed) == [*rank, "x.pb", *given]


def test_place_takes_a_source_devices_and_settings(called):
    place = ["-m", "fastslow", "place"]
    assert called("place") == place
    typed = ("SRC=a b.hlo", "DEVICES=4", "OUT=/my data", "SET=task=joint updates=5")
    given = ["a b.hlo", "devices=4", "out=/my data", "task=joint", "updates=5"]
    assert called("place", *typed) == [*place, *given]


def test_kernel_takes_settings_of_the_run(called):
    typed = ("PRESET=smoke", "SEEDS=2", "SET=push=False gnn.layout.epochs=3")
    command = ["-m", "fastslow", "kernel"]
    settings = ["preset=smoke", "seeds=2", "push=False", "gnn.layout.epochs=3"]
    assert called("kernel", *typed) == [*command, *settings]
    assert called("kernel") == command


def test_sample_takes_a_size_and_settings(called):
    sample = ["-m", "fastslow", "sample"]
    assert called("sample") == [*sample, "size=small"]
    typed = ("SIZE=large", "SET=processes=4 seed=1")
    assert called("sample", *typed) == [*sample, "size=large", "processes=4", "seed=1"]


def test_tune_takes_a_source_or_a_fleet_a_run_and_settings(called):
    command = ["-m", "fastslow"]
    typed, given = ("RUN=none", "OUT=/my data", "SET=evaluations=9"), ["run=none", "data_root=/my data"]
    assert called("tune", "SRC=x.pb", *typed) == [*command, "tune", "x.pb", *given, "evaluations=9"]
    assert called("tune", "FLEET=my list.csv") == [*command, "fleet", "my list.csv"]


@pytest.mark.parametrize("target", ["convert", "rank", "tune"])
def test_without_a_source_it_says_how_and_sets_nothing_up(tmp_path, target):
    done = make(target, folder=tmp_path, SRC="/of/the/environment")
    assert done.returncode != 0 and f"make {target} SRC=model.py:make" in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_environment_does_not_steer(called):
    assert called("submit", NAME="MY-LAPTOP", DATA="/x", SET="a=1")[3:] == ["data=sample"]


def test_clean_removes_only_what_was_made(tmp_path):
    kept = ["features/README.md", "submissions/README.md", "data/sample/solution.csv", "data/raw/a.npz"]
    kept += [".venv/bin/python", "src/a.py", "tests/test_a.py", "README.md"]
    made = ["features/sample/tile-xla/train/a b.npz", "features/x/.lock", "runs/sample/gnn s0/model.pt"]
    made += ["runs/notes.txt", "submissions/sample.csv", "submissions/ledger.md"]
    for name in (*kept, *made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert make("clean", folder=tmp_path).returncode == 0
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == set(kept)
    assert not list((tmp_path / "runs").iterdir())
    shutil.rmtree(tmp_path / "runs")
    assert make("clean", folder=tmp_path).returncode == 0


def test_clean_follows_fastslow_home(tmp_path):
    here, home = (tmp_path / name / "runs" / "sample" / "model.pt" for name in ("here", "my home"))
    for path in (here, home):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    done = make("clean", folder=tmp_path / "here", FASTSLOW_HOME=str(tmp_path / "my home"))
    assert done.returncode == 0, done.stderr
    assert here.is_file() and not home.exists()


def test_the_repository_is_clean_to_the_linters(tmp_path):
    tools = [Path(sys.prefix) / "bin" / name for name in ("ruff", "nbstripout")]
    if not all(tool.is_file() for tool in tools):
        pytest.skip("ruff and nbstripout are not installed beside this Python (pip install -e .[test])")
    (tmp_path / "venv").symlink_to(sys.prefix)  # Make cannot name a target whose path has a space
    done = make("lint", "TESTED=", f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 0, done.stdout + done.stderr
