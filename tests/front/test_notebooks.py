"""Every notebook: what it says without being run, and what it makes when run."""

import ast
import dataclasses
import importlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from fastslow import steps
from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import read_manifest
from fastslow.kaggle.submission import check_submission
from fastslow.presets import PRESETS
from helpers.competition_files import ROOT
from helpers.workspace import environment

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LINES = 50


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def python(cell):
    """The source of a cell without IPython's magic lines."""
    return "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))


def config_class(path):
    """The settings' class, from the line that makes the config."""
    trees = [ast.parse(python(cell)) for cell in code_cells(path)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    (name,) = [n.value.id for n in nodes if isinstance(n, ast.Attribute) and n.attr == "from_notebook"]
    imports = {a.name: n.module for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return getattr(importlib.import_module(imports[name]), name)


def test_every_step_has_its_notebook():
    stems = {notebook for _, notebook in steps._CONFIGS.values()}
    assert {path.stem for path in NOTEBOOKS} == {
        *stems,
        "00_data",
        "12_violation_ratio",
        "24_ranker_explanations",
        "40_submission",
        "50_convert",
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_parameters_are_the_settings_and_their_defaults(path):
    tagged = [cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", [])]
    assert tagged == code_cells(path)[:1]
    found: dict = {}
    exec(tagged[0].source, {}, found)
    config = config_class(path)
    defaults = config()
    assert list(found) == [field.name for field in dataclasses.fields(config)]
    for name, value in found.items():
        assert (value, type(value)) == (getattr(defaults, name), type(getattr(defaults, name))), name
    checked = code_cells(path)[1].source
    assert f"config = {config.__name__}.from_notebook(globals())" in checked
    assert checked.splitlines()[-1] == "config"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_logic_and_no_outputs(path):
    notebook = read(path)
    title = notebook.cells[0]
    assert title.cell_type == "markdown" and title.source.startswith("# ")
    heading, _, about = title.source.partition("\n")
    assert len(about.strip()) > 60 and f"`help({config_class(path).__name__})`" in about
    lines = [line for cell in code_cells(path) for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= LINES
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        logic = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try, ast.With)
        logic += (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
        assert not [node for node in ast.walk(ast.parse(python(cell))) if isinstance(node, logic)]
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata.language_info) == {"name"}, "a version would change with whoever saves it"


def execute(name, output, **parameters):
    """Run a notebook as Jupyter would, from the notebooks' own folder; the executed notebook."""
    options = {"kernel_name": "python3", "cwd": str(FOLDER), "progress_bar": False}
    return papermill.execute_notebook(str(FOLDER / f"{name}.ipynb"), str(output), parameters, **options)


@pytest.fixture(scope="module")
def own_home(finished, tmp_path_factory):
    """One copy of the finished home for all notebooks, which write folders of their own, ``alone``."""
    home = shutil.copytree(finished[0], tmp_path_factory.mktemp("notebooks") / "home")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        yield home


XLA, TILE = "features/alone/layout-xla-random", "features/alone/tile-xla"
SMOKE = {**PRESETS["smoke"]["gnn"], "device": "cpu"}
CHAIN = {  # each needs what those before it made
    "00_data": {},
    "10_features_layout": {"folder": XLA, "hops": 1},
    "11_features_tile": {"folder": TILE},
    "12_violation_ratio": {"features": XLA, "panels": 2},
    "20_train_layout_gnn": {
        "features": [XLA],
        "runs": ["runs/alone/gnn"],
        "folder": "runs/alone/training",
        **SMOKE,
    },
    "21_train_tile_gnn": {
        "features": [TILE],
        "runs": ["runs/alone/gnn-tile-xla-s0"],
        "folder": "runs/alone/training-tile",
        **SMOKE,
    },
    "22_train_ranker": {
        "features": XLA,
        "folder": "runs/alone/ranker",
        "rounds": 20,
        "train_on": "collection",
    },
    "23_train_additive_ranker": {
        "features": XLA,
        "folder": "runs/alone/additive",
        "rounds": 20,
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
        "runs": ["runs/alone/gnn", "runs/alone/ranker", "runs/alone/additive"],
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
}
MADE = {
    "10_features_layout": [f"{XLA}/manifest.json", f"{XLA}/graphs.csv", f"{XLA}/scalers.npz"],
    "11_features_tile": [f"{TILE}/manifest.json", f"{TILE}/graphs.csv", f"{TILE}/scalers.npz"],
    "20_train_layout_gnn": [
        f"runs/alone/{f}" for f in ("gnn/predictions.npz", "gnn/model.pt", "training/metrics.jsonl")
    ],
    "21_train_tile_gnn": ["runs/alone/gnn-tile-xla-s0/predictions.npz"],
    "22_train_ranker": [f"runs/alone/ranker/{f}" for f in ("predictions.npz", "model.txt", "importance.csv")],
    "23_train_additive_ranker": [
        f"runs/alone/additive/{f}" for f in ("predictions.npz", "model.txt", "importance.csv")
    ],
    "30_ensemble": ["runs/alone/ensemble/predictions.npz", "runs/alone/ensemble/manifest.json"],
    "40_submission": [f"submissions/alone.{suffix}" for suffix in ("csv", "json", "png")],
}


@pytest.mark.parametrize("name", CHAIN)
def test_a_notebook_runs_and_shows_its_plots(own_home, tmp_path, name):
    executed = execute(name, tmp_path / "executed.ipynb", **CHAIN[name])
    for made in MADE.get(name, []):
        assert (own_home / made).is_file(), made
    plots = 0
    for cell in executed.cells:
        kinds = {kind for output in cell.get("outputs", []) for kind in output.get("data", {})}
        if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith("plot_"):
            assert "image/png" in kinds, f"no plot shown by {cell.source}"
            plots += 1
    assert plots or name.startswith(("10", "11")), "a plot is what one looks at"
    assert len([cell for cell in executed.cells if "injected-parameters" in cell.metadata.tags]) == bool(
        CHAIN[name]
    )


def test_the_chain_ends_in_a_checked_submission(own_home):
    manifest = read_manifest(own_home / "runs" / "alone" / "ensemble")
    assert set(manifest["members"]) == {"gnn", "ranker", "additive"} and manifest["gain"] >= 0
    assert check_submission(own_home / "submissions" / "alone.csv", own_home / "data" / "sample")["rows"]


def commands_of_readme():
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("papermill ")]


@pytest.mark.parametrize("arguments", commands_of_readme(), ids=lambda arguments: Path(arguments[3]).stem)
def test_a_command_of_the_readme_runs_one_notebook(own_home, tmp_path, arguments):
    words = [word.replace("features/sample/", "features/smoke/") for word in arguments[1:]]
    words[words.index("out.ipynb")] = str(tmp_path / "out.ipynb")
    before = set((own_home / "runs").rglob("predictions.npz"))
    run = subprocess.run(
        [sys.executable, "-m", "papermill", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    (made,) = set((own_home / "runs").rglob("predictions.npz")) - before
    assert made.relative_to(own_home).parts[1].startswith("mine")


def test_the_readme_runs_notebooks():
    assert len(commands_of_readme()) >= 2


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"data_rot": "data/sample"},
            "data_rot: no such setting of DataReportConfig; did you mean 'data_root'",
        ),
        ({"data_root": 3}, "data_root: 3 is int, str wanted"),
    ],
)
def test_a_wrong_parameter_is_refused(own_home, tmp_path, parameters, said):
    with pytest.raises(PapermillExecutionError) as caught:
        execute("00_data", tmp_path / "executed.ipynb", **parameters)
    assert caught.value.ename == "ConfigError" and caught.value.evalue.startswith(said)
