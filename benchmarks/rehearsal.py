"""Rehearse the real competition, whole: from files of its size to the CSV, with hours and memory.

``python benchmarks/rehearsal.py [--quick] [--hours H] [--folder FOLDER]``. A made-up competition has as many
files, nodes and configurations as the real one and its kinds of damage (``common/real_size.py``). ``fastslow
submit`` runs on it in a process of its own, with the preset ``kaggle`` and a budget of hours. Memory is
resident memory, polled every two seconds; pages that processes share count in each. The time of a step is
its notebook's. A budget allows a model to train for 1.1 times the minutes that it planned from first steps;
its notebook also reads and predicts. Data, features, runs and the CSV are in the folder: an interrupted call
resumes, and its hours count.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from common import report
from common.command_line import run_main
from common.graph_files import REAL
from common.options import at_least, make_parser
from common.real_size import DISTINCT, REAL_SIZE, TINY_DISTINCT, TINY_SIZE, make_competition
from fastslow.competition.catalog import COLLECTIONS, SPLITS
from fastslow.competition.submission_checks import expected_counts, read_submission
from fastslow.core.files import read_json, write_json
from fastslow.evaluation.run_record import read_run_record
from fastslow.evaluation.training_files import NOTEBOOK, notebook_seconds
from fastslow.workflow.settings.presets import PRESETS

_POLL, _STDERR = 2.0, 2  # seconds; file descriptor
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def run_command(options: Namespace) -> dict[str, float]:
    """Run ``fastslow`` on the data; return what it took, with earlier calls of the same command.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    given = {"data": options.folder, "preset": options.preset, "name": options.name, "hours": options.hours}
    typed = [options.target, *(f"{key}={value}" for key, value in given.items() if value), *options.set]
    command = [sys.executable, "-m", "fastslow", *typed]
    record, home = options.folder / "measured.json", _home(options)
    home.mkdir(exist_ok=True)
    every = read_json(record) if record.is_file() else {}
    before = every.get(shlex.join(typed), {})
    began, seconds, peaks = time.monotonic(), {}, (0.0, 0.0)
    try:
        environment = {**os.environ, "FASTSLOW_HOME": str(home)}
        with subprocess.Popen(command, stdout=_STDERR, env=environment) as process:
            while process.poll() is None:
                found = below(process.pid)
                seconds |= {pid: used for pid, (used, _) in found.items()}
                held = [resident / 2**30 for _, resident in found.values()]
                peaks = max(peaks[0], sum(held)), max(peaks[1], max(held, default=0))
                time.sleep(0.1 if options.quick else _POLL)
    finally:
        took = {"wall hours": time.monotonic() - began, "CPU hours": sum(seconds.values())}
        took = {key: before.get(key, 0) + spent / 3600 for key, spent in took.items()}
        names = ("peak GB of all processes", "peak GB of one process")
        took |= {name: max(before.get(name, 0), peak) for name, peak in zip(names, peaks, strict=True)}
        write_json(record, every | {shlex.join(typed): took})
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return took


def below(pid: int) -> dict[int, tuple[float, int]]:
    """Return CPU seconds and resident bytes of a process and of every process below it, by its number."""
    found, children = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process_id = int(path.parent.name)
        found[process_id] = (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE
        children.setdefault(int(fields[1]), []).append(process_id)
    due, kept = [pid], {}
    while due:
        process_id = due.pop()
        due += children.get(process_id, [])
        kept |= {process_id: found[process_id]} if process_id in found else {}
    return kept


def _home(options: Namespace) -> Path:
    return options.folder / "home"


def stage_rows(options: Namespace) -> list[dict]:
    """Return a row for each kind of step of the run: how many, their hours and the longest's."""
    found: dict[str, list[float]] = {}
    for place in ("features", "runs"):
        notebooks = (_home(options) / place / options.name).glob(f"*/{NOTEBOOK}")
        for notebook in sorted(notebooks, key=lambda path: path.stat().st_mtime):
            kind = "features" if place == "features" else notebook.parent.name.partition("-")[0]
            found.setdefault(kind, []).append((notebook_seconds(notebook.parent) or 0) / 3600)
    return [
        {"steps": kind, "number": len(hours), "hours, one after the other": sum(hours), "longest": max(hours)}
        for kind, hours in found.items()
    ]


def model_rows(runs: Path, chosen: dict) -> list[dict]:
    """Return a row for each model: the minutes that the budget allowed its first seed, and those it took."""
    rows = []
    for name, hours in chosen.items():
        section, _, field = name.rpartition(".")
        if field == "hours":
            step = section.replace("gnn.tile-xla", "gnn.tile").replace("gnn", "training").replace(".", "-")
            taken = (notebook_seconds(runs / f"{step}-s0") or 0) / 60
            rows.append({"model": section, "minutes allowed": 60 * hours, "minutes taken": taken})
    return rows


def size_rows(root: Path) -> list[dict]:
    """Return a row for each collection: its files, and GB with every name counted."""
    rows = []
    for collection in COLLECTIONS:
        paths = [[*collection.folder(root, split).glob("*.npz")] for split in SPLITS]
        size = sum(path.stat().st_size for split_paths in paths for path in split_paths) / 2**30
        counts = dict(zip(SPLITS, map(len, paths), strict=True))
        rows.append({"collection": collection.name, **counts, "GB": size})
    return rows


def measure(options: Namespace) -> None:
    """Make the data, run the command, print the tables and the JSON object."""
    sizes, distinct = (TINY_SIZE, TINY_DISTINCT) if options.quick else (REAL_SIZE, DISTINCT)
    distinct = distinct if options.distinct is None else distinct | {"layout": options.distinct}
    genuine = REAL if REAL.is_dir() and not options.quick else None
    make_competition(options.folder, sizes, distinct, genuine)
    found = {"data": size_rows(options.folder)}
    if not options.data_only:
        found |= {"run": run_command(options), "steps": stage_rows(options)}
        runs = _home(options) / "runs" / options.name
        record = read_run_record(runs)
        found["models"] = model_rows(runs, record.get("chosen", {}))
        found["settings"] = record.pop("settings", {}) | record
        csv = _home(options) / "submissions" / f"{options.name}.csv"
        if csv.is_file():
            counts = expected_counts(options.folder)
            found["run"] |= {"rows of the CSV": len(read_submission(csv, counts))}
    for key in ("data", "steps", "models"):
        print(report.table([report.cells(row) for row in found.get(key, [])]) + "\n")
    if "run" in found:
        print(report.table([report.cells(found["run"])]) + "\n")
        settings = found["settings"].items()
        print(report.table([{"setting": name, "value": str(value)} for name, value in settings if value]))
    report.finish({"benchmark": "rehearsal", "environment": report.environment(), **found})


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add = parser.add_argument
    default = Path(tempfile.gettempdir(), "fastslow-rehearsal")
    add("--folder", type=Path, default=default, help=f"folder of data and runs (default {default})")
    add("--data-only", action="store_true", help="only make the data")
    add(
        "--distinct",
        type=at_least(1),
        help=f"layout programs of a split that differ (default {DISTINCT['layout']})",
    )
    add("--hours", type=at_least(0, float), default=0, help="budget; 0 for none (default)")
    add("--preset", choices=PRESETS, default="kaggle", metavar="NAME", help="preset (default kaggle)")
    add("--name", default="rehearsal", help="name of the run (default rehearsal)")
    add("--target", default="submit", help="last stage, or submit (default)")
    add("--set", nargs="*", default=[], metavar="NAME=VALUE", help="more settings of fastslow submit")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    if options.quick:
        options.preset, options.set = "smoke", ["features.workers=1", "jobs=2", *options.set]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    if not options.quick:
        measure(options)
        return 0
    with tempfile.TemporaryDirectory() as place:
        options.folder = Path(place)
        measure(options)
    return 0


if __name__ == "__main__":
    run_main(main)
