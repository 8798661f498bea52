"""Measure configurations on this machine: its own XLA compiles and runs them, on CPU, GPU or TPU through JAX.

A round runs the unconstrained program twice and every candidate once, in random order. A candidate's value
is the median over rounds of its time over the unconstrained program's time in the same round, so that a
machine that becomes slower in between changes no value. The second time of the unconstrained program shows
how far two equal programs differ here. A candidate whose outputs differ from the unconstrained program's is
disqualified. All of it runs in a process of its own: a compile that aborts fails one configuration. The
unconstrained program is compiled and run once before, and the time that this takes limits the candidates.
A batch has the time of one candidate that hangs beside others that take as long as the unconstrained
program. Then its process ends, and each candidate is measured by itself.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow.core.isolated import TIMED_OUT, Killed, Workers
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module
from fastslow_programs.compiler.lowering import LocalProgram, options_of, without_donation

LONG_ENOUGH = 0.002  # seconds; shorter programs run several times for one time
NOISY = 0.1  # two equal programs that differ by more make a machine too noisy
TOLERANCE = {
    "float64": 1e-9,
    "float32": 1e-4,
    "bfloat16": 3e-2,
    "float16": 1e-2,
    "complex128": 1e-9,
    "complex64": 1e-4,
}
"""Largest difference of an output, as a fraction of its largest absolute value; other types must be equal.

A coarser type than the output's, in which the program computes, allows as much as an output of that type.
"""
_EXACT = {
    "parameter",
    "constant",
    "broadcast",
    "reshape",
    "transpose",
    "slice",
    "concatenate",
    "get-tuple-element",
}  # opcodes that round nothing
PATIENCE = 10
"""How many times as long as the unconstrained program a candidate may take to be compiled and run."""
SHORTEST_LIMIT = 30.0
"""Seconds that a candidate may take in any case: short compiles differ by more under load."""
SPREAD = 3
"""How many times as long as the unconstrained program each program of a batch is expected to take at most."""
_SHOWN = 300  # characters of a message that are kept


@dataclass(frozen=True)
class Times:
    """Times of a batch of programs.

    Args:
        seconds: ``(rounds, 2 + n)`` of one execution: the unconstrained program twice, then each candidate;
            NaN where it was not run.
        failures: Reason for which a candidate was not executed, empty where it was.
    """

    seconds: np.ndarray
    failures: list[str]

    @property
    def ratios(self) -> np.ndarray:
        """``(rounds, n)`` time of each candidate over the unconstrained program's in the same round."""
        return self.seconds[:, 2:] / self.seconds[:, :2].mean(1, keepdims=True)

    @property
    def noise(self) -> np.ndarray:
        """``(rounds,)`` difference between the two times of the unconstrained program, as a fraction."""
        one, other = self.seconds[:, :2].T
        return np.abs(one - other) / np.minimum(one, other)


class Bench:
    """A process that compiles and times programs.

    Args:
        program: The unconstrained program and its inputs.
        rounds: Rounds of one measurement.
        seconds: Time limit of compiling and executing one program. A candidate's is shorter where
            :data:`PATIENCE` times the unconstrained program's seconds are, see :func:`limit_of`. The limit of
            a batch is :func:`limit_of_batch`.
    """

    def __init__(self, program: LocalProgram, rounds: int, seconds: float):
        self._program, self._rounds, self._seconds = program, rounds, seconds
        self._calls = 0
        self._expected: float | None = None  # seconds of a program, once the unconstrained one was compiled

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[[Sequence[Module]], Times]]:
        """Start the process, and give a function that times candidates in it.

        Yields:
            A function from constrained modules of the program to their :class:`Times`. A candidate that ends
            the process or exceeds the time limit is a failure of its own, with the times NaN. The first call
            raises :class:`SettingsError` where the unconstrained program itself does so.
        """

        def times(modules: Sequence[Module]) -> Times:
            """Time candidates together; where the process ends, each by itself, to find which ended it."""
            answer = self._ask(workers, modules)
            if isinstance(answer, Times):
                return answer
            if len(modules) < 2:
                return Times(np.full((self._rounds, 2 + len(modules)), np.nan), [answer] * len(modules))
            each = [times([module]) for module in modules]
            ran = [single for single in each if not single.failures[0]] or each
            first = ran[0].seconds[:, :2]
            columns = [first, *(single.ratios * first.mean(1, keepdims=True) for single in each)]
            return Times(np.concatenate(columns, 1), [single.failures[0] for single in each])

        with Workers() as workers:
            yield times

    def _ask(self, workers: Workers, modules: Sequence[Module]) -> "Times | str":
        if self._expected is None:
            self._expected = self._seconds_of_program(workers)
        self._calls += 1
        codes = [m.SerializeToString(deterministic=True) for m in (self._program.module, *modules)]
        arguments = (codes, self._program.inputs, self._rounds, self._calls, self._program.devices)
        limit = limit_of_batch(self._expected, len(modules), self._seconds)
        try:
            seconds, failures = workers.call(run_rounds, *arguments, seconds=limit)
        except Killed as error:
            return f"{error.kind}: {error}"[:_SHOWN]
        return Times(seconds, failures)

    def _seconds_of_program(self, workers: Workers) -> float:
        """Return the seconds of the unconstrained program, compiled and run in all rounds."""
        program = self._program
        code = program.module.SerializeToString(deterministic=True)
        try:
            compiled, ran = workers.call(
                run_once, code, program.inputs, program.devices, seconds=self._seconds
            )
        except Killed as error:
            if error.kind == TIMED_OUT:
                problem = f"{self._seconds:g} are too few to compile and run the program itself; give more"
                raise SettingsError("seconds", problem) from None
            raise _refusal(error) from None
        return compiled + self._rounds * max(ran, LONG_ENOUGH)


def limit_of(expected: float, longest: float) -> float:
    """Return the seconds that a candidate may take to be compiled and run in all rounds.

    Args:
        expected: Seconds that the unconstrained program takes.
        longest: The limit at most.
    """
    return min(longest, max(SHORTEST_LIMIT, PATIENCE * expected))


def limit_of_batch(expected: float, candidates: int, longest: float) -> float:
    """Return the seconds that candidates may take together, and the unconstrained program twice.

    It is enough for one candidate at its limit, and for :data:`SPREAD` times what the others should take. So
    a candidate that hangs costs its own limit, however many are beside it.

    Args:
        expected: Seconds that the unconstrained program takes.
        candidates: Number of candidates.
        longest: The limit of one program at most.
    """
    others = 1 + candidates  # the unconstrained program is compiled twice
    return limit_of(expected, longest) + others * min(longest, SPREAD * expected)


def run_once(code: bytes, inputs: Sequence[np.ndarray], devices: Sequence[int] = ()) -> tuple[float, float]:
    """Compile a program and run it once; the arguments and errors are as for :func:`run_rounds`.

    Returns:
        Seconds of the compile, and of the execution.
    """
    try:
        began = time.perf_counter()
        program = LoadedProgram(code, devices)
        compiled = time.perf_counter()
        program.run(program.put(inputs))
    except Exception as error:
        raise _refusal(error) from None
    return compiled - began, time.perf_counter() - compiled


def _refusal(error: Exception) -> SettingsError:
    """Return the error of an unconstrained program that cannot be compiled or run."""
    return SettingsError(f"the program does not run on this machine: {str(error)[:_SHOWN]}")


def _failure(error: Exception) -> str:
    """Return the failure of a candidate that cannot be compiled or run."""
    return f"refused: {str(error)[:_SHOWN]}"


def run_rounds(
    codes: Sequence[bytes], inputs: Sequence[np.ndarray], rounds: int, seed: int, devices: Sequence[int] = ()
) -> tuple[np.ndarray, list[str]]:
    """Compile programs, compare their outputs with the first one's, and time them in random order.

    The first one is compiled twice in each call: another loading of a program has other times, and what two
    loadings differ by is the noise.

    Args:
        codes: Serialised modules, the unconstrained program first.
        inputs: Values of the parameters.
        rounds: Number of rounds.
        seed: Seed of the order.
        devices: Numbers of the devices of a mesh; empty for the first device.

    Returns:
        The fields of :class:`Times`: seconds ``(rounds, 2 + n)`` of n candidates, and failures.

    Raises:
        SettingsError: The unconstrained program cannot be compiled or run.
    """
    try:
        base = LoadedProgram(codes[0], devices)
        twin = LoadedProgram(codes[0], devices)
        buffers = base.put(inputs)  # of all programs: copies of their own would be colder in the caches
        expected = base.outputs(buffers)
        coarsest = coarsest_tolerance(codes[0])
        began = time.perf_counter()
        base.run(buffers)
        repeats = max(1, int(LONG_ENOUGH / max(time.perf_counter() - began, 1e-9)))
    except Exception as error:
        raise _refusal(error) from None
    runs: list[LoadedProgram | None] = [base, twin]
    failures: list[str] = []
    for code in codes[1:]:
        try:
            candidate = LoadedProgram(code, devices)
            failures.append(difference(expected, candidate.outputs(buffers), coarsest))
        except Exception as error:  # of the compiler or the device
            failures.append(_failure(error))
        runs.append(None if failures[-1] else candidate)
    seconds = np.full((rounds, len(runs)), np.nan)
    rng = np.random.default_rng(seed)
    for times in seconds:
        for place in rng.permutation([n for n, run in enumerate(runs) if run]):
            try:
                times[place] = _time(runs[place], buffers, repeats)
            except Exception as error:  # of the device
                if place < 2:
                    raise _refusal(error) from None
                failures[place - 2] = _failure(error)
                runs[place] = None
                seconds[:, place] = np.nan
    return seconds, failures


def _time(program: "LoadedProgram", buffers: list, repeats: int) -> float:
    """Return the seconds of one execution, the mean of ``repeats``."""
    began = time.perf_counter()
    for _ in range(repeats):
        program.run(buffers)
    return (time.perf_counter() - began) / repeats


class LoadedProgram:
    """A program compiled for the first device of this machine, or for a mesh.

    It keeps its arguments, also those that the program donates, so that it can run on them again.
    JAX has no public way to run an HLO module with layout constraints, so this uses the internal interface of
    the version that ``pyproject.toml`` pins.

    Args:
        code: A serialised module.
        devices: Numbers of the devices of the mesh; empty for the first device.
    """

    def __init__(self, code: bytes, devices: Sequence[int] = ()):
        import jax
        from jax._src.lax.linalg import initialize_lapack
        from jaxlib import _hlo, _jax, xla_client

        initialize_lapack()  # which JAX does where it lowers cholesky, svd and others; these crash without
        by_number = {device.id: device for device in jax.local_devices()}
        self._devices = [by_number[number] for number in devices] or jax.local_devices()[:1]
        program = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(without_donation(code)))
        options = xla_client.CompileOptions()
        options.env_option_overrides = list(options_of(code).items())
        if devices:
            options.num_partitions = len(devices)
            build = options.executable_build_options
            build.num_partitions = len(devices)
            build.use_spmd_partitioning = build.use_shardy_partitioner = True
            build.device_assignment = xla_client.DeviceAssignment.create(np.array([devices]))
        client = self._devices[0].client
        self._compiled = client.compile_and_load(program, _jax.DeviceList(tuple(self._devices)), options)

    def put(self, inputs: Sequence) -> list:
        """Return inputs as arrays on the device, or as the program splits them over the mesh."""
        import jax
        from jax._src.sharding_impls import GSPMDSharding

        places = [self._devices[0]] * len(inputs)
        if len(self._devices) > 1:
            split = self._compiled.get_parameter_shardings()
            places = [GSPMDSharding(tuple(self._devices), one) for one in split]
        return [jax.device_put(value, place) for value, place in zip(inputs, places, strict=True)]

    def __call__(self, buffers: list) -> list:
        """Return the outputs in the order of the flattened results; on a mesh all parts of each."""
        outputs = self._compiled.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [part for parts in outputs for part in parts]

    def outputs(self, buffers: list) -> list[np.ndarray]:
        """Return the outputs as NumPy arrays."""
        return [np.asarray(value) for value in self(buffers)]

    def run(self, buffers: list) -> None:
        """Execute the program on buffers of its parameters, and wait for the end."""
        for value in self(buffers):
            value.block_until_ready()


def coarsest_tolerance(code: bytes) -> float:
    """Return the largest :data:`TOLERANCE` of the types that a serialised module computes in, else 0."""
    tolerances = {}
    for name, tolerance in TOLERANCE.items():
        xla_name = name.replace("float", "f").replace("complex", "c")
        tolerances[PRIMITIVE_TYPES[xla_name]] = tolerance
    computations = Module.FromString(code).computations
    instructions = [inst for computation in computations for inst in computation.instructions]
    types = {inst.shape.element_type for inst in instructions if inst.opcode not in _EXACT}
    return max((tolerances.get(kind, 0.0) for kind in types), default=0.0)


def difference(expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray], coarsest: float = 0.0) -> str:
    """Return in words how outputs differ from the expected ones beyond :data:`TOLERANCE`, else ``""``.

    Args:
        expected: Outputs of the unconstrained program.
        outputs: Outputs of a candidate.
        coarsest: The tolerance of the coarsest type that the program computes in.
    """
    for number, (one, other) in enumerate(zip(expected, outputs, strict=True)):
        wrong = f"wrong: output {number} differs from the program as compiled"
        if one.dtype.name not in TOLERANCE:
            if not np.array_equal(one, other):
                return wrong
            continue
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        allowed = max(TOLERANCE[one.dtype.name], coarsest)
        one = one.astype(wide)
        other = other.astype(wide)
        finite = np.isfinite(one)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return wrong
        largest = np.abs(one[finite]).max(initial=0.0)
        size = np.abs(one[finite] - other[finite]).max(initial=0.0)
        if size <= allowed * largest:
            continue
        if largest == 0 or not np.isfinite(size):
            return wrong
        return f"{wrong} by {size / largest:.2g} of its largest value; {allowed:g} allowed"
    return ""
