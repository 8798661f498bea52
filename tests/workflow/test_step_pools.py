"""Steps on a cluster of two worker processes: the same files as on one machine, features file by file."""

import shutil
from importlib.util import find_spec

import pytest

from fastslow import cli
from fastslow.workflow import step_pools
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.execution import run_steps
from fastslow.workflow.job_plan import Need
from fastslow.workflow.outlook import look
from fastslow.workflow.settings.run_settings import RunSettings
from fastslow.workflow.step_pools import ClusterPool
from helpers.cases import cases
from helpers.cluster_calls import scheduler  # noqa: F401 (fixture)
from helpers.workspace import SERIAL

pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="distributed is not installed")
REDONE = ("features/smoke/tile-xla", "runs/smoke/ranker-tile-xla-s0")
RESULTS = ("*.npz", "*.npy", "*.csv", "model.txt", "metrics.jsonl")


def results(folder):
    return {p.relative_to(folder): p.read_bytes() for pattern in RESULTS for p in folder.rglob(pattern)}


def test_a_run_on_workers_gives_the_files_of_one_machine(scheduler, home, capsys):  # noqa: F811
    """Two workers and two kernels start, each of which imports its libraries."""
    before = results(home)
    for folder in REDONE:
        shutil.rmtree(home / folder)
    settings = ["preset=smoke", "models=ranker", SERIAL, f"cluster={scheduler.scheduler_address}"]
    assert cli.main(["train", *settings]) == 0
    after = results(home)
    assert after.keys() == before.keys()
    assert not [path for path in before if before[path] != after[path]]
    printed = capsys.readouterr()
    said = printed.err
    assert "unknown parameter" not in printed.out + said, "papermill warns of settings"
    assert "features: 4 of 5 up to date" in said and "train: 2 of 3 up to date" in said
    assert "  ranker-tile-xla-s0: " in said and "valid " in said
    for folder in REDONE:
        assert (home / folder / "notebook.ipynb").is_file()


class Recorded:
    """A cluster that notes what is sent to it."""

    address = "tcp://a:1"

    def __init__(self, *workers):
        self.workers, self.sent = workers, {}

    def offered(self, name, beside=()):
        able_workers = [worker for worker in self.workers if all(other in worker for other in beside)]
        return max((worker.get(name, 0) for worker in able_workers), default=0)

    def submit(self, function, *args, **options):
        self.sent[options["label"]] = options
        return args[-1]


@cases("gpus", [0, 1])
def test_networks_ask_for_a_gpu_where_workers_offer_one(gpus):
    cluster = Recorded({"GPU": 1} if gpus else {})
    pool = ClusterPool(cluster)
    for step in make_plan(RunSettings(seeds=1)).steps():
        pool.submit(look, step)
    for name, options in cluster.sent.items():
        wanted = {"GPU": 1} if gpus and name.startswith("training-") else {}
        assert options["resources"] == wanted


def need(step, has_gpu):
    return Need(int(9e9) if has_gpu else int(5e9))


@cases(
    "workers, network, ranker",
    [
        ([{}], {}, {}),  # none says what it has
        ([{"MEMORY": 8e9}, {"MEMORY": 6e9}], {"MEMORY": 5e9}, {"MEMORY": 5e9}),
        ([{"MEMORY": 4e9}], {"MEMORY": 4e9}, {"MEMORY": 4e9}),  # more than any has: a whole worker
        ([{"MEMORY": 8e9}, {"GPU": 1}], {"GPU": 1}, {"MEMORY": 5e9}),
        ([{"MEMORY": 2e9}, {"GPU": 1, "MEMORY": 16e9}], {"GPU": 1, "MEMORY": 9e9}, {"MEMORY": 5e9}),
    ],
)
def test_steps_ask_for_the_memory_that_they_need(workers, network, ranker, monkeypatch):
    monkeypatch.setattr(step_pools, "step_need", need)
    cluster = Recorded(*workers)
    pool = ClusterPool(cluster)
    for step in make_plan(RunSettings(seeds=1)).steps():
        pool.submit(run_steps, step)
    asked = {name: options["resources"] for name, options in cluster.sent.items()}
    assert asked["training-tile-s0"] == network and asked["ranker-tile-xla-s0"] == ranker
    assert asked["features tile-xla"] == ranker
