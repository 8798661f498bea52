"""The notebook that teaches the whole idea: short, of plain libraries, and a ladder that it climbs."""

import re

import papermill

from notebook_parameters import FOLDER, FROM_SCRATCH, code_cells

LINES = 150  # of code, without comments and empty lines


def test_it_is_short_and_imports_nothing_of_ours():
    lines = [line for cell in code_cells(FROM_SCRATCH) for line in cell.source.splitlines()]
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= LINES
    imported = {re.split(r"[ .]", line)[1] for line in lines if re.match(r"(from|import) ", line)}
    assert imported == {"pathlib", "lightgbm", "numpy", "pandas", "torch", "scipy"}
    assert not any(cell.outputs or cell.execution_count for cell in code_cells(FROM_SCRATCH))


def test_each_rung_is_scored(tmp_path):
    """A few programs and one pass. The seconds are those of a kernel's imports and three models."""
    options = {"kernel_name": "python3", "cwd": str(FOLDER), "progress_bar": False}
    small = {"programs": 3, "epochs": 1}
    executed = papermill.execute_notebook(str(FROM_SCRATCH), str(tmp_path / "out.ipynb"), small, **options)
    (shown,) = [o["data"] for o in executed.cells[-4].outputs if "text/plain" in o.get("data", {})]
    ladder = [line.rsplit(maxsplit=3) for line in shown["text/plain"].splitlines()[1:]]
    assert len(ladder) == 8 and ladder[0][0].startswith("one column") and ladder[-1][0].startswith("mean of")
    assert all(-1 <= float(score) <= 1 and float(score) != 0 for _, *row in ladder for score in row[:2])
    pictures = [o for o in executed.cells[-2].outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 1
