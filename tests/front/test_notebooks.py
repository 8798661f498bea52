"""Every notebook: what it says without being run, and what it makes when run."""

import ast
import re
import shlex
import shutil
import sys
from functools import cache

import nbformat
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config as IPythonConfig

import fastslow
from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.runs.predictions import read_run_manifest
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.steps import Plan
from helpers.cases import cases
from helpers.competition_files import ROOT
from helpers.dot_module import varied_module
from helpers.workspace import environment
from notebook_parameters import FOLDER, NOTEBOOKS, OWN_MODEL, code_cells, python, read, render, settings_class

LINES = 80  # of code in a notebook; comments and empty lines are free


@pytest.fixture(autouse=True)
def main_module(monkeypatch):
    """A shell puts its own module in the place of ``__main__``: later tests could start no process."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def test_parameters_are_the_settings_their_defaults_and_sentences():
    """Where they are not: ``.venv/bin/python notebooks/notebook_parameters.py``."""
    for path in NOTEBOOKS:
        tagged = [cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", [])]
        assert tagged == code_cells(path)[:1], path.stem
        source, found = tagged[0].source, {}
        exec(source, {}, found)
        settings = settings_class(path)
        defaults = settings()
        shown = [setting.name for setting in settings.describe() if not setting.group]
        assert list(found) == shown and shown == list(settings.main or settings.model_fields), path.stem
        for name, value in found.items():
            wanted = getattr(defaults, name)
            assert (value, type(value)) == (wanted, type(wanted)), f"{path.stem}: {name}"
        assert source == render(settings) and source.count("# ") >= len(found), path.stem
        assert len(source.splitlines()) <= 25 and max(map(len, source.splitlines())) <= 110, path.stem
        checked = code_cells(path)[1].source
        assert f"settings = {settings.__name__}.from_variables(globals())" in checked, path.stem
        assert checked.splitlines()[-1] == "settings", path.stem
    assert list(papermill.inspect_notebook(str(path))) == list(found)


LOGIC = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try, ast.With)
LOGIC += (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
LOGIC += (ast.BinOp,)  # arithmetic of paths belongs into a function


def test_a_notebook_holds_no_logic_and_no_outputs():
    """Nor assigns it a setting below its parameters: the cell that makes the settings may be run again."""
    for path in NOTEBOOKS:
        notebook, cells = read(path), code_cells(path)
        lines = [line for cell in cells for line in cell.source.splitlines()]
        assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= LINES, path.stem
        assert not any(cell.outputs or cell.execution_count for cell in cells), path.stem
        trees = [[*ast.walk(ast.parse(python(cell.source)))] for cell in cells]
        for cell, nodes in zip(cells, trees, strict=True):
            assert not any(isinstance(node, LOGIC) for node in nodes), f"{path.stem}: {cell.source}"
        names = [node for nodes in trees[1:] for node in nodes if isinstance(node, ast.Name)]
        assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        assert "settings" in assigned and not assigned & settings_class(path).model_fields.keys(), path.stem
        assert notebook.metadata.kernelspec.name == "python3", path.stem
        assert set(notebook.metadata.language_info) == {"name"}, f"{path.stem}: no version"


def test_a_notebook_explains_itself_and_every_figure():
    """A figure's cell follows prose that explains how to read it."""
    for path in NOTEBOOKS:
        cells = read(path).cells
        assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# "), path.stem
        about = cells[0].source.partition("\n")[2]
        assert len(about.strip()) > 60 and f"`help({settings_class(path).__name__})`" in about, path.stem
        for before, cell in zip(cells, cells[1:], strict=False):
            if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith("plot_"):
                assert before.cell_type == "markdown" and len(before.source) > 100, cell.source


def test_notebooks_share_a_kernel_in_any_order(capsys):
    shell = InteractiveShell(config=IPythonConfig({"HistoryManager": {"enabled": False}}))
    for path in [*NOTEBOOKS, *reversed(NOTEBOOKS)]:
        for cell in code_cells(path)[:2]:
            statements, settings = python(cell.source).rsplit("\n", 1)
            shell.run_cell(statements if settings == "settings" else cell.source).raise_error()
        assert shell.user_ns["settings"] == settings_class(path)(), path.stem
    assert capsys.readouterr().out == "", "no variable of another notebook is even named"


def test_by_default_a_notebook_writes_to_no_folder_of_a_run():
    """Of the workflow: what is tried by hand must not take the place of what `make submit` has made."""
    workflow = Plan("sample", "sample", "sample", 3, {}, 1, "gnn,ranker").steps()
    made = {getattr(step.settings, "csv", "") for step in workflow} - {""}
    made |= {folder for step in workflow for folder in written(step.settings)}
    assert "runs/sample/gnn-layout-xla-random-s0" in made and "submissions/sample.csv" in made
    for path in NOTEBOOKS:
        settings = settings_class(path)()
        own = {getattr(settings, "csv", ""), *written(settings)}
        assert not made & own, path.stem


def written(settings):
    folder = [settings.folder] if "folder" in type(settings).model_fields else []
    return [*folder, *(settings.run_folders() if isinstance(settings, TrainSettings) else ())]


@cases("stem", ["10_features", "20_train_network"])
def test_the_command_for_tile_gives_what_the_workflow_takes(stem):
    (line,) = re.findall(r"^\.venv/bin/(papermill .*)$", read(FOLDER / f"{stem}.ipynb").cells[0].source, re.M)
    words = shlex.split(line)
    assert words[3] == f"notebooks/{stem}.ipynb" and (ROOT / words[3]).is_file()
    given = [f"{words[i + 1]}={words[i + 2]}" for i, word in enumerate(words) if word == "-p"]
    lists = dict(re.findall(r"(\w+): \[([^]]*)\]", line))
    settings = settings_class(FOLDER / f"{stem}.ipynb").from_texts(
        given, {name: [text] for name, text in lists.items()}
    )
    steps = [s for s in Plan("sample", "sample", "sample", 1, {}, 1).steps() if s.notebook.stem == stem]
    assert Settings.identity(settings) in [Settings.identity(step.settings) for step in steps]
    assert "/play/" in settings.folder


class Shell(InteractiveShell):
    """IPython with figures in its outputs and no windows."""

    def enable_gui(self, gui=None):
        """Have no event loop of a window system, which ``%matplotlib inline`` asks for."""


@cache
def shell():
    """The shell of all notebooks: matplotlib_inline shows figures in the first one of a process alone."""
    return Shell(config=IPythonConfig({"HistoryManager": {"enabled": False}}))


def shown_by(name, **parameters):
    """Run a notebook with the parameters that papermill injects, from the notebooks' own folder.

    In this process: the kernels of nine notebooks would import the same libraries nine times. The workflow,
    which made ``finished``, and the README's command run notebooks in kernels.

    Returns:
        The source of each cell and what it shows, by MIME type; the settings cell once more at the end.
    """
    path = FOLDER / f"{name}.ipynb"
    cells = parameterize_notebook(load_notebook_node(str(path)), parameters).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"] + [code_cells(path)[1].source]
    shell().reset()
    for source in sources:
        outcome = shell().run_cell(source, store_history=True)
        outcome.raise_error()
        yield source, shell().display_formatter.format(outcome.result)[0]


@pytest.fixture(scope="module")
def own_home(finished, tmp_path_factory):
    """One copy of the finished home for all notebooks, which write folders of their own, ``alone``."""
    home = shutil.copytree(finished[0], tmp_path_factory.mktemp("notebooks") / "home")
    (home / "small.pb").write_bytes(varied_module(3).SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        yield home


XLA = "features/smoke/layout-xla-random"
MEASURE = {"evaluator": "command", "command": f"{shlex.quote(sys.executable)} -c 'print(1)'"}
BY_HAND = {  # parameters, and files that it makes
    "00_data": ({}, []),
    "12_violation_ratio": ({"features": XLA}, []),
    "24_ranker_explanations": ({"features": XLA, "run": "runs/smoke/ranker-layout-xla-random-s0"}, []),
    "50_convert": ({"source": "{home}/small.pb", "configs": 8}, []),
    "52_rank": (
        {"source": "{home}/small.pb", "configs": 30, "run": "runs/smoke"},
        [f"data/converted/rankings/small/{f}" for f in ("ranking.csv", "effects.csv", "ends.csv")],
    ),
    "54_tune": (
        {"source": "{home}/small.pb", "evaluations": 9, "run": "runs/smoke", **MEASURE},
        [f"data/converted/tuned/small/{f}" for f in ("best.json", "best.hlo.pb", "study.journal")],
    ),
    "61_place": (
        {"source": "zoo:inception_b32", "updates": 2, "search": 20, "out": "runs/alone"},
        [
            f"runs/alone/inception_b32-placement-4/{f}"
            for f in ("comparison.csv", "decision.json", "memory.png")
        ],
    ),
}
BY_THE_RUN = {
    "10_features": ["features/smoke/layout-xla-random", "features/smoke/tile-xla"],
    "20_train_network": ["runs/smoke/training-layout-s0", "runs/smoke/training-tile-s0"],
    "22_train_ranker": ["runs/smoke/ranker-layout-xla-default-s0", "runs/smoke/ranker-tile-xla-s0"],
    "30_ensemble": ["runs/smoke/ensemble-layout-xla-random", "runs/smoke/ensemble-tile-xla"],
    "40_submission": ["runs/smoke/submission"],
}
"""Folders whose ``notebook.ipynb`` papermill executed when ``finished`` was made."""


def check_plots(cells):
    """Check the cells, a source and the MIME types that it shows each: every plot is shown."""
    plots = [(source, kinds) for source, kinds in cells if source.splitlines()[-1].startswith("plot_")]
    assert plots, "a plot is what one looks at"
    assert [source for source, kinds in plots if "image/png" not in kinds] == []


def test_every_notebook_is_run(finished):
    assert {*BY_HAND, *BY_THE_RUN} == {path.stem for path in NOTEBOOKS}
    for stem, folders in BY_THE_RUN.items():
        for folder in folders:
            executed = nbformat.read(finished[0] / folder / "notebook.ipynb", 4)
            assert [cell.source for cell in executed.cells if "parameters" in cell.metadata.tags] == [
                code_cells(FOLDER / f"{stem}.ipynb")[0].source
            ]
            code = [cell for cell in executed.cells if cell.cell_type == "code"]
            check_plots(
                [(cell.source, {k for o in cell.outputs for k in o.get("data", {})}) for cell in code]
            )


@cases("name", BY_HAND)
def test_a_notebook_runs_and_shows_its_plots(own_home, monkeypatch, name):
    """The seconds are those of conversions, a ranking and a placement."""
    if name == "54_tune":
        pytest.importorskip("libtpu", reason="a program's default layouts need the compiler")
    given, made = BY_HAND[name]
    parameters = {
        key: value.format(home=own_home) if isinstance(value, str) else value for key, value in given.items()
    }
    monkeypatch.chdir(FOLDER)
    cells = [*shown_by(name, **parameters)]
    for file in made:
        assert (own_home / file).is_file(), file
    check_plots(cells)
    first, *_, again = [kinds["text/plain"] for source, kinds in cells if ".from_variables(" in source]
    assert first == again, "the settings cell can be run again, and gives the same"


def test_a_model_of_ones_own_is_fitted_listed_and_submitted(own_home, monkeypatch):
    """Ten lines of fitting; its loops are the only logic of a notebook beside ``01_from_scratch``."""
    monkeypatch.chdir(FOLDER)
    cells = [*shown_by(OWN_MODEL.stem, run="smoke")][:-1]
    check_plots(cells)
    (fit,) = [source for source, _ in cells if "model.fit(" in source]
    assert len([line for line in fit.splitlines() if line]) <= 10
    assert sum(len(source.splitlines()) for source, _ in cells) <= LINES
    folder = own_home / "runs" / "play"
    members = read_run_manifest(folder / "ensemble-layout-xla-random")["members"]
    assert members["boosting-layout-xla-random-s0"]["model"] == "boosting" and len(members) == 3
    table = fastslow.leaderboard(sort="layout:xla:random").table
    (row,) = table[table["model"] == "boosting"].to_dict("records")
    assert row["run"] == "play" and -1 <= row["test layout:xla:random"] <= 1
    record = read_submission_record(own_home / "submissions" / "play.csv", "table")
    assert {"boosting", "ensemble"} <= {scored["model"] for scored in record["table"]}


def test_a_wrong_parameter_is_refused():
    said = "^data_rot: no such setting of DataReportSettings; did you mean 'data_root'"
    with pytest.raises(SettingsError, match=said):
        list(shown_by("00_data", data_rot="data/sample"))


def test_from_scratch_is_short_and_imports_nothing_of_ours():
    cells = code_cells(FOLDER / "01_from_scratch.ipynb")
    lines = [line for cell in cells for line in cell.source.splitlines()]
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 150
    imported = {re.split(r"[ .]", line)[1] for line in lines if re.match(r"(from|import) ", line)}
    assert imported == {"pathlib", "lightgbm", "numpy", "pandas", "torch", "scipy"}
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_each_rung_from_scratch_is_scored(monkeypatch):
    """A few programs and one pass: the seconds are those of four networks and a ranker."""
    monkeypatch.chdir(FOLDER)
    drawn, formats = [], shell().display_formatter.format
    show = "matplotlib_inline.backend_inline.display"  # what is drawn after a cell
    monkeypatch.setattr(show, lambda figure, **_: drawn.append("image/png" in formats(figure)[0]))
    *cells, _, _ = shown_by("01_from_scratch", programs=3, epochs=1)
    ladder = [line.rsplit(maxsplit=3) for line in cells[-1][1]["text/plain"].splitlines()[1:]]
    assert len(ladder) == 8 and ladder[0][0].startswith("one column") and ladder[-1][0].startswith("mean of")
    assert all(-1 <= float(score) <= 1 and float(score) != 0 for _, *row in ladder for score in row[:2])
    assert drawn == [True]
