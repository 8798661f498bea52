"""Examples of a step are made ahead; one that runs out of memory is taken again on fewer configurations."""

import gc
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import FastslowError
from fastslow.evaluation.predictions import check_predictions, read_predictions
from fastslow.networks.hardware.out_of_memory import Shrinking, explain_memory
from fastslow.networks.hardware.step_examples import StepExamples, prefetch
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.training.train import Training, train
from helpers.cases import cases
from helpers.networks import into, small_training, weights_of


class Machine:
    """Makes examples and works on them as long as they fit; notes what was worked on."""

    def __init__(self, fits_making, fits_working):
        self.fits_making, self.fits_working, self.worked = fits_making, fits_working, []

    def make(self, item):
        if len(item[1]) > self.fits_making:
            raise MemoryError("Unable to allocate")
        return item

    def work(self, examples):
        done = []
        for name, configs, _ in examples:
            if len(configs) > self.fits_working:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            done.append((name, configs))
        self.worked.append(done)
        return len(done)


def drawn(sizes):
    rng = np.random.default_rng(0)
    return [(f"g{n}", rng.permutation(100)[:size], None) for n, size in enumerate(sizes)]


def take(examples, count, fits, work):
    """Work on the next step, again on fewer configurations where memory runs out."""
    examples.begin(count)
    return fits.run(lambda size: work(examples))


def take_all(machine, items, steps, start):
    fits = Shrinking(start, "configs_per_step")
    examples = StepExamples(machine.make, items, fits, [0, 1])
    assert [take(examples, count, fits, machine.work) for count in steps] == list(steps)
    return fits.size, [pair for step in machine.worked for pair in step]


def limit(sizes, start, fits):
    """Slow form: halve the size until the largest graph so far fits; the size of each step."""
    found = []
    for step in sizes:
        while any(min(size, start) > fits for size in step):
            start = max(2, start // 2)
        found.append(start)
    return found


@given(
    st.lists(st.lists(st.integers(2, 40), min_size=0, max_size=4), min_size=1, max_size=5),
    st.integers(2, 40),
    st.integers(2, 40),
)
def test_every_graph_is_worked_on_once_with_what_fits(steps, fits_making, fits_working):
    items = drawn([size for step in steps for size in step])
    size, worked = take_all(Machine(fits_making, fits_working), items, [len(step) for step in steps], 40)
    each = limit(steps, 40, min(fits_making, fits_working))
    assert size == each[-1]
    wanted = [min(own, cap) for step, cap in zip(steps, each, strict=True) for own in step]
    assert [name for name, _ in worked] == [name for name, _, _ in items]
    assert [len(configs) for _, configs in worked] == wanted
    for (_, configs), (_, offered, _) in zip(worked, items, strict=True):
        assert len({*configs}) == len(configs) and {*configs} <= {*offered}
        assert len(configs) < len(offered) or configs is offered, "untouched where it fits"


def test_its_thread_ends_with_it():
    """At once, without the garbage collector, which may run in any thread and wait there for this one."""
    before, fits = threading.active_count(), Shrinking(8, "x")
    examples = StepExamples(list, drawn([8] * 4), fits, [0])
    assert len(take(examples, 2, fits, list)) == 2 and threading.active_count() > before
    gc.disable()
    try:
        del examples
        assert threading.active_count() == before
    finally:
        gc.enable()


@pytest.fixture
def settings(features, tmp_path):
    return small_training(
        features,
        tmp_path,
        configs_per_step=6,
        graphs_per_step=3,
        epochs=3,
        learning_rate=3e-3,
        average_last=0,
    )


def fail_above(monkeypatch, most, before=0):
    """Let the forward pass of more configurations fail, after ``before`` graphs of a step."""
    loss, passed = Training.graph_loss, []

    def failing(self, batch, runtime):
        if len(runtime) > most and len(passed) >= before:
            raise torch.OutOfMemoryError("CUDA out of memory (forced)")
        passed.append(len(runtime))
        return loss(self, batch, runtime)

    monkeypatch.setattr(Training, "graph_loss", failing)
    return passed


def test_the_training_goes_on_with_fewer_configurations(settings, features, tmp_path, monkeypatch, capsys):
    passed = fail_above(monkeypatch, 3, before=4)
    manifest = train(settings)
    assert max(passed[:4]) > 3 == max(passed[4:]) and len(passed) >= 3 * 3
    assert capsys.readouterr().err.count("memory ran out: continuing with configs_per_step 3, or fewer") == 1
    (warning,) = manifest["warnings"]
    assert warning == "memory ran out: continued with configs_per_step 3"
    assert read_manifest(tmp_path / "run")["warnings"][0] == warning
    check_predictions(tmp_path, read_predictions(tmp_path / "run"), features)


def test_gradients_of_the_failed_attempt_do_not_count(settings, tmp_path, monkeypatch):
    """Whether it fails at the first or the third graph of the first step: the weights are the same."""
    found = []
    for before in (0, 1, 2):
        with monkeypatch.context() as patch:
            fail_above(patch, 3, before)
            train(into(settings, tmp_path / str(before)))
        found.append(weights_of(tmp_path / str(before)))
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in other)


def test_where_memory_does_not_run_out_nothing_is_different(settings):
    """Against the plain loop: same draws, same dropout, same weights to the bit."""
    ours, plain = (Training(settings, GraphDataset(settings)) for _ in range(2))
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
        losses.append(plain.graph_loss(*plain.example(item)))
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
    shrinking = Shrinking(2000, "configs_together")
    assert shrinking.run(limited(300, error)) == 250
    assert shrinking.run(limited(300, error)) == 250
    assert shrinking.run(limited(100, error)) == 62
    assert capsys.readouterr().err == "memory ran out: continuing with configs_together 1000, or fewer\n"


def test_caches_are_cleared_before_each_new_attempt():
    cleared = []
    shrinking = Shrinking(8, "x", [lambda: cleared.append("a"), lambda: cleared.append("b")])
    assert shrinking.run(limited(8, MemoryError())) == 8 and not cleared and not shrinking.warnings
    assert shrinking.run(limited(2, MemoryError())) == 2
    assert cleared == ["a", "b"] * 2
    assert shrinking.warnings == ["memory ran out: continued with x 2"]


def test_torch_itself_raises_what_is_recognised():
    assert Shrinking(8, "bytes").run(lambda size: len(torch.empty(2**60 if size > 4 else 4))) == 4


def test_what_does_not_fit_at_all_is_raised():
    with pytest.raises(MemoryError):
        Shrinking(16, "configs_together").run(limited(0, MemoryError()))


@cases("error", [RuntimeError("shapes differ"), ValueError("memory")])
def test_other_errors_are_raised_at_once(error):
    with pytest.raises(type(error)):
        Shrinking(16, "configs_together").run(limited(8, error))


@cases("error", OUT_OF_MEMORY)
def test_what_is_too_large_with_two_configurations_is_a_plain_error(error):
    with pytest.raises(FastslowError, match="^memory ran out: lower hidden_channels"), explain_memory():
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
