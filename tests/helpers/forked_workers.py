"""Workers of `core.isolated`, forked from a process that has imported JAX: each starts half a second sooner.

The product starts each as a new process, which `tests/core/test_isolated.py` tests.
"""

import os
from multiprocessing.context import ForkServerContext, ForkServerProcess

import pytest
from joblib.externals.loky import backend

from fastslow.core import isolated


class ForkedWorker(ForkServerProcess):
    """A forked process, with the environment and the folder that this process has when it starts it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.environment, self.folder = dict(os.environ), os.getcwd()

    def run(self):
        """Become what a new process of these variables and this folder would be, and work."""
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        if platforms := os.environ.get("JAX_PLATFORMS"):  # JAX has read it, when it was imported
            import jax

            jax.config.update("jax_platforms", platforms)
        # its parent is the server, which ends with pytest's process
        server, watch = os.getppid(), isolated.end_with_parent
        isolated.end_with_parent = lambda _, end: watch(server, end)
        super().run()


class ForkedWorkers(ForkServerContext):
    """What :class:`~fastslow.core.isolated.Workers` start their processes with."""

    Process = ForkedWorker


FORKED = ForkedWorkers()
FORKED.set_forkserver_preload(["jax", "fastslow_programs.compiler.bench", "fastslow.core.isolated"])


def fork_workers(patch: pytest.MonkeyPatch) -> None:
    """Let workers be forked until the patch is undone."""
    patch.setattr(backend, "get_context", lambda _: FORKED)


@pytest.fixture
def forked(monkeypatch):
    """Fork workers in a test of a file whose others start new ones."""
    fork_workers(monkeypatch)
