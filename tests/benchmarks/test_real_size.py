"""The made-up competition of real size, and the estimated costs of a whole run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import phases
from common.planned_hours import amdahl, planned_seconds
from common.real_size import REAL, Size, spread, write_real_size
from common.whole_run import BOUNDED, EPOCH, EVALUATION, FIT, GROW, PREDICT, WholeRun, repeated, step_name
from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.competition.submission_csv import check_ids
from fastslow.rankers.objectives import make_dataset
from fastslow.rankers.table import Table
from fastslow.workflow.run import make_plan
from helpers.competition_files import npz_program

TINY = Size(kernels=1e-9, programs=1e-9, sizes=0.01)


@given(st.integers(1, 300), st.integers(1, 50), st.integers(1, 1000), st.integers(1, 5000))
def test_sizes_stay_within_their_range_and_near_their_mean(count, minimum, more, most):
    mean, maximum = minimum + more, minimum + more + most
    found = spread(count, minimum, mean, maximum)
    assert len(found) == count and minimum <= found.min() and found.max() <= maximum
    assert found.mean() <= mean + 0.5 and (np.diff(found) >= 0).all()
    assert count > 1 or found[0] == mean


def test_the_whole_of_it_is_read_and_kept(tmp_path):
    write_real_size(tmp_path, TINY)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(times) == sum(TINY.graphs(name)[split] for name in REAL for split in SPLITS) == 15
    for collection in COLLECTIONS:
        for split in SPLITS:
            (program,) = list_programs(tmp_path, collection, split)
            file = npz_program(program.path, collection.kind, labelled=split != "test")
            assert (file.runtime.max() == 0) == (split == "test")
            if collection.kind == "layout":
                assert len(file.node_config_ids) >= 20 and file.choices.num_groups > 10
    check_ids(tmp_path)
    lost = next(iter(times))
    lost.unlink()
    write_real_size(tmp_path, TINY)
    assert {path: path.stat().st_mtime_ns for path in times if path != lost}.items() <= times.items()
    assert lost.is_file()
    with pytest.raises(ValueError, match="another size"):
        write_real_size(tmp_path, Size())


def test_a_step_is_extrapolated_by_its_phases(tmp_path):
    run = WholeRun(tmp_path, Size(1.0, 0.1, 1.0))
    cost = {"wall s": 9, "peak GB": 1}
    two = {EPOCH: {"CPU s": 8.0, "calls": 2}, EVALUATION: {"CPU s": 3.0, "calls": 1}}
    trees = {FIT: 3.0, GROW: 4.0, PREDICT: 2.0}
    trees = {name: {"CPU s": seconds, "calls": 1} for name, seconds in trees.items()}
    for step in make_plan(run.settings(*BOUNDED)).steps():
        spent = two if step.name.startswith("training") else trees if step.stage == "train" else {}
        run.costs[step_name(step)] = {**cost, "CPU s": 20.0, "phases": spent}
    found = {step_name(step): run.whole_seconds(step) for step in make_plan(run.settings()).steps()}
    assert found["features tile-xla"] == 20  # all of it was made
    graphs, made = 61 + 7 + 8, 6 + 1 + 1
    assert found["features layout-xla-default"] == pytest.approx(20 * graphs / made)
    train, valid, every = 61 / 6, 7, graphs / made
    wanted = 100 * (train * 4 + valid * 3 / 10) + every * 9
    assert found["training-layout-xla-default"] == pytest.approx(wanted)
    assert found["ranker-tile-xla"] == pytest.approx(600 * (4 + 2) / 40 + 3 + 11)
    unseen, every = (7 + 8) / (1 + 1), graphs / made  # train graphs are repeated
    wanted = 600 * (4 + unseen * 2) / 40 + 3 + every * 11
    assert found["ranker-layout-xla-default"] == pytest.approx(wanted)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 40),
    st.floats(0, 1),
)
def test_planned_hours_are_between_all_cores_at_work_and_one(steps, cores, parallel):
    steps = sorted(steps, key=lambda step: not step[1])
    total = sum(seconds for seconds, _ in steps)
    found = planned_seconds(steps, cores, amdahl(parallel))
    assert total / cores <= found * (1 + 1e-9) and found <= total * (1 + 1e-9)


def test_planned_hours_of_a_known_case():
    steps = [(8.0, True)] * 6 + [(1.0, False)] * 8
    assert planned_seconds(steps, 1, amdahl(1)) == 56
    assert planned_seconds(steps, 16, amdahl(0)) == 8  # two cores each, no use of the second
    assert planned_seconds(steps, 16, amdahl(1)) == 4


def test_train_graphs_are_repeated_and_learned_from_as_such():
    rng = np.random.default_rng(0)
    rows = [rng.random((size, 2)).astype(np.float32) for size in (3, 5)]
    table = Table(["a", "b"], rows, [rng.random(len(own)) for own in rows], ["x", "y"])
    found = repeated(table, 3)
    assert found.sizes == [3, 5] * 3 and len(set(found.names)) == 6
    data = make_dataset(found, "regression").construct()
    assert data.num_data() == 3 * make_dataset(table, "regression").construct().num_data()


PHASES = """
from common.phases import measure

class Work:
    def inner(self):
        return sum(range(1_000_000))

    def outer(self):
        return self.inner() + self.inner()

found = measure(lambda: Work().outer(), {"one": ((Work, "outer"), (Work, "inner"))})
assert found["phases"]["one"]["calls"] == 1
assert 0 < found["phases"]["one"]["CPU s"] <= found["CPU s"]
found = measure(lambda: Work().outer(), {"in": ((Work, "inner"),), "out": ((Work, "outer"),)})["phases"]
assert found["in"]["calls"] == 2 and found["out"]["calls"] == 1
assert found["out"]["CPU s"] < found["in"]["CPU s"]
"""


def test_a_phase_counts_once_and_apart_from_the_phases_it_calls():
    """In a process of its own: a fork can hang where other tests have started threads of JAX or Dask."""
    command = [sys.executable, "-c", PHASES]
    own = {**os.environ, "PYTHONPATH": str(Path(phases.__file__).parents[1])}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
