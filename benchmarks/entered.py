"""What a reader enters: the source files and functions that run from npz to CSV, and from npz to a ranking.

``python benchmarks/entered.py``. A file is entered when a function of it is called; importing it does not
count. *npz to CSV* is the page of docs/how_it_works.md. *training* is its part in ``fastslow.networks``.
*rank FILE.npz* is the command, with the models in the package, on a layout test file of the sample.
"""

import contextlib
import io
import re
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import fastslow
from common.command_line import run_main
from common.options import make_parser
from common.report import finish, table
from fastslow.core.settings import PROJECT
from fastslow.runs.packaged import packaged_models

TABLE = {"hours": 0.02, "needs": ("package", "fastslow")}
SOURCE = Path(fastslow.__file__).resolve().parents[1]
PAGE = PROJECT / "docs/how_it_works.md"
_OPTIMIZED = 1  # a flag of functions: the body of a class or module has it not


def page_code() -> str:
    """Return the Python code of the page that goes from npz to CSV."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return code


def _importing(frame: FrameType) -> bool:
    """Return whether a call is made while a module of ours is imported."""
    caller: FrameType | None = frame
    while caller is not None:
        code = caller.f_code
        if code.co_name == "<module>" and Path(code.co_filename).is_relative_to(SOURCE):
            return True
        caller = caller.f_back
    return False


def entered(call: Callable[[], object]) -> dict[Path, set[str]]:
    """Return the functions of our packages that a call runs, in any of its threads, by their file."""
    files: dict[Path, set[str]] = defaultdict(set)
    seen: set[CodeType] = set()

    def note(frame, event: str, _) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            path = Path(code.co_filename)
            if not path.is_relative_to(SOURCE):
                seen.add(code)
            elif code.co_flags & _OPTIMIZED and not _importing(frame):
                seen.add(code)
                files[path.relative_to(SOURCE)].add(code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return dict(files)


def run_page(code: str) -> None:
    """Run the code of the page; what it prints goes to the standard error output."""
    names = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        code = code.replace('Path("data', f'Path("{PROJECT}/data')
        code = code.replace('Path("submission.csv")', f"Path({folder!r}, 'submission.csv')")
        exec(compile(code, str(PAGE), "exec"), names)


def rank_file(path: Path) -> None:
    """Rank a file as the command does with the models in the package; nothing is printed."""
    from fastslow.cli import main as command

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        command(["rank", str(path), f"data_root={folder}", f"run={packaged_models()}"])


def row(name: str, files: dict[Path, set[str]]) -> dict:
    """Return a row of the table: files, functions, and lines of these files."""
    return {
        "path": name,
        "files": len(files),
        "functions": sum(map(len, files.values())),
        "lines of these files": sum(len((SOURCE / path).read_text().splitlines()) for path in files),
    }


def packages(files: dict[Path, set[str]]) -> list[dict]:
    """Return files and functions by package."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, functions in files.items():
        package = rows[".".join(path.parts[:2] if len(path.parts) > 2 else path.parts[:1])]
        package[0] += 1
        package[1] += len(functions)
    return [{"package": name, "files": n, "functions": count} for name, (n, count) in sorted(rows.items())]


def first_layout_file() -> Path:
    """Return the sample's first layout test file."""
    return min((PROJECT / "data/sample/npz_all/npz/layout/xla/random/test").glob("*.npz"))


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    make_parser(__doc__.splitlines()[0]).parse_args(arguments)
    page = entered(lambda: run_page(page_code()))
    networks = {path: functions for path, functions in page.items() if path.parts[1] == "networks"}
    ranked = entered(lambda: rank_file(first_layout_file()))
    print(table([row("npz to CSV", page), row("training", networks), row("rank FILE.npz", ranked)]))
    print("\nnpz to CSV by package\n")
    print(table(packages(page)))
    print("\nrank FILE.npz by package\n")
    print(table(packages(ranked)))
    finish({"npz to CSV": row("", page), "training": row("", networks), "rank": row("", ranked)})
    return 0


if __name__ == "__main__":
    run_main(main)
