"""Faults of a run, counted: kill -9 at random moments, errors of the drive; then the same command.

``python benchmarks/faults.py [--quick] [--kills N] [--errors N] [--seed N] [--keep FOLDER --minutes N]``. A
small made-up competition is run once undisturbed. Then, again and again, a random step of one stage after the
other is taken away and the command is typed again:

- kill: ``kill -9`` hits the command (two in three) or one of its notebooks and workers, at a random moment;
  the same command follows and is killed as well, up to ``--chain`` times;
- error: from a random write on, every write fails: disk full, quota, read-only, stale file handle, I/O error.

The same command follows. It must complete, with the same bytes of features, weights, predictions and CSV as
undisturbed; no process and no temporary file may be left; what an error says must name the remedy.
"""

import errno
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from common import report
from common.forked_command import ForkedCommand
from common.made_competition import write_competition
from common.options import make_parser

STAGES = {
    "features": ("features", "*"),
    "network": ("runs", "training-*"),
    "ranker": ("runs", "ranker-*"),
    "ensemble": ("runs", "ensemble-*"),
    "submission": ("runs", "submission"),
}
"""Where the folders of each stage's steps are, below the name of the run."""
RESULTS = ("*.npz", "*.npy", "*.pt", "*.csv", "model.txt", "metrics.jsonl")
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "ESTALE", "EIO")
SETTINGS = ("gnn.epochs=6", "gnn.evaluate_every=1", "features.workers=2")
UNDISTURBED, TOO_LATE = "none", "kill too late"
_LEFT_SECONDS = 20.0
# every file that is written is flushed once, so that is where a drive fails; read by every Python process
_FAILING_DRIVE = """
import os
number, calls, right = int(os.environ["FAULT_ERRNO"]), iter(range(int(os.environ["FAULT_AFTER"]))), os.fsync
def fsync(descriptor):
    if next(calls, None) is None:
        raise OSError(number, os.strerror(number))
    right(descriptor)
os.fsync = fsync
"""


class Home:
    """A folder with data, a finished run ``smoke``, and how to run the command in it.

    Args:
        root: The folder; its ``data/made`` is there.
    """

    def __init__(self, root: Path):
        self.root = root
        self.words = ["submission", "preset=smoke", "name=smoke", "jobs=2"]
        self.words += [f"data={root / 'data' / 'made'}", *SETTINGS]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of the command's environment."""
        return {**os.environ, "FASTSLOW_HOME": str(self.root), "OMP_NUM_THREADS": "1", **more}

    def start(self, **environment: str) -> subprocess.Popen:
        """Start the command as typed."""
        pipe, text = subprocess.PIPE, {"text": True, "errors": "replace"}
        command = [sys.executable, "-m", "fastslow", *self.words]
        own = self.environment(**environment)
        return subprocess.Popen(command, env=own, stdout=pipe, stderr=subprocess.STDOUT, **text)

    def fork(self) -> ForkedCommand:
        """Start the command in a fork of this process."""
        return ForkedCommand(self.words, self.environment())

    def finish(self) -> str:
        """Run the command and return what it says; empty where it completes."""
        with self.fork() as process:
            said = process.communicate()[0]
        return said if process.returncode else ""

    def results(self) -> dict[str, str]:
        """Return a checksum of every result, by path."""
        paths = {path for pattern in RESULTS for path in self.root.rglob(pattern)}
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
        }

    def take_away(self, stage: str, rng: random.Random) -> str:
        """Remove the folder of a random step of a stage; return its name."""
        stem, pattern = STAGES[stage]
        folder = rng.choice(sorted((self.root / stem / "smoke").glob(pattern)))
        shutil.rmtree(folder)
        return folder.name

    def temporaries(self) -> list[str]:
        """Return temporary files."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob(".*.tmp*"))


def kill_at(
    process: subprocess.Popen | ForkedCommand, seconds: float, rng: random.Random
) -> tuple[str, list[psutil.Process]]:
    """Kill the command or one of its processes after some seconds; wait for its end.

    Returns:
        ``command``, ``child``, or ``too late`` where it ended before; and its processes at that moment.
    """
    try:
        process.communicate(timeout=seconds)
        return "too late", []
    except subprocess.TimeoutExpired:
        pass
    below = psutil.Process(process.pid).children(recursive=True)
    victim = rng.choice(below) if below and rng.random() < 1 / 3 else None
    try:
        (victim or process).send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        victim = None
        process.kill()
    process.communicate()
    return "child" if victim else "command", below


def survivors(processes: list[psutil.Process]) -> list[int]:
    """Return the processes that still run after a while."""
    end = time.monotonic() + _LEFT_SECONDS
    while True:
        alive = [p.pid for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(0.1)


def judge(home: Home, whole: dict[str, str]) -> dict:
    """Type the command again and compare."""
    began = time.monotonic()
    said = home.finish()
    seconds, results = time.monotonic() - began, home.results()
    return {
        "seconds": seconds,
        "completed": not said,
        "said": said[-2000:],
        "different": sorted(name for name in {*whole, *results} if whole.get(name) != results.get(name)),
        "temporary files": home.temporaries(),
    }


def kill(
    home: Home, whole: dict[str, str], stage: str, seconds: float, rng: random.Random, chain: int
) -> list[dict]:
    """Take a step away, kill the command that makes it again up to ``chain`` times, then let it complete.

    Returns:
        A row for each kill, with the verdict on what the last command made; one row where none hit. Their
        ``seconds`` are those of the longest of the commands.
    """
    step, rows = home.take_away(stage, rng), []
    while len(rows) < chain:
        after = rng.uniform(0.05, 0.95 if chain == 1 else 0.6) * seconds  # the next one begins further on
        victim, below = kill_at(home.fork(), after, rng)
        rows.append({"fault": f"kill {victim}", "stage": stage, "step": step, "after": after})
        rows[-1]["survivors"] = survivors(below)
        if rows[-1]["fault"] == TOO_LATE:
            break
    rows = [row for row in rows if row["fault"] != TOO_LATE] or rows
    verdict = judge(home, whole)
    verdict["seconds"] = max(verdict["seconds"], *(row["after"] for row in rows))
    return [row | verdict for row in rows]


def fail(home: Home, whole: dict[str, str], stage: str, name: str, rng: random.Random) -> dict:
    """Take a step away, run the command on a drive that fails, and repeat the command on a sound one."""
    step, after = home.take_away(stage, rng), rng.randrange(4)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(_FAILING_DRIVE)
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        number = getattr(errno, name)
        with home.start(PYTHONPATH=path, FAULT_ERRNO=str(number), FAULT_AFTER=str(after)) as process:
            said = process.communicate()[0]
    row = {"fault": f"error {name}", "stage": stage, "step": step, "after": after}
    remedy = "it resumes" in said and "Traceback" not in said
    return row | {"clear": process.returncode == 0 or remedy, "first": said[-2000:]} | judge(home, whole)


def is_good(row: dict) -> bool:
    """Whether nothing was lost and everything was said."""
    left = row.get("survivors") or row["different"] or row["temporary files"]
    return row["completed"] and not left and row.get("clear", True)


def next_fault(rows: list[dict], kills: int, errors: int) -> tuple[str, str, float] | None:
    """Return the next fault, its stage and the seconds that the command takes there; None when all are done.

    A kill that came too late does not count: it is tried again, earlier.
    """
    for fault, wanted in (("kill", kills), ("error", errors)):
        hits = [row for row in rows if row["fault"].startswith(fault) and row["fault"] != TOO_LATE]
        if len(hits) < wanted:
            done = Counter(row["stage"] for row in hits)
            stage = min(STAGES, key=lambda name: done[name])
            before = [row for row in rows if row.get("stage") == stage]
            if not before:  # a step taken away is two notebooks of a run, beside reading all the others
                return fault, stage, (2 * rows[0]["seconds"] / 11 if len(rows) == 1 else rows[-1]["seconds"])
            return fault, stage, before[-1]["after" if before[-1]["fault"] == TOO_LATE else "seconds"]
    return None


def run(kills: int, errors: int, seed: int, root: Path, minutes: float, chain: int) -> list[dict]:
    """Run once undisturbed, then with every fault; return a row for each, the undisturbed run first.

    Every row is kept in a file; after so many minutes no fault begins, and the same call resumes.
    """
    began, kept, home = time.monotonic(), root / "faults.jsonl", Home(root)
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    if not rows:
        write_competition(root / "data" / "made", {"train": 2, "valid": 1, "test": 1}, configs=24)
    if said := home.finish():
        sys.exit(said)

    def keep(row: dict) -> None:
        rows.append(row)
        with kept.open("a") as stream:
            stream.write(json.dumps(row) + "\n")

    if not rows:
        keep({"fault": UNDISTURBED, "seconds": time.monotonic() - began, "results": home.results()})
    whole = rows[0]["results"]
    if home.results() != whole:
        sys.exit(f"{root}: other results than before; the code changed: choose another folder")
    while (fault := next_fault(rows, kills, errors)) and time.monotonic() - began < minutes * 60:
        kind, stage, seconds = fault
        rng = random.Random(f"{seed} {len(rows)}")
        if kind == "kill":
            found = kill(home, whole, stage, seconds, rng, chain)
        else:
            found = [fail(home, whole, stage, rng.choice(ERRORS), rng)]
        for row in found:
            keep(row)
            verdict = "same bytes" if is_good(row) else f"NOT GOOD {row}"
            print(
                f"{row['fault']} in {stage} ({row['step']}, {row['after']:.1f}): {verdict}", file=sys.stderr
            )
    return rows


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where a fault did harm."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="number of kills (default 50, quick 1)")
    parser.add_argument(
        "--errors", type=int, default=10, help="number of failing drives (default 10, quick 1)"
    )
    parser.add_argument("--chain", type=int, default=3, help="kills before the command may end (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and steps (default 0)")
    parser.add_argument("--keep", metavar="FOLDER", help="where to work; the same command resumes there")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no fault after so many")
    options = parser.parse_args(arguments)
    kills, errors = (1, 1) if options.quick else (options.kills, options.errors)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(options.keep or folder)
        rows = run(kills, errors, options.seed, root.absolute(), options.minutes, options.chain)[1:]
    counts = Counter((row["fault"], row["stage"]) for row in rows)
    good = Counter((row["fault"], row["stage"]) for row in rows if is_good(row))
    shown = [
        {"fault": fault, "stage": stage, "tried": count, "completed with the same bytes": good[fault, stage]}
        for (fault, stage), count in sorted(counts.items())
    ]
    print(report.table(shown))
    harm = [row for row in rows if not is_good(row)]
    total = {"tried": len(rows), "good": len(rows) - len(harm)}
    report.finish(
        {"benchmark": "faults", "environment": report.environment(), **total, "counts": shown, "harm": harm}
    )
    return int(bool(harm))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
