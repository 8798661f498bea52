"""Measuring on this machine: what is bound, what is compared and what is refused."""

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.bench import Bench, difference
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.tuning.target import read_local
from helpers.cases import cases

jax = pytest.importorskip("jax")
from helpers.device_programs import constraints, example, other_layouts, predict  # noqa: E402


@pytest.fixture(scope="module")
def program():
    """The program as it is lowered here."""
    return lower_function(predict, example())


def test_a_function_in_memory_is_lowered_like_one_of_a_file(program):
    found = read_local(FunctionSource.of_function(predict, example()), seed=0)
    assert found.signature == program.signature
    assert all(map(np.array_equal, found.inputs, program.inputs))
    assert found.module.SerializeToString() == program.module.SerializeToString()


def test_only_what_differs_from_the_default_is_bound(program):
    default, other = other_layouts(program)
    assert default.SerializeToString() == program.module.SerializeToString()
    assert constraints(other) == 3


def test_a_measured_program_and_a_refused_one(program):
    other, broken = other_layouts(program)[1], type(program.module)()
    with Bench(program, rounds=3, seconds=60).running() as times:
        found = times([other, broken])
        assert found.failures[0] == "" and found.failures[1].startswith("refused")
        assert np.isfinite(found.ratios[:, 0]).all() and np.isnan(found.ratios[:, 1]).all()


def test_a_program_that_does_not_run_here_is_refused(program):
    empty = type(program)(type(program.module)(), ())
    with (
        Bench(empty, rounds=1, seconds=60).running() as times,
        pytest.raises(SettingsError, match="does not run"),
    ):
        times([program.module])


ONES = np.ones(3, np.float32)


@cases(
    ("one", "other", "agrees"),
    [
        (ONES, ONES * (1 + 1e-5), True),
        (ONES, ONES * (1 + 1e-3), False),
        (ONES, np.array([1, 1, np.nan], np.float32), False),
        (ONES * np.nan, ONES * np.nan, True),
        (ONES * np.inf, -ONES * np.inf, False),
        (ONES.astype(int), ONES.astype(int), True),
        (ONES.astype(int), ONES.astype(int) + 1, False),
        (ONES.astype(np.float16), (ONES * 1.005).astype(np.float16), True),
    ],
)
def test_outputs_are_compared_by_type(one, other, agrees):
    assert (difference([one], [other]) == "") is agrees
