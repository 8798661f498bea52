"""all.py lists tables by code and sample, makes stale ones again, and resumes; scripts made all tables."""

import importlib
from functools import cache

import pytest

from fastslow.core import source
from fastslow.core.settings import PROJECT

remeasure = importlib.import_module("all")
BENCHMARKS = PROJECT / "benchmarks"
SCRIPT = '''"""Measure {name}.

It prints a number.
"""

import json
import sys
from pathlib import Path

from helper import number

TABLE = {{"hours": {hours}, "sample": {sample}, "needs": {needs}, "commands": (("--a", "b c"), ())}}


def main(arguments):
    calls = Path(__file__).with_suffix(".calls")
    with calls.open("a") as stream:
        stream.write(" ".join(arguments) + "\\n")
    if Path(__file__).with_suffix(".broken").exists() and not arguments:
        raise SystemExit(3)
    print(f"{name} {{number()}}")
    print(json.dumps({{"a": 1}}))


if __name__ == "__main__":
    main(sys.argv[1:])
'''


@pytest.fixture
def folder(tmp_path):
    """Two scripts that share a module, and one whose input is missing."""
    (tmp_path / "helper.py").write_text("def number():\n    return 1\n\n\ndef other():\n    return 2\n")
    for name, hours, sample, needs in (
        ("slow", 3, True, ()),
        ("fast", 0.5, False, ()),
        ("none", 1, 0, ("nix",)),
    ):
        text = SCRIPT.format(name=name, hours=hours, sample=sample, needs=needs)
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def one_sample():
    """Read the sample once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remeasure, "sample_digest", cache(remeasure.sample_digest))
        yield


@pytest.fixture
def run(folder, capsys):
    """Call the script in this process with fresh fingerprints; return exit status, output and errors."""

    def call(*arguments):
        source._parse.cache_clear()
        source._uses.cache_clear()
        source.source_digests.cache_clear()
        status = remeasure.main(["--folder", str(folder), *arguments])
        return status, *capsys.readouterr()

    return call


def states(run):
    _, listed, _ = run("--list")
    rows = [line.split("|") for line in listed.splitlines() if line.startswith("|")][2:]
    return {cells[1].strip(): cells[2].strip() for cells in rows}


def test_stale_tables_are_made_again_and_an_interrupted_call_resumes(folder, run):
    assert states(run) == {"fast": "missing", "none": "missing", "slow": "missing"}
    (folder / "slow.broken").touch()
    status, printed, errors = run()
    assert status == 1 and "slow: exit status 3" in errors
    order = [line.split()[1] for line in printed.splitlines() if line.startswith("[")]
    assert order == ["fast:", "slow:"], "the longest last"
    assert "none: left out, needs Python module nix" in printed and "about 210 minutes" in printed
    assert states(run) == {"fast": "present", "none": "missing", "slow": "missing"}
    (folder / "slow.broken").unlink()
    assert run()[0] == 0
    calls = {name: (folder / f"{name}.calls").read_text().splitlines() for name in ("fast", "slow")}
    assert calls == {"fast": ["--a b c", ""], "slow": ["--a b c", "", ""]}, "finished commands are kept"
    stamp, _, title, *rest = (folder / "tables" / "slow.md").read_text().splitlines()
    assert remeasure.STAMP.fullmatch(stamp)["sample"] and title == "# slow.py: Measure slow"
    assert [line for line in rest if "slow" in line] == [
        ".venv/bin/python benchmarks/slow.py --a 'b c'",
        "slow 1",
        ".venv/bin/python benchmarks/slow.py",
        "slow 1",
    ]
    assert "no sample" in (folder / "tables" / "fast.md").read_text()
    assert not any((folder / "results" / "all").iterdir())


def test_what_makes_a_table_stale(folder, run):
    run()
    helper = folder / "helper.py"
    helper.write_text(helper.read_text().replace("return 2", "return 3  # not reached"))
    table = folder / "tables" / "slow.md"
    table.write_text(table.read_text().replace(remeasure.sample_digest(), "0" * 16))
    assert states(run) == {"fast": "present", "none": "missing", "slow": "stale: sample"}
    helper.write_text(helper.read_text().replace("return 1", "return 7"))
    assert states(run)["fast"] == "stale: code" and states(run)["slow"] == "stale: code and sample"
    assert run("--only", "slow")[0] == 0 and "slow 7" in table.read_text()
    assert states(run) == {"fast": "stale: code", "none": "missing", "slow": "present"}
    table.write_text("> Commit 1234567: a line of another form.\n")
    assert states(run)["slow"] == "stale: no stamp"
    with pytest.raises(SystemExit, match="2"):
        run("--only", "x")


def test_every_table_was_made_by_its_script():
    """``python benchmarks/all.py`` makes them; ``--list`` shows which are older than the code."""
    sample = remeasure.sample_digest()
    scripts = {script.path.stem: script for script in remeasure.find_scripts(BENCHMARKS)}
    for table in (BENCHMARKS / "tables").glob("*.md"):
        assert table.stem in scripts, f"{table.name}: no script makes it"
        script, text = scripts[table.stem], table.read_text()
        made = remeasure.STAMP.fullmatch(script.first_line)
        assert made, f"{table.name}: its first line is no stamp of all.py"
        assert made["sample"] in (None, sample), f"{table.name}: made on another sample"
        for arguments in script.commands:
            assert f"\n{script.typed(arguments)}\n" in text, f"{table.name}: made by another command"
