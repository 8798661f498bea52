"""The benchmarks that compare with the reference model run, and measure what they say."""

import json
import runpy
import subprocess
import sys

import pytest

from common import contest, graph_files, report
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from helpers.workspace import LAYOUT_FILES, cut_sample

pytest.importorskip("torch_geometric", reason="pip install -r benchmarks/requirements.txt")
import quality  # noqa: E402 (needs torch_geometric)

BENCHMARKS = PROJECT / "benchmarks"
HANGS = 3600  # seconds; no process that works takes so long, however busy the machine


@pytest.fixture(scope="module")
def quick_runs(tmp_path_factory):
    """Run the scripts with --quick, in parallel and in a folder of no meaning to them."""
    options = ["--quick", "--threads", "1"]
    settings = {
        "quality": ["--data-root", str(cut_sample(tmp_path_factory.mktemp("data")))],
        "inference": ["--set", "gnn.hidden_channels=16"],
        "train_step": ["--set", "gnn.hidden_channels=16"],
    }
    running = {
        name: subprocess.Popen(
            [sys.executable, str(BENCHMARKS / f"{name}.py"), *options, *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path_factory.mktemp("elsewhere"),
        )
        for name, extra in settings.items()
    }
    return {
        name: (*process.communicate(timeout=HANGS), process.returncode) for name, process in running.items()
    }


def result_of(quick_runs, name: str) -> dict:
    output, errors, status = quick_runs[name]
    assert status == 0, output + errors
    return json.loads(output.splitlines()[-1])


def test_inference(quick_runs):
    result = result_of(quick_runs, "inference")
    file = result["files"][0]
    contenders = {"ours whole", "dense whole", "ours pruned", "dense pruned", "winner"}
    assert set(file["memory"]) == contenders < set(file["seconds"])
    assert 0 < result["largest difference"] < 1e-5
    assert 0 <= file["difference"]["in chunks"] < 1e-5
    assert file["nodes"]["whole"] > file["nodes"]["pruned"] > file["nodes"]["winner"]
    ratio = file["seconds"]["dense whole"] / file["seconds"]["ours whole"]
    assert result["total"]["ratios"]["dense whole / ours whole"]["all files"] == pytest.approx(
        ratio, rel=1e-3
    )


def test_train_step(quick_runs):
    result = result_of(quick_runs, "train_step")
    assert set(result["files"][0]["memory"]) == {"ours", "dense", "winner"}
    assert 0 < result["largest difference"]["prediction"] < 1e-5
    assert 0 < result["largest difference"]["gradient"] < 1e-4


def test_quality(quick_runs):
    result = result_of(quick_runs, "quality")
    ours, equal_time, equal_steps = result["runs"]
    assert [run["contender"] for run in result["runs"]] == list(quality.CONTENDERS)
    assert equal_steps["steps"] == ours["steps"] == LAYOUT_FILES["train"]  # one epoch, a graph a step
    assert equal_time["test"]["per_graph"].keys() == ours["test"]["per_graph"].keys()
    assert len(ours["test"]["per_graph"]) == LAYOUT_FILES["test"]
    assert set(result["mean of collections by seed"]["ours"]) == {"valid", "test"}


def test_quality_finds_finished_runs(tmp_path, monkeypatch, capsys):
    data = str(cut_sample(tmp_path / "data"))
    options = quality.parse_arguments(["--quick", "--threads", "1", "--data-root", data])
    quality.compare(options, tmp_path)
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in ("train", "train_winner"):
        monkeypatch.setattr(quality, name, lambda *_, **__: pytest.fail("trained again"))
    quality.compare(options, tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == first


def test_a_path_must_name_its_collection(tmp_path):
    with pytest.raises(DataError, match="layout/SOURCE/SEARCH"):
        graph_files.program_of(tmp_path / "graph.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_peak_memory_is_that_of_the_call_alone():
    script = """
import numpy as np, torch
from common import contest
held = np.ones(2**26)  # 512 MB, freed before the call: they must not count
del held
print(*contest.peak_bytes(lambda: np.ones(2**25).sum(), torch.device("cpu")))
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=BENCHMARKS, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    above, process = map(int, run.stdout.split())
    # 256 MB, with room for pages that the system takes or that libraries load
    assert 200 * 2**20 < above < 350 * 2**20 < process


def test_results_are_kept_where_git_ignores_them():
    assert report.RESULTS == BENCHMARKS / "results"
    assert "benchmarks/results/" in (PROJECT / ".gitignore").read_text().splitlines()


def test_own_process(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("import sys, json\nprint('text')\nprint(json.dumps(sys.argv[1:]))")
    monkeypatch.setattr(sys, "argv", ["script.py", "--threads", "1"])
    expected = ["--threads", "1", "--files", str(tmp_path / "a.npz"), "--memory-of", "winner"]
    assert contest.in_own_process(str(script), tmp_path / "a.npz", "winner") == expected
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match="exit status 3"):
        contest.in_own_process(str(script), tmp_path / "a.npz", "winner")


def test_table_is_markdown():
    rows = [{"a": 1, "": "long cell"}, {"a": 22, "": "0.40"}]
    lines = [line.split() for line in report.table(rows).splitlines()]
    assert lines[0] == ["|", "a", "|", "|"]
    assert set(lines[1][0]) == {"|", "-"}
    assert lines[2:] == [["|", "1", "|", "long", "cell", "|"], ["|", "22", "|", "0.40", "|"]]


def test_spread():
    assert report.spread([0.1, 0.2345, 0.4]) == "0.245 (0.100 to 0.400)"
    assert report.spread([0.1, 0.2345, 0.4], 2) == "0.245 (0.10 to 0.40)"
    assert report.spread([]) == ""


@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("*.py")))
def test_help_from_any_folder(script, tmp_path, monkeypatch, capsys):
    """In this process: the imports of each would take seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
    assert "--quick" in capsys.readouterr().out


def test_readme_names_every_script_and_every_table():
    readme = (BENCHMARKS / "README.md").read_text()
    for path in BENCHMARKS.glob("*.py"):
        assert f"benchmarks/{path.name}" in readme
    for table in (BENCHMARKS / "tables").glob("*.md"):
        assert f"(tables/{table.name})" in readme
