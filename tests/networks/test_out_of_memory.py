"""Work shrinks when memory runs out, and says so once."""

import pytest
import torch

from fastslow.core.errors import FastslowError
from fastslow.networks.hardware.out_of_memory import Shrinking, explain_memory
from helpers.cases import cases

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
