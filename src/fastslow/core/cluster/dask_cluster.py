"""Calls on the workers of a Dask cluster: of a running scheduler, or of SLURM jobs through dask-jobqueue.

What a worker does with a call is in :mod:`fastslow.core.cluster.worker`. A call whose worker is lost
starts again on another one. Dask is imported where a cluster is opened: one machine does without it.
"""

import contextlib
import logging
import pickle
import re
import socket
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from fastslow.core.cluster.worker import (
    GPU,
    MEMORY,
    Call,
    ClusterError,
    code_identity,
    list_folders,
    run_call,
)
from fastslow.core.errors import SettingsError
from fastslow.core.isolated import ended_by_interrupt
from fastslow.core.settings import resolve

SLURM = "slurm"
INSTALL = "type `.venv/bin/pip install -e '.[cluster]'`"
_CONNECT_SECONDS = 10
_LISTEN_SECONDS = 3  # until a host has taken a connection
_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx|ucxx)://)?(\[[0-9a-fA-F:.]+\]|[\w.-]+):([0-9]{1,5})")
_LONGEST_HANDSHAKE = 1 << 20  # bytes; it has some hundred
_LOOKS = "tcp://host:8786, or slurm, is one"
_ANSWER_SECONDS = 10  # between two looks at whether the client is still connected


def check_address(address: str) -> None:
    """Refuse what is no address of a cluster, before anything is computed.

    Args:
        address: As for :func:`open_cluster`, or empty.

    Raises:
        SettingsError: It has another form.
    """
    parts = _ADDRESS.fullmatch(address)
    sound = parts and 0 < int(parts[4]) < 1 << 16
    if address and address != SLURM and not sound:
        raise SettingsError("cluster", f"{address!r} is no address of a Dask scheduler: {_LOOKS}")


def check_scheduler(address: str) -> None:
    """Refuse an address where no Dask scheduler listens, within seconds and before anything is computed.

    A scheduler sends its handshake to whoever connects: 8 bytes with its length, which is short, come first.
    Dask itself waits for ever for a server that is silent, and allocates what another one's first bytes say.

    Args:
        address: As for :func:`open_cluster`, or empty.

    Raises:
        SettingsError: Its host is not known, takes no connection or sends no handshake, or the address has
            another form.
    """
    check_address(address)
    parts = _ADDRESS.fullmatch(address)
    if not parts or parts[2] in ("ucx", "ucxx"):  # which do not listen by TCP
        return
    place = parts[3].strip("[]"), int(parts[4])
    try:
        with socket.create_connection(place, _LISTEN_SECONDS) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            if parts[2] in (None, "tcp"):  # others wait for the client's word
                length = int.from_bytes(connection.recv(8), "little")
                if not 0 < length < _LONGEST_HANDSHAKE:
                    raise ConnectionError("another service listens there")
    except (OSError, UnicodeError) as error:  # a name with a part that is too long is a UnicodeError
        problem = f"no Dask scheduler answers at {address!r} ({error})"
        remedy = "start one with `.venv/bin/dask scheduler`, or type tls:// where it has TLS"
        raise SettingsError("cluster", f"{problem}; {remedy}") from None


class Cluster(Executor):
    """An executor whose calls run on the workers of a Dask cluster.

    Args:
        client: A connected ``distributed.Client``.
    """

    def __init__(self, client):
        self._client = client
        self._topic = f"fastslow-{uuid.uuid4().hex}"
        self._identity = code_identity()
        self._futures: dict[str, Future] = {}
        self._needs: dict[str, tuple[str, Mapping[str, float]]] = {}  # label and resources of each call
        self._changes = threading.Lock()  # a call's start and end are reported in threads of their own
        runs = resolve("runs")
        runs.mkdir(parents=True, exist_ok=True)
        self._witness = runs / f".{self._topic}"
        self._witness.touch()
        client.subscribe_topic(self._topic, self._started)
        client.subscribe_topic("all", self._tell_of_lost_workers)

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return self._client.scheduler.address

    def workers(self) -> list[Mapping]:
        """Return the facts that Dask has of each worker, by name: host, nthreads, resources, ..."""
        return list(self._client.scheduler_info(n_workers=-1)["workers"].values())

    def offered(self, name: str, beside: Sequence[str] = ()) -> float:
        """Return how much of a resource the best worker has, of those that declare all of ``beside`` too."""
        declared = [worker["resources"] for worker in self.workers()]
        having = [resources for resources in declared if all(resources.get(other) for other in beside)]
        return max((resources.get(name, 0) for resources in having), default=0)

    def submit(  # type: ignore[override]  # a function gets no keywords
        self, function: Callable, /, *args: Any, label: str = "", resources: Mapping[str, float] | None = None
    ) -> Future:
        """Run a function of a module on a worker; the future is running once a worker has started it.

        Args:
            function: Any function, without keyword arguments.
            *args: Its arguments, which can be pickled.
            label: A name for messages; by default the function's.
            resources: Dask resources that it needs.
        """
        label = label or function.__name__
        resources = resources or {}
        slots = Counter()
        for worker in self.workers():
            slots[worker["host"]] += worker["nthreads"]
        call = Call(
            pickled=pickle.dumps((function, args)),
            label=label,
            identity=self._identity,
            home=str(resolve("")),
            witness=str(self._witness),
            topic=self._topic,
            gpu=GPU in resources,
            memory=int(resources.get(MEMORY, 0)),
            slots=slots,
        )
        key = f"{label.replace(' ', '-')}-{uuid.uuid4().hex}"
        self._needs[key] = label, resources
        future = self._futures[key] = Future()
        remote = self._client.submit(run_call, call, key=key, pure=False, resources=resources)
        future.add_done_callback(lambda ours: remote.cancel() if ours.cancelled() else None)
        remote.add_done_callback(lambda theirs: self._finish(future, theirs, label))
        return future

    def _started(self, event: tuple[float, dict]) -> None:
        """Note that a worker has started a call; a second time where the first worker was lost."""
        key, label, host = event[1]["key"], event[1]["label"], event[1]["host"]
        future = self._futures[key]
        with self._changes:
            again = future.running()
            if not again and not future.done():
                future.set_running_or_notify_cancel()
        if again:
            print(f"  {label}: its worker was lost; started again on {host}", file=sys.stderr, flush=True)

    async def _tell_of_lost_workers(self, event: tuple[float, dict]) -> None:
        """Once a worker has left, name the calls that no other can run; Dask waits for another silently."""
        if event[1].get("action") != "remove-worker":
            return
        workers = (await self._client.scheduler.identity(n_workers=-1))["workers"].values()
        unfinished = [need for key, need in self._needs.items() if not self._futures[key].done()]
        for label, resources in unfinished:
            if not any(_has(worker["resources"], resources) for worker in workers):
                declared = ",".join(f"{name}={amount:.0f}" for name, amount in resources.items())
                option = f" --resources {declared}" if declared else ""
                start = f"`.venv/bin/dask worker {self.address}{option}`"
                print(f"  {label}: no worker is left for it; it waits for one ({start})", file=sys.stderr)

    def _finish(self, future: Future, remote: Any, label: str) -> None:
        from distributed import CancelledError, KilledWorker

        with self._changes:
            if future.cancelled():
                return
            if not future.running():  # its start may be reported later than its end
                future.set_running_or_notify_cancel()
        try:
            value, log = self._result_of(remote, label)
            print(log, end="", file=sys.stderr, flush=True)
            list_folders(resolve(""))
        except ClusterError as error:
            future.set_exception(error)
        except KilledWorker as error:
            workers = f"{error.allowed_failures + 1} workers were lost while they ran it"
            last = f"the last one was {error.last_worker.address}"
            remedy = "Where memory ran out, give a worker more of it or fewer slots (--nthreads)"
            future.set_exception(ClusterError(f"{label}: {workers}; {last}. {remedy}"))
        # whatever it is: in this thread nobody else sees it, and the run would wait for the future for ever
        except (Exception, CancelledError) as error:
            problem = f"{label}: the cluster did not finish it ({type(error).__name__}: {error})"
            remedy = f"Look at the scheduler {self.address} and its workers, and run the same command again"
            future.set_exception(ClusterError(f"{problem}. {remedy}"))
        else:
            future.set_result(value)

    def _result_of(self, remote: Any, label: str) -> Any:
        """Return the result of a call that has ended.

        Dask waits for ever for the result of a client that is closed meanwhile, as after Ctrl-C. Its
        callbacks share one thread in a process, so no other client would receive a result.
        """
        while self._client.status == "running":
            try:
                return remote.result(timeout=_ANSWER_SECONDS)
            except TimeoutError:
                if remote.status == "error":  # its own
                    raise
        problem = f"{label}: the connection to the scheduler {self.address} was closed before the result came"
        remedy = "Start the scheduler and its workers again, then the same command: it resumes"
        raise ClusterError(f"{problem}. {remedy}")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not started, wait for the rest if asked to, and leave the cluster."""
        for future in self._futures.values():
            if cancel_futures:
                future.cancel()
            if wait and future.running():
                future.exception()
        self._witness.unlink(missing_ok=True)
        self._client.close()


def _has(declared: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all(declared.get(name, 0) >= amount for name, amount in needed.items())


@contextlib.contextmanager
def open_cluster(address: str, jobs: int = 8) -> Iterator[Cluster]:
    """Connect to a cluster and wait for its first worker; after Ctrl-C its calls are cancelled.

    Args:
        address: Scheduler, such as ``tcp://host:8786``, or ``slurm``: jobs as dask-jobqueue's configuration
            file describes them.
        jobs: For ``slurm``: maximum number of jobs.

    Raises:
        SettingsError: Nothing is installed for it, no scheduler answers, or the configuration is incomplete.
    """
    with _client(address, jobs) as client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            known = client.scheduler.address
            print(f"waiting for a first worker of {known} (`.venv/bin/dask worker {known}`)", file=sys.stderr)
            client.wait_for_workers(1)
        with ended_by_interrupt(Cluster(client)) as cluster:
            yield cluster


@contextlib.contextmanager
def _client(address: str, jobs: int) -> Iterator[Any]:
    try:
        from distributed import Client

        if address == SLURM:
            from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise SettingsError("cluster", f"{error.name} is not installed; {INSTALL}") from None
    check_scheduler(address)
    # a lost scheduler is an error of each call, with its remedy; Dask would print a traceback before it
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        if address == SLURM:
            try:
                slurm = stack.enter_context(SLURMCluster())
            except (ValueError, TypeError) as error:
                problem = f"dask-jobqueue refuses its configuration ({error})"
                raise SettingsError("cluster", f"{problem}; see docs/many_machines.md for one") from None
            # calls take minutes to hours: a job for each that waits, not for the half second Dask expects
            slurm.adapt(minimum_jobs=1, maximum_jobs=jobs, target_duration="10ms", wait_count=30)
            address = slurm.scheduler_address
        try:
            try:
                client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            except AssertionError:  # its event loop did not start within 10 seconds: the machine is stalled
                client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            problem = f"no Dask scheduler answers at {address!r} ({error})"
            raise SettingsError("cluster", f"{problem}; start one with `.venv/bin/dask scheduler`") from None
        except (TypeError, RuntimeError) as error:  # as Dask says that certificates are missing
            problem = f"Dask's settings do not allow {address!r} ({error})"
            raise SettingsError("cluster", f"{problem}; see TLS in docs/many_machines.md") from None
        yield stack.enter_context(client)
