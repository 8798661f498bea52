"""A function or an HLO module as a program for the XLA of this machine, with values of its arguments."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastslow.core.errors import SettingsError
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module, message_classes
from fastslow_programs.compiler.device import require_jax
from fastslow_programs.compiler.libtpu import anonymous
from fastslow_programs.compiler.signature import Signature, as_numbers, key_kinds
from fastslow_programs.compiler.tracing import Call, equations, jit_facts, trace

_SMALL_TYPES = {
    19: "float8_e5m2",
    20: "float8_e4m3fn",
    21: "int4",
    22: "uint4",
    23: "float8_e4m3b11fnuz",
    24: "float8_e5m2fnuz",
    25: "float8_e4m3fnuz",
    28: "float8_e4m3",
    29: "float8_e3m4",
}  # XLA's element types by number
LAYOUTS = "layouts"
"""What cannot be measured on a mesh, by the reason that a constraint of one gathers its tensor."""
_OPTIONS = "fastslow.compiler_options"  # attribute of a module
_Attributed = message_classes(
    "fastslow.attributes",
    "message Entry { string key = 1; string value = 2; } message Attributes { repeated Entry map = 1; } "
    "message Attributed { Attributes frontend_attributes = 19; }",
)["Attributed"]
_Donating = message_classes(
    "fastslow.donations",
    "message Donating { bytes input_output_alias = 8; bytes buffer_donor = 18; }",
)["Donating"]


@dataclass(frozen=True)
class LocalProgram:
    """A program for the XLA of this machine.

    Args:
        module: The program as JAX lowers it, before any pass of the compiler.
        inputs: Value of each parameter of the entry computation.
        signature: What the function takes and returns; None for an HLO file.
        mesh: The ``jax.sharding.Mesh`` that it runs on; None for one device.
        exported: The function on a mesh as ``jax.export`` serialises it, with its shardings.
    """

    module: Module
    inputs: tuple[np.ndarray, ...]
    signature: Signature | None = None
    mesh: Any = None
    exported: bytes = b""

    @property
    def devices(self) -> tuple[int, ...]:
        """Number of each device of the mesh, in order; empty for one device."""
        return tuple(device.id for device in self.mesh.devices.flat) if self.mesh else ()

    def require_one_device(self, what: str) -> None:
        """Raise :class:`SettingsError` that names ``what`` cannot be done on a mesh of several devices."""
        if self.devices:
            mesh = f"{what} of a program for a mesh of {len(self.devices)} devices cannot be measured"
            remedy = "give function and arguments for one device"
            if what == LAYOUTS:
                remedy = f"search options of the compiler (options=auto), or {remedy}"
                mesh = f"{mesh}: a constraint of a layout would gather the whole tensor on every device"
            raise SettingsError("source", f"{mesh}; {remedy}")


def lower_function(
    function: Callable, arguments: Sequence, seed: int = 0, keywords: Mapping[str, Any] | None = None
) -> LocalProgram:
    """Lower a JAX function for the devices of this machine.

    Args:
        function: A function for ``jax.jit``, or one that it made. Static arguments are part of the program,
            and options of the compiler go with the module.
        arguments: Its arguments; a ``jax.ShapeDtypeStruct`` is replaced by values that are drawn.
        seed: Seed of the drawn values.
        keywords: Its keyword arguments, of the same kinds.

    Raises:
        SettingsError: JAX cannot trace the function with these arguments, NumPy lacks the type of a parameter
            or result, or results cannot be made again from arguments.
    """
    require_jax()
    import jax
    from jax.extend.core import jaxpr_as_fun

    call = Call(function, arguments, keywords or {})
    traced_call = trace(call)
    traced = traced_call.traced
    if not jax.tree.leaves(traced.out_info):
        problem = f"{traced.fun_name} returns no array, so there is nothing to run"
        raise SettingsError("source", f"{problem}. Return what it computes")
    signature = Signature.of(call, traced_call.results)
    leaves = [*call.leaves().arrays.values()]
    mesh = _mesh_of(traced, leaves)
    shardings: dict[str, Any] = {}
    if mesh:
        shardings["in_shardings"] = tuple(_shardings(traced, leaves))
        shardings["out_shardings"] = list(traced._params["out_shardings"])
    # without donation and options, and with parameters that are not used
    whole = jax.jit(jaxpr_as_fun(traced.jaxpr), keep_unused=True, **shardings)
    inputs = jax.tree.leaves(traced.in_avals)
    lowered = whole.lower(*inputs)
    exported = bytes(jax.export.export(whole)(*inputs).serialize()) if mesh else b""
    rng = np.random.default_rng(seed)
    options = dict(getattr(jit_facts(function), "compiler_options_kvs", ()))
    code = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    module = with_options(anonymous(Module.FromString(code)), options)
    entry_shapes(module)  # refused before anything is measured
    values = tuple(_value(leaf, rng) for leaf in leaves)
    return LocalProgram(module, values, signature, mesh, exported)


def _mesh_of(traced: Any, leaves: Sequence[Any]) -> Any:
    """Return the mesh of a program, None where it runs on one device.

    It is the largest of those that shardings, ``shard_map`` and ``jax.set_mesh`` name.
    """
    import jax

    arguments = traced.lower()._lowering.compile_args
    shardings = [*arguments["in_shardings"], *arguments["out_shardings"], *map(_sharding, leaves)]
    named = [arguments["context_mesh"]]
    for parameters in (equation.params for equation in equations(traced.jaxpr.jaxpr)):
        named.append(parameters.get("mesh"))  # of shard_map
        shardings += [parameters.get("sharding"), *parameters.get("in_shardings", ())]
    named += [getattr(sharding, "mesh", None) for sharding in shardings]
    meshes = [mesh for mesh in named if isinstance(mesh, jax.sharding.Mesh)]
    largest = max(meshes, key=lambda mesh: mesh.size, default=None)
    if largest is not None and largest.size > 1:
        return largest
    count = arguments["num_devices"]
    return jax.make_mesh((count,), ("devices",)) if count > 1 else None


def _sharding(leaf: Any) -> Any:
    return getattr(leaf, "sharding", None)


def _shardings(traced: Any, leaves: Sequence[Any]) -> list[Any]:
    """Return the sharding of each argument: of the user's ``jax.jit``, or the array's on several devices."""
    shardings = []
    for given, leaf in zip(traced._params["in_shardings"], leaves, strict=True):
        of_array = _sharding(leaf)
        split = of_array is not None and of_array.num_devices > 1
        shardings.append(given if hasattr(given, "num_devices") or not split else of_array)
    return shardings


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


def with_options(module: Module, options: Mapping[str, Any]) -> Module:
    """Return a module with these options of the compiler beside its own, as an attribute of it."""
    code = module.SerializeToString()
    if not options:
        return module
    attribute = _Attributed()
    attribute.frontend_attributes.map.add(key=_OPTIONS, value=json.dumps(options_of(code) | dict(options)))
    return Module.FromString(code + attribute.SerializeToString())


def options_of(code: bytes) -> dict[str, Any]:
    """Return the options of the compiler by name that a module holds; none where it was given none.

    Args:
        code: The module as bytes, from ``SerializeToString()`` or ``best.hlo.pb``.
    """
    attributes = _Attributed.FromString(code).frontend_attributes.map
    kept = [json.loads(attribute.value) for attribute in attributes if attribute.key == _OPTIONS]
    return kept[-1] if kept else {}


def without_donation(code: bytes) -> bytes:
    """Return a serialised module that keeps its arguments; one that it donates would be gone after a run."""
    donating = _Donating.FromString(code)
    for name in ("input_output_alias", "buffer_donor"):
        donating.ClearField(name)
    return donating.SerializeToString()


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
    """Draw an array: standard normal, integers of 0 to 9 (of four bits to 7), or booleans."""
    import ml_dtypes  # comes with JAX

    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.name.startswith(("int", "uint")):
        return rng.integers(0, min(10, int(ml_dtypes.iinfo(dtype).max) + 1), shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _dtype(element_type: int) -> np.dtype:
    """Return NumPy's type of an XLA type: ``pred``, ``s32``, ``u8``, ``f32``, ``bf16``, ``c64``."""
    import ml_dtypes  # comes with JAX

    if element_type in _SMALL_TYPES:
        return np.dtype(getattr(ml_dtypes, _SMALL_TYPES[element_type]))
    name = {number: name for name, number in PRIMITIVE_TYPES.items()}.get(element_type, "other")
    if name in ("pred", "bf16"):
        return np.dtype(bool if name == "pred" else ml_dtypes.bfloat16)
    kinds = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
    if name[0] not in kinds:
        remedy = "convert it within the function to a type that NumPy or ml_dtypes has"
        raise SettingsError("evaluator", f"device draws no values of XLA's type {element_type}; {remedy}")
    return np.dtype(kinds[name[0]] + name[1:])


def entry_shapes(module: Module) -> tuple[list, list]:
    """Return ``jax.ShapeDtypeStruct`` of the parameters of a module, and of its outputs."""
    import jax

    (entry,) = (c for c in module.computations if c.id == module.entry_computation_id)
    (root,) = (i.shape for i in entry.instructions if i.id == entry.root_id)
    parameters = sorted((i.parameter_number, i.shape) for i in entry.instructions if i.opcode == "parameter")

    def structs(shapes) -> list:
        return [jax.ShapeDtypeStruct(tuple(s.dimensions), _dtype(s.element_type)) for s in shapes]

    return structs(shape for _, shape in parameters), structs(root.tuple_shapes or [root])


def refusal(options: Mapping[str, Any]) -> str:
    """Return why this machine's compiler refuses options, "" where it compiles a small program with them."""
    import jax

    try:
        jax.jit(lambda x: x + 1, compiler_options=dict(options)).lower(1.0).compile()
    except Exception as error:  # of the compiler
        return f"{type(error).__name__}: {error}"
    return ""
