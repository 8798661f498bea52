"""Fixtures of all tests."""

import gc
import os
import signal
from functools import cache
from pathlib import Path

# two workers on two cores: threads beyond one each would spend their time waiting for one another
os.environ.setdefault("OMP_NUM_THREADS", "1")
# JAX compiles a small function in a third of the time
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "helpers" / "startup"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

import numpy as np
import pytest
from hypothesis import settings

from fastslow.core import artifacts, figures
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.workflow import forked_kernels
from helpers.competition_files import write_data_root
from helpers.forked_workers import fork_workers
from helpers.startup import sitecustomize  # noqa: F401 (for this process, which has begun)
from helpers.undrawn import one_pixel
from helpers.workspace import data_home, finished, home  # noqa: F401 (fixtures)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts so what it puts in the background; what the tests start and interrupt would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# as after a first kernel: a worker starts many, and one that is not forked imports the libraries once more
next(forked_kernels._started)
# the code stays the same while tests run: git is asked once, not for each of a thousand manifests
artifacts.commit = cache(artifacts.commit)

settings.register_profile("fastslow", deadline=None)  # a test must not depend on the speed of the machine
settings.load_profile("fastslow")


FIRST = """
workflow/test_run compiler/test_training_loops placement/test_jax_program front/test_notebooks
front/test_faults kaggle/test_on_kaggle workflow/test_rules workflow/test_step_pools workflow/test_budget
tuning/test_compiler_options compiler/test_tuned networks/test_train tuning/test_decorator
benchmarks/test_rehearsal tuning/test_tune networks/test_distributed sample_factory/test_zoo
tuning/test_user_space kaggle/test_upload kaggle/test_kernel tuning/test_read_settings kaggle/test_client
core/test_dask_cluster commands/test_place features/test_build core/test_isolated ranking/test_packaged
commands/test_measure benchmarks/test_options_gain benchmarks/test_does_it_help front/test_readme
benchmarks/test_models compiler/test_compile_pool front/test_cli
workflow/test_published_presets bad_input/test_security
"""
"""The files that take four CPU seconds and more, the longest first, so that the last ones end together; the
first makes `finished`, for which the next two do not wait."""


def pytest_collection_modifyitems(items):
    """Let workers take the files of :data:`FIRST` first, in this order."""
    place = {Path(__file__).parent / f"{name}.py": number for number, name in enumerate(FIRST.split())}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish():
    """Let no collector go through the modules again, which stay."""
    gc.freeze()


NOT_FORKED = ("core/test_isolated.py", "hlo/test_reader.py")
"""Files that test the start of a process, or put a module of their own in the place of jaxlib."""


@pytest.fixture(scope="module", autouse=True)
def forked_workers(request):
    """Fork workers from a process that has imported JAX."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.relative_to(Path(__file__).parent).as_posix() not in NOT_FORKED:
            fork_workers(patch)
        yield


@pytest.fixture
def undrawn(monkeypatch):
    """Save pictures of one pixel, where no test looks at them."""
    monkeypatch.setattr(figures, "_raster", one_pixel)
    monkeypatch.setattr(figures, "_lay_out", lambda figure: None)


@pytest.fixture
def rng():
    """A generator with a fixed seed."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """Features of a layout collection, built from made-up files; read-only."""
    root = write_data_root(tmp_path_factory.mktemp("data"), "layout:xla:random", train=("a", "b", "c"))
    settings = FeatureSettings(data_root=str(root), folder=str(root / "features"), workers=1)
    build_features(settings)
    return Features(root / "features")
