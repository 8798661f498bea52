"""Every notebook: what it says without being run, and what it makes when run."""

import ast
import re
import shlex
import shutil
import sys

import nbformat
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config as IPythonConfig

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import read_manifest
from fastslow.core.settings import Settings
from fastslow.kaggle.submission import check_submission
from fastslow.networks.settings import TrainSettings
from fastslow.workflow.presets import PRESETS
from fastslow.workflow.steps import SECTIONS, Plan
from helpers.competition_files import ROOT
from helpers.dot_module import small_module
from helpers.notebook_parameters import (
    FOLDER,
    NOTEBOOKS,
    code_cells,
    config_class,
    python,
    read,
    render,
    rewrite,
    sentences,
)
from helpers.workspace import environment

LINES = 80  # of code in a notebook; comments and empty lines are free


def test_every_step_has_its_notebook():
    stems = {notebook for _, notebook in SECTIONS.values()}
    assert {path.stem for path in NOTEBOOKS} == {
        *stems,
        "00_data",
        "12_violation_ratio",
        "24_ranker_explanations",
        "40_submission",
        "50_convert",
        "52_rank",
        "54_tune",
        "55_fleet",
        "60_train_placer",
        "61_place",
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_parameters_are_the_settings_and_their_defaults(path):
    tagged = [cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", [])]
    assert tagged == code_cells(path)[:1]
    found: dict = {}
    exec(tagged[0].source, {}, found)
    settings = config_class(path)
    defaults = settings()
    assert list(found) == [setting.name for setting in settings.describe()]
    for name, value in found.items():
        assert (value, type(value)) == (getattr(defaults, name), type(getattr(defaults, name))), name
    assert list(papermill.inspect_notebook(str(path))) == list(found)
    checked = code_cells(path)[1].source
    assert f"settings = {settings.__name__}.from_variables(globals())" in checked
    assert checked.splitlines()[-1] == "settings"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_parameter_stands_below_its_sentence(path):
    """Where it does not: ``.venv/bin/python tests/helpers/notebook_parameters.py``."""
    source = code_cells(path)[0].source
    assert sentences(source) == {s.name: s.sentence for s in config_class(path).describe()}
    assert max(map(len, source.splitlines())) <= 100


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_parameters_cell_is_rendered_from_the_settings(path, tmp_path):
    copy = tmp_path / path.name
    notebook = read(path)
    place = next(i for i, c in enumerate(notebook.cells) if "parameters" in c.metadata.get("tags", []))
    notebook.cells[place].source = "outdated = 1"
    nbformat.write(notebook, copy)
    assert rewrite(copy) and not rewrite(copy)
    assert code_cells(copy)[0].source == render(config_class(path))
    others = [[cell for i, cell in enumerate(read(p).cells) if i != place] for p in (path, copy)]
    assert others[0] == others[1]
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_logic_and_no_outputs(path):
    notebook = read(path)
    title = notebook.cells[0]
    assert title.cell_type == "markdown" and title.source.startswith("# ")
    heading, _, about = title.source.partition("\n")
    assert len(about.strip()) > 60 and f"`help({config_class(path).__name__})`" in about
    lines = [line for cell in code_cells(path) for line in cell.source.splitlines()]
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= LINES
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        logic = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try, ast.With)
        logic += (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
        nodes = [*ast.walk(ast.parse(python(cell.source)))]
        assert not [node for node in nodes if isinstance(node, logic)]
        assert not [n for n in nodes if isinstance(n, ast.BinOp)], "path arithmetic belongs into a function"
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata.language_info) == {"name"}, "a version would change with whoever saves it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_assigns_no_setting_below_its_parameters(path):
    """Or the cell that makes the config would take the result of a cell for a setting when run again."""
    trees = [ast.parse(python(cell.source)) for cell in code_cells(path)[1:]]
    names = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    assert "settings" in assigned and not assigned & config_class(path).model_fields.keys()


def test_notebooks_share_a_kernel_in_any_order(capsys):
    shell = InteractiveShell(config=IPythonConfig({"HistoryManager": {"enabled": False}}))
    for path in [*NOTEBOOKS, *reversed(NOTEBOOKS)]:
        for cell in code_cells(path)[:2]:
            statements, settings = python(cell.source).rsplit("\n", 1)
            shell.run_cell(statements if settings == "settings" else cell.source).raise_error()
        assert shell.user_ns["settings"] == config_class(path)(), path.stem
    assert capsys.readouterr().out == "", "no variable of another notebook is even named"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_explains_every_figure(path):
    """A figure's cell follows prose that says how to read it; so does a table's."""
    cells = read(path).cells
    for before, cell in zip(cells, cells[1:], strict=False):
        if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith("plot_"):
            assert before.cell_type == "markdown" and len(before.source) > 100, cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_by_default_a_notebook_writes_to_no_folder_of_a_run(path):
    """Of the workflow: what is tried by hand must not take the place of what `make submit` has made."""
    workflow = Plan("sample", "sample", "sample", 3, {}, 1, "gnn,ranker").steps()
    made = {getattr(step.settings, "csv", "") for step in workflow} - {""}
    made |= {folder for step in workflow for folder in _written(step.settings)}
    assert "runs/sample/gnn-layout-xla-random-s0" in made and "submissions/sample.csv" in made
    settings = config_class(path)()
    own = {
        getattr(settings, "csv", ""),
        *(_written(settings) if "folder" in type(settings).model_fields else ()),
    }
    assert not made & own


def _written(settings):
    return [settings.folder, *(settings.run_folders() if isinstance(settings, TrainSettings) else ())]


@pytest.mark.parametrize("stem", ["10_features", "20_train_network"])
def test_the_command_for_tile_gives_what_the_workflow_takes(stem):
    (line,) = re.findall(r"^\.venv/bin/(papermill .*)$", read(FOLDER / f"{stem}.ipynb").cells[0].source, re.M)
    words = shlex.split(line)
    assert words[3] == f"notebooks/{stem}.ipynb" and (ROOT / words[3]).is_file()
    given = [f"{words[i + 1]}={words[i + 2]}" for i, word in enumerate(words) if word == "-p"]
    lists = dict(re.findall(r"(\w+): \[([^]]*)\]", line))
    settings = config_class(FOLDER / f"{stem}.ipynb").from_texts(
        given, {name: [text] for name, text in lists.items()}
    )
    steps = [s for s in Plan("sample", "sample", "sample", 1, {}, 1).steps() if s.notebook.stem == stem]
    assert Settings.identity(settings) in [Settings.identity(step.settings) for step in steps]
    assert "/play/" in settings.folder


def execute(name, output, **parameters):
    """Run a notebook as Jupyter would, from the notebooks' own folder, and its config cell once more.

    The last cell of the executed notebook is the second run of the config cell.
    """
    notebook = read(FOLDER / f"{name}.ipynb")
    notebook.cells.append(nbformat.v4.new_code_cell(code_cells(FOLDER / f"{name}.ipynb")[1].source))
    again = output.with_name("again.ipynb")
    nbformat.write(notebook, again)
    options = {"kernel_name": "python3", "cwd": str(FOLDER), "progress_bar": False}
    return papermill.execute_notebook(str(again), str(output), parameters, **options)


@pytest.fixture(scope="module")
def own_home(finished, tmp_path_factory):
    """One copy of the finished home for all notebooks, which write folders of their own, ``alone``."""
    home = shutil.copytree(finished[0], tmp_path_factory.mktemp("notebooks") / "home")
    (home / "small.pb").write_bytes(small_module(3).SerializeToString())
    (home / "fleet.csv").write_text("program,weight\nsmall.pb,2\nsmall.pb,1\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        yield home


XLA, TILE = "features/alone/layout-xla-random", "features/alone/tile-xla"
SMOKE = {**PRESETS["smoke"]["gnn"], "device": "cpu"}
MEASURE = {"evaluator": "command", "command": f"{shlex.quote(sys.executable)} -c 'print(1)'"}
CHAIN = {  # each needs what those before it made
    "00_data": {},
    "10_features": {"folder": XLA, "hops": 1},
    "10_features of tile": {"collection": "tile:xla", "folder": TILE},
    "12_violation_ratio": {"features": XLA, "panels": 2},
    "20_train_network": {
        "features": [XLA],
        "runs": ["runs/alone/gnn"],
        "folder": "runs/alone/training",
        **SMOKE,
    },
    "20_train_network of tile": {
        "kind": "tile",
        "features": [TILE],
        "runs": ["runs/alone/gnn-tile-xla-s0"],
        "folder": "runs/alone/training-tile",
        **SMOKE,
    },
    "22_train_ranker": {
        "features": XLA,
        "folder": "runs/alone/ranker",
        "num_iterations": 20,
        "train_on": "collection",
    },
    "24_ranker_explanations": {
        "features": XLA,
        "run": "runs/alone/ranker",
        "configs": 16,
        "columns": 4,
        "repeats": 1,
    },
    "30_ensemble": {
        "features": XLA,
        "runs": ["runs/alone/gnn", "runs/alone/ranker"],
        "folder": "runs/alone/ensemble",
    },
    "40_submission": {
        "features": [XLA if c.slug in XLA else f"features/smoke/{c.slug}" for c in COLLECTIONS],
        "ensembles": [
            "runs/alone/ensemble" if c.slug in XLA else f"runs/smoke/gnn-{c.slug}-s0" for c in COLLECTIONS
        ],
        "csv": "submissions/alone.csv",
        "folder": "runs/alone/submission",
    },
    "50_convert": {"source": "{home}/small.pb", "configs": 8},
    "52_rank": {"source": "{home}/small.pb", "configs": 30, "run": "runs/smoke"},
    "54_tune": {"source": "{home}/small.pb", "evaluations": 9, "run": "runs/smoke", **MEASURE},
    "55_fleet": {"fleet": "{home}/fleet.csv", "evaluations": 9, "run": "none", **MEASURE},
    "60_train_placer": {
        "programs": ["inception_b32"],
        "held_out": "amoebanet",
        "folder": "runs/alone/placer",
        "updates": 2,
        "hidden": 8,
        "passes": 1,
    },
    "61_place": {
        "source": "zoo:inception_b32",
        "policy": "runs/alone/placer/policy.pt",
        "updates": 0,
        "search": 20,
        "out": "runs/alone",
    },
}
MADE = {
    "10_features": [f"{XLA}/manifest.json", f"{XLA}/graphs.csv", f"{XLA}/scalers.npz"],
    "10_features of tile": [f"{TILE}/manifest.json", f"{TILE}/graphs.csv", f"{TILE}/scalers.npz"],
    "20_train_network": [
        f"runs/alone/{f}" for f in ("gnn/predictions.npz", "gnn/model.pt", "training/metrics.jsonl")
    ],
    "20_train_network of tile": ["runs/alone/gnn-tile-xla-s0/predictions.npz"],
    "22_train_ranker": [f"runs/alone/ranker/{f}" for f in ("predictions.npz", "model.txt", "importance.csv")],
    "30_ensemble": ["runs/alone/ensemble/predictions.npz", "runs/alone/ensemble/manifest.json"],
    "60_train_placer": [f"runs/alone/placer/{f}" for f in ("policy.pt", "programs.csv", "training.png")],
    "61_place": [
        f"runs/alone/inception_b32-placement-4/{f}" for f in ("comparison.csv", "decision.json", "memory.png")
    ],
    "40_submission": [f"submissions/alone.{suffix}" for suffix in ("csv", "json", "png")],
    "54_tune": [f"data/converted/tuned/small/{f}" for f in ("best.json", "best.hlo.pb", "study.journal")],
    "55_fleet": [f"data/converted/fleets/fleet/{f}" for f in ("programs.csv", "best.json")],
    "52_rank": [f"data/converted/rankings/small/{f}" for f in ("ranking.csv", "effects.csv", "ends.csv")],
}


@pytest.mark.parametrize("name", CHAIN)
def test_a_notebook_runs_and_shows_its_plots(own_home, tmp_path, name):
    if name in ("54_tune", "55_fleet"):
        pytest.importorskip("libtpu", reason="a program's default layouts need the compiler")
    parameters = {
        name: value.format(home=own_home) if isinstance(value, str) else value
        for name, value in CHAIN[name].items()
    }
    executed = execute(name.partition(" ")[0], tmp_path / "executed.ipynb", **parameters)
    for made in MADE.get(name, []):
        assert (own_home / made).is_file(), made
    plots = 0
    for cell in executed.cells:
        kinds = {kind for output in cell.get("outputs", []) for kind in output.get("data", {})}
        if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith("plot_"):
            assert "image/png" in kinds, f"no plot shown by {cell.source}"
            plots += 1
    assert plots, "a plot is what one looks at"
    assert len([cell for cell in executed.cells if "injected-parameters" in cell.metadata.tags]) == bool(
        CHAIN[name]
    )
    first, *_, again = [cell for cell in executed.cells if ".from_variables(globals())" in cell.source]
    shown = [[output["data"]["text/plain"] for output in cell.outputs] for cell in (first, again)]
    assert shown[0] == shown[1] != [], "the config cell can be run again, and gives the same"


def test_every_notebook_is_run():
    assert {name.partition(" ")[0] for name in CHAIN} == {path.stem for path in NOTEBOOKS}


def test_the_chain_ends_in_a_checked_submission(own_home):
    manifest = read_manifest(own_home / "runs" / "alone" / "ensemble")
    weights = {name: member["weight"] for name, member in manifest["members"].items()}
    assert set(weights) == {"gnn", "ranker"} and sum(weights.values()) == pytest.approx(1)
    assert check_submission(own_home / "submissions" / "alone.csv", own_home / "data" / "sample")["rows"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"data_rot": "data/sample"},
            "data_rot: no such setting of DataReportSettings; did you mean 'data_root'",
        ),
        ({"data_root": 3}, "data_root: 3 is int, str wanted"),
    ],
)
def test_a_wrong_parameter_is_refused(own_home, tmp_path, parameters, said):
    with pytest.raises(PapermillExecutionError) as caught:
        execute("00_data", tmp_path / "executed.ipynb", **parameters)
    assert caught.value.ename == "SettingsError" and caught.value.evalue.startswith(said)
