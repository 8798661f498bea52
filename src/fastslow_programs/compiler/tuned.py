"""The tuned program of a study as a JAX function."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import find_typed
from fastslow.hlo.messages import Module
from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler.device import require_jax
from fastslow_programs.compiler.lowering import LocalProgram, entry_shapes, options_of
from fastslow_programs.compiler.signature import CallError, Signature, as_numbers

TUNED, SIGNATURE = "best.hlo.pb", "signature.json"
_INSTEAD = "tune the function that computes it, such as {} or the whole step, and load that one"


def write_signature(folder: Path, program: LocalProgram) -> None:
    """Write what :func:`load_tuned` needs beside the tuned program."""
    write_json(folder / SIGNATURE, program.signature.as_json() if program.signature else {})


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
        derivative or a batch of it.

    Raises:
        SettingsError: JAX is not installed.
        DataError: The folder has no tuned program.
    """
    require_jax()
    path = find_typed(str(folder)) / SIGNATURE
    module = read_hlo(path.parent / TUNED).module
    kept = read_json(path)
    if kept and "result_static" not in kept:
        raise DataError(
            path, "was written by an older version", "Run fastslow tune again, which resumes its study"
        )
    parameters, results = entry_shapes(module)
    signature = Signature(**kept) if kept else Signature.of_module(parameters, results)
    run = _jax_function(module, parameters, results)

    def tuned(*arguments, **keywords):
        """Run the tuned program."""
        leaves = signature.bind(arguments, keywords)
        outputs = run(*[as_numbers(leaf) for leaf in leaves.arrays.values()])
        return signature.results_of(outputs, leaves)

    return tuned


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
    guarded = _without_derivatives(exported.call)
    within = jax.jit(guarded)
    options = options_of(module.SerializeToString())
    if not options:
        return within
    alone = jax.jit(guarded, compiler_options=options)

    def call(*values):
        """Call it with its options of the compiler, or within a larger program, which has its own."""
        return (within if any(isinstance(value, jax.core.Tracer) for value in values) else alone)(*values)

    return call


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
