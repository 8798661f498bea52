"""Time of ranking a program with a trained run: loading the run, building features, predicting.

``python benchmarks/rank.py [--quick] [--runs runs/sample] [--files NPZ ...]``, after ``make submit``. By
default every file of ``../shared/real`` is ranked, or the sample's test files. *Second time* repeats the
prediction with everything in memory, as a search does for its next candidates. Seconds are CPU seconds, which
other work on the machine does not lengthen; ``--wall`` takes the clock on the wall.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common import report
from common.graph_files import REAL
from common.options import make_parser
from fastslow.competition.catalog import SPLITS, TEST, ProgramFile
from fastslow.competition.reader import read_npz
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.features.unseen import build_unseen
from fastslow_programs.ranking.inference import FinishedRun
from fastslow_programs.ranking.runs import find_run, runs_folder
from fastslow_programs.ranking.settings import RankSettings

TABLE = {"hours": 0.1, "needs": ("run", "real"), "commands": (("--wall", "--threads", "2"),)}


def measure(path: Path, runs: Path, clock: Callable[[], float]) -> dict:
    """Rank one file; return the seconds of each part, and configurations per second."""
    collection, seconds = RankSettings(source=str(path)).find_collection(), {}

    def timed(part: str, work: Callable):
        began = clock()
        found = work()
        seconds[part] = clock() - began
        return found

    run = timed("load", lambda: FinishedRun(find_run(runs, collection)))
    file = timed("read", lambda: read_npz(ProgramFile(collection, TEST, path)))
    graphs = timed("features", lambda: build_unseen(run.folder, [file]))
    (first,) = timed("predict", lambda: run.predict(graphs)).values()
    (again,) = timed("second time", lambda: run.predict_members(graphs))[run.name].values()
    assert np.allclose(first, again, rtol=1e-5, atol=1e-6)
    return {
        "file": path.stem,
        "collection": collection.name,
        "nodes": len(file.node_opcode),
        "configs": len(file.runtime),
        "members": len(run.members),
        **seconds,
        "configs per second": len(file.runtime) / seconds["second time"],
    }


def row_of(result: dict) -> dict:
    """Return a result as a row of text."""
    row = {name: f"{v:.2f}" if isinstance(v, float) else str(v) for name, v in result.items()}
    return row | {"configs per second": f"{result['configs per second']:,.0f}"}


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="folder of a run of make submit (default: the newest)")
    parser.add_argument("--files", nargs="+", type=Path, metavar="NPZ", help="competition files to rank")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--wall", action="store_true", help="time by the clock on the wall, not of the CPU")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.wall else time.process_time
    runs = runs_folder(options.runs)
    root = REAL if (REAL / "npz_all").is_dir() else resolve("data/sample")
    files = options.files or sorted(p for split in SPLITS for p in (root / "npz_all").rglob(f"{split}/*.npz"))
    if not files:
        raise DataError(root, "no competition file", "Name files with --files")
    files = sorted(files, key=lambda path: path.stat().st_size)[: 2 if options.quick else None]
    measure(files[0], runs, clock)  # imports and caches
    results = [measure(path, runs, clock) for path in files]
    print(report.table([row_of(result) for result in results]))
    total = sum(r["configs"] for r in results) / sum(r["second time"] for r in results)
    unit = "seconds" if options.wall else "CPU seconds"
    print(f"\nTimes in {unit}; all files together: {total:,.0f} configurations a second, all members.")
    facts = {"environment": report.environment(options.threads), "run": runs.name, "wall": options.wall}
    report.finish({"benchmark": "rank", **facts, "configs per second": total, "files": results})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
