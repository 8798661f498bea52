"""Make the tables of the benchmarks with the present code, the quickest first.

``python benchmarks/all.py`` makes every table that is missing or stale, one after the other. ``--list`` shows
the state of each table and the expected minutes instead. A script whose inputs are missing is left out, with
the names of these inputs. Interrupt it at any time: the same command resumes.

A script takes part if it defines ``TABLE``, a dictionary: ``hours`` of CPU time, ``needs`` (names of
``NEEDS`` or Python modules), ``sample`` (whether it reads the sample) and ``commands`` (the arguments of each
call).
The first line of a table is a stamp: commit, digests of code and sample, seconds of the measurement. A table
is stale when the sample changed, the code that its script reaches or, if it reads a run or starts one
(``needs`` the module ``fastslow``), the code of ``make submit``. A table of packaged models (``needs`` the
``package``) is stale when they changed, too.
"""

import argparse
import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.command_line import run_main
from common.graph_files import REAL, SAMPLE
from common.report import table
from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.core.artifacts import commit
from fastslow.core.files import atomic_path, digest, file_digest, read_json, write_json
from fastslow.core.npz_io import file_fingerprint
from fastslow.core.settings import PROJECT, resolve
from fastslow.core.source import source_digest
from fastslow.runs.packaged import ARCHIVE, FOLDER
from fastslow.steps.ensemble import ENSEMBLE_ENTRY as ENSEMBLE
from fastslow.steps.features import FEATURES_ENTRY as FEATURES
from fastslow.steps.network_settings import GNN_ENTRY as NETWORK
from fastslow.steps.ranker_settings import RANKER_ENTRY as RANKER

STAMP = re.compile(
    r"> Commit (?P<commit>\S+), code (?P<code>[0-9a-f]{16}), (?:sample (?P<sample>[0-9a-f]{16})|no sample), "
    r"(?P<seconds>\d+) s\."
)
_OF_RUN = (FEATURES, NETWORK, RANKER, ENSEMBLE)
CODE = {"run": _OF_RUN, "fastslow": (*_OF_RUN, "fastslow.workflow.budget:plan_hours")}
"""The code of a run: a table that reads one, or starts one with a budget, is as old as this code."""
NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "run": (lambda: resolve("runs/sample/submission/manifest.json").is_file(), "make submit"),
    "more": (lambda: resolve("data/more/npz_all").is_dir(), "make sample SIZE=more"),
    "package": (lambda: (FOLDER / ARCHIVE).is_file(), "the models in the package"),
    "real": (lambda: (REAL / "npz_all").is_dir(), f"published files in {REAL.relative_to(PROJECT.parent)}"),
    "placement": (lambda: REAL.with_name("placement").is_dir(), "placement problems in shared/placement"),
    "gpu": (lambda: bool(list(Path("/dev").glob("nvidia[0-9]*"))), "a GPU"),
}
PRESENT, STALE, ABSENT = "present", "stale", "missing"


@dataclass(frozen=True)
class Script:
    """A script that makes a table.

    Args:
        path: The script; its table is ``tables/NAME.md`` beside it.
        hours: Estimated CPU hours of all commands.
        needs: Inputs besides the code, see ``TABLE``.
        sample: Whether it reads the sample.
        commands: Arguments of each call.
    """

    path: Path
    hours: float
    needs: Sequence[str] = ()
    sample: bool = True
    commands: Sequence[Sequence[str]] = ((),)

    @property
    def table(self) -> Path:
        """Return the path of the table."""
        return self.path.parent / "tables" / f"{self.path.stem}.md"

    @property
    def first_line(self) -> str:
        """Return the first line of the table, empty without a table."""
        return self.table.read_text().partition("\n")[0] if self.table.is_file() else ""

    def typed(self, arguments: Sequence[str]) -> str:
        """Return a command as one types it."""
        return shlex.join([".venv/bin/python", f"benchmarks/{self.path.name}", *arguments])

    def code(self) -> str:
        """Return the digest of the code that the script reaches, of its run and of packaged models."""
        needed_entries = [entry for name in self.needs for entry in CODE.get(name, ())]
        entries = [f"{self.path.stem}:main", *needed_entries]
        models = [file_digest(FOLDER / ARCHIVE)] if "package" in self.needs else []
        return digest([source_digest(entry, self.path.parent) for entry in entries] + models)

    def state(self, sample: str) -> tuple[str, str]:
        """Compare the table's first line with the present code and sample.

        Args:
            sample: Digest of the sample.

        Returns:
            The state, and the reason for a stale table.
        """
        if not self.first_line:
            return ABSENT, ""
        made = STAMP.fullmatch(self.first_line)
        if not made:
            return STALE, "no stamp"
        now = {"code": self.code(), "sample": sample if self.sample else None}
        changed = [what for what in now if made[what] != now[what]]
        return (STALE, " and ".join(changed)) if changed else (PRESENT, "")

    def expected_hours(self) -> float:
        """Return the hours of the last measurement, or the estimate."""
        made = STAMP.fullmatch(self.first_line)
        return int(made["seconds"]) / 3600 if made else self.hours

    def missing(self) -> list[str]:
        """Return the inputs that are missing here, in words."""
        wanted = [NEEDS[name] for name in self.needs if name in NEEDS]
        modules = [name for name in self.needs if name not in NEEDS and not importlib.util.find_spec(name)]
        return [words for there, words in wanted if not there()] + [
            f"Python module {name}" for name in modules
        ]


def find_scripts(folder: Path) -> list[Script]:
    """Return the scripts of a folder that define ``TABLE``, by name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "TABLE":
                found.append(Script(path, **ast.literal_eval(statement.value)))
    return found


def sample_digest(root: Path = SAMPLE) -> str:
    """Return a digest of all files of a competition folder."""
    programs = [p for c in COLLECTIONS for split in SPLITS for p in list_programs(root, c, split)]
    files = {str(p.path.relative_to(root)): file_fingerprint(p.path) for p in programs}
    return digest([files, file_digest(root / "solution.csv")])


def rows(scripts: list[Script], sample: str) -> list[dict]:
    """Return a row of the list for each script."""
    found = []
    for script in scripts:
        state, why = script.state(sample)
        made = STAMP.fullmatch(script.first_line)
        facts = made.groupdict() if made else {}
        found.append(
            {
                "table": script.path.stem,
                "state": f"{state}: {why}" if why else state,
                "commit": facts.get("commit", ""),
                "minutes": f"{60 * script.expected_hours():.0f}",
                "missing here": ", ".join(script.missing()),
            }
        )
    return found


def measured_commit() -> str:
    """Return the commit of the code, with ``+`` if a file other than a table differs from it."""
    others = ["git", "-C", str(PROJECT), "status", "--porcelain", "-uno", "--", ".", ":!benchmarks/tables"]
    changed = subprocess.run(others, capture_output=True, text=True).stdout.strip()
    return commit().removesuffix("+") + "+" * bool(changed)


def run_command(script: Script, arguments: Sequence[str], kept: Path) -> dict:
    """Run one command of a script, or read its kept output.

    Args:
        script: The script.
        arguments: Its arguments.
        kept: JSON file of the output, written after success.

    Returns:
        ``text``, the printed tables without the JSON object of the last line, and ``seconds``.

    Raises:
        subprocess.CalledProcessError: The script failed.
    """
    if not kept.is_file():
        began = time.monotonic()
        command = [sys.executable, str(script.path), *arguments]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=PROJECT)
        *lines, last = run.stdout.splitlines() or [""]
        text = "\n".join(lines if last.startswith("{") else [*lines, last])
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"text": text.strip("\n"), "seconds": time.monotonic() - began})
    return read_json(kept)


def make(script: Script, sample: str, results: Path) -> None:
    """Run all commands of a script and write its table, whole or not at all."""
    code, script_sample = script.code(), sample if script.sample else None
    parts, outputs = [], []
    for arguments in script.commands:
        kept = results / f"{script.path.stem}-{digest([code, script_sample, arguments])}.json"
        outputs.append(kept)
        output = run_command(script, arguments, kept)
        parts.append((output["seconds"], f"```\n{script.typed(arguments)}\n```\n\n{output['text']}\n"))
    title, _, prose = ast.get_docstring(ast.parse(script.path.read_text())).partition("\n")
    seconds = round(sum(taken for taken, _ in parts))
    data = f"sample {script_sample}" if script_sample else "no sample"
    stamp = f"> Commit {measured_commit()}, code {code}, {data}, {seconds} s."
    head = [stamp, f"# {script.path.name}: {title.rstrip('.')}", prose.strip().replace("``", "`")]
    script.table.parent.mkdir(exist_ok=True)
    with atomic_path(script.table) as temporary:
        temporary.write_text("\n\n".join([*filter(None, head), *(text for _, text in parts)]))
    for kept in outputs:
        kept.unlink()


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--list", action="store_true", help="show the state of every table and make none")
    add("--only", nargs="+", default=[], metavar="NAME", help="tables to consider (default all)")
    add("--quick", action="store_true", help="only check that every script runs: no table is written")
    add("--folder", type=Path, default=Path(__file__).parent, help="folder of the scripts (default this one)")
    options = parser.parse_args(arguments)
    options.scripts = find_scripts(options.folder.resolve())
    if unknown := {*options.only} - {script.path.stem for script in options.scripts}:
        parser.error(f"--only: no script makes {', '.join(sorted(unknown))}")
    options.scripts = [s for s in options.scripts if s.path.stem in options.only or not options.only]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line; return 1 if a script failed, 130 after an interruption."""
    options = parse(arguments)
    sample = sample_digest()
    if options.list:
        print(table(rows(options.scripts, sample)))
    due = [script for script in options.scripts if options.quick or script.state(sample)[0] != PRESENT]
    for script in [s for s in due if s.missing()]:
        print(f"{script.path.stem}: left out, needs {', '.join(script.missing())}")
    due = sorted((s for s in due if not s.missing()), key=Script.expected_hours)
    print(f"{len(due)} to make, about {60 * sum(s.expected_hours() for s in due):.0f} minutes")
    return 0 if options.list else make_all(due, sample, options)


def make_all(due: list[Script], sample: str, options: argparse.Namespace) -> int:
    """Make tables one after the other and print the progress; return the exit status."""
    failed = 0
    for number, script in enumerate(due):
        left = 60 * sum(s.expected_hours() for s in due[number:])
        print(f"[{number + 1}/{len(due)}] {script.path.stem}: {left:.0f} minutes left", flush=True)
        try:
            if options.quick:
                command = [sys.executable, str(script.path), "--quick"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=PROJECT)
            else:
                make(script, sample, options.folder.resolve() / "results" / "all")
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"{script.path.stem}: exit status {error.returncode}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted: the same command resumes", file=sys.stderr)
            return 130
    return int(bool(failed))


if __name__ == "__main__":
    run_main(main)
