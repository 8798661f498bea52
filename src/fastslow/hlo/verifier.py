"""XLA's own verdict on a module: jaxlib converts it to StableHLO, whose verifier compares every operation.

It sees more than :mod:`fastslow.hlo.shape_rules`, which also serve where jaxlib is missing. A failed check of
XLA's ends the process: call it in one of its own.
"""

import re

# what a converter says of operations that it does not know: no verdict on the program
_NO_VERDICT = re.compile(
    r"no program shape|unknown opcode|unregistered|un(implemented|supported)|not (yet )?supported"
    r"|but got '[^']*ui1>|future element type",  # what HLO has and StableHLO lacks
    re.I,
)
_SAID = 400  # characters of its explanation


def refusal(code: bytes) -> str:
    """Return why a serialised ``HloModuleProto`` cannot be a program; empty where jaxlib finds nothing."""
    try:
        from jaxlib import _hlo, _jax
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import mhlo, stablehlo
    except ImportError:  # an older jaxlib, or none
        return ""
    context = ir.Context()
    dialects = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    try:
        text = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(code))
        ir.Module.parse(text, context).operation.verify()
    except MemoryError:
        raise
    except Exception as error:  # of types that only jaxlib has
        said = " ".join(str(error).split())
        if _NO_VERDICT.search(said):
            return ""
        said = said.removeprefix("Unable to parse module assembly: ").removeprefix("error: ")
        return said.partition(" note: ")[0][:_SAID]
    return ""
