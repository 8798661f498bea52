"""Steps side by side on made-up machines: never more memory, cores, GPUs than there are, each step once."""

import threading
import time
from itertools import product
from types import SimpleNamespace

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.core.memory import STEP_CORES, STEP_MEMORY
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.submission import SubmissionSettings
from fastslow.workflow import job_plan
from fastslow.workflow.job_plan import Need, PlannedPool, Resources, share_cores, step_environment, step_need
from helpers.cases import cases

GB = 1 << 30


class Trace:
    """Runs needs as steps and notes what is in use at each moment."""

    def __init__(self, resources, needs, jobs=0):
        self.lock, self.using, self.most = threading.Lock(), [], []
        self.shares, self.order = {}, []
        pool = PlannedPool(resources, jobs, need=lambda step: needs[step])
        pool.expect(range(len(needs)))
        self.needs = needs
        done = [pool.submit(self.run, step) for step in range(len(needs))]
        self.results = [future.result(timeout=20) for future in done]
        pool.shutdown()

    def run(self, step):
        with self.lock:
            self.using.append(step)
            self.order.append(step)
            self.shares[step] = step_environment.get()
            self.most.append(list(self.using))
        time.sleep(0.002)
        with self.lock:
            self.using.remove(step)
        return step


NETWORK, RANKER = Need(5 * GB, gpu=True), Need(3 * GB)


LONG = Need(5 * GB, long=True)
SERIAL = Need(GB, serial=True)


@cases(
    "cores, needs, threads",
    [
        (16, [LONG] * 6 + [RANKER] * 30, {LONG: "2", RANKER: "1"}),  # the preset kaggle with three seeds
        (64, [LONG] * 6 + [RANKER] * 30, {LONG: "8", RANKER: "1"}),
        (64, [LONG] * 6 + [RANKER] * 4, {LONG: "8", RANKER: "4"}),
        (64, [LONG] * 3, {LONG: "21"}),
        (4, [LONG] * 6 + [RANKER] * 30, {LONG: "1", RANKER: "1"}),
        (8, [LONG, RANKER], {LONG: "6", RANKER: "2"}),
        (8, [SERIAL], {SERIAL: "1"}),
    ],
)
def test_long_steps_have_most_of_many_cores(cores, needs, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    trace = Trace(Resources(cores, 512 * GB), needs)
    given = {(need, trace.shares[step]["OMP_NUM_THREADS"]) for step, need in enumerate(needs)}
    assert given == set(threads.items())
    assert trace.order[0] == 0, "they are first in the plan, so that nothing shorter is in their way"


def test_a_layout_network_without_a_gpu_is_long(monkeypatch):
    index = pd.DataFrame({"nodes": [8]})
    monkeypatch.setattr(job_plan, "Features", lambda folder: SimpleNamespace(index=index))
    for kind, has_gpu in product(("layout", "tile"), (False, True)):
        step = SimpleNamespace(settings=TrainSettings(kind=kind))
        assert step_need(step, has_gpu).long == (kind == "layout" and not has_gpu)


@given(*[st.integers(1, 80)] * 2, *[st.integers(0, 40)] * 2)
def test_cores_suffice_for_what_is_planned_together(cores, most, long, short):
    most = min(most, cores)
    found = share_cores(cores, most, long, short)
    now = min(long, most)
    assert found.long >= 1 and found.short >= 1 and found.together >= 1
    assert now * found.long + min(short, found.together - now) * found.short <= cores
    assert found.long >= found.short or not now


NEEDS = st.builds(Need, st.integers(1, 12).map(GB.__mul__), *[st.booleans()] * 3)


@settings(max_examples=25)
@given(
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(0, 3),
    st.lists(NEEDS, min_size=1, max_size=8),
    st.integers(0, 4),
)
def test_nothing_is_overcommitted(cores, memory, gpus, needs, jobs):
    trace = Trace(Resources(cores, memory * GB, tuple("abc"[:gpus])), needs, jobs)
    assert sorted(trace.results) == list(range(len(needs)))
    for now in trace.most:
        assert len(now) <= min(cores, jobs or cores)
        assert len(now) == 1 or sum(needs[step].memory for step in now) <= memory * GB
        assert not gpus or sum(needs[step].gpu for step in now) <= gpus
        devices = [trace.shares[step].get("CUDA_VISIBLE_DEVICES") for step in now if needs[step].gpu]
        assert not gpus or len({*devices}) == len(devices) and {*devices} <= {*"abc"[:gpus]}
        assert sum(int(trace.shares[step][STEP_CORES]) for step in now) <= cores
    assert all(int(share[STEP_MEMORY]) > 0 for share in trace.shares.values())


def test_steps_that_fit_run_at_once():
    """Each waits for the other one, so they would end in an error one after the other."""
    both = threading.Barrier(2, timeout=20)
    pool = PlannedPool(Resources(2, 4 * GB), need=lambda step: Need(GB))
    waiting = [pool.submit(lambda step: both.wait(), step) for step in range(2)]
    assert {future.result(timeout=20) for future in waiting} == {0, 1}
    pool.shutdown()


def test_an_error_is_handed_over_and_frees_what_the_step_had():
    pool = PlannedPool(Resources(2, GB), need=lambda step: Need(GB))
    assert pool.submit(lambda step: 1 / step, 0).exception(timeout=20).__class__ is ZeroDivisionError
    assert pool.submit(lambda step: 1 / step, 1).result(timeout=20) == 1
    pool.shutdown()


def test_steps_that_did_not_begin_are_dropped():
    pool, go = PlannedPool(Resources(1, GB), need=lambda step: Need(1)), threading.Event()
    first, second = pool.submit(lambda _: go.wait(20), 0), pool.submit(lambda _: 1, 1)
    pool.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert first.result(timeout=20) and second.cancelled()


def test_features_need_memory_for_their_processes():
    few, many = (step_need(SimpleNamespace(settings=FeatureSettings(workers=n))) for n in (1, 8))
    assert few.memory < many.memory and not few.gpu


def test_a_network_that_names_its_device_or_several_processes_is_given_no_gpu(monkeypatch):
    index = pd.DataFrame({"nodes": [8]})
    monkeypatch.setattr(job_plan, "Features", lambda folder: SimpleNamespace(index=index))
    for options, gpu in (({}, True), ({"device": "cpu"}, False), ({"device": "cuda", "processes": 2}, False)):
        settings = TrainSettings(**options, graphs_per_step=2)
        assert step_need(SimpleNamespace(settings=settings), True).gpu == gpu


@cases(
    "objective, rows",
    [("pairwise", 30 * (1 + RankerSettings().pairs_per_config)), ("regression", 30)],
)
def test_a_ranker_needs_memory_for_its_tables_and_pairs(monkeypatch, objective, rows):
    """Of the train programs' configurations, at most so many of each; a row has 256 columns of float32."""
    index = pd.DataFrame({"split": ["train", "train", "valid"], "configs": [10, 50, 1000]})
    monkeypatch.setattr(RankerSettings, "sources", lambda self: {"": SimpleNamespace(index=index)})
    settings = RankerSettings(objective=objective, configs_per_graph=20)
    assert step_need(SimpleNamespace(settings=settings)).memory - GB // 2 == rows * 256 * 4


def test_what_only_reads_predictions_takes_one_core():
    """Then the last step's kernel is forked beside those of the ensembles, also where it runs alone."""
    steps = EnsembleSettings(), SubmissionSettings(), EnsembleSettings(runs=[], trained="models")
    assert [step_need(SimpleNamespace(settings=each)).serial for each in steps] == [True, True, False]


@cases(
    "changes, times",
    [
        ({"block": "residual", "input_attention": True}, 8),  # every configuration is a state of every node
        ({"kind": "tile"}, 1 / 16),  # a kernel has one state per node
        ({"kind": "tile", "joins_nodes": True, "block": "unit"}, 8),
        ({"kind": "tile", "graphs_per_step": 4}, 1 / 4),
    ],
)
def test_a_dense_network_needs_memory_for_every_configuration(monkeypatch, changes, times):
    index = pd.DataFrame({"nodes": [1 << 20]})
    monkeypatch.setattr(job_plan, "Features", lambda folder: SimpleNamespace(index=index))
    plain, changed = (
        step_need(SimpleNamespace(settings=TrainSettings(**options)), False).memory - GB // 2
        for options in ({}, changes)
    )
    assert changed == plain * times


def test_visible_gpus_are_those_that_the_user_left(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert job_plan.machine_resources().gpus == ("2", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert job_plan.machine_resources().gpus == ()
