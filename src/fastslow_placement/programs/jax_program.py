"""A JAX function as a list of operators, which have costs and can be run one by one.

The function is traced and nothing is computed. Calls are inlined and short loops (``scan``) are unrolled, as
those of an HLO module are. A longer loop, a conditional or a rematerialised part is one operator with the
cost of its body. JAX is imported when a function is read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import digest
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.hlo_graph import UNROLL
from fastslow_placement.programs.recorder import LEAVES, OF_LEAVES, SPARSE, Recorder, Value
from fastslow_placement.programs.roofline import Device, names, operator_flops

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_CALLS |= dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr")
"""Primitives that are inlined, and the parameter that holds the function."""
_BODIES = {
    "scan": ("jaxpr",),
    "while": ("body_jaxpr", "cond_jaxpr"),
    "cond": ("branches",),
    "remat2": ("jaxpr",),
}
"""Primitives that are one operator with the cost of these functions; of ``cond`` the most expensive one."""
_SAME = names("device_put sharding_constraint stop_gradient copy_p")  # the value is that of the operand
_SPREAD = names("shard_map xla_pmap psum all_gather all_to_all ppermute pmax pmin axis_index")
_HLO = {
    **{"dot_general": "dot", "conv_general_dilated": "convolution", "broadcast_in_dim": "broadcast"},
    **{"convert_element_type": "convert", "select_n": "select", "rev": "reverse", "cond": "conditional"},
    **dict.fromkeys(("squeeze", "expand_dims"), "reshape"),
    **dict.fromkeys(("argmax", "argmin", "cumsum", "cumprod", "cummax", "cumlogsumexp"), "reduce"),
    **{"bitcast_convert_type": "bitcast-convert", "scan": "while", "top_k": "sort", "add_any": "add"},
    **{"exp": "exponential", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negate"},
    **{"max": "maximum", "min": "minimum", "pow": "power", "integer_pow": "power"},
}
"""HLO opcode of a JAX primitive whose name is another one."""


class Operator(NamedTuple):
    """An operation of a program.

    Args:
        name: Its name, of no other operator: the primitive, a number, and in parentheses where it stands.
        opcode: HLO opcode, for its cost.
        run: Takes the inputs and returns a list of outputs.
        inputs: Numbers of values.
        outputs: Numbers of values.
        flops: Floating-point operations.
        seconds: Its time on a device, where it has bodies; None where the roofline decides.
    """

    name: str
    opcode: str
    run: Callable[..., Sequence[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flops: float
    seconds: Callable[[Device], float] | None


class JaxProgram:
    """A traced function.

    Args:
        function: As for ``jax.jit``.
        arguments: Its arguments: arrays or ``jax.ShapeDtypeStruct``, or trees of these.
        name: Its name, for messages and tables.
        text: ``model.py:make``, from which it can be made again; empty for a function in memory.

    Attributes:
        operators: In the order of the program; what no output depends on is left out.
        shapes: Shape and element type of each value, with ``shape`` and ``dtype``.
        arguments: Numbers of the values that are the leaves of the arguments.
        constants: Arrays that the function holds, and numbers, by number of value.
        results: Numbers of the values that are the leaves of the results.
        wanted: The arguments as a tree of ``jax.ShapeDtypeStruct``.
        tree: Structure of the results.

    Raises:
        DataError: JAX cannot trace the function on these arguments, or it is no program of one device.
        SettingsError: JAX is not installed.
    """

    def __init__(self, function: Callable, arguments: Sequence[Any], name: str, text: str = ""):
        try:
            import jax
        except ImportError:
            raise SettingsError("jax is not installed, but a function needs it: pip install jax") from None
        self.name, self.text = name, text
        try:
            closed, results = jax.make_jaxpr(function, return_shape=True)(*arguments)
        except Exception as error:  # whatever the user's function raises
            reason = str(error).strip().partition("\n")[0]
            problem = f"JAX cannot trace it on these arguments ({type(error).__name__}: {reason})"
            remedy = "Give what jax.jit(function)(*arguments) accepts; bind all else with functools.partial"
            raise DataError(f"function {name}", problem, remedy) from error
        if closed.effects:
            problem = f"has side effects ({', '.join(map(str, closed.effects))})"
            raise DataError(f"function {name}", problem, "Leave out jax.debug and callbacks")
        self.wanted = jax.tree.map(shape_of, tuple(arguments))
        self.tree = jax.tree.structure(results)
        self.operators: list[Operator] = []
        self.shapes: list[Any] = []
        self.constants: dict[int, Any] = {}
        self.arguments = [self._value(var.aval) for var in closed.jaxpr.invars]
        constants = [self._constant(value) for value in closed.consts]
        self.results = self._inline(closed.jaxpr, [*constants, *self.arguments])
        self._leave_out_unused()

    def _value(self, shape) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def _constant(self, value) -> int:
        number = self._value(shape_of(value))
        self.constants[number] = value
        return number

    def _inline(self, jaxpr, inputs: Sequence[int]) -> list[int]:
        """Add the operators of a function on these values, and return the values of its results."""
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], inputs, strict=True))

        def read(atom) -> int:
            return self._constant(atom.val) if hasattr(atom, "val") else values[atom]

        for equation in jaxpr.eqns:
            primitive, own = equation.primitive.name, [read(atom) for atom in equation.invars]
            if primitive in _SPREAD:
                problem = f"is spread over devices already ({primitive})"
                raise DataError(f"function {self.name}", problem, "Give the function of one device")
            if primitive in _CALLS:
                inner = equation.params[_CALLS[primitive]]
                captured = [self._constant(value) for value in getattr(inner, "consts", ())]
                outputs = self._inline(getattr(inner, "jaxpr", inner), [*captured, *own])
            elif primitive in _SAME:
                outputs = own
            elif primitive == "scan" and 1 <= equation.params["length"] <= UNROLL:
                outputs = self._unroll(equation, own)
            else:
                outputs = [self._value(var.aval) for var in equation.outvars]
                label = f"{primitive}.{len(self.operators)}{_where(equation)}"
                call, opcode = partial(_bind, equation), _opcode(primitive)
                flops, seconds = _flops(equation), None
                if primitive in _BODIES:
                    seconds = partial(_seconds, equation)
                self.operators.append(Operator(label, opcode, call, (*own,), (*outputs,), flops, seconds))
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _unroll(self, equation, inputs: list[int]) -> list[int]:
        """Add the operators of every iteration of a loop, and return the values of its results."""
        from jax import lax

        length, body = equation.params["length"], equation.params["jaxpr"]
        count, carried = equation.params["num_consts"], equation.params["num_carry"]
        fixed, state = inputs[:count], inputs[count : count + carried]
        captured = [self._constant(value) for value in body.consts]
        steps = reversed(range(length)) if equation.params["reverse"] else range(length)
        collected: list[list[int]] = [[] for _ in body.jaxpr.outvars[carried:]]
        where = _where(equation)

        def add(name: str, opcode: str, run: Callable, own: Sequence[int], shape) -> int:
            output, label = self._value(shape), f"{name}.{len(self.operators)}{where}"
            self.operators.append(Operator(label, opcode, run, (*own,), (output,), 0.0, None))
            return output

        for step in steps:
            take = partial(_take, step)
            shapes = [var.aval for var in body.jaxpr.invars[count + carried :]]
            rows = zip(inputs[count + carried :], shapes, strict=True)
            parts = [add("slice", "slice", take, [number], shape) for number, shape in rows]
            state = self._inline(body.jaxpr, [*captured, *fixed, *state, *parts])
            for kept, own in zip(collected, state[carried:], strict=True):
                kept.append(own)
            state = state[:carried]
        if equation.params["reverse"]:
            collected = [own[::-1] for own in collected]
        whole = [var.aval for var in equation.outvars[carried:]]

        def stack(*parts) -> list:
            return [lax.concatenate([lax.expand_dims(part, (0,)) for part in parts], 0)]

        rows = zip(collected, whole, strict=True)
        return state + [add("stack", "concatenate", stack, own, shape) for own, shape in rows]

    def _leave_out_unused(self) -> None:
        used, kept = {*self.results}, []
        for operator in reversed(self.operators):
            if not used.isdisjoint(operator.outputs):
                used.update(operator.inputs)
                kept.append(operator)
        self.operators = kept[::-1]

    @property
    def digest(self) -> str:
        """Digest of the operators' names without places and of all shapes: of a program that is the same."""
        shapes = [(str(own.dtype), list(own.shape)) for own in self.shapes]
        return digest({"operators": [o.name.partition(" ")[0] for o in self.operators], "shapes": shapes})

    def graph(self, device: Device) -> tuple[CostGraph, list[int]]:
        """Return the cost graph, and the position in :attr:`operators` of each of its nodes.

        Operators on constants alone are no nodes: every device can do them for itself.

        Args:
            device: Whose roofline gives the times.

        Raises:
            DataError: Nothing in the program takes time.
        """
        recorder, nodes = Recorder(f"function {self.name}", device, allow_unknown=True), []
        values: dict[int, Value] = {}
        for number in self.arguments:
            values[number] = recorder.leaf(value_bytes(self.shapes[number]))
        for number in self.constants:
            values[number] = recorder.leaf(value_bytes(self.shapes[number]))
        for position, operator in enumerate(self.operators):
            own = [values[number] for number in operator.inputs]
            leaves = all(isinstance(value, frozenset) for value in own)
            if leaves and (operator.opcode in LEAVES or operator.opcode in OF_LEAVES):
                value: Value = frozenset().union(*own)
            else:
                outputs = [self.shapes[number] for number in operator.outputs]
                size, shape = sum(map(value_bytes, outputs)), outputs[0].shape
                known = operator.seconds(device) if operator.seconds else None
                row = (operator.opcode, operator.name, shape, size, own, operator.flops, known)
                value = recorder.add(*row)
                nodes.append(position)
            values.update(dict.fromkeys(operator.outputs, value))
        return recorder.graph(self.name, [values[number] for number in self.arguments]), nodes


def shape_of(leaf):
    """Return an argument's ``jax.ShapeDtypeStruct``."""
    import jax
    import jax.numpy as jnp

    return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))


def value_bytes(shape) -> float:
    """Return the bytes of a value by its shape and element type."""
    return float(prod(shape.shape)) * shape.dtype.itemsize


def _bind(equation, *inputs) -> Sequence[Any]:
    """Run an equation, as a function of its own."""
    from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

    read = [not isinstance(atom, Literal) for atom in equation.invars]
    given = [atom for atom, own in zip(equation.invars, read, strict=True) if own]
    function = jaxpr_as_fun(ClosedJaxpr(Jaxpr((), given, equation.outvars, [equation]), ()))
    return function(*[value for value, own in zip(inputs, read, strict=True) if own])


def _take(step: int, whole) -> list:
    from jax import lax

    return [lax.index_in_dim(whole, step, keepdims=False)]


def _where(equation) -> str:
    """Return the scope of an equation and the line of the user's file that it stems from, in parentheses."""
    from jax._src.source_info_util import summarize

    scope = str(equation.source_info.name_stack)
    place = Path(summarize(equation.source_info).partition(" ")[0]).name
    told = " ".join(part for part in (scope, place.rpartition(":")[0]) if part)
    return f" ({told})" if told else ""


def _opcode(primitive: str) -> str:
    return "reduce" if primitive.startswith("reduce_") else _HLO.get(primitive, primitive.replace("_", "-"))


def _inner(equation) -> list[list[Any]]:
    """Return the functions of an equation that is one operator, each as alternatives."""
    found = [equation.params[name] for name in _BODIES.get(equation.primitive.name, ())]
    many = [list(own) if isinstance(own, (tuple, list)) else [own] for own in found]
    return [[getattr(jaxpr, "jaxpr", jaxpr) for jaxpr in own] for own in many]


def _flops(equation) -> float:
    """Return the floating-point operations of an equation; loops without a known count have one iteration."""
    if inner := _inner(equation):
        rounds = equation.params.get("length", 1)
        return rounds * sum(max(sum(map(_flops, jaxpr.eqns)) for jaxpr in own) for own in inner)
    if (name := equation.primitive.name) in _CALLS:
        jaxpr = equation.params[_CALLS[name]]
        return sum(map(_flops, getattr(jaxpr, "jaxpr", jaxpr).eqns))
    shapes, attributes = [list(atom.aval.shape) for atom in equation.invars], {}
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        attributes["contracted"] = prod(shapes[0][axis] for axis in contracted)
    elif name == "conv_general_dilated":
        kernel = equation.params["dimension_numbers"].rhs_spec
        attributes["output_features"] = shapes[1][kernel[0]]
    output = equation.outvars[0].aval.shape if equation.outvars else ()
    return operator_flops(_opcode(name), output, shapes, **attributes)


def _seconds(equation, device: Device) -> float:
    """Return the roofline time of an equation on a device, with its functions one operation at a time."""
    if inner := _inner(equation):
        rounds = equation.params.get("length", 1)
        sums = [[sum(_seconds(e, device) for e in jaxpr.eqns) for jaxpr in own] for own in inner]
        return rounds * sum(map(max, sums))
    if (name := equation.primitive.name) in _CALLS:
        jaxpr = equation.params[_CALLS[name]]
        return sum(_seconds(e, device) for e in getattr(jaxpr, "jaxpr", jaxpr).eqns)
    opcode = _opcode(name)
    if opcode in LEAVES or name in _SAME:
        return 0.0
    size = sum(value_bytes(var.aval) for var in equation.outvars)
    moved = sum(value_bytes(atom.aval) for atom in equation.invars)
    return float(device.seconds(_flops(equation), size + (min(size, moved) if opcode in SPARSE else moved)))
