"""Calls that the tests of clusters send to workers, which import this module; and two such workers."""

import os
import sys
import time
from pathlib import Path

import pytest

from fastslow.core.errors import DataError
from fastslow.core.memory import STEP_CORES, STEP_MEMORY


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """A Dask cluster of two worker processes on this machine, each with one slot."""
    distributed = pytest.importorskip("distributed")
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))  # the workers must find this module
        options = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
        folder = str(tmp_path_factory.mktemp("dask"))
        with distributed.LocalCluster(n_workers=2, local_directory=folder, **options) as cluster:
            yield cluster


def surroundings(_):
    """What a call sees of its machine."""
    print("said by a worker")
    names = ("FASTSLOW_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", STEP_MEMORY, STEP_CORES)
    return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}


def double(number, offset=0):
    """A quick call."""
    return 2 * number + offset


def refuse(path):
    """A call that fails with an error for the user."""
    raise DataError(path, "broken", "Mend it")


def fail(_):
    """A call that fails with a programming error."""
    raise KeyError("nobody expected this")


def die(_):
    """A call whose process is killed, as for lack of memory."""
    os.kill(os.getpid(), 9)


def wait_for(folder, name):
    """Write who runs this, then wait until a file of that name is there."""
    folder = Path(folder)
    attempt = len([*folder.glob("attempt-*")])
    (folder / f".attempt-{attempt}").write_text(f"{os.getpid()} {os.getppid()}")
    (folder / f".attempt-{attempt}").rename(folder / f"attempt-{attempt}")
    while not (folder / name).exists():
        time.sleep(0.05)
    print(f"attempt {attempt}", file=sys.stderr)
    return attempt
