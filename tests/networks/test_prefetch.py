"""Examples are made ahead in a thread; a prediction that runs out of memory is made in smaller batches."""

import threading

import numpy as np
import pytest
import torch

from fastslow.core.errors import FastslowError
from fastslow.networks.hardware.devices import Shrinking
from fastslow.networks.hardware.memory import prefetch
from fastslow.networks.training.train import Training
from fastslow.steps.network import explain_memory, read_graphs
from helpers.cases import cases
from helpers.networks import small_training


@pytest.fixture
def settings(features, tmp_path):
    sizes = {"configs_per_step": 6, "graphs_per_step": 3, "epochs": 3}
    return small_training(features, tmp_path, **sizes, learning_rate=3e-3, average_last=0)


def test_an_epoch_is_the_plain_loop_on_examples_made_ahead(settings):
    """Against the plain loop: same draws, same dropout, same weights to the bit."""
    ours, plain = (Training(settings, read_graphs(settings)) for _ in range(2))
    loss = ours.run_epoch()
    rng = np.random.default_rng([settings.seed, 0])
    plain.network.train()
    names = rng.permutation(plain.names)
    items = [(name, plain.draw(name, rng), None) for name in names]
    seeds = rng.integers(2**63, size=len(names)).tolist()
    losses = []
    for parameters in plain.optimizer.param_groups:
        parameters["lr"] = ours.optimizer.param_groups[0]["lr"]
    plain.optimizer.zero_grad(set_to_none=True)
    for item, seed in zip(items, seeds, strict=True):
        torch.manual_seed(seed)
        losses.append(plain.graph_loss(plain.example(item)))
        (losses[-1] / len(items)).backward()
    torch.nn.utils.clip_grad_norm_(plain.network.parameters(), settings.max_grad_norm)
    plain.optimizer.step()
    assert loss == float(torch.stack(losses).detach().mean())
    for name, value in plain.network.state_dict().items():
        assert torch.equal(value, ours.network.state_dict()[name]), name


OUT_OF_MEMORY = [
    MemoryError("Unable to allocate 8 EiB"),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"),
]


def limited(limit, error):
    def work(size):
        if size > limit:
            raise error
        return size

    return work


@cases("error", OUT_OF_MEMORY)
def test_the_size_is_halved_until_it_fits_and_stays(error, capsys):
    shrinking = Shrinking(2000)
    assert shrinking.run(limited(300, error)) == 250
    assert shrinking.run(limited(300, error)) == 250
    assert shrinking.run(limited(100, error)) == 62
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"memory ran out: continuing with configs_together {n}" for n in (1000, 500, 250, 125, 62)
    ]


def test_torch_itself_raises_what_is_recognised():
    assert Shrinking(8).run(lambda size: len(torch.empty(2**60 if size > 4 else 4))) == 4


def test_what_does_not_fit_at_all_is_raised():
    with pytest.raises(MemoryError):
        Shrinking(16).run(limited(0, MemoryError()))


@cases("error", [RuntimeError("shapes differ"), ValueError("memory")])
def test_other_errors_are_raised_at_once(error):
    with pytest.raises(type(error)):
        Shrinking(16).run(limited(8, error))


@cases("error", OUT_OF_MEMORY)
def test_a_training_that_runs_out_of_memory_names_what_to_lower(error):
    with pytest.raises(FastslowError, match="^memory ran out: lower configs_per_step"), explain_memory():
        raise error
    with pytest.raises(RuntimeError, match="shape"), explain_memory():
        raise RuntimeError("another shape")


def test_one_item_is_made_ahead_in_another_thread_and_no_more():
    threads, started, go_on = set(), [], threading.Event()

    def make(item):
        threads.add(threading.current_thread())
        started.append(item)
        if item == 1:
            go_on.set()
        return item

    coming = prefetch(map(make, range(9)))
    assert next(coming) == 0
    assert go_on.wait(10)  # the second is made although nobody asked for it
    assert started == [0, 1]
    assert threading.current_thread() not in threads
    coming.close()
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_comes_at_its_turn():
    coming = prefetch(map(lambda item: 1 // item, [1, 0, 1]))
    assert next(coming) == 1
    with pytest.raises(ZeroDivisionError):
        next(coming)
