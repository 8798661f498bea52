"""The README: its commands run as a reader types them, and what it names exists."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastslow.core.tables import sentences_text
from fastslow_programs.ranking.trust import advise
from helpers.cases import cases
from helpers.competition_files import ROOT

README = (ROOT / "README.md").read_text()
ACTIVATE = "source .venv/bin/activate"
# A block of a language, such as python, is an empty text: readers type the others.
BLOCKS = re.findall(r"^```\n(.*?)^```$|^```\w+\n.*?^```$", README, re.S | re.M)
JOINED = [block.replace("\\\n", " ") for block in BLOCKS]
LINES = [line.split("  #")[0].strip() for block in JOINED for line in block.splitlines()]
WIDEST = 110  # characters of a line of code on a page of 1,000 pixels
PRINTED = {"--help": "COMMAND", "--all": "NAME=VALUE", "compare": "mean of 5", "blend": "of 2 submissions"}
TYPED = [line for line in LINES if line and ACTIVATE not in line]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "features/README.md"]
DOCUMENTS += ["benchmarks/README.md", "src/fastslow/networks/README.md", "src/fastslow_placement/README.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


def commands(program):
    found = [line for line in TYPED if line.split()[0] == program]
    assert found, f"the README shows no {program}"
    return found


def in_a_fresh_shell(command, folder, **variables):
    """Run a command after activating the environment, in a shell that inherits nothing."""
    if not (Path(sys.prefix) / "bin" / "activate").is_file():
        pytest.skip("this Python is not in a virtual environment")
    for name, target in ((".venv", sys.prefix), ("notebooks", ROOT / "notebooks")):
        (folder / name).symlink_to(target)
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    shell = ["bash", "-c", f"{ACTIVATE} && {command}"]
    return subprocess.run(shell, env=clean | variables, cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_commands_are_understood():
    for line in commands("make"):
        done = subprocess.run([*shlex.split(line), "-n"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "-m fastslow" in done.stdout or "pytest" in done.stdout, line


@cases("line", [*commands("fastslow"), "fastslow submit --all"])
def test_a_command_of_the_environment_runs(line, home, tmp_path):
    """Two runs are there, as after ``make submit`` and ``make submit NAME=mine``."""
    assert f"`{line}`" in README or line in TYPED
    for name in ("sample", "mine"):
        if not (home / "runs" / name).exists():
            (home / "runs" / name).symlink_to(home / "runs" / "smoke")
            shutil.copy(home / "submissions" / "smoke.csv", home / "submissions" / f"{name}.csv")
    folder = tmp_path / line.replace(" ", "-")
    folder.mkdir()
    done = in_a_fresh_shell(line, folder, FASTSLOW_HOME=str(home))
    assert done.returncode == 0, done.stderr
    (said,) = (PRINTED[word] for word in PRINTED if word in line)
    assert said in done.stdout


def test_the_example_is_as_the_command_prints_it():
    for advice in advise(""):
        assert sentences_text([advice.rstrip()], 80) in README


@pytest.mark.parametrize("line", commands("papermill"))
def test_a_notebook_alone_runs(line, home, tmp_path):
    """Papermill and a kernel start as a reader starts them, which takes seconds."""
    (home / "features" / "sample").symlink_to(home / "features" / "smoke")
    (tmp_path / "reader").mkdir()
    done = in_a_fresh_shell(line, tmp_path / "reader", FASTSLOW_HOME=str(home), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "reader" / "out.ipynb").is_file()
    assert (home / "runs" / "play" / "ranker" / "manifest.json").is_file()


def test_no_line_of_code_is_wider_than_a_page():
    assert not [line for block in BLOCKS for line in block.splitlines() if len(line) > WIDEST]


def test_jupyter_is_there():
    (line,) = commands("jupyter")
    program, part, notebook = line.split()
    assert (ROOT / notebook).is_file() and (Path(sys.prefix) / "bin" / f"{program}-{part}").is_file()


def test_links_lead_to_files():
    for path in (ROOT / name for name in DOCUMENTS):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            assert link.startswith("http") or (path.parent / link).exists(), f"{path}: {link}"


def test_the_changelog_is_a_page():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert len(text.splitlines()) <= 66 and len(text.split()) <= 900, "a smaller line goes for a new one"


def test_named_files_of_the_source_exist():
    file = r"`((?:src/fastslow|tests|notebooks|benchmarks)/[\w./]+\.(?:py|ipynb|md))`"
    for name in DOCUMENTS:
        for found in re.findall(file, (ROOT / name).read_text()):
            assert (ROOT / found).exists(), f"{name}: {found}"


def test_files_and_names_that_contributing_names_exist():
    """``NAME of file.py``, ``NAME in file.py`` and ``file.py (NAME)``, all in backquotes."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tops = {"": (ROOT, ROOT / "src/fastslow"), "programs: ": (ROOT / "src/fastslow_programs",)}
    files = {
        shelf + name: next(top / name for top in tops[shelf] if (top / name).is_file())
        for shelf, name in re.findall(r"`(programs: |)([\w/]+\.py)`", text)
    }
    assert len(files) > 20
    file, name = r"`((?:programs: )?[\w/]+\.py)`", r"`([\w.]+)`"
    pairs = [(file, name) for name, file in re.findall(rf"{name} (?:in|of) {file}", text)]
    pairs += re.findall(rf"{file} \({name}", text)
    assert len(pairs) > 20
    for file, name in pairs:
        attribute = name.rpartition(".")[2]
        defined = rf"(def|class) {attribute}\b|\b{attribute}(: .*)? = "
        assert re.search(defined, files[file].read_text()), f"{file} does not define {name}"


def test_the_map_has_a_row_for_every_package():
    packages = {path.parent.name for path in (ROOT / "src" / "fastslow").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M))


def test_the_networks_readme_has_every_module():
    folder = ROOT / "src" / "fastslow" / "networks"
    text = (folder / "README.md").read_text()
    rooms = re.findall(r"^\|.*$", text.partition("## Rooms")[2], re.M)
    named = set(re.findall(r"`(\w+\.py)`", "\n".join(rooms)))
    assert {path.name for path in folder.rglob("*.py")} - {"__init__.py"} == named
    files = re.findall(r"^\d\. `([\w/]+\.py)`", text, re.M)
    assert len(files) == 5 and sum(len((folder / file).read_text().splitlines()) for file in files) < 1250
