"""Calls on two worker processes: results, errors, lost workers, other code, a folder not shared, SLURM."""

import contextlib
import operator
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from importlib.util import find_spec
from types import SimpleNamespace

import psutil
import pytest

from fastslow import cli
from fastslow.core.cluster import dask_cluster as cluster
from fastslow.core.cluster import worker as cluster_worker
from fastslow.core.cluster.dask_cluster import open_cluster
from fastslow.core.cluster.worker import ClusterError
from fastslow.core.errors import SettingsError
from fastslow.core.memory import STEP_CORES, STEP_MEMORY, machine_memory
from fastslow.core.settings import resolve
from fastslow.workflow.settings.run_settings import RunSettings
from helpers import cluster_calls
from helpers.cases import cases
from helpers.cluster_calls import scheduler  # noqa: F401 (fixture)

pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="distributed is not installed")


@contextlib.contextmanager
def ended_with_the_test(address):
    """A cluster that is left as by Ctrl-C: on another exit it waits for a call that a failed test left."""
    with pytest.raises(KeyboardInterrupt), open_cluster(address) as opened:
        yield opened
        raise KeyboardInterrupt


@pytest.fixture
def workers(scheduler, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    with ended_with_the_test(scheduler.scheduler_address) as opened:
        yield opened


def wait_until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


def first_attempt(folder):
    wait_until((folder / "attempt-0").exists)
    return [psutil.Process(int(pid)) for pid in (folder / "attempt-0").read_text().split()]


def test_a_call_has_the_folder_of_the_sender_and_no_gpu(workers, tmp_path, capfd):
    seen = workers.submit(cluster_calls.surroundings, 0, label="look").result()
    assert seen.pop("pid") not in (os.getpid(), None)
    threads, memory = seen.pop("OMP_NUM_THREADS"), seen.pop(STEP_MEMORY)
    assert seen.pop(STEP_CORES) == threads
    assert 0 < int(memory) <= machine_memory() // 2, "two workers"
    assert seen == {"FASTSLOW_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    assert 1 <= int(threads) <= os.cpu_count()
    assert "said by a worker" in capfd.readouterr().err


def test_errors_come_back_as_they_would_locally(workers):
    cases = {
        cluster_calls.refuse: "^somewhere: broken. Mend it$",
        cluster_calls.fail: r"(?s)^fail: its process on \S+ ended with status 1\n.*KeyError: 'nobody",
        cluster_calls.die: "die: its process on .* ended with SIGKILL; where memory ran out",
    }
    for function, said in cases.items():
        with pytest.raises(ClusterError, match=said):
            workers.submit(function, "somewhere").result()


def test_the_call_of_a_lost_worker_runs_again(workers, tmp_path, capfd):
    future = workers.submit(cluster_calls.wait_for, str(tmp_path), "go", label="step")
    process, worker = first_attempt(tmp_path)
    assert future.running() and not future.done()
    worker.kill()
    wait_until((tmp_path / "attempt-1").exists)
    assert not psutil.wait_procs([process], timeout=20)[1], "the lost worker's call must not go on"
    (tmp_path / "go").touch()
    assert future.result() == 1
    said = capfd.readouterr().err
    assert "step: its worker was lost; started again on" in said and "attempt 1" in said


def test_a_call_that_no_worker_is_left_for_is_named(workers, tmp_path, capfd):
    going = workers.submit(cluster_calls.wait_for, str(tmp_path), "go", label="possible")
    waiting = workers.submit(cluster_calls.double, 1, label="waiting", resources={"GPU": 1})
    first_attempt(tmp_path)[1].kill()
    said = []

    def told():
        said.append(capfd.readouterr().err)
        return "no worker is left" in "".join(said)

    wait_until(told)
    (tmp_path / "go").touch()
    start = f"`.venv/bin/dask worker {workers.address} --resources GPU=1`"
    assert f"  waiting: no worker is left for it; it waits for one ({start})" in "".join(said)
    assert "possible: no worker" not in "".join(said)
    assert going.result() == 1
    waiting.cancel()


def test_a_failed_test_is_not_held_by_the_call_that_it_left(scheduler, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    with ended_with_the_test(scheduler.scheduler_address) as opened:
        opened.submit(cluster_calls.wait_for, str(tmp_path), "never")
        process, _ = first_attempt(tmp_path)
    assert not psutil.wait_procs([process], timeout=20)[1]


def test_after_ctrl_c_nothing_goes_on(scheduler, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), open_cluster(scheduler.scheduler_address) as opened:
        opened.submit(cluster_calls.wait_for, str(tmp_path), "never")
        process, worker = first_attempt(tmp_path)
        raise KeyboardInterrupt
    assert not psutil.wait_procs([process], timeout=20)[1]
    assert worker.is_running()


def test_a_result_is_not_awaited_for_ever_after_the_client_was_closed(workers, monkeypatch):
    address = SimpleNamespace(address="tcp://here:1")
    client = SimpleNamespace(status="running", close=lambda: None, scheduler=address)

    def result(timeout):
        assert timeout > 0, "Dask's own wait has no end"
        client.status = "closed"
        raise TimeoutError

    future = Future()
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_client", client)
        workers._finish(future, SimpleNamespace(result=result, status="finished"), "a")
    said = "^a: the connection to the scheduler tcp://here:1 was closed .*Start the scheduler .*: it resumes$"
    with pytest.raises(ClusterError, match=said):
        future.result(timeout=0)


def test_other_code_is_refused_by_name(workers, monkeypatch):
    theirs = {"torch": "1.0", "notebooks/10_features.ipynb": "0" * 16, "python": "3.11"}
    monkeypatch.setattr(workers, "_identity", workers._identity | theirs)
    said = "worker .* has other code in .*: notebooks/10_features.ipynb, .*torch .* instead of 1.0"
    with pytest.raises(ClusterError, match=f"{said}.*same checkout and environment"):
        workers.submit(cluster_calls.double, 1).result()


@pytest.mark.parametrize("name", ["python", "pandas", "scipy", "scikit-learn", "lightgbm"])
def test_another_version_of_what_results_come_from_is_refused_with_both(workers, monkeypatch, name):
    here = cluster_worker.code_identity()[name]
    monkeypatch.setattr(workers, "_identity", workers._identity | {name: "0.1"})
    with pytest.raises(ClusterError, match=f": {name} {here} instead of 0.1. Bring all machines"):
        workers.submit(cluster_calls.double, 1).result()


def test_a_folder_that_is_not_shared_is_refused(workers, tmp_path):
    (witness,) = (tmp_path / "runs").iterdir()
    witness.unlink()
    with pytest.raises(ClusterError, match="does not see .*/runs/.* Share that folder between all machines"):
        workers.submit(cluster_calls.double, 1).result()


def test_without_dask_the_error_says_what_to_install(monkeypatch):
    for missing, address in (("distributed", "tcp://a:1"), ("dask_jobqueue", "slurm")):
        with (
            monkeypatch.context() as patch,
            pytest.raises(SettingsError, match=f"{missing}.*'.\\[cluster\\]'"),
        ):
            patch.setitem(sys.modules, missing, None)
            with open_cluster(address):
                pass


@cases(
    "address",
    [
        "*",
        "host",
        "host:",
        ":8786",
        "tcp://host",
        "tcp://h:0",
        "tcp://h:65536",
        "http://h:1",
        "SLURM",
        "a b:1",
    ],
)
def test_what_is_no_address_is_refused_with_the_settings(address):
    with pytest.raises(SettingsError, match=r"cluster: '.*' is no address .*: tcp://host:8786, or slurm, is"):
        RunSettings(cluster=address)


@cases("address", ["", "slurm", "host:8786", "tcp://10.0.0.1:8786", "tls://[::1]:1", "ucx://a-b.c_d:65535"])
def test_what_may_be_an_address_is_a_setting(address):
    assert RunSettings(cluster=address).cluster == address


@cases("said", [None, b"", b"HTTP/1.1 400 Bad Request\r\n"])
def test_another_service_than_a_scheduler_is_refused_in_time(monkeypatch, said, capsys):
    """Dask waits for ever for the first, and asks for exabytes of memory at the last."""
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.2)
    taken = []

    def serve(server):
        taken.append(server.accept()[0])
        if said is not None:
            taken[0].sendall(said)
            taken[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert cli.main(["train", f"cluster={address}", "name=nowhere", "preset=smoke"]) == 1
        thread.join()
    assert f"error: cluster: no Dask scheduler answers at '{address}'" in capsys.readouterr().err
    assert not resolve("runs/nowhere").exists(), "nothing was begun"


@cases("address", ["tcp://127.0.0.1:9", "tcp://nowhere.invalid:1", f"tcp://{'a' * 70}:1"])
def test_a_scheduler_that_does_not_answer(address):
    with (
        pytest.raises(SettingsError, match=f"no Dask scheduler answers at '{address}'"),
        open_cluster(address),
    ):
        pass


@pytest.fixture
def certificate(tmp_path):
    """Dask's settings of a certificate that signs itself."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=fastslow"]
    subprocess.run([*made, "-days", "2", "-keyout", key, "-out", cert], check=True, capture_output=True)
    roles = ("scheduler", "worker", "client")
    tls = {f"{role}.{part}": path for role in roles for part, path in (("key", key), ("cert", cert))}
    tls = {f"distributed.comm.tls.{name}": path for name, path in {**tls, "ca-file": cert}.items()}
    return {**tls, "distributed.comm.require-encryption": True}


def test_with_tls_only_who_has_the_certificate_reaches_the_scheduler(certificate, tmp_path, monkeypatch):
    import dask
    from distributed import LocalCluster, Security

    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    options = {"processes": False, "protocol": "tls://", "dashboard_address": None, "n_workers": 1}
    with dask.config.set(certificate):
        security = Security()
        with LocalCluster(**options, security=security) as tls:
            address = tls.scheduler_address
            assert address.startswith("tls://")
            with open_cluster(address) as opened:
                assert opened.submit(operator.neg, 4).result() == -4
            monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 2)
            plain, none = address.replace("tls", "tcp"), dict.fromkeys(certificate)
            for stranger, said in ((address, "do not allow 'tls:"), (plain, "no Dask scheduler answers")):
                with dask.config.set(none), pytest.raises(SettingsError, match=said), open_cluster(stranger):
                    pass
            with pytest.raises(SettingsError, match="type tls:// where it has TLS"), open_cluster(plain):
                pass
