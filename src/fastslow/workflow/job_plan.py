"""Plans the notebooks that run side by side, by the memory, cores and GPUs that each needs and there are."""

import contextvars
import math
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from jupyter_client import AsyncKernelManager

from fastslow.competition.catalog import TRAIN
from fastslow.core.memory import STEP_CORES, STEP_MEMORY, machine_cores, machine_memory
from fastslow.core.settings import resolve
from fastslow.runs.features_folder import Features
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.forked_kernels import ForkedKernel
from fastslow.workflow.steps import Step

_GB = 1 << 30
_BASE = _GB // 2  # a kernel with its libraries
_GPU_BASE = 4 * _GB  # the same with CUDA's
_PREDICTING = 2 * _GB  # by trained models, which take more where there is more
_COLUMNS = 256  # of a ranker's table, rounded up
_STATE_TENSORS = 20  # tensors of a state that a training step keeps for its gradient, per layer together
_CONFIGS_PER_STATE = 8  # measured on published files: 4 to 12 configurations of a node share a state
_USABLE = 0.9  # share of the memory that is planned with
_LONG_SHARE = 0.8  # of the cores, as about of the CPU time of the preset kaggle
_QUIET = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}  # a kernel's debugger warns on the terminal, across the bar

step_environment: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar(
    "step_environment", default=None
)
"""Environment variables of the notebook that this thread runs: its threads, memory and GPU."""


@dataclass(frozen=True)
class Resources:
    """Resources of a machine."""

    cores: int  # that this process may use
    memory: int  # bytes
    gpus: tuple[str, ...] = ()  # names for CUDA_VISIBLE_DEVICES


@dataclass(frozen=True)
class Need:
    """Needs of a step."""

    memory: int  # bytes
    gpu: bool = False  # whether it takes a GPU where there is one
    long: bool = False  # whether it takes many times as long as most others: a layout network without a GPU
    serial: bool = False  # whether more than one core brings it nothing


@dataclass(frozen=True)
class Cores:
    """Shares of the cores for the steps that wait.

    Args:
        long: Cores of each long step.
        short: Cores of each other step.
        together: Number of steps that may run at once.
    """

    long: int
    short: int
    together: int


def share_cores(cores: int, most: int, long: int, short: int) -> Cores:
    """Share the cores among the steps that wait.

    Long steps get most of the cores if each of them can have two or more. Otherwise all steps get the same
    number.

    Args:
        cores: Number of cores, 1 or more.
        most: Maximum number of steps that run at once.
        long: Number of long steps that wait.
        short: Number of other steps that wait.

    Returns:
        Cores of each long step and of each other step, and how many steps run at once.
    """
    now = min(long, most)
    each = int(_LONG_SHARE * cores) // now if short and 0 < now < most else 0
    if each <= 1:
        together = max(1, min(long + short, most))
        return Cores(cores // together, cores // together, together)
    rest = cores - each * now
    beside = max(1, min(short, most - now, rest))
    return Cores(each, min(each, rest // beside), now + beside)


def machine_resources() -> Resources:
    """Return the cores, memory and GPUs of this machine that this process may use."""
    return Resources(machine_cores(), machine_memory(), _gpus())


def _gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that torch can use."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in (chosen or "").split(",") if name not in ("", "-1")]
    if not os.path.exists("/dev/nvidiactl"):
        return tuple(names)
    import torch  # takes seconds, and is needed on a machine with GPUs alone

    from fastslow.networks.hardware.gpus import why_unusable

    if chosen is None:
        names = [str(index) for index in range(torch.cuda.device_count())]
    return tuple(name for index, name in enumerate(names) if not why_unusable(index))


def step_need(step: Step, has_gpu: bool | None = None) -> Need:
    """Estimate what a step needs from its settings and, of a model, from the index of its features.

    Args:
        step: The step.
        has_gpu: Whether a GPU is there for a network; by default, whether this machine has one.
    """
    settings = step.settings
    if isinstance(settings, FeatureSettings):
        return Need(_BASE * (1 + (settings.workers or 2)))
    if isinstance(settings, TrainSettings):
        # GPUs that are named by number, or several for one network, are not chosen here
        gpu = settings.device in ("auto", "cuda") and settings.processes == 1
        on_gpu = gpu and (bool(_gpus()) if has_gpu is None else has_gpu)
        memory = settings.processes * (_GPU_BASE if on_gpu else _BASE) + _network_bytes(settings)
        return Need(memory, gpu, long=settings.kind == "layout" and not on_gpu)
    if isinstance(settings, RankerSettings):
        return Need(_BASE + _ranker_bytes(settings))
    if isinstance(settings, EnsembleSettings) and settings.trained:
        return Need(_PREDICTING, gpu=True)
    return Need(_BASE, serial=True)


def _network_bytes(settings: TrainSettings) -> int:
    nodes = max(Features(resolve(folder)).index["nodes"].max() for folder in settings.features)
    layers = settings.architecture()
    dense = layers.input_attention or layers.joins_nodes
    configs = math.ceil(settings.configs_per_step / (1 if dense else _CONFIGS_PER_STATE))
    states = configs if settings.kind == "layout" or layers.joins_nodes else 1
    step = int(nodes) * states * settings.hidden_channels * 4 * _STATE_TENSORS
    return step * (settings.graphs_per_step if settings.kind == "tile" else 1)


def _ranker_bytes(settings: RankerSettings) -> int:
    indices = [source.index for source in settings.sources().values()]
    configs = [index.loc[index["split"] == TRAIN, "configs"] for index in indices]
    rows = sum(int(counts.clip(upper=settings.configs_per_graph).sum()) for counts in configs)
    each = settings.pairs_per_config if settings.objective == "pairwise" else 0
    return rows * _COLUMNS * 4 * (1 + each)


class PlannedKernel(AsyncKernelManager):
    """Starts a notebook's Jupyter kernel with the variables of :data:`step_environment`."""

    async def start_kernel(self, **options: Any) -> None:
        """Start the Jupyter kernel."""
        if sys.platform == "linux":  # elsewhere a kernel has a port, which may be taken before it starts
            self.transport = "ipc"
            self.ip = f"@fastslow-{uuid.uuid4()}"  # with @ no file, which a killed kernel would leave
        self.provisioner = ForkedKernel(kernel_spec=self.kernel_spec, parent=self)
        await super().start_kernel(**options, env={**os.environ, **_QUIET, **(step_environment.get() or {})})


class StepPool(Executor):
    """Where steps run: one interface of this machine's threads and of a cluster's workers.

    ``submit(function, step)`` runs a step once what it needs is free. ``map(function, steps)`` calls a quick
    function of each step.
    """

    def expect(self, steps: Sequence[Step]) -> None:
        """Say which steps will be submitted together; a pool may share its cores out among them."""


class PlannedPool(StepPool):
    """Runs steps in threads, each when the memory, cores and GPUs that it needs are free.

    A step that needs more than the machine has runs while no other step does. :func:`share_cores` shares the
    cores. A network takes a GPU of its own where there are any.

    Args:
        resources: The resources of this machine.
        jobs: Maximum number of steps at a time; 0 for as many as fit.
        need: Returns the needs of a step.
    """

    def __init__(self, resources: Resources, jobs: int = 0, need: Callable[[Step], Need] = step_need):
        self._resources, self._need = resources, need
        self._most = min(jobs, resources.cores) if jobs else resources.cores
        self._memory = int(resources.memory * _USABLE)
        self._gpus = list(resources.gpus)
        self._pool = ThreadPoolExecutor(self._most)
        self._lock = threading.RLock()
        self._pending: list[tuple[Future, Callable[[Step], Any], Step, Need]] = []
        self._running, self._free = 0, resources.cores
        self._cores = share_cores(resources.cores, self._most, 0, self._most)

    def expect(self, steps: Sequence[Step]) -> None:
        """Say which steps will be submitted together, the long ones first: they share the cores."""
        long = sum(self._need(step).long for step in steps)
        self._cores = share_cores(self._resources.cores, self._most, long, len(steps) - long)

    def submit(self, function: Callable[[Step], Any], step: Step) -> Future:
        """Run ``function(step)`` in a thread, with its share in :data:`step_environment`."""
        future: Future = Future()
        with self._lock:
            self._pending.append((future, function, step, self._need(step)))
        self._start()
        return future

    def map(self, function: Callable[[Step], Any], steps: Iterable[Step]) -> Iterator[Any]:
        """Call a quick function of each step, here."""
        return map(function, steps)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; ``cancel_futures`` drops the steps that have not begun."""
        with self._lock:
            while cancel_futures and self._pending:
                self._pending.pop()[0].cancel()
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _start(self) -> None:
        """Start every pending step that fits, in order."""
        with self._lock:
            for entry in list(self._pending):
                future, function, step, need = entry
                gpu = need.gpu and bool(self._resources.gpus)
                cores = self._cores_of(need)
                fits = need.memory <= self._memory and cores <= self._free and (self._gpus or not gpu)
                if self._running >= self._most or not (fits or not self._running):
                    continue
                self._pending.remove(entry)
                if not future.set_running_or_notify_cancel():
                    continue
                device = self._gpus.pop(0) if gpu else None
                self._running += 1
                self._memory -= need.memory
                self._free -= cores
                self._pool.submit(self._run, future, function, step, need, cores, device)

    def _cores_of(self, need: Need) -> int:
        if need.serial:
            return 1
        return self._cores.long if need.long else self._cores.short

    def _run(self, future: Future, function, step: Step, need: Need, cores: int, device: str | None) -> None:
        try:
            step_environment.set(self._share(need, cores, device))
            result = function(step)
            error = None
        # as in concurrent.futures' own threads: what is not handed over ends the thread, and the run waits
        except BaseException as caught:
            result, error = None, caught
        with self._lock:
            self._running -= 1
            self._memory += need.memory
            self._free += cores
            if device is not None:
                self._gpus.append(device)
        self._start()
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _share(self, need: Need, cores: int, device: str | None) -> dict[str, str]:
        """Return the environment of a step: its threads, the memory it may hold, and its GPU."""
        memory = max(need.memory, int(self._resources.memory * _USABLE) // self._cores.together)
        share = {STEP_CORES: str(cores), STEP_MEMORY: str(memory)}
        share["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(cores))
        return share if device is None else share | {"CUDA_VISIBLE_DEVICES": device}
