"""The Makefile: its targets, what they call, and that settings reach the workflow as they were typed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from helpers.cases import cases
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
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS -c {shlex.quote(record)} "$@"\n')
    script.chmod(0o755)

    def call(*arguments, **variables):
        ready = [f"{name}=" for name in ("READY", "TESTED", "COMPILER", "TUNING", "DEVICE", "PLACER")]
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


def test_every_target_has_a_recipe(tmp_path):
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for target in PHONY:
        done = make("-n", target, folder=tmp_path)
        assert done.returncode == 0, f"{target}: {done.stderr}"
        assert done.stdout.strip() and "Nothing to be done" not in done.stdout, target


HOSTILE = [  # functions of make, commands of a shell, characters that either reads
    "$(shell touch {mark})",
    "$(eval $(shell touch {mark}))",
    "${shell touch {mark}}",
    "$(file >{mark},x)",
    "$(info $(shell touch {mark}))",
    "$(call shell,touch {mark})",
    "$(if x,$(shell touch {mark}))",
    "$(error x)",
    "$(wildcard /*)",
    "$",
    "$$",
    "$X$(Y)${HOME}",
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
    "x) touch {mark} (",
    "#x",
    "x # y",
    "\\",
    '"',
    "'",
    "*",
    "~",
    "%",
    "-n",
    "a:b=c",
]


def test_a_value_is_never_run_and_arrives_as_typed(called, tmp_path):
    mark = tmp_path / "mark"
    for value in HOSTILE:
        typed = value.replace("{mark}", str(mark))
        given = called("submit", f"DATA={typed}", f"NAME={typed}", f"JOBS={typed}", f"SET={typed}")
        assert given[3:6] == [f"data={typed}", f"name={typed}", f"jobs={typed}"]
        assert given[6:] == typed.split()
        assert called("convert", f"SRC={typed}", f"OUT={typed}")[3:] == [typed, f"data_root={typed}"]
        assert not mark.exists(), value


def test_a_place_is_never_run(tmp_path):
    """What these name is used; a command in them is no part of a name."""
    for file in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    for name in ("PYTHON", "VENV", "PY", "READY"):
        for value in ("$(shell touch {mark})", "x; touch {mark};", "`touch {mark}`", "$$(touch {mark})"):
            typed = value.replace("{mark}", str(tmp_path / "mark"))
            ready = [] if name == "READY" else ["READY="]
            make("submit", f"{name}={typed}", *ready, folder=tmp_path, PATH="/bin")
            assert not (tmp_path / "mark").exists(), f"{name}={value}"


def test_settings_reach_the_command_as_typed(called):
    typed = ("DATA=/my data/of today", "NAME=two words", "PRESET=kaggle", "SEEDS=2", "JOBS=3")
    typed += ("CLUSTER=tcp://a:1", "MODELS=runs/my run", "INIT=package")
    settings = ["gnn.layout.epochs=3", "ranker.num_iterations=5"]
    options = ["data=/my data/of today", "preset=kaggle", "name=two words", "seeds=2", "jobs=3"]
    options += ["predict_with=runs/my run", "init=package", "cluster=tcp://a:1", *settings]
    for target in ("submit", "submission", "features", "train", "ensemble", "smoke"):
        command = ["-m", "fastslow", target]
        assert called(target) == command
        assert called(target, *typed, f"SET={' '.join(settings)}") == [*command, *options]


CALLS = {  # what is typed, and what Python is called with; a list where a value holds a space
    ("data", "SET=source=google"): "-m fastslow data source=google",
    ("kaggle", "NAME=two", "HOURS=4", "SET=gnn.epochs=3"): "-m fastslow kaggle name=two hours=4 gnn.epochs=3",
    ("leaderboard", "SET=sort=test csv=a.csv"): "-m fastslow leaderboard sort=test csv=a.csv",
    ("figures",): "-m common.readme_figures",
    ("test",): "-m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0",
    ("rank", "SRC=a.npz", "KNOWN=my runs.csv"): ["-m", "fastslow", "rank", "a.npz", "known=my runs.csv"],
    ("rank", "SRC=x.pb", "RUN=runs/my run", "OUT=/my data", "SET=configs=200 estimate=3"): [
        "-m",
        "fastslow",
        "rank",
        "x.pb",
        "run=runs/my run",
        "data_root=/my data",
        "configs=200",
        "estimate=3",
    ],
    ("measure", "SRC=a b.pb", "OUT=/my data"): ["-m", "fastslow", "measure", "a b.pb", "data_root=/my data"],
    ("convert", "SRC=a b.pb", "OUT=/my data", "SET=configs=200 seed=1"): [
        "-m",
        "fastslow",
        "convert",
        "a b.pb",
        "data_root=/my data",
        "configs=200",
        "seed=1",
    ],
    ("place", "SRC=a b.hlo", "DEVICES=4", "OUT=/my data", "SET=task=joint search=5"): [
        "-m",
        "fastslow",
        "place",
        "a b.hlo",
        "devices=4",
        "out=/my data",
        "task=joint",
        "search=5",
    ],
    ("sample", "SIZE=large", "SET=processes=4 seed=1"): "-m fastslow sample size=large processes=4 seed=1",
    ("tune", "SRC=x.pb", "RUN=none", "OUT=/my data", "SET=evaluations=9"): [
        "-m",
        "fastslow",
        "tune",
        "x.pb",
        "run=none",
        "data_root=/my data",
        "evaluations=9",
    ],
    ("tune", "FLEET=my list.csv"): ["-m", "fastslow", "fleet", "my list.csv"],
}


def test_the_other_targets(called):
    for typed, given in CALLS.items():
        assert called(*typed) == (given.split() if isinstance(given, str) else given)


SET_UPS = {  # what is typed, and the extra that is set up besides the environment
    ("rank", "SRC=a.npz"): None,
    ("rank", "SRC=a.pb.xz"): None,
    ("rank", "SRC=a.pb.xz", "SET=estimate=0"): None,
    ("rank", "SRC=a.pb.xz", "SET=configs=9 estimate=10"): "compiler",
    ("rank", "SRC=a.py:make"): "compiler",
    ("convert", "SRC=a.hlo"): None,
    ("convert", "SRC=a.hlo", "SET=label=False"): None,
    ("convert", "SRC=a.hlo", "SET=label=True"): "compiler",
    ("tune", "SRC=a.hlo"): "compiler",
    ("tune", "SRC=a b.pb"): "compiler",
    ("tune", "FLEET=list.csv"): "compiler",
    ("tune", "SRC=my own.npz"): None,
    ("tune", "SRC=a.hlo", "SET=evaluator=replay"): None,
    ("tune", "SRC=a.hlo", "SET=evaluator=command command=./run.sh"): None,
    ("tune", "SRC=a.json", "SET=evaluator=command command=./run.sh"): None,
    ("tune", "SRC=a.json"): "device",
    ("tune", "SRC=a.hlo", "SET=evaluator=device"): "device",
}


@cases("typed", SET_UPS)
def test_the_compiler_is_set_up_where_it_is_asked(typed, tmp_path):
    for file in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    done = make("-n", *typed, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    extras = {*re.findall(r"-e \.\[(\w+)\]", done.stdout)} - {"tune"}
    assert extras == ({SET_UPS[typed]} - {None})


def test_an_unknown_variable_is_refused(tmp_path):
    for target in ("submit", "help"):
        done = make(target, "SEED=5", folder=tmp_path)
        assert done.returncode != 0 and "no such variable: SEED; known are PYTHON DATA" in done.stderr
    assert not list(tmp_path.iterdir())


UNREAD = {  # what is typed, and what make says of it
    "tune SRC=x KNOWN=k.csv": "make tune does not read KNOWN; it reads SRC FLEET RUN OUT SET",
    "rank SRC=x SEEDS=99 DATA=nonsense": "make rank does not read SEEDS DATA; it reads SRC KNOWN RUN OUT SET",
    "leaderboard NAME=x OUT=/tmp/x": "make leaderboard does not read NAME OUT; it reads SET",
    "submit SRC=x": "make submit does not read SRC; it reads DATA PRESET NAME",
    "test SEEDS=5": "make test does not read SEEDS; it takes no variables",
    "SEEDS=5": "make help does not read SEEDS; it takes no variables",
    "clean leaderboard DATA=x": "make clean leaderboard does not read DATA; it reads NAME SET",
}


@cases("typed", UNREAD)
def test_a_variable_that_the_target_does_not_read_is_refused(typed, tmp_path):
    done = make(*typed.split(), folder=tmp_path)
    refused = re.search(r"\*\*\* (make .*?) does not read ([A-Z ]+);(.*)", done.stderr)
    expected = re.search(r"(make .*?) does not read ([A-Z ]+);(.*)", UNREAD[typed])
    assert done.returncode and refused[1] == expected[1] and refused[3].startswith(expected[3]), done.stderr
    assert {*refused[2].split()} == {*expected[2].split()}, "in any order"
    assert not list(tmp_path.iterdir())


def test_every_variable_is_read_by_a_target_that_says_so():
    """A target's list is that of the variables in its recipe."""
    text = MAKEFILE.read_text()
    options = {*re.findall(r"\$\$\{?([A-Z]+)", re.search(r"^OPTIONS = (.*\n.*\n.*)$", text, re.M)[1])}
    for targets, recipe in re.findall(r"^([a-z ]+):.*##.*\n((?:(?:\t|ifn?eq|else|endif).*\n)*)", text, re.M):
        read = {*re.findall(r"\$\$\{?([A-Z]+)\b", recipe)} - {"PY", "VENV"}
        if "$(OPTIONS)" in recipe:
            read |= options
        for target in targets.split():
            listed = re.search(rf"^READ_{target} := (.*)$", text, re.M)
            of_runs = re.search(r"^OF_RUNS := (.*)$", text, re.M)
            is_run = re.search(rf"^\$\(foreach t,.*\b{target}\b.*,", text, re.M)
            known = (listed or (is_run and of_runs) or ["", ""])[1].split()
            assert {*known} == read, target


def test_without_a_source_it_shows_how_and_sets_nothing_up(tmp_path):
    for target in ("convert", "rank", "tune"):
        done = make(target, folder=tmp_path, SRC="/of/the/environment")
        assert done.returncode != 0 and f"make {target} SRC=model.py:make" in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_environment_does_not_steer(called):
    assert called("submit", NAME="MY-LAPTOP", DATA="/x", SET="a=1")[3:] == []


def write_all(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


PYTHON = """#!/bin/sh
echo "python $@" >> {log}
case "$*" in
  "-m pip --version") test -e {pip} ;;
  "-m ensurepip") {ensurepip} && touch {pip} ;;
  "-m pip"*) test -e {pip} ;;
  -c*) exec {real} "$@" ;;
esac
"""
UV = """#!/bin/sh
echo "uv $1 $2" >> {log}
"""


@pytest.fixture
def environment(tmp_path):
    """A function that runs make setup where .venv has no pip; what installed something, and stderr."""
    folder = tmp_path / "a clone"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    log = shlex.quote(str(folder / "log"))
    facts = {"log": log, "pip": shlex.quote(str(folder / "pip"))}

    def script(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def setup(ensurepip, on_path, real=sys.executable):
        real = shlex.quote(str(real))
        text = PYTHON.format(**facts, ensurepip="true" if ensurepip else "false", real=real)
        script(folder / ".venv" / "bin" / "python", text)
        script(folder / ".venv" / "bin" / "uv", UV.format(log=log))
        if on_path:
            script(folder / "bin" / "uv", UV.format(log=log))
        for name in ("make", "sh", "awk", "touch", "test"):
            (folder / "bin" / name).symlink_to(shutil.which(name))
        done = make("setup", folder=folder, PATH=str(folder / "bin"))
        calls = (folder / "log").read_text().splitlines()
        assert (folder / ".venv" / ".ready").exists() == (done.returncode == 0)
        return [call for call in calls if "install" in call or "ensurepip" in call], done.stderr

    return setup


def test_an_environment_without_pip_is_filled_by_the_uv_on_the_path(environment):
    assert environment(ensurepip=False, on_path=True) == (["uv pip install"], "")


def test_an_environment_without_pip_gets_it(environment):
    calls = ["python -m ensurepip", "python -m pip install -q uv", "uv pip install"]
    assert environment(ensurepip=True, on_path=False) == (calls, "")


def test_an_environment_that_cannot_get_pip_ends_in_one_sentence(environment):
    calls, said = environment(ensurepip=False, on_path=False)
    assert calls == ["python -m ensurepip"]
    assert said.splitlines()[0].startswith(".venv has no pip and its Python cannot install it: rm -r .venv")


def test_an_environment_of_an_old_python_is_noticed(environment, tmp_path):
    old = tmp_path / "old"
    lie = "import sys; sys.version_info, sys.version = (3, 9, 1), '3.9.1 (old)'; exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(lie)} "$2"\n')
    old.chmod(0o755)
    calls, said = environment(ensurepip=True, on_path=True, real=old)
    assert not calls and said.startswith(".venv has Python 3.9.1, 3.11.4 or newer is needed: rm -r .venv")


def test_a_long_setup_counts_its_seconds_in_a_terminal(environment, tmp_path):
    environment(ensurepip=False, on_path=True)
    folder = tmp_path / "a clone"
    (folder / ".venv" / ".ready").unlink()
    count, waiting = (shlex.quote(str(folder / name)) for name in ("count", "waiting"))
    # uv is done when the count has been shown once: nothing waits for a clock
    (folder / "bin" / "sleep").write_text(
        f"#!/bin/sh\ntest ! -e {count} || echo >> {waiting}\necho >> {count}\n"
    )
    (folder / "bin" / "uv").write_text(f"#!/bin/sh\nuntil test -e {waiting}; do :; done\n")
    (folder / "bin" / "sleep").chmod(0o755)
    ours, theirs = os.openpty()
    arguments = ["make", "--no-print-directory", "-f", str(MAKEFILE), "-C", str(folder), "setup"]
    environ = {"PATH": str(folder / "bin"), "VIRTUAL_ENV": ""}
    done = subprocess.run(arguments, env=environ, stdout=subprocess.DEVNULL, stderr=theirs, check=False)
    assert done.returncode == 0 and os.read(ours, 1 << 16).startswith(b"5 s\r")


def test_clean_removes_only_what_was_made(tmp_path):
    kept = ["features/README.md", "submissions/README.md", "data/sample/solution.csv", "data/raw/a.npz"]
    kept += [".venv/bin/python", "src/a.py", "tests/test_a.py", "README.md"]
    made = ["features/sample/tile-xla/train/a b.npz", "features/x/.lock", "runs/sample/gnn s0/model.pt"]
    made += ["runs/notes.txt", "submissions/sample.csv"]
    write_all(tmp_path, kept + made)
    asked = make("clean", folder=tmp_path)
    listed = ["features/sample", "features/x", "runs/notes.txt", "runs/sample", "submissions/sample.csv"]
    assert asked.returncode and asked.stderr.splitlines()[: len(listed)] == listed
    assert "make clean NAME=all" in asked.stderr and files_in(tmp_path) == {*kept, *made}
    assert make("clean", "NAME=all", folder=tmp_path).returncode == 0
    assert files_in(tmp_path) == set(kept)
    assert not list((tmp_path / "runs").iterdir())
    shutil.rmtree(tmp_path / "runs")
    assert make("clean", folder=tmp_path).returncode == 0


def test_clean_of_one_run_removes_that_run_and_says_what(tmp_path):
    files = [f"submissions/mine.{ending}" for ending in ("csv", "json", "png", "html")]
    removed = ["features/mine", "runs/mine", *files]
    kept = ["features/README.md", "features/mine2/a.npz", "runs/sample/run.json", "submissions/mine2.csv"]
    write_all(tmp_path, [*kept, *removed[2:], "features/mine/tile-xla/a.npz", "runs/mine/run.json"])
    for name in ("../mine", "README.md"):
        refused = make("clean", f"NAME={name}", folder=tmp_path)
        assert refused.returncode and f"NAME={name} is no name of a run" in refused.stderr
    done = make("clean", "NAME=mine", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"removed {name}" for name in removed]
    assert files_in(tmp_path) == set(kept)


def test_clean_that_removes_nothing_or_not_all_is_an_error(tmp_path):
    write_all(tmp_path, ["runs/mine/run.json", "bin/rm"])
    (tmp_path / "bin/rm").write_text("#!/bin/sh\necho no permission >&2\nexit 1\n")
    (tmp_path / "bin/rm").chmod(0o755)
    unknown = make("clean", "NAME=nosuch", folder=tmp_path)
    assert unknown.returncode and "there is no run nosuch" in unknown.stderr
    for name in ("mine", "all"):
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        refused = make("clean", f"NAME={name}", folder=tmp_path, PATH=path)
        assert refused.returncode and "no permission" in refused.stderr and not refused.stdout


def test_clean_finds_what_linked_folders_hold_and_says_what_it_leaves(tmp_path):
    write_all(tmp_path, ["disk/runs/mine/run.json", "disk/features of mine/a.npz", "features/README.md"])
    (tmp_path / "runs").symlink_to("disk/runs")
    (tmp_path / "features/mine").symlink_to("../disk/features of mine")
    assert "features/mine\nruns/mine\n" in make("clean", folder=tmp_path).stderr
    for name in ("mine", "all"):
        done = make("clean", f"NAME={name}", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        if name == "mine":
            link = "removed features/mine, a link; not what it leads to: ../disk/features of mine"
            assert done.stdout.splitlines() == [link, "removed runs/mine"]
            write_all(tmp_path, ["runs/mine/run.json"])
    assert files_in(tmp_path) == {"disk/features of mine/a.npz", "features/README.md"}


def test_clean_follows_fastslow_home(tmp_path):
    here, home = (tmp_path / name / "runs" / "sample" / "model.pt" for name in ("here", "my home"))
    for path in (here, home):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    done = make("clean", "NAME=all", folder=tmp_path / "here", FASTSLOW_HOME=str(tmp_path / "my home"))
    assert done.returncode == 0, done.stderr
    assert here.is_file() and not home.exists()
    lost = make("clean", "NAME=all", folder=tmp_path / "here", FASTSLOW_HOME=str(tmp_path / "lost"))
    assert lost.returncode and "lost" in lost.stderr


def test_lint_runs_every_checker():
    done = make("-n", "lint", "TESTED=")
    assert re.findall(r"VENV/bin/(\w+)", done.stdout) == ["ruff", "ruff", "nbstripout", "mypy"]


def test_workflows_and_hooks_name_commands_that_exist():
    """What `.ci/run` calls, GitHub's workflows and pre-commit's hooks."""
    called = []
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            called += [step["run"] for step in job["steps"] if "run" in step]
    assert called == [".ci/run", "python -m pip wheel --no-deps --wheel-dir dist ."]
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    called += [line for line in lines if line.startswith(("make ", ".ci/"))]
    assert len(called) == 5, "make lint, make test and .ci/audit in a clone"
    for words in map(str.split, called):
        if words[0] == "make":
            assert words[1] in PHONY, words
        elif words[0] != "python":
            assert os.access(ROOT / words[0], os.X_OK), words
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    needed = re.findall(r'"(\w+)>=', (ROOT / "pyproject.toml").read_text())
    hooks = [hook["entry"].split()[0] for hook in repository["hooks"]]
    assert hooks == [f".venv/bin/{name}" for name in ("ruff", "ruff", "nbstripout")]
    assert {"ruff", "nbstripout", "mypy"} <= set(needed)
