"""Two processes train what one trains; a process that dies costs what came after the last checkpoint.

A test takes more than five seconds where processes start, each of which imports torch.
"""

import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import SettingsError
from fastslow.networks.hardware import distributed
from fastslow.networks.training.train import Training
from fastslow.runs.predictions import read_predictions
from fastslow.steps import network_processes
from fastslow.steps.network import read_graphs, train_gnn
from fastslow.steps.network_processes import RankError, joined, run_as_rank
from helpers.networks import into, small_training, weights_of

EPOCHS = 12  # a process must be killed between the first checkpoint and the end


@pytest.fixture(scope="module")
def settings(features, tmp_path_factory):
    """A small training: three graphs, two a step, so that the last step has a graph for one process alone."""
    return small_training(
        features,
        tmp_path_factory.mktemp("training"),
        graphs_per_step=2,
        configs_per_step=8,
        epochs=EPOCHS,
        average_last=2,
        learning_rate=1e-3,
    )


def close(ours, theirs, tolerance=1e-4):
    assert ours.keys() == theirs.keys() and ours
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=tolerance, atol=1e-6, msg=name)


def epoch(settings):
    """Train an epoch; return the loss, the gradients of the last step and the weights."""
    training = Training(settings, read_graphs(settings))
    loss = training.run_epoch()
    named = [*training.network.named_parameters()]
    gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
    return {"loss": loss, "gradients": gradients, "weights": {n: p.detach().clone() for n, p in named}}


def in_two_processes(function, *arguments):
    """Call a function in two processes that have torchrun's environment, and torch from this one."""
    # as torchrun does: two processes of a test must not agree on a port that another test takes meanwhile
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    where = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
    }

    def call(rank):
        os.environ.update(where, RANK=str(rank))
        function(*arguments)

    ranks = [multiprocessing.get_context("fork").Process(target=call, args=(rank,)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0, 0]


def epoch_of_rank(settings, folder):
    with joined(settings):
        torch.save(epoch(settings), folder / f"{distributed.rank()}.pt")


def test_two_processes_have_the_gradients_of_one(settings, tmp_path):
    in_two_processes(epoch_of_rank, settings, tmp_path)
    first, second = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in (0, 1))
    one = epoch(settings)
    assert any(gradient.abs().max() > 1e-4 for gradient in one["gradients"].values())
    for kind in ("gradients", "weights"):
        close(first[kind], one[kind])
        assert all(torch.equal(first[kind][name], second[kind][name]) for name in one[kind])
    assert first["loss"] == second["loss"] == pytest.approx(one["loss"], rel=1e-5)


def interrupt(settings):
    """Train in the background, kill one of the processes after the first checkpoint; return the error."""
    raised, checkpoint = [], Path(settings.folder) / "checkpoint.pt"

    def run():
        try:
            train_gnn(settings)
        except RankError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not checkpoint.exists():
        assert thread.is_alive(), "it must be stopped before it ends"
        time.sleep(0.01)
    of_ranks = [p for p in psutil.Process().children(recursive=True) if "run_as_rank" in p.cmdline()[-2]]
    ranks = [p for p in of_ranks if "torch.distributed" not in " ".join(p.cmdline())]
    assert len(ranks) == 2
    ranks[1].kill()
    thread.join(120)
    assert not psutil.wait_procs(ranks, timeout=20)[1]
    return raised


def test_after_a_process_died_the_command_resumes_to_the_result_of_one_process(settings, tmp_path, capfd):
    one, folder = train_gnn(into(settings, tmp_path)), tmp_path / "two"
    settings = into(settings, folder, processes=2)
    (error,) = interrupt(settings)
    assert "a process of the training ended; run the same command to resume" in str(error)
    assert not (folder / "training" / "manifest.json").exists()
    in_two_processes(train_gnn, settings)
    manifest = read_manifest(folder / "training")
    assert "training: resumed after epoch " in capfd.readouterr().out
    assert manifest["fingerprint"] == one["fingerprint"]
    assert manifest["valid"]["mean"] == pytest.approx(one["valid"]["mean"], abs=1e-6)
    close(weights_of(folder), weights_of(tmp_path), 1e-3)
    for split, graphs in read_predictions(tmp_path / "run").items():
        theirs = read_predictions(folder / "run")[split]
        assert list(theirs) == list(graphs)
        for name, prediction in graphs.items():
            np.testing.assert_allclose(theirs[name], prediction, rtol=1e-3, atol=1e-4)
    left = {path.name for path in (folder / "training").iterdir()}
    assert left == {path.name for path in (tmp_path / "training").iterdir()}


def test_an_error_of_a_process_is_the_error_of_the_training(settings, tmp_path, capfd, monkeypatch):
    lost = settings.replace(processes=2, features=[str(tmp_path / "nowhere")])
    monkeypatch.setattr(sys, "argv", ["rank", json.dumps(lost.replace(processes=1).asdict())])
    with pytest.raises(SystemExit):
        run_as_rank(train_gnn)
    monkeypatch.setattr(
        network_processes, "_LAUNCHER", f"print({capfd.readouterr().out!r}); raise SystemExit(1)"
    )
    with pytest.raises(RankError, match="^[^:]*nowhere: no such folder.*Make it with"):
        train_gnn(lost)


def test_a_variable_of_torchrun_that_is_no_number_is_named(monkeypatch):
    for text in ("", "two"):
        monkeypatch.setenv("WORLD_SIZE", text)
        with pytest.raises(SettingsError, match=f"WORLD_SIZE: '{text}' is no number; torchrun sets this"):
            network_processes.launched()


def test_a_process_takes_a_gpu_of_its_own(monkeypatch):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert network_processes.own_device(gpu) == gpu
    for name, value in {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert network_processes.own_device(gpu) == torch.device("cuda", 1)
    assert network_processes.own_device(cpu) == cpu
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingsError, match="2 processes on this machine, 1 GPU; use 'auto'"):
        network_processes.own_device(gpu)
