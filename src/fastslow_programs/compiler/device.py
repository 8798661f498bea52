"""Measure configurations on this machine: its own XLA compiles and runs them, on CPU, GPU or TPU through JAX.

A round runs the unconstrained program twice and every candidate once, in random order. A candidate's value
is the median over rounds of its time over the unconstrained program's time in the same round, so that a
machine that becomes slower in between changes no value. The second time of the unconstrained program shows
how far two equal programs differ here. A candidate whose outputs differ from the unconstrained program's is
disqualified. All of it runs in a process of its own: a compile that aborts fails one configuration.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json, write_json
from fastslow.core.isolated import Killed, Workers
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module, message_classes
from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler.signature import (
    as_numbers,
    describe,
    key_kinds,
    modules_of,
    node_types,
    tree_of,
    tree_text,
)

TUNED, SIGNATURE = "best.hlo.pb", "signature.json"
ROUNDS = 15
"""Times that each configuration of a batch is run, in random order."""
LONG_ENOUGH = 0.002  # seconds; shorter programs run several times for one time
NOISY = 0.1  # two equal programs that differ by more make a machine too noisy
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 3e-2, "float16": 1e-2}
"""Largest difference of an output, as a fraction of its largest absolute value; other types must be equal."""
_SHOWN = 300  # characters of a message that are kept
_SMALL_FLOATS = {
    19: "float8_e5m2",
    20: "float8_e4m3fn",
    23: "float8_e4m3b11fnuz",
    24: "float8_e5m2fnuz",
    25: "float8_e4m3fnuz",
    28: "float8_e4m3",
    29: "float8_e3m4",
}  # XLA's element types by number
_OPTIONS = "fastslow.compiler_options"  # attribute of a module
_Attributed = message_classes(
    "fastslow.attributes",
    "message Entry { string key = 1; string value = 2; } message Attributes { repeated Entry map = 1; } "
    "message Attributed { Attributes frontend_attributes = 19; }",
)["Attributed"]


@dataclass(frozen=True)
class LocalProgram:
    """A program for the XLA of this machine.

    Args:
        module: The program as JAX lowers it, before any pass of the compiler.
        inputs: Value of each parameter of the entry computation.
        signature: Trees of arguments and results, random keys among them, and static arguments, see
            :mod:`fastslow_programs.compiler.signature`; empty for an HLO file.
    """

    module: Module
    inputs: tuple[np.ndarray, ...]
    signature: dict[str, Any]


def require_jax() -> None:
    """Raise :class:`SettingsError` that names what to install if JAX is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise SettingsError("jax is not installed, but a function needs it: pip install -e '.[device]'")


def device_name() -> str:
    """Return the kind of the first device of this machine, such as ``cpu`` or ``NVIDIA H100``."""
    require_jax()
    import jax

    return jax.local_devices()[0].device_kind


def processor() -> str:
    """Return the model of this machine's processor, as far as the operating system names it."""
    with contextlib.suppress(OSError):  # there is no such file but on Linux
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()


def device_identity() -> str:
    """Return what measured values depend on beside the program: device, compiler, flags, rounds."""
    device = device_name()
    if device == "cpu":
        device = f"{processor()}, {os.cpu_count()} cores"
    flags = os.environ.get("XLA_FLAGS", "")
    return f"device {device}, jaxlib {importlib.metadata.version('jaxlib')}, {ROUNDS} rounds {flags}".strip()


def lower_function(function: Callable, arguments: Sequence, seed: int = 0) -> LocalProgram:
    """Lower a JAX function for the devices of this machine.

    Args:
        function: A function for ``jax.jit``, or one that it made. Static arguments are part of the program,
            and options of the compiler go with the module.
        arguments: Its arguments; a ``jax.ShapeDtypeStruct`` is replaced by values that are drawn.
        seed: Seed of the drawn values.

    Raises:
        SettingsError: The program is for several devices, or NumPy lacks the type of a parameter or result.
    """
    require_jax()
    import jax
    from jax.extend.core import jaxpr_as_fun

    jitted = function if hasattr(function, "trace") else jax.jit(function)
    facts = getattr(jitted, "_jit_info", None)  # of a function that the user gave to jax.jit
    static = sorted(number % len(arguments) for number in facts.static_argnums) if facts else []
    given = tuple(argument for number, argument in enumerate(arguments) if number not in static)
    traced = jitted.trace(*arguments)
    # without donation and options, and with parameters that are not used
    whole = jax.jit(jaxpr_as_fun(traced.jaxpr), keep_unused=True)
    lowered = whole.lower(*jax.tree.leaves(traced.in_avals))
    devices = max(own._lowering.compile_args["num_devices"] for own in (lowered, traced.lower()))
    if devices > 1:
        remedy = "give function and arguments without shardings, or use evaluator=command"
        problem = f"device measures on one device, and this program is for a mesh of {devices}"
        raise SettingsError(f"evaluator: {problem}; {remedy}")
    leaves, rng = jax.tree.leaves(given), np.random.default_rng(seed)
    trees = {"arguments": jax.tree.structure(given), "results": jax.tree.structure(traced.out_info)}
    signature = {name: describe(tree) for name, tree in trees.items()}
    signature["modules"] = modules_of(trees["results"])
    signature["keys"] = [key_kinds(leaves), key_kinds(jax.tree.leaves(traced.out_info))]
    signature["static"] = {str(number): repr(arguments[number]) for number in static}
    options = dict(facts.compiler_options_kvs) if facts else {}
    code = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    module = Module.FromString(code + _with_options(options))
    _entry_shapes(module)  # refused before anything is measured
    return LocalProgram(module, tuple(_value(leaf, rng) for leaf in leaves), signature)


def _value(leaf, rng: np.random.Generator) -> np.ndarray:
    """Return the value of an argument; a drawn one where only shape and type are given."""
    import jax

    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return np.asarray(as_numbers(leaf))
    (kind,) = key_kinds([leaf])
    if kind:
        numbers = jax.eval_shape(jax.random.key_data, leaf)
        return rng.integers(0, 2**32, numbers.shape, dtype=np.uint32)
    return draw_array(leaf.shape, leaf.dtype, rng)


def _with_options(options: dict[str, Any]) -> bytes:
    """Return what, appended to a module, holds options of the compiler as an attribute of it."""
    if not options:
        return b""
    attribute = _Attributed()
    attribute.frontend_attributes.map.add(key=_OPTIONS, value=json.dumps(options))
    return attribute.SerializeToString()


def options_of(code: bytes) -> dict[str, Any]:
    """Return the options of the compiler that a serialised module holds."""
    attributes = _Attributed.FromString(code).frontend_attributes.map
    return next((json.loads(own.value) for own in attributes if own.key == _OPTIONS), {})


def draw_inputs(module: Module, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Draw a value for each parameter of a module's entry computation, by its shape and type.

    The same ``seed`` gives the same values.
    """
    (entry,) = (c for c in module.computations if c.id == module.entry_computation_id)
    parameters = [i for i in entry.instructions if i.opcode == "parameter"]
    parameters.sort(key=lambda parameter: parameter.parameter_number)
    rng = np.random.default_rng(seed)
    return tuple(draw_array(tuple(p.shape.dimensions), _dtype(p.shape.element_type), rng) for p in parameters)


def draw_array(shape: tuple[int, ...], dtype, rng: np.random.Generator) -> np.ndarray:
    """Draw an array: standard normal, integers of 0 to 9, or booleans."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return rng.integers(0, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _dtype(element_type: int) -> np.dtype:
    """Return NumPy's type of an XLA type: ``pred``, ``s32``, ``u8``, ``f32``, ``bf16``, ``c64``."""
    import ml_dtypes  # comes with JAX

    if element_type in _SMALL_FLOATS:
        return np.dtype(getattr(ml_dtypes, _SMALL_FLOATS[element_type]))
    name = {number: name for name, number in PRIMITIVE_TYPES.items()}.get(element_type, "other")
    if name in ("pred", "bf16"):
        return np.dtype(bool if name == "pred" else ml_dtypes.bfloat16)
    kinds = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
    if name[0] not in kinds:
        raise SettingsError(f"evaluator: device draws no values of XLA's element type {element_type}")
    return np.dtype(kinds[name[0]] + name[1:])


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
        seconds: Time limit of compiling and executing one candidate; the limit of a batch is the sum.
    """

    def __init__(self, program: LocalProgram, rounds: int, seconds: float):
        self._program, self._rounds, self._seconds = program, rounds, seconds
        self._calls = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[[Sequence[Module]], Times]]:
        """Start the process, and give a function that times candidates in it.

        Yields:
            A function from constrained modules of the program to their :class:`Times`. A candidate that ends
            the process or exceeds the time limit is a failure of its own, with the times NaN.
        """

        def times(modules: Sequence[Module]) -> Times:
            """Time candidates together; where the process ends, each by itself, to find which ended it."""
            found = self._ask(workers, modules)
            if isinstance(found, Times):
                return found
            if len(modules) == 1:
                return Times(np.full((self._rounds, 3), np.nan), [found])
            own = [times([module]) for module in modules]
            first = next((t.seconds[:, :2] for t in own if not t.failures[0]), own[0].seconds[:, :2])
            columns = [first, *(t.ratios * first.mean(1, keepdims=True) for t in own)]
            return Times(np.concatenate(columns, 1), [t.failures[0] for t in own])

        with Workers() as workers:
            yield times

    def _ask(self, workers: Workers, modules: Sequence[Module]) -> "Times | str":
        self._calls += 1
        codes = [m.SerializeToString(deterministic=True) for m in (self._program.module, *modules)]
        arguments = (codes, self._program.inputs, self._rounds, self._calls)
        limit = self._seconds * (1 + len(modules))
        try:
            seconds, failures = workers.call(run_rounds, *arguments, seconds=limit)
        except Killed as error:
            return f"{error.kind}: {error}"[:_SHOWN]
        return Times(seconds, failures)


def run_rounds(
    codes: Sequence[bytes], inputs: Sequence[np.ndarray], rounds: int, seed: int
) -> tuple[np.ndarray, list[str]]:
    """Compile programs, compare their outputs with the first one's, and time them in random order.

    Args:
        codes: Serialised modules, the unconstrained program first.
        inputs: Values of the parameters.
        rounds: Number of rounds.
        seed: Seed of the order.

    Returns:
        The fields of :class:`Times`.

    Raises:
        SettingsError: The unconstrained program cannot be compiled or run.
    """
    try:
        base, twin = LoadedProgram(codes[0]), LoadedProgram(codes[0])
        buffers = base.put(inputs)  # of all programs: copies of their own would be colder in the caches
        wanted = base.outputs(buffers)
    except Exception as error:
        raise SettingsError(f"the program does not run on this machine: {str(error)[:_SHOWN]}") from None
    runs, failures = [base, twin], []
    for code in codes[1:]:
        try:
            own = LoadedProgram(code)
            failures.append(difference(wanted, own.outputs(buffers)))
        except Exception as error:  # of the compiler or the device
            failures.append(f"refused: {str(error)[:_SHOWN]}")
        runs.append(None if failures[-1] else own)
    began = time.perf_counter()
    base.run(buffers)
    repeats = max(1, int(LONG_ENOUGH / max(time.perf_counter() - began, 1e-9)))
    seconds, rng = np.full((rounds, len(runs)), np.nan), np.random.default_rng(seed)
    for times in seconds:
        for place in rng.permutation([n for n, run in enumerate(runs) if run]):
            began = time.perf_counter()
            for _ in range(repeats):
                runs[place].run(buffers)
            times[place] = (time.perf_counter() - began) / repeats
    return seconds, failures


class LoadedProgram:
    """A program compiled for the first device of this machine.

    JAX has no public way to run an HLO module with layout constraints, so this uses the internal interface of
    the version that ``pyproject.toml`` pins.
    """

    def __init__(self, code: bytes):
        import jax
        from jaxlib import _hlo, _jax, xla_client

        self.device = jax.local_devices()[0]
        program = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(code))
        devices, options = _jax.DeviceList((self.device,)), xla_client.CompileOptions()
        options.env_option_overrides = list(options_of(code).items())
        self._compiled = self.device.client.compile_and_load(program, devices, options)

    def put(self, inputs: Sequence) -> list:
        """Return inputs as arrays on the device."""
        import jax

        return [jax.device_put(value, self.device) for value in inputs]

    def __call__(self, buffers: list) -> list:
        """Return the outputs, in the order of the flattened results."""
        found = self._compiled.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [shards[0] for shards in found]

    def outputs(self, buffers: list) -> list[np.ndarray]:
        """Return the outputs as NumPy arrays."""
        return [np.asarray(value) for value in self(buffers)]

    def run(self, buffers: list) -> None:
        """Execute the program on buffers of its parameters, and wait for the end."""
        for value in self(buffers):
            value.block_until_ready()


def difference(wanted: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> str:
    """Return in words how outputs differ from the wanted ones by more than :data:`TOLERANCE`, else ``""``."""
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        tolerance = TOLERANCE.get(one.dtype.name)
        if tolerance is None:
            equal = np.array_equal(one, other)
        else:
            one, other = one.astype(np.float64), other.astype(np.float64)
            finite = np.isfinite(one)
            limit = tolerance * np.abs(one[finite]).max(initial=0.0)
            equal = np.array_equal(one[~finite], other[~finite], equal_nan=True)
            equal = equal and bool((np.abs(one[finite] - other[finite]) <= limit).all())
        if not equal:
            return f"wrong: output {number} differs from the unconstrained program's"
    return ""


def write_signature(folder: Path, program: LocalProgram) -> None:
    """Write what :func:`load_tuned` needs beside the tuned program."""
    write_json(folder / SIGNATURE, program.signature)


def load_tuned(folder: str | Path) -> Callable:
    """Return the tuned program of a study as a JAX function; its layouts are constraints of the compiler.

    It can be called under ``jax.jit``, alone or within a larger function. It has no gradient and no batching
    rule: tune the function that computes them, such as ``jax.grad(loss)`` or a whole training step.

    Args:
        folder: Folder of a study with ``evaluator=device``.

    Returns:
        A function with the arguments and results of the JAX function that was tuned; of an HLO file, of its
        parameters, with a list of outputs. It raises TypeError where an argument has another structure, shape
        or type than the one that was tuned.

    Raises:
        SettingsError: JAX is not installed.
        DataError: The folder has no tuned program.
    """
    require_jax()
    import jax
    import jax.numpy as jnp

    path = Path(folder) / SIGNATURE
    module = read_hlo(path.parent / TUNED).module
    signature = read_json(path)
    if signature and "keys" not in signature:
        raise DataError(path, "was written by an older version", "Run fastslow tune again, which resumes its study")
    parameters, results = _entry_shapes(module)
    run = _jax_function(module, parameters, results)
    wanted = signature.get("arguments", describe(jax.tree.structure((*parameters,))))
    kinds, result_kinds = signature.get("keys", [[""] * len(parameters), [""] * len(results)])
    static = signature.get("static", {})

    def tuned(*arguments):
        """Run the tuned program."""
        if static and len(arguments) == len(wanted["children"]) + len(static):
            for number, value in static.items():
                if repr(arguments[int(number)]) != value:
                    given = f"{arguments[int(number)]!r}, but {value} was tuned"
                    raise TypeError(f"the static arguments[{number}] is {given}")
            arguments = tuple(own for number, own in enumerate(arguments) if str(number) not in static)
        tree = jax.tree.structure(arguments)
        if describe(tree) != wanted:
            expected = tree_text(wanted)
            raise TypeError(f"the arguments are {tree_text(describe(tree))}, but {expected} was tuned")
        leaves = []
        for (place, leaf), parameter, kind in zip(
            jax.tree.leaves_with_path(arguments), parameters, kinds, strict=True
        ):
            name, (given_kind,), number = jax.tree_util.keystr(place), key_kinds([leaf]), as_numbers(leaf)
            if given_kind != kind:
                said = f"{given_kind or 'no'} random key, but {kind or 'none'} was tuned"
                raise TypeError(f"arguments{name} is {said}")
            shape, dtype = jnp.shape(number), jnp.result_type(number)
            if (shape, dtype) != (parameter.shape, parameter.dtype):
                given = f"{dtype.name}{list(shape)}"
                tuned_as = f"{parameter.dtype.name}{list(parameter.shape)}"
                raise TypeError(f"arguments{name} is {given}, but {tuned_as} was tuned")
            leaves.append(number)
        outputs = [
            jax.random.wrap_key_data(value, impl=kind) if kind else value
            for value, kind in zip(run(*leaves), result_kinds, strict=True)
        ]
        if not signature:
            return outputs
        return jax.tree.unflatten(
            tree_of(signature["results"], node_types(tree), signature["modules"]), outputs
        )

    return tuned


def _entry_shapes(module: Module) -> tuple[list, list]:
    """Return ``jax.ShapeDtypeStruct`` of the parameters of a module, and of its outputs."""
    import jax

    (entry,) = (c for c in module.computations if c.id == module.entry_computation_id)
    (root,) = (i.shape for i in entry.instructions if i.id == entry.root_id)
    parameters = sorted((i.parameter_number, i.shape) for i in entry.instructions if i.opcode == "parameter")

    def structs(shapes) -> list:
        return [jax.ShapeDtypeStruct(tuple(s.dimensions), _dtype(s.element_type)) for s in shapes]

    return structs(shape for _, shape in parameters), structs(root.tuple_shapes or [root])


def _jax_function(module: Module, parameters: Sequence, results: Sequence) -> Callable:
    """Return a module as a function of arrays, which JAX calls as it calls an exported function."""
    import jax
    import jax.numpy as jnp
    from jaxlib import _hlo, _jax
    from jaxlib.mlir.dialects import stablehlo

    code = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(module.SerializeToString()))
    frame = jax.jit(lambda *_: [jnp.zeros(r.shape, r.dtype) for r in results], keep_unused=True)
    portable = _jax.mlir.serialize_portable_artifact(code, stablehlo.get_minimum_version())
    exported = replace(jax.export.export(frame)(*parameters), mlir_module_serialized=portable, _get_vjp=None)
    within = jax.jit(exported.call)  # which refuses a gradient and a batch by itself
    options = options_of(module.SerializeToString())
    if not options:
        return within
    alone = jax.jit(exported.call, compiler_options=options)

    def call(*values):
        """Call it with its options of the compiler, or within a larger program, which has its own."""
        return (within if any(isinstance(value, jax.core.Tracer) for value in values) else alone)(*values)

    return call
