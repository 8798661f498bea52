"""A training step that runs out of memory is taken again on fewer configurations; the training goes on."""

import gc
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastslow.core.artifacts import read_manifest
from fastslow.evaluation.predictions import check_predictions, read_predictions
from fastslow.networks.hardware.out_of_memory import Shrinking
from fastslow.networks.hardware.step_examples import StepExamples
from fastslow.networks.predict.dataset import make_dataset
from fastslow.networks.training.train import Training, train
from helpers.networks import into, small_training

torch.set_num_threads(1)


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


def test_what_never_fits_and_other_errors_are_raised():
    for error in (MemoryError("Unable to allocate"), RuntimeError("shapes differ")):

        def fail(_, error=error):
            raise error

        fits = Shrinking(8, "x")
        with pytest.raises(type(error)):
            take(StepExamples(fail, drawn([8, 8]), fits, [0]), 2, fits, list)


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


def weights(folder):
    return torch.load(folder / "run" / "model.pt", weights_only=True)


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
        found.append(weights(tmp_path / str(before)))
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in other)


def test_where_memory_does_not_run_out_nothing_is_different(settings):
    """Against the plain loop: same draws, same dropout, same weights to the bit."""
    ours, plain = (Training(settings, make_dataset(settings)) for _ in range(2))
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


def test_caches_are_dropped(settings, monkeypatch):
    training = Training(settings.replace(configs_per_step=100), make_dataset(settings))
    training.run_epoch()
    assert len(training._whole) and len(training.dataset._cache)
    fail_above(monkeypatch, 4)
    held = []
    monkeypatch.setattr(training._whole, "clear", lambda: held.append("whole"))
    training.fits._caches = training._whole.clear, *training.fits._caches[1:]
    training.run_epoch()
    assert held and training.fits.size <= 4
