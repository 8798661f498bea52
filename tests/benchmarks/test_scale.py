"""The benchmark of real size runs through every stage of one made graph."""

import json
import subprocess
import sys

import pytest

from fastslow.core.settings import PROJECT


def test_every_stage_runs_on_the_made_graph(tmp_path):
    script = str(PROJECT / "benchmarks" / "scale.py")
    command = [sys.executable, script, "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=3600)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    made, stages = result["made"], result["stages"]
    assert list(stages) == ["features", "training", "inference", "ranker"]
    features, training = stages["features"], stages["training"]
    assert 0 < features["nodes kept"] < made["nodes"]
    assert 0 < features["groups"] <= made["configurable"]
    # distinct ones are kept, and every one of the file is predicted
    assert features["configs"] <= stages["inference"]["configs"] == made["configs"]
    columns = stages["ranker"]["columns"]
    table_bytes = 4 * features["configs"] * columns
    assert stages["ranker"]["table GB"] == pytest.approx(table_bytes / 2**30, rel=1e-3)
    assert all(found["peak GB"] > 0 for found in stages.values())
    curve = training["GB held, by twentieths of the steps"]
    halves = [training[f"GB held after the {half} half"] for half in ("first", "second")]
    assert len(curve) == made["steps"] and max(curve) == max(halves)
