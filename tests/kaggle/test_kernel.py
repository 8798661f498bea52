"""The notebook for Kaggle's GPUs: what it holds, that its code runs, its push by the real kaggle package."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from fastslow import cli
from fastslow.core.errors import SettingsError
from fastslow.kaggle.kernel import KernelSettings, kernel_notebook, make_kernel, pack_code
from helpers.cases import cases
from helpers.kaggle_stub import KaggleStub, clean_environment

SECRET = "0123456789abcdef-secret"


@pytest.fixture
def settings(monkeypatch, tmp_path):
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    return KernelSettings()


@pytest.fixture
def stub(settings, monkeypatch, tmp_path):
    with KaggleStub() as server:
        for name, value in server.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield server


def written(tmp_path):
    folder = tmp_path / "submissions" / "kernel"
    return json.loads((folder / "kernel-metadata.json").read_text()), folder / "fastslow.ipynb"


def test_without_credentials_it_is_written_and_says_what_to_type(settings, tmp_path, capsys):
    assert cli.main(["kernel", "gnn.layout.epochs=3"]) == 0
    metadata, notebook = written(tmp_path)
    assert metadata["id"] == "INSERT_KAGGLE_USERNAME_HERE/fastslow"
    assert metadata["enable_gpu"] and metadata["is_private"]
    assert metadata["competition_sources"] == ["predict-ai-model-runtime"]
    assert "gnn.layout.epochs=3" in nbformat.read(notebook, 4).cells[2].source
    said = capsys.readouterr().out
    assert "not pushed: no Kaggle credentials" in said and "kaggle kernels push -p " in said
    assert notebook.stat().st_size < 1e6


def test_the_package_pushes_it(stub, settings, tmp_path, capsys):
    make_kernel(settings)
    (request,) = stub.kernels
    assert (request["slug"], request["newTitle"]) == ("me/fastslow", "fastslow")
    assert request["enableGpu"] and request["isPrivate"] and request["machineShape"] == "NvidiaTeslaT4"
    assert request["competitionDataSources"] == ["predict-ai-model-runtime"]
    cells = json.loads(request["text"])["cells"]
    assert "ARCHIVE = " in cells[1]["source"] and "submission.csv" in cells[3]["source"]
    said = capsys.readouterr()
    assert "pushed: version 1 runs at https://www.kaggle.com/code/me/fastslow" in said.out
    files = "".join(path.read_text() for path in written(tmp_path)[1].parent.iterdir())
    assert SECRET not in said.out + said.err + files + request["text"]


def test_a_refused_push_says_why_and_shows_no_credentials(stub, settings, capsys):
    stub.answers["SaveKernel"] = [(403, {"code": 403, "message": f"Permission denied for {SECRET}"})]
    assert cli.main(["kernel"]) == 1
    said = capsys.readouterr().err
    assert "error: Kaggle refused kernels_push" in said and "may use GPUs" in said and SECRET not in said
    stub.answers["SaveKernel"] = [(200, {"invalidCompetitionSources": ["x"], "versionNumber": 1})]
    assert cli.main(["kernel"]) == 1
    assert "did not take the notebook as it is" in capsys.readouterr().err


def test_the_code_in_the_notebook_runs(settings, tmp_path):
    unpack, run, keep = [cell.source for cell in kernel_notebook(settings).cells[1:]]
    for name in ("input/competition/npz_all", "working", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    run = run.replace('"-m", "pip", "install", "-q", "-r"', '"-c", ""')  # no network in a test
    source = "\n".join([unpack, run, keep])
    source = source.replace("/kaggle/", f"{tmp_path}/").replace(
        "command = ['submission', ", "command = ['made', "
    )
    made = tmp_path / "tmp" / "code" / "src" / "fastslow" / "__main__.py"
    script = f"""{source.split("found = ")[0]}
import pathlib
pathlib.Path({str(made)!r}).write_text('''
import os, sys, pathlib, fastslow.workflow.run
assert fastslow.workflow.run.__file__.startswith({str(tmp_path)!r})
home = pathlib.Path(os.environ["FASTSLOW_HOME"])
for name in ("runs", "submissions"):
    (home / name).mkdir(parents=True)
(home / "submissions" / "kaggle.csv").write_text(" ".join(sys.argv[1:]))
''')
found = {source.split("found = ")[1]}
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    typed = (tmp_path / "working" / "submission.csv").read_text()
    assert typed == f"made name=kaggle preset=kaggle seeds=1 jobs=0 data={tmp_path}/input/competition"


def test_the_same_code_gives_the_same_bytes(settings):
    assert pack_code() == pack_code()
    assert nbformat.writes(kernel_notebook(settings)) == nbformat.writes(kernel_notebook(settings))


@cases("title", ["abc", "!!!!!!"])
def test_a_title_that_kaggle_would_refuse(title):
    with pytest.raises(SettingsError, match="title: .* is not five characters or more"):
        KernelSettings(title=title)
