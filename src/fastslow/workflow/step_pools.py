"""Executors of the notebooks of steps: threads of this machine, or the workers of a Dask cluster."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from fastslow.core.cluster.dask_cluster import Cluster, open_cluster
from fastslow.core.cluster.worker import GPU, MEMORY
from fastslow.core.isolated import ended_by_interrupt
from fastslow.core.memory import machine_cores
from fastslow.core.settings import PROJECT
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.job_plan import PlannedPool, machine_resources, step_need
from fastslow.workflow.steps import Step


class ClusterPool(Executor):
    """Runs functions of a step on workers: a network on one with a GPU where there are any.

    A worker declares ``GPU=1``; one that declares none computes on its CPU, so that the precision of a
    network does not depend on the worker. Where workers declare ``MEMORY`` (bytes), a step runs on one that
    has as much left as the step needs. A step that needs more than any worker has takes a whole worker's
    memory.
    """

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def submit(self, function: Callable[[Step], Any], step: Step) -> Future:
        """Run ``function(step)`` on a worker, with the notebook of the worker's own checkout."""
        resources = self._device(step)
        if offered := self._cluster.offered(MEMORY, [*resources]):
            resources[MEMORY] = min(step_need(step, GPU in resources).memory, offered)
        return self._send(function, step, resources=resources)

    def map(self, function: Callable[[Step], Any], steps: Sequence[Step]) -> Iterator[Any]:
        """Call a quick function of each step: of a network where its device is, of the others here."""
        networks = [(n, step) for n, step in enumerate(steps) if _is_network(step)]
        remote = {n: self._send(function, step, resources=self._device(step)) for n, step in networks}
        return (remote[n].result() if n in remote else function(s) for n, s in enumerate(steps))

    def _device(self, step: Step) -> dict[str, float]:
        return {GPU: 1} if _is_network(step) and self._cluster.offered(GPU) else {}

    def _send(self, function: Callable[[Step], Any], step: Step, **options: Any) -> Future:
        return self._cluster.submit(_on_worker, function, step, label=step.name, **options)


def _is_network(step: Step) -> bool:
    return isinstance(step.settings, TrainSettings)


def _on_worker(function: Callable[[Step], Any], step: Step) -> Any:
    return function(replace(step, notebook=PROJECT / "notebooks" / step.notebook.name))


@contextlib.contextmanager
def step_pool(jobs: int, cluster: str = "") -> Iterator[Executor]:
    """Give an executor of steps; after Ctrl-C those that run are not waited for.

    Args:
        jobs: Maximum number of steps that run in parallel, 0 for as many as fit; on SLURM, of jobs.
        cluster: Dask cluster, as for :func:`fastslow.core.cluster.dask_cluster.open_cluster`; empty for this
        machine.

    Raises:
        SettingsError: There is no such cluster, or Dask is not installed.
    """
    if cluster:
        with open_cluster(cluster, jobs or machine_cores()) as workers:
            yield ClusterPool(workers)
    else:
        with ended_by_interrupt(PlannedPool(machine_resources(), jobs)) as pool:
            yield pool
