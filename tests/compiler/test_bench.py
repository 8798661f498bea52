"""Measuring on this machine: what is bound, what is compared and what is refused."""

import os

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import SettingsError
from fastslow.core.isolated import CRASHED, TIMED_OUT, Killed
from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler import bench
from fastslow_programs.compiler.bench import (
    PATIENCE,
    SHORTEST_LIMIT,
    SPREAD,
    Bench,
    coarsest_tolerance,
    difference,
    limit_of_batch,
    run_rounds,
)
from fastslow_programs.compiler.lowering import draw_inputs, lower_function, without_donation
from fastslow_programs.program.user_program import FunctionSource
from fastslow_programs.tuning.target import read_local
from helpers import slow_compile
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


def factorised(image, weights):
    """It calls LAPACK, which crashes where it is not begun in the process that runs it."""
    return predict(image, weights), jax.numpy.linalg.cholesky(jax.numpy.eye(4) + image.sum() ** 2)


def test_a_measured_program_and_a_refused_one():
    program = lower_function(factorised, example())
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


DOT = """
ENTRY e {
  x = f32[8,8] parameter(0)
  w = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@cases("donates", ["input_output_alias={ {}: (0, {}, may-alias) }", "buffer_donor={ (0, {}) }"])
def test_a_program_that_donates_its_argument_runs_again_and_again(tmp_path, donates):
    (tmp_path / "step.hlo").write_text(f"HloModule step, {donates}{DOT}")
    (tmp_path / "keeps.hlo").write_text(f"HloModule step{DOT}")
    step, keeps = (read_hlo(tmp_path / f"{name}.hlo").module for name in ("step", "keeps"))
    code = step.SerializeToString()
    seconds, failures = run_rounds([code, code], draw_inputs(step), rounds=2, seed=0)
    assert failures == [""] and np.isfinite(seconds).all()
    assert without_donation(code) == without_donation(keeps.SerializeToString()), "on a CPU too"


class Failing:
    """A loaded program whose code says in which of its executions the device has an error."""

    def __init__(self, code, devices):
        self.left = int(code)

    def put(self, inputs):
        return inputs

    def outputs(self, buffers):
        self.run(buffers)
        return []

    def run(self, buffers):
        """Run once."""
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("out of memory")


def test_an_error_of_the_device_in_any_execution_is_told_in_words(monkeypatch):
    monkeypatch.setattr(bench, "LoadedProgram", Failing)
    monkeypatch.setattr(bench, "coarsest_tolerance", lambda code: 0.0)
    monkeypatch.setattr(bench, "LONG_ENOUGH", 0.0)  # each program once a round
    seconds, failures = run_rounds([b"9", b"3", b"9"], [], rounds=4, seed=0)
    assert failures == ["refused: out of memory", ""]
    assert np.isnan(seconds[:, 2]).all() and np.isfinite(seconds[:, [0, 1, 3]]).all()
    for execution in (b"1", b"2", b"3"):  # the last one within the rounds
        with pytest.raises(SettingsError, match="does not run on this machine: out of memory"):
            run_rounds([execution], [], rounds=4, seed=0)


def test_where_a_process_ends_no_time_is_known(program, monkeypatch):
    monkeypatch.setattr(Bench, "_ask", lambda *_: "crashed: its process ended")
    with Bench(program, rounds=3, seconds=60).running() as times:
        for modules in ([], [program.module], [program.module] * 2):
            measured = times(modules)
            assert measured.seconds.shape == (3, 2 + len(modules)) and np.isnan(measured.seconds).all()
            assert measured.failures == ["crashed: its process ended"] * len(modules)


class Slow:
    """Workers whose compile of the unconstrained program takes as long as stated, or ends the process."""

    def __init__(self, taken):
        self.taken = taken
        self.limits = []

    def __call__(self):
        return self

    __enter__ = __call__

    def __exit__(self, *_):
        pass

    def call(self, function, *arguments, seconds):
        """Keep the limit, and answer for the unconstrained program or for a batch, which takes too long."""
        self.limits.append(seconds)
        if function is bench.run_once and not isinstance(self.taken, Killed):
            return self.taken
        raise self.taken if function is bench.run_once else Killed(TIMED_OUT, "it took longer")


@cases(
    ("taken", "expected", "limit"),
    [
        ((0.5, 0.001), 0.506, SHORTEST_LIMIT),
        ((8.0, 0.001), 8.006, PATIENCE * 8.006),
        ((8.0, 1.0), 11.0, PATIENCE * 11.0),
        ((80.0, 0.001), 80.006, 600.0),
    ],
)
def test_the_limit_of_a_candidate_follows_the_unconstrained_program(
    program, monkeypatch, taken, expected, limit
):
    workers = Slow(taken)
    monkeypatch.setattr(bench, "Workers", workers)
    with Bench(program, rounds=3, seconds=600).running() as times:
        found = times([program.module, program.module])
    assert found.failures == ["timed out: it took longer"] * 2 and np.isnan(found.ratios).all()
    batch = limit + 3 * SPREAD * expected
    single = limit + 2 * SPREAD * expected
    assert workers.limits == pytest.approx([600, batch, single, single])


def test_a_candidate_that_hangs_costs_its_own_limit_however_many_are_beside_it():
    assert limit_of_batch(0.2, 8, 600) - limit_of_batch(0.2, 1, 600) == pytest.approx(7 * SPREAD * 0.2)
    assert limit_of_batch(0.2, 8, 600) < 2 * SHORTEST_LIMIT
    assert limit_of_batch(1000.0, 2, 600) == 4 * 600.0, "no program may take longer than seconds"


def test_a_search_goes_on_after_compiles_that_take_too_long(tmp_path, monkeypatch):
    for name in ("run_once", "run_rounds"):
        monkeypatch.setattr(bench, name, getattr(slow_compile, name))
    monkeypatch.setattr(bench, "SHORTEST_LIMIT", 0.3)
    monkeypatch.setenv(slow_compile.FOLDER, str(tmp_path))
    settings = {"evaluator": "device", "models": "none", "evaluations": 9, "batch": 2, "seed": 1}
    tuned = fastslow.tune(predict, *example(), **settings)
    failed = tuned.table["failure"].str.startswith("timed out: it took longer than")
    assert len(tuned.table) == 9 and 0 < failed.sum() < 8
    assert f"failures: {failed.sum()} timed out: it took longer than" in " ".join(tuned.words())
    processes = [int(path.name) for path in tmp_path.iterdir()]
    assert len(processes) > 1, "each was ended, and another one began"
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@cases(
    ("taken", "said"),
    [
        (Killed(TIMED_OUT, "it took longer"), "seconds: 60 are too few to compile and run the program"),
        (Killed(CRASHED, "its process ended"), "the program does not run on this machine: its process ended"),
    ],
)
def test_where_the_unconstrained_program_ends_its_process_nothing_is_searched(
    program, monkeypatch, taken, said
):
    workers = Slow(taken)
    monkeypatch.setattr(bench, "Workers", workers)
    with (
        Bench(program, rounds=3, seconds=60).running() as times,
        pytest.raises(SettingsError, match=said),
    ):
        times([program.module])
    assert workers.limits == [60]


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
        (ONES * 1j, ONES * 1j * (1 + 1e-5), True),
        (ONES * 1j, ONES * 1j * (1 + 1e-3), False),
        (ONES * complex(1, np.nan), ONES * 1j, False),
        (ONES.astype(np.float16), (ONES * 1.005).astype(np.float16), True),
    ],
)
def test_outputs_are_compared_by_type(one, other, agrees):
    assert (difference([one], [other]) == "") is agrees


def test_outputs_have_the_tolerance_of_the_coarsest_type_that_is_computed_in():
    """Its rounding is in an output of any type; what is only given in it is not rounded."""
    narrow = jax.ShapeDtypeStruct((8, 8), jax.numpy.bfloat16)
    functions = {
        3e-2: lambda x: (x @ x).astype("float32"),
        1e-4: lambda x: x.astype("float32") @ x.astype("float32"),
        0.0: lambda x: (x > 0).T,
    }
    for tolerance, function in functions.items():
        code = lower_function(function, (narrow,)).module.SerializeToString()
        assert coarsest_tolerance(code) == tolerance
    near = ONES * (1 + 0.0026)
    said = "wrong: output 0 differs from the program as compiled by 0.0026 of its largest value; 0.0001"
    assert difference([ONES], [near]) == f"{said} allowed"
    assert difference([ONES], [near], 3e-2) == ""
    assert difference([0 * ONES], [ONES]) == "wrong: output 0 differs from the program as compiled"


def test_a_layout_of_a_narrow_program_with_a_wide_output_is_measured():
    narrow = jax.numpy.full((64, 64), 0.3, jax.numpy.bfloat16)
    code = lower_function(lambda x: (x @ x).astype("float32"), (narrow,)).module.SerializeToString()
    rounded = lower_function(
        lambda x: 1.0026 * (x @ x).astype("float32"), (narrow,)
    ).module.SerializeToString()
    _, failed = run_rounds([code, rounded], [np.asarray(narrow)], rounds=1, seed=0)
    assert failed == [""]
