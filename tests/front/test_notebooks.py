"""Every notebook: what it says without being run, and what it makes when run."""

import ast
import html
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbconvert import HTMLExporter
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config as IPythonConfig

import fastslow
from fastslow.core.artifacts import read_manifest, write_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import Settings, require_package
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.rankers import cross_validation
from fastslow.runs.run_manifest import read_run_manifest
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.job_plan import PlannedKernel
from fastslow.workflow.steps import Plan
from helpers.cases import cases
from helpers.competition_files import ROOT
from helpers.workspace import cut_sample, environment
from notebook_parameters import (
    EXAMPLES,
    FOLDER,
    FROM_SCRATCH,
    NOTEBOOKS,
    OWN_MODEL,
    SEARCH,
    code_cells,
    python,
    read,
    render,
    settings_class,
)

LABELLED = Path(EXAMPLES["52_rank"]["source"]).stem
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
        defaults = settings(**EXAMPLES.get(path.stem, {}))
        shown = [setting.name for setting in settings.describe() if not setting.group]
        assert list(found) == shown and {*shown} == {*(settings.main or settings.model_fields)}, path.stem
        for name, value in found.items():
            wanted = getattr(defaults, name)
            assert (value, type(value)) == (wanted, type(wanted)), f"{path.stem}: {name}"
        assert source == render(path) and source.count("# ") >= len(found), path.stem
        assert source.count("(") == source.count(")"), f"{path.stem}: a sentence ends inside its brackets"
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


def test_a_notebook_ends_with_what_comes_next():
    for path in (FROM_SCRATCH, *NOTEBOOKS, OWN_MODEL, SEARCH):
        last = read(path).cells[-1]
        assert last.cell_type == "markdown", path.stem
        assert re.search(r"\.ipynb|fastslow |make ", last.source), path.stem


def test_the_parameters_of_each_notebook_are_the_defaults(capsys):
    for path in NOTEBOOKS:
        shell = InteractiveShell(config=IPythonConfig({"HistoryManager": {"enabled": False}}))
        for cell in [*code_cells(path)[:2], code_cells(path)[1]]:  # the settings cell can be run again
            statements, settings = python(cell.source).rsplit("\n", 1)
            shell.run_cell(statements if settings == "settings" else cell.source).raise_error()
        examples = EXAMPLES.get(path.stem, {})
        assert shell.user_ns["settings"] == settings_class(path)(**examples), path.stem
    assert capsys.readouterr().out == ""


def test_by_default_a_notebook_writes_to_no_folder_of_a_run():
    """Of the workflow: what is tried by hand must not take the place of what `make submit` has made."""
    workflow = Plan("sample", "sample", "sample", 3, {}, 1, "gnn,ranker").steps()
    made = {getattr(step.settings, "csv", "") for step in workflow} - {""}
    made |= {folder for step in workflow for folder in written(step.settings)}
    assert "runs/sample/gnn-layout-xla-random-s0" in made and "submissions/sample.csv" in made
    for path in NOTEBOOKS:
        settings = settings_class(path)()
        outputs = {getattr(settings, "csv", ""), *written(settings)}
        assert not made & outputs, path.stem


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


@pytest.fixture(scope="module")
def own_home(finished, tmp_path_factory):
    """One copy of the finished home for all notebooks, whose run has the name of the sample's: ``sample``."""
    home = shutil.copytree(finished[0], tmp_path_factory.mktemp("notebooks") / "home")
    for folder in ("features", "runs"):
        (home / folder / "sample").symlink_to("smoke")
    (home / "data" / "other").symlink_to("sample")  # whose folder of data a notebook reads from its record
    record = home / "runs" / "smoke" / "run.json"
    write_json(record, read_json(record) | {"data": "data/other"})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        yield home


@pytest.fixture(scope="module")
def executed(own_home):
    """A function that executes a notebook with papermill, by default without parameters, and returns it."""

    @cache
    def execute(stem, **parameters):
        pytest.importorskip(NEEDED.get(stem, "papermill"))
        output = own_home / f"{stem}.ipynb"
        papermill.execute_notebook(
            str(FOLDER / output.name),
            str(output),
            parameters,
            cwd=str(own_home),
            kernel_name="python3",
            progress_bar=False,
            kernel_manager_class=PlannedKernel,  # forks, so libraries are imported once, as by make submit
            shutdown_kernel="immediate",
        )
        return nbformat.read(output, 4)

    return execute


LONGEST_TABLE = 45
"""Rows of a table that a reader looks through; the scores of every run of a submission were 52."""
NEEDED = {"54_tune": "optuna", "61_place": "numba", "72_search_settings": "optuna"}
"""By notebook, a package of an extra."""
MADE = {
    "50_convert": ["data/converted/npz_all/npz/layout/xla/random/test/transformer_2.npz"],
    "52_rank": [
        f"data/converted/rankings/{LABELLED}/{f}" for f in ("ranking.csv", "effects.csv", "ends.csv")
    ],
    "54_tune": [f"data/converted/tuned/{LABELLED}/{f}" for f in ("best.json", "study.journal")],
    "61_place": [
        f"runs/placement/transformer_2-placement-4/{f}"
        for f in ("comparison.csv", "decision.json", "memory.png")
    ],
}
"""Files that a notebook makes, beside those that the tests of the workflow look at."""
BY_THE_RUN = {
    "10_features": ["features/smoke/layout-xla-random", "features/smoke/tile-xla"],
    "20_train_network": ["runs/smoke/training-layout-s0", "runs/smoke/training-tile-s0"],
    "22_train_ranker": ["runs/smoke/ranker-layout-xla-default-s0", "runs/smoke/ranker-tile-xla-s0"],
    "30_ensemble": ["runs/smoke/ensemble-layout-xla-random", "runs/smoke/ensemble-tile-xla"],
    "40_submission": ["runs/smoke/submission"],
}
"""Folders whose ``notebook.ipynb`` papermill executed when ``finished`` was made."""


def check_plots(notebook):
    """Check that every plot of an executed notebook is shown, and described for who cannot see it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    plots = [cell for cell in code if cell.source.splitlines()[-1].startswith("plot_")]
    assert plots, "a plot is what one looks at"
    for cell in plots:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source
    for cell in code:
        pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert all(output.metadata.get("image/png", {}).get("alt") for output in pictures), cell.source


def check_cells(notebook):
    """Check that no table is long, and no cell is cut or shows what is missing as a computer does."""
    page, _ = HTMLExporter().from_notebook_node(notebook)
    tables = page.split("<table")[1:]
    assert max((table.count("<tr") for table in tables), default=0) <= LONGEST_TABLE
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.S)
    texts = [html.unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in cells]
    assert not [text for text in texts if text.endswith(("...", "…"))]
    assert not [text for text in texts if text in ("NaN", "nan", "None", "NaT") or "**" in text]


def test_the_run_keeps_the_executed_notebooks(finished):
    for stem, folders in BY_THE_RUN.items():
        for folder in folders:
            executed = nbformat.read(finished[0] / folder / "notebook.ipynb", 4)
            assert [cell.source for cell in executed.cells if "parameters" in cell.metadata.tags] == [
                code_cells(FOLDER / f"{stem}.ipynb")[0].source
            ]
            check_plots(executed)
            check_cells(executed)


@cases("stem", [path.stem for path in (FROM_SCRATCH, *NOTEBOOKS, OWN_MODEL)])
def test_a_notebook_runs_untouched_and_cuts_no_cell(own_home, executed, stem):
    """As notebooks/README.md promises. A placement and four networks take most of its seconds."""
    notebook = executed(stem)
    for file in MADE.get(stem, []):
        assert (own_home / file).is_file(), file
    if stem != FROM_SCRATCH.stem:
        check_plots(notebook)
    check_cells(notebook)


def test_settings_are_searched_over_folds_of_programs(own_home, executed):
    """With its own folds, trials and trees. The finished run has two train programs for three folds."""
    root = cut_sample(own_home / "three", {"train": 3, "valid": 2, "test": 1})
    data = {"collection": "layout:nlp:default", "data_root": str(root), "workers": 1}
    build_features(FeatureSettings(**data, folder="features/three/layout-nlp-default"))
    ranker = "ranker-layout-nlp-default-s0"
    made = read_manifest(own_home / "runs" / "smoke" / ranker)
    made = {name: value for name, value in made.items() if name != "checksum"}
    made["settings"] = made["settings"] | {"num_leaves": 7, "learning_rate": 0.125}  # not the defaults
    (own_home / "runs" / "three" / ranker).mkdir(parents=True)
    write_manifest(own_home / "runs" / "three" / ranker, made)
    notebook = executed(SEARCH.stem, run="three")
    check_cells(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert re.search("learned from.*left out.*programs that chose.*valid programs", page, re.S)
    assert re.search(r"run\W[^.]*0\.125\d*\D+7\D", re.sub("<[^>]+>", " ", page)), "its ranker's settings"
    lines = [line for cell in code_cells(SEARCH) for line in cell.source.splitlines() if line]
    assert len(lines) <= LINES


@cases("name, value, least", [("folds", 1, 2), ("trials", 0, 1), ("trees", 0, 1)])
def test_a_search_of_nothing_is_refused(name, value, least):
    pytest.importorskip("optuna")
    parameters, first, *_ = (python(cell.source) for cell in code_cells(SEARCH))
    variables = {}
    exec(parameters, variables)
    with pytest.raises(SettingsError, match=f"{name}: {value} is not a whole number from {least}"):
        exec(first, variables | {name: value})


@cases("path", [OWN_MODEL, SEARCH])
def test_a_collection_is_read_by_its_name_as_in_every_notebook(path):
    """The names of its folders have hyphens; ``layout:xla:random`` is what all commands take."""
    pytest.importorskip("optuna")
    parameters, first, *_ = (python(cell.source) for cell in code_cells(path))
    variables = {}
    exec(parameters, variables)
    with pytest.raises(DataError, match="features/no_such/layout-xla-random: no such folder"):
        exec(first, variables | {"run": "no_such", "collection": "layout:xla:random"})
    with pytest.raises(SettingsError, match="collection: 'xla:randm' is none of tile:xla, "):
        exec(first, variables | {"collection": "xla:randm"})


def test_a_search_samples_and_scores_as_the_run_of_its_collection(home, monkeypatch):
    """A ranker of tile learns from at most 100 configurations of a kernel, and has no Kendall's tau."""
    pytest.importorskip("optuna")
    sampled = []

    def validation(sources, folds, options):
        sampled.append(options.configs_per_graph)
        return SimpleNamespace(trainings=[])

    monkeypatch.setattr(cross_validation, "CrossValidation", validation)
    parameters, first, *others = (python(cell.source) for cell in code_cells(SEARCH))
    variables = {}
    exec(parameters, variables)
    folder = home / "runs" / "smoke" / "ranker-tile-xla-s0"
    made = {name: value for name, value in read_manifest(folder).items() if name != "checksum"}
    write_manifest(folder, made | {"settings": made["settings"] | {"configs_per_graph": 100}})
    exec(first, variables | {"run": "smoke", "collection": "tile-xla"})
    assert sampled == [100]
    assert "Kendall's tau" not in "".join(others)


def test_the_leaderboard_of_ones_own_model_shows_only_scores_that_compare(monkeypatch):
    """A better score on other programs says nothing; a model of other collections has none."""
    valid = "valid layout:xla:random"
    columns = ["run", "model", "seeds", valid, f"{valid} programs", "test layout:xla:random"]
    rows = [("other", "gnn", 1, 0.9, "b", 0.9), ("sample", "gnn", 1, None, "c", None)]
    rows += [("sample", "ensemble", 1, 0.8, "a", 0.8), ("play", "boosting", 1, 0.7, "a", 0.7)]
    board = SimpleNamespace(table=pd.DataFrame(rows, columns=columns))
    monkeypatch.setattr(fastslow, "leaderboard", lambda sort: board)
    features = SimpleNamespace(collection=SimpleNamespace(name="layout:xla:random"))
    (cell,) = [cell.source for cell in code_cells(OWN_MODEL) if "leaderboard(" in cell.source]
    shown = []
    folder = "runs/play/boosting-layout-xla-random-s0"
    variables = {"features": features, "collection": "layout-xla-random", "folder": folder}
    exec(cell, variables | {"show": lambda table, rows: shown.append(table)})
    assert shown[0]["run"].tolist() == ["sample", "play"]


def test_a_model_of_ones_own_is_fitted_listed_and_submitted(own_home, executed):
    """Ten lines of fitting; its loops are the only logic of a notebook beside ``01_from_scratch``."""
    page, _ = HTMLExporter().from_notebook_node(executed(OWN_MODEL.stem))
    assert ">boosting</td>" in page, "its row of the leaderboard"
    sources = [cell.source for cell in code_cells(OWN_MODEL)]
    (fit,) = [source for source in sources if "model.fit(" in source]
    assert len([line for line in fit.splitlines() if line]) <= 10
    assert sum(len(source.splitlines()) for source in sources) <= LINES
    folder = own_home / "runs" / "play"
    members = read_run_manifest(folder / "ensemble-layout-xla-random")["members"]
    assert members["boosting-layout-xla-random-s0"]["model"] == "boosting" and len(members) == 3
    table = fastslow.leaderboard(sort="layout:xla:random").table
    (row,) = table[table["model"] == "boosting"].to_dict("records")
    assert row["run"] == "play" and -1 <= row["test layout:xla:random"] <= 1
    record = read_submission_record(own_home / "submissions" / "play.csv", "table")
    assert {"boosting", "ensemble"} <= {scored["model"] for scored in record["table"]}
    assert (
        read_submission_record(own_home / "submissions" / "play.csv", "data_root")["data_root"]
        == "data/other"
    )


def test_a_wrong_parameter_is_refused(tmp_path):
    said = "data_rot: no such setting of DataReportSettings; did you mean 'data_root'"
    wrong = {"data_rot": "data/sample"}
    with pytest.raises(PapermillExecutionError, match=said):
        papermill.execute_notebook(
            str(FOLDER / "00_data.ipynb"), str(tmp_path / "out.ipynb"), wrong, progress_bar=False
        )


@cases("stem", NEEDED)
def test_a_missing_extra_is_named_in_the_settings_cell(stem):
    """Before anything is read or written, with the remedy; the first cell says it in words too."""
    extra = {"54_tune": "tune", "61_place": "placement", "72_search_settings": "tune"}[stem]
    assert f"[{extra}" in read(FOLDER / f"{stem}.ipynb").cells[0].source
    assert f'require_package("{NEEDED[stem]}", "{extra}")' in code_cells(FOLDER / f"{stem}.ipynb")[1].source
    with pytest.raises(SettingsError, match="no_such_package is not installed: .venv/bin/pip install"):
        require_package("no_such_package", extra)


def test_from_scratch_is_short_and_imports_nothing_of_ours():
    cells = code_cells(FOLDER / "01_from_scratch.ipynb")
    lines = [line for cell in cells for line in cell.source.splitlines()]
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 150
    imported = {re.split(r"[ .]", line)[1] for line in lines if re.match(r"(from|import) ", line)}
    assert imported == {"pathlib", "lightgbm", "numpy", "pandas", "torch", "scipy"}
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_from_scratch_reads_the_programs_that_default_and_random_both_have(tmp_path):
    """Of the competition's, eight train programs of xla:random are not in xla:default."""
    root = cut_sample(tmp_path / "sample", {"train": 2, "valid": 1, "test": 1})
    folders = [root / "npz_all/npz/layout/xla" / search / "train" for search in ("default", "random")]
    shutil.copy(next(folders[1].iterdir()), folders[1] / "only_random.npz")
    variables, cells = {}, [python(cell.source) for cell in code_cells(FROM_SCRATCH)]
    for cell in [cells[0], f"data_root = {str(root)!r}", *cells[1:3]]:
        exec(cell, variables)
    read = [
        {g["name"] for g in variables["train"] if g["collection"] == f"xla:{f.parent.name}"} for f in folders
    ]
    there = [{path.stem for path in folder.iterdir()} for folder in folders]
    assert read[0] == read[1] == there[0] & there[1] != there[1]


def test_each_rung_from_scratch_is_scored(executed):
    code = [cell for cell in executed(FROM_SCRATCH.stem).cells if cell.cell_type == "code"]
    shown = [output.data for cell in code for output in cell.outputs if "data" in output]
    ladder = [data["text/plain"] for data in shown if "text/html" in data][-1]
    rungs = [line.rsplit(maxsplit=3) for line in ladder.splitlines()[1:]]
    assert len(rungs) == 8 and rungs[0][0].startswith("one column") and rungs[-1][0].startswith("mean of")
    assert all(-1 <= float(score) <= 1 and float(score) != 0 for _, *row in rungs for score in row[:2])
    assert "image/png" in shown[-1]
