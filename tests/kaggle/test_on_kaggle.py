"""Notebook 90 in folders as Kaggle lays them out, and what it says where something is missing."""

import json
import re
import shutil
import subprocess

import papermill
import pytest

from fastslow.competition.catalog import COMPETITION
from fastslow.competition.submission_checks import check_submission
from fastslow.core.errors import FastslowError, SettingsError
from fastslow.evaluation.leaderboard import LeaderboardSettings, leaderboard
from fastslow.kaggle import on_kaggle
from fastslow.workflow.job_plan import PlannedKernel
from helpers.competition_files import ROOT
from helpers.workspace import SERIAL, TINY, cut_sample, environment

pytestmark = pytest.mark.usefixtures("undrawn")

NOTEBOOK = "notebooks/90_on_kaggle.ipynb"


@pytest.fixture
def kaggle(tmp_path):
    """Kaggle's folder: this repository as a dataset, the competition's data, and an empty working folder."""
    root = tmp_path / "kaggle"
    attached = root / "input" / "datasets" / "me" / "fastslow-code"
    # with the bytecode, which nobody could write there: 18 processes would compile the package
    no_caches = shutil.ignore_patterns("*.pyc.*", "*.nb?", ".ipynb_checkpoints")
    for name in ("src", "notebooks"):
        shutil.copytree(ROOT / name, attached / name, ignore=no_caches)
    shutil.copy(ROOT / "pyproject.toml", attached)
    cut_sample(root / "input" / "competitions" / COMPETITION)
    (root / "working").mkdir()
    return root


def run_notebook(root, out, **parameters):
    """Run the attached notebook with papermill, as Kaggle does."""
    (notebook,) = root.glob(f"input/*/*/*/{NOTEBOOK}")
    return papermill.execute_notebook(
        notebook,
        out,
        {"root": str(root), **parameters},
        kernel_name="python3",
        progress_bar=False,
        kernel_manager_class=PlannedKernel,  # forks: the libraries are imported already
        shutdown_kernel="immediate",
    )


def text_of(notebook):
    """What the cells of an executed notebook say."""
    return "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))


def test_the_notebook_writes_the_csv_where_kaggle_takes_it(kaggle, finished, tmp_path, monkeypatch):
    """It resumes a session that lacks the features of a collection, an ensemble and the submission.

    The kernel of the notebook, a command and three kernels of its steps take the seconds.
    """
    working = kaggle / "working"
    missing = shutil.ignore_patterns("tile-xla", "ensemble-tile-xla", "submission", "run.json")
    for stem in ("features", "runs"):
        shutil.copytree(finished[0] / stem / "smoke", working / stem / "smoke", ignore=missing)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    before = sorted((kaggle / "input").rglob("*"))
    done = run_notebook(
        kaggle, tmp_path / "out.ipynb", hours=0, settings=" ".join([*TINY, SERIAL]), name="smoke"
    )
    data = kaggle / "input" / "competitions" / COMPETITION
    assert sum(check_submission(working / "submission.csv", data)["rows"].values()) == 6
    assert "| layout:xla:random" in text_of(done), "the scores stand in the log"
    assert all(f"{stage}: 4 of 5 up to date" in text_of(done) for stage in ("features", "ensemble"))
    assert sorted((kaggle / "input").rglob("*")) == before, "what is attached is read-only"
    assert {path.name for path in working.iterdir()} >= {"submission.csv", "runs", "submissions"}
    assert not list(working.glob("features/*"))
    page = working / "submissions" / "smoke.html"
    links = re.findall(r'<a href="(\.\.[^"]*)"', page.read_text())
    assert links and all((page.parent / link).is_file() for link in links), "features are removed"

    monkeypatch.setenv("FASTSLOW_HOME", str(working))
    assert {*leaderboard(LeaderboardSettings()).table["run"]} == {"smoke"}


def test_papermill_reads_every_parameter():
    """It reads none from a line with a second equals sign, which may stand in a comment."""
    assert [*papermill.inspect_notebook(ROOT / NOTEBOOK)] == ["root", "name", "hours", "settings"]


def test_the_notebook_without_the_repository_says_what_to_attach(kaggle, tmp_path):
    (kaggle / "input").rename(tmp_path / "elsewhere")
    cells = json.loads((ROOT / NOTEBOOK).read_text())["cells"]
    (find,) = ["".join(cell["source"]) for cell in cells if "glob(" in "".join(cell["source"])]
    with pytest.raises(AssertionError, match="attach this repository as a dataset"):
        exec(find, {"root": str(kaggle)})


@pytest.mark.parametrize("place", ["datasets/me/fastslow-code", "fastslow-code"])
def test_without_the_data_it_says_what_to_attach(kaggle, place, monkeypatch):
    """The sample comes with the code: it is not the competition's data."""
    code = kaggle / "input" / place
    code.parent.mkdir(exist_ok=True)
    (kaggle / "input/datasets/me/fastslow-code").rename(code)
    (kaggle / "input" / "competitions" / COMPETITION).rename(code / "data")
    monkeypatch.setattr(on_kaggle, "REPOSITORY", code.resolve())
    with pytest.raises(
        FastslowError, match=r"no npz_all under .*/input\. Attach the data of the competition"
    ):
        on_kaggle.train_here(kaggle, "mine")


def test_a_run_that_fails_leaves_the_csv_that_it_had_made(kaggle):
    made = kaggle / "working" / "submissions" / "mine.csv"
    made.parent.mkdir()
    made.write_text("ID,TopConfigs\n")
    with pytest.raises(FastslowError, match="the run ended with status 1; the lines above name the reason"):
        on_kaggle.train_here(kaggle, "mine", settings="no_such=1")
    assert (kaggle / "working" / "submission.csv").read_text() == "ID,TopConfigs\n"


@pytest.mark.parametrize("word", ["--plan", "plan=True", "--help", "--all"])
def test_a_setting_that_only_prints_does_not_end_as_a_finished_run(kaggle, word):
    """The features of a run that is to resume are removed only where it has written its CSV."""
    features = kaggle / "working" / "features" / "mine"
    features.mkdir(parents=True)
    with pytest.raises(SettingsError, match=f"settings: {word} only prints, and this notebook trains; leave"):
        on_kaggle.train_here(kaggle, "mine", settings=f"seeds=1 {word}")
    assert features.is_dir()


def test_a_setting_that_is_off_is_no_reason_to_refuse():
    assert not on_kaggle._only_prints("plan=False") and on_kaggle._only_prints("--plan")


@pytest.fixture
def pip(monkeypatch):
    """What pip is called with; it fails where ``status`` is set."""
    calls = []

    def run(command, **_):
        calls.append(command)
        said = "ERROR: No matching distribution found for pebble<6,>=5\n" if pip_fails else ""
        return subprocess.CompletedProcess(command, int(bool(said)), "", said)

    pip_fails = []
    monkeypatch.setattr(on_kaggle.subprocess, "run", run)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    return calls, pip_fails


def test_attached_wheels_are_installed_without_an_index(kaggle, pip):
    calls, _ = pip
    on_kaggle.install(kaggle)
    assert "--no-index" not in calls[0]
    wheels = kaggle / "input" / "wheels"
    wheels.mkdir()
    (wheels / "pebble-5.1.0-py3-none-any.whl").touch()
    on_kaggle.install(kaggle)
    assert calls[1][5:7] == ["--no-index", f"--find-links={wheels}"]
    assert calls[1][7:] == calls[0][5:] and {"papermill", "nbconvert", "pebble>=5,<6"} <= {*calls[1]}
    assert not any(word.startswith(("kaggle", "jupyter")) for word in calls[1])


def test_packages_that_cannot_be_installed_are_an_error_with_the_remedy(kaggle, pip):
    calls, fails = pip
    fails.append(True)
    (kaggle / "input" / "datasets" / "other-1.0-py3-none-any.whl").touch()
    with pytest.raises(
        FastslowError, match="Switch on the internet .*or attach a dataset with the wheels"
    ) as e:
        on_kaggle.install(kaggle)
    assert str(e.value).endswith("No matching distribution found for pebble<6,>=5")
    assert ["--no-index" in call for call in calls] == [True, False], "the index comes after the wheels"
