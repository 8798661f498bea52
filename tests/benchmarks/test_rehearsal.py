"""The rehearsal: data of a wanted size, labels as noisy as genuine ones, and the command that it measures."""

import json
from collections import Counter

import numpy as np
import pytest

import rehearsal
from common.noisy_labels import DEFAULT_RUNS, Level, noisy_rows
from common.real_size import TINY_DISTINCT, TINY_SIZE, make_competition, spread
from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, list_programs
from fastslow.competition.data_quality import quality_of
from fastslow.competition.reader import read_npz
from fastslow.competition.submission_checks import expected_counts


@pytest.mark.parametrize("tau", [0.3, 0.8])
def test_rows_repeat_and_jump(rng, tau):
    level = Level(tau, 0.3, 3.0)
    runtime = np.round(1e6 * np.exp(0.3 * rng.normal(size=level.distinct(800)))).astype(np.int64)
    sound, damaged = (noisy_rows(runtime, 800, level, is_damaged, rng) for is_damaged in (False, True))
    for rows, noisy in (sound, damaged):
        count = np.bincount(rows)
        assert count.min() == 1 and count[0] > DEFAULT_RUNS and 0.2 < (count > 1).mean() < 0.4
        assert noisy.dtype == np.int64 and len(noisy) == len(rows) == 800
    quality, worse = quality_of(*sound[::-1]), quality_of(*damaged[::-1])
    assert quality.repeat_tau == pytest.approx(tau, abs=0.1) and quality.jumps < 0.05 < worse.jumps


def test_files_have_the_wanted_number_and_form(tmp_path):
    for _ in range(2):  # the second call finds everything
        make_competition(tmp_path, TINY_SIZE, TINY_DISTINCT, workers=1)
        times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert times == {path: path.stat().st_mtime_ns for path in times}
    for collection in COLLECTIONS:
        for split, wanted in zip(SPLITS, TINY_SIZE[collection.name].files, strict=True):
            files = list_programs(tmp_path, collection, split)
            distinct = {file.path.stat().st_ino for file in files}
            assert (len(files), len(distinct)) == (wanted, min(wanted, TINY_DISTINCT[collection.kind]))
            programs = [read_npz(file, labelled=split != TEST) for file in files]
            assert all(program.runtime.any() == (split != TEST) for program in programs)
            assert collection.kind == "tile" or min(len(p.node_config_ids) for p in programs) >= 20
    counts = expected_counts(tmp_path)
    few = Counter(count for name, count in counts.items() if name.startswith("tile"))
    assert len(counts) == 28 and few[2] + few[3] + few[4] == 16
    with pytest.raises(ValueError, match="other sizes"):
        make_competition(tmp_path, TINY_SIZE, {"layout": 1, "tile": 1})
    values = spread(16, 56_534, 5, 100_040, np.random.default_rng(0))
    assert values.mean() == pytest.approx(56_534, rel=1e-3) and values.max() == 100_040 > 5 * values.min()


def test_the_command_is_measured(capsys):
    assert rehearsal.main(["--quick", "--target=features", "--set", "collections=tile:xla"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["steps"] for row in found["steps"]] == ["features"] and found["settings"]["preset"] == "smoke"
    rows = rehearsal.model_rows(rehearsal.Path(), {"gnn.tile-xla.hours": 0.5, "gnn.tile-xla.epochs": 9})
    assert rows == [{"model": "gnn.tile-xla", "minutes allowed": 30, "minutes taken": 0}]
    run = found["run"]
    assert run["CPU hours"] > 0 and 0.1 < run["peak GB of one process"] < run["peak GB of all processes"]
