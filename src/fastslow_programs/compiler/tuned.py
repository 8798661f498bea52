"""The tuned program of a study as a JAX function.

Its files have their checksums in ``signature.json``: a damaged constant would give other results without a
word, and XLA ends the process on some damaged programs.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.core.errors import DataError, FastslowError, counted
from fastslow.core.files import atomic_path, digest, file_digest, parse_json, write_json
from fastslow.core.input_files import SMALL_BYTES, is_there, read_bytes, read_text
from fastslow.core.progress import TICK_SECONDS, progress, ticking
from fastslow.core.records import Record, check_record
from fastslow.core.settings import find_typed, path_text
from fastslow.hlo.messages import MAX_BYTES, Module
from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler.device import require_jax
from fastslow_programs.compiler.lowering import LocalProgram, entry_shapes, options_of, refusal
from fastslow_programs.compiler.signature import CallError, Signature, as_numbers

TUNED, SIGNATURE, EXPORTED, MESH = "best.hlo.pb", "signature.json", "best.jax_export", "mesh.json"
_INSTEAD = "tune the function that computes it, such as {} or the whole step, and load that one"
_AGAIN = "Run fastslow tune again, which resumes its study and writes it anew"
_HERE = "Tune the function again on this machine"
_SHOWN = 300  # characters of a message
_FIRST = "Run fastslow tune with evaluator=device, which writes it"


class _Written(Record, extra="forbid"):
    """What ``signature.json`` holds: a signature, files by name with their SHA-256, and a sum over both."""

    signature: dict[str, Any] | None
    files: dict[str, str]
    checksum: str


def write_signature(folder: Path, program: LocalProgram) -> None:
    """Write ``signature.json`` for :func:`load_tuned`, and of a function on a mesh two files more.

    They are ``best.jax_export`` and ``mesh.json``, which has the devices and the axes.

    Args:
        folder: Folder of the study, which has the tuned program: its checksum is written here.
        program: The program that was tuned.
    """
    names = [TUNED]
    if program.exported:
        with atomic_path(folder / EXPORTED) as temporary:
            temporary.write_bytes(program.exported)
        mesh = program.mesh
        facts = {"devices": program.devices, "sizes": mesh.axis_sizes, "names": mesh.axis_names}
        write_json(folder / MESH, facts | {"types": [kind.name for kind in mesh.axis_types]})
        names += [EXPORTED, MESH]
    written = {
        "signature": program.signature.as_json() if program.signature else None,
        "files": {name: file_digest(folder / name) for name in names},
    }
    write_json(folder / SIGNATURE, written | {"checksum": digest(written)})


def _read_signature(path: Path) -> tuple[Signature | None, list[str]]:
    """Return the signature, None of an HLO file, and the names of the files that belong to it.

    Raises:
        DataError: ``signature.json`` is missing, of an older version or not as it was written; or one of the
            files is.
    """
    kept = parse_json(path, read_text(path, _AGAIN, SMALL_BYTES, _FIRST), _AGAIN)
    if isinstance(kept, dict) and "checksum" not in kept:
        raise DataError(path, "was written by an older version, or lost its checksum", _AGAIN)
    check_record(path, kept, _Written, _AGAIN)
    signature, files = kept["signature"], kept["files"]
    sound = kept["checksum"] == digest({"signature": signature, "files": files})
    names = {TUNED} if EXPORTED not in files else {TUNED, EXPORTED, MESH}
    if not sound or {*files} != names:
        raise DataError(path, "the signature or a file's checksum is not as it was written", _AGAIN)
    for name, checksum in files.items():
        file = path.with_name(name)
        if not is_there(file, MAX_BYTES):
            raise DataError(file, "no such file", _AGAIN)
        if file_digest(file) != checksum:
            raise DataError(file, f"is not the file that {SIGNATURE} was written for", _AGAIN)
    if signature is None:
        return None, [*files]
    if differing := {field.name for field in fields(Signature)} ^ {*signature}:
        problem = f"signature was written by another version ({', '.join(sorted(differing))})"
        raise DataError(path, problem, _AGAIN)
    return Signature(**signature), [*files]


@contextlib.contextmanager
def _readable_here(path: Path) -> Iterator[None]:
    """Turn errors of JAX about a file of another version into one that names the file."""
    try:
        yield
    except FastslowError:
        raise
    except Exception as error:  # of XLA, MLIR and flatbuffers, which have no common class
        said = " ".join(str(error).split())[:_SHOWN]
        raise DataError(path, f"JAX here does not read it ({type(error).__name__}: {said})", _HERE) from None


def load_tuned(folder: str | Path) -> Callable:
    """Return the tuned program of a study as a JAX function; its layouts are constraints of the compiler.

    It can be called under ``jax.jit``, alone or within a larger function. It has no gradient and no batching
    rule: tune the function that computes them, such as ``jax.value_and_grad(loss)`` or a whole training step.

    Args:
        folder: Folder of a study with ``evaluator=device``. A relative one starts at the working folder, or
            else where ``fastslow tune`` writes: ``data/converted/tuned/NAME``.

    Returns:
        A function with the arguments and results of the JAX function that was tuned; of an HLO file, of its
        parameters, with a list of outputs. It raises :class:`CallError`, a TypeError, where an argument has
        another structure, shape, type or static value than the one that was tuned, and where JAX asks for a
        derivative or a batch of it. A function of a mesh raises it within a program on other devices, too.
        The first call compiles, and shows a line where this takes more than some seconds.

    Raises:
        SettingsError: JAX is not installed, or ``folder`` is no path.
        DataError: The folder has no tuned program, one of its files is not as it was written, or JAX or this
            machine's compiler refuses it.
    """
    path = find_typed(path_text("folder", folder)) / SIGNATURE
    require_jax()
    if not is_there(path.with_name(TUNED)):
        raise DataError(path.with_name(TUNED), "no such file", _FIRST)
    kept, names = _read_signature(path)
    module = read_hlo(path.with_name(TUNED)).module
    with _readable_here(path.with_name(TUNED)):
        parameters, results = entry_shapes(module)
        signature = kept or Signature.of_module(parameters, results)
        options = options_of(module.SerializeToString())
    _require_options(path.with_name(TUNED), options)
    if EXPORTED in names:
        with _readable_here(path.with_name(EXPORTED)):
            run = _sharded_function(path.with_name(EXPORTED), options)
    else:
        with _readable_here(path.with_name(TUNED)):
            run = _jax_function(module, parameters, results, options)

    compiled = False

    def tuned(*arguments, **keywords):
        """Run the tuned program."""
        nonlocal compiled
        leaves = signature.bind(arguments, keywords)
        _require_values(leaves.arrays)
        values = [as_numbers(leaf) for leaf in leaves.arrays.values()]
        if compiled or _are_traced(values):
            outputs = run(*values)
        else:
            shown = progress(total=1, desc="compiling", unit="function", delay=TICK_SECONDS)
            with shown as bar, ticking(bar):
                outputs = run(*values)
            compiled = True
        return signature.results_of(outputs, leaves)

    return tuned


def _are_traced(values: Sequence[Any]) -> bool:
    """Return whether JAX traces a larger program, to which these values belong."""
    import jax

    return any(isinstance(value, jax.core.Tracer) for value in values)


def _require_values(arrays: Mapping[str, Any]) -> None:
    """Raise :class:`CallError` where an argument is a shape without values."""
    import jax

    for path, leaf in arrays.items():
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise CallError(f"{path} is a shape without values: give an array, or use jax.eval_shape")


def _require_options(path: Path, options: dict[str, Any]) -> None:
    """Raise :class:`DataError` where this machine's compiler refuses options that were found on another."""
    if options and (reason := refusal(options)):
        problem = f"has options that this machine's compiler refuses ({reason})"
        raise DataError(path, problem, _HERE)


def _sharded_function(path: Path, options: dict[str, Any]) -> Callable:
    """Return a function of a mesh as a function of arrays, which are split as it was tuned."""
    import jax

    exported = jax.export.deserialize(bytearray(read_bytes(path, _AGAIN, MAX_BYTES)))
    platform = jax.export.default_export_platform()
    if platform not in exported.platforms:
        problem = f"was tuned for {', '.join(exported.platforms)}, and this machine has {platform}"
        raise DataError(path, problem, "Tune the function again on this machine")
    mesh = _read_mesh(path.with_name(MESH))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    split = [sharding or everywhere for sharding in exported.in_shardings_jax(mesh)]
    split_within = jax.jit(_without_derivatives(exported.call), in_shardings=tuple(split))
    guarded = [_guarded(sharding) for sharding in split]
    within = jax.jit(split_within, in_shardings=tuple(guarded))  # JAX compares the outer ones first
    whole = jax.jit(exported.call, in_shardings=tuple(split), compiler_options=options)

    def call(*values):
        """Call it as it was tuned, or within a larger program, which has options and a mesh of its own."""
        traced = _are_traced(values)
        _require_context(mesh, traced)
        if traced:
            return within(*values)
        return whole(*[jax.device_put(value, place) for value, place in zip(values, split, strict=True)])

    return call


class _TunedDevices(tuple):
    """The devices that a function was tuned for.

    JAX compares the devices of a program with ``!=`` when it is lowered, and has no other place where a
    function within it could say what to do. Programs on other devices raise :class:`CallError`.
    """

    def __ne__(self, others: object) -> bool:
        if isinstance(others, tuple) and tuple.__ne__(self, others):
            raise _other_devices(self, f"a program on {_in_words(others)}")
        return tuple.__ne__(self, others)


def _guarded(sharding: Any) -> Any:
    """Return a ``jax.sharding.NamedSharding`` as one whose devices are :class:`_TunedDevices`."""
    import jax

    class Guarded(jax.sharding.NamedSharding):
        """A sharding of a tuned function; it is equal to itself only, as caches of JAX would mix it up."""

        _device_backend = True  # JAX moves arguments to it, which jax.checkpoint calls outside of a program
        __eq__ = object.__eq__
        __hash__ = object.__hash__

        @property
        def _device_assignment(self) -> _TunedDevices:
            return _TunedDevices(super()._device_assignment)

    return Guarded(sharding.mesh, sharding.spec, memory_kind=sharding.memory_kind)


def _require_context(mesh: Any, traced: bool) -> None:
    """Raise :class:`CallError` within ``shard_map``, ``pmap``, or a ``set_mesh`` of other devices."""
    import jax

    context = jax.sharding.get_abstract_mesh()
    devices = tuple(mesh.devices.flat)
    if context.empty:
        return
    if context.manual_axes:
        problem = f"a function that was tuned for {_in_words(devices)} splits its arguments itself"
        raise CallError(f"{problem}: call it outside of jax.shard_map and jax.pmap, with whole arrays")
    if context.size != mesh.size:
        raise _other_devices(devices, f"a mesh of {context.size} devices")
    if not traced:
        around = tuple(jax.sharding.get_mesh().devices.flat)
        if around != devices:
            raise _other_devices(devices, f"a mesh of {_in_words(around)}")


def _other_devices(devices: Sequence[Any], caller: str) -> CallError:
    """Return the error of a call within a program on other devices than the tuned ones."""
    remedy = "give that program arguments on these devices (jax.device_put), or tune again for its devices"
    return CallError(f"the function was tuned for {_in_words(devices)}, and called within {caller}: {remedy}")


def _in_words(devices: Sequence[Any]) -> str:
    """Return devices by platform and number, such as ``cpu 0, 1, 2, 3``."""
    numbers = ", ".join(str(device.id) for device in devices)
    return f"{devices[0].platform} {numbers}"


def _read_mesh(path: Path) -> Any:
    """Return a mesh of these devices, or of the first of this machine where it numbers them otherwise."""
    import jax

    facts = parse_json(path, read_text(path, _AGAIN), _AGAIN)  # as it was written, by its checksum
    shape = tuple(facts["sizes"])
    names = tuple(facts["names"])
    types = tuple(jax.sharding.AxisType[name] for name in facts["types"])
    numbers = np.array(facts["devices"]).reshape(shape)
    by_number = {device.id: device for device in jax.devices()}
    devices = [by_number[number] for number in numbers.flat if number in by_number]
    if len(devices) < numbers.size:
        devices = jax.devices()[: numbers.size]
    if len(devices) < numbers.size:
        problem = f"was tuned for a mesh of {counted(numbers.size, 'device')}, here: {len(devices)}"
        raise DataError(path, problem, "Tune the function again for the devices of this machine")
    return jax.sharding.Mesh(np.array(devices).reshape(shape), names, axis_types=types)


def _jax_function(
    module: Module, parameters: Sequence, results: Sequence, options: dict[str, Any]
) -> Callable:
    """Return a module as a function of arrays, which JAX calls as it calls an exported function."""
    import jax
    import jax.numpy as jnp
    from jaxlib import _hlo, _jax
    from jaxlib.mlir.dialects import stablehlo

    code = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(module.SerializeToString()))
    frame = jax.jit(lambda *_: [jnp.zeros(r.shape, r.dtype) for r in results], keep_unused=True)
    portable = _jax.mlir.serialize_portable_artifact(code, stablehlo.get_current_version())
    exported = replace(jax.export.export(frame)(*parameters), mlir_module_serialized=portable, _get_vjp=None)
    guarded = _without_derivatives(exported.call)
    within = jax.jit(guarded)
    alone = jax.jit(guarded, compiler_options=options) if options else within

    def call(*values):
        """Call it with its options of the compiler, or within a larger program, which has its own."""
        if _are_traced(values):
            return within(*values)
        with jax.ensure_compile_time_eval():  # these are values also where JAX traces what calls this
            placed = _on_one_device(values)
        return alone(*placed)

    return call


def _on_one_device(values: Sequence[Any]) -> Sequence[Any]:
    """Return arrays that are all committed to a device, as results of an exported function are.

    Else the second step of a training, whose state is a result of the first one, would be compiled again.
    """
    import jax

    def is_committed(value: Any) -> bool:
        return isinstance(value, jax.Array) and value.committed

    devices = {device for value in filter(is_committed, values) for device in value.devices()}
    if len(devices) > 1:  # JAX takes them or says why not
        return values
    (device,) = devices or jax.device_put(0).devices()
    return [value if is_committed(value) else jax.device_put(value, device) for value in values]


def _without_derivatives(function: Callable) -> Callable:
    """Return a function whose derivative and batching rule raise an error with the remedy."""
    import jax

    batched = jax.custom_batching.custom_vmap(function)
    guarded = jax.custom_jvp(batched)

    @batched.def_vmap
    def vmap(*_):
        raise CallError(f"a tuned function has no batching rule: {_INSTEAD.format('jax.vmap(function)')}")

    @guarded.defjvp
    def jvp(*_):
        raise CallError(f"a tuned function has no derivative: {_INSTEAD.format('jax.value_and_grad(loss)')}")

    return guarded
