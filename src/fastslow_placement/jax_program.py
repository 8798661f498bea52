"""A JAX function as a list of operators, which have costs and can be run one by one.

The function is traced and nothing is computed. Calls are inlined and short loops (``scan``) are unrolled, as
in an HLO module. A longer loop, a conditional or a rematerialised part is one operator with the
cost of its body. A loop without a known count is one round, with its condition; a condition that
counts rounds costs nothing. JAX is imported when a function is read.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.hlo_graph import UNROLL
from fastslow_placement.programs.recorder import LEAVES, OF_LEAVES, SPARSE, Recorder, Value
from fastslow_placement.programs.roofline import Device, names, operator_flops
from fastslow_programs.compiler.device import require_jax
from fastslow_programs.compiler.signature import Signature
from fastslow_programs.compiler.tracing import Call, trace
from fastslow_programs.program.torch_module import as_jax

_CALLS = {
    "jit": "jaxpr",
    **dict.fromkeys(("closed_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
"""Primitives that are inlined, and the parameter that holds their function."""
_BODIES = {
    "scan": ["jaxpr"],
    "while": ["body_jaxpr", "cond_jaxpr"],
    "cond": ["branches"],
    "remat2": ["jaxpr"],
}
"""Primitives that are one operator with the cost of these functions; of ``branches`` the most expensive."""
_SAME = names("device_put sharding_constraint stop_gradient copy_p")  # the value is that of the operand
_CONVERTED = {"convert_element_type", "copy", *_SAME}
"""Primitives whose value is the integer of their operand."""
_SPREAD = names("shard_map xla_pmap psum all_gather all_to_all ppermute pmax pmin axis_index")
_HLO = {
    **{"dot_general": "dot", "conv_general_dilated": "convolution", "broadcast_in_dim": "broadcast"},
    **{"convert_element_type": "convert", "select_n": "select", "rev": "reverse", "cond": "conditional"},
    **{"squeeze": "reshape", "expand_dims": "reshape", "bitcast_convert_type": "bitcast-convert"},
    **{"scan": "while", "top_k": "sort", "add_any": "add", "sub": "subtract", "mul": "multiply"},
    **{"div": "divide", "neg": "negate", "exp": "exponential", "max": "maximum", "min": "minimum"},
    **dict.fromkeys(("argmax", "argmin", "cumsum", "cumprod", "cummax", "cumlogsumexp"), "reduce"),
    **dict.fromkeys(("psum", "pmax", "pmin"), "reduce"),  # over an axis that jax.vmap names
}
"""HLO opcode of a JAX primitive whose name is another one."""


class Operator(NamedTuple):
    """An equation of a program.

    Args:
        name: Its name, of no other operator: the primitive, a number, and in parentheses the user's line.
        equation: JAX's equation.
        inputs: Numbers of the values that it reads.
        outputs: Numbers of the values that it makes.
    """

    name: str
    equation: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, *inputs: Any) -> Sequence[Any]:
        """Return the outputs."""
        from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

        pairs = zip(self.equation.invars, inputs, strict=True)
        read = [(atom, value) for atom, value in pairs if not isinstance(atom, Literal)]
        alone = Jaxpr((), [atom for atom, _ in read], self.equation.outvars, [self.equation])
        return jaxpr_as_fun(ClosedJaxpr(alone, ()))(*[value for _, value in read])


class JaxProgram:
    """A traced function.

    Args:
        function: As for ``jax.jit``, or a ``torch.nn.Module``.
        arguments: Its arguments: arrays or ``jax.ShapeDtypeStruct``, or trees of these; of a module tensors.
        name: Its name, for messages and tables.
        keywords: Its keyword arguments.

    Attributes:
        operators: In the order of the program; what no result depends on is left out.
        shapes: Shape and element type of each value, with ``shape`` and ``dtype``.
        arguments: Numbers of the values that are the leaves of the arguments.
        constants: Arrays and numbers that the function holds, by number of value.
        results: Numbers of the values that are the leaves of the results.
        signature: What the function takes and returns.

    Raises:
        DataError: It is no program of one device, or has side effects.
        SettingsError: JAX is not installed, or cannot trace the function with these arguments.
    """

    def __init__(
        self,
        function: Callable,
        arguments: Sequence[Any],
        name: str,
        keywords: Mapping[str, Any] | None = None,
    ):
        require_jax()
        self.name, self.operators, self.shapes, self.constants = name, [], [], {}
        call = as_jax(Call(function, arguments, keywords or {}))
        traced = trace(call)
        closed = traced.traced.jaxpr
        if closed.effects:
            kinds = sorted({type(effect).__name__ for effect in closed.effects})
            problem = f"has side effects ({', '.join(kinds)})"
            raise DataError(f"function {name}", problem, "Leave out callbacks and references (jax.new_ref)")
        self.signature = Signature.of(call, traced.results)
        self.arguments = [self._value(var.aval) for var in closed.jaxpr.invars]
        self.results = self._inline(closed, self.arguments)
        used = {*self.results}
        kept = []
        for operator in reversed(self.operators):
            if not used.isdisjoint(operator.outputs):
                used.update(operator.inputs)
                kept.append(operator)
        self.operators = kept[::-1]

    def _value(self, shape) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def _constant(self, value) -> int:
        number = self._value(shape_of(value))
        self.constants[number] = value
        return number

    def _inline(self, function, inputs: Sequence[int]) -> list[int]:
        """Add the operators of a jaxpr on these values, and return the values of its results."""
        import jax
        from jax.extend.core import Literal

        jaxpr = function.jaxpr
        held = [self._constant(constant) for constant in function.consts]
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*held, *inputs], strict=True))

        def read(atom) -> int:
            return self._constant(atom.val) if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            primitive = equation.primitive.name
            operands = tuple(read(atom) for atom in equation.invars)
            if _is_spread(equation):
                problem = f"is spread over devices already ({primitive})"
                raise DataError(f"function {self.name}", problem, "Give the function of one device")
            if primitive in _CALLS:
                outputs = self._inline(equation.params[_CALLS[primitive]], operands)
            elif primitive == "scan" and 1 <= equation.params["length"] <= UNROLL:
                shapes = [var.aval for var in equation.invars]
                outputs = self._inline(jax.make_jaxpr(_unrolled(equation.params))(*shapes), operands)
            elif primitive in _SAME:
                outputs = operands
            else:
                outputs = tuple(self._value(var.aval) for var in equation.outvars)
                label = f"{primitive}.{len(self.operators)}{_where(equation)}"
                self.operators.append(Operator(label, equation, operands, outputs))
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    @property
    def digest(self) -> str:
        """Digest of the operators without their lines, and of all shapes: of a program that is the same."""
        shapes = [f"{shape.dtype}{list(shape.shape)}" for shape in self.shapes]
        return digest([[operator.name.partition(" ")[0] for operator in self.operators], shapes])

    def graph(self, device: Device) -> tuple[CostGraph, list[int]]:
        """Return the cost graph, and the position in :attr:`operators` of each of its nodes.

        Operators on constants alone are no nodes: every device can do them for itself.

        Args:
            device: Whose roofline gives the times.

        Raises:
            DataError: Nothing in the program takes time.
        """
        recorder = Recorder(f"function {self.name}", device)
        nodes = []
        leaves = [*self.arguments, *self.constants]
        values: dict[int, Value] = {n: recorder.leaf(_bytes(self.shapes[n])) for n in leaves}
        for position, operator in enumerate(self.operators):
            opcode = _opcode(operator.equation)
            operands = [values[number] for number in operator.inputs]
            if opcode in LEAVES | OF_LEAVES and all(isinstance(value, frozenset) for value in operands):
                value: Value = frozenset().union(*operands)
            else:
                outputs = [self.shapes[number] for number in operator.outputs]
                known = [self.constants.get(number) for number in operator.inputs]
                flops, seconds = _cost(operator.equation, recorder, known)
                whole = seconds if operator.equation.primitive.name in _BODIES else None
                row = (opcode, operator.name, outputs[0].shape, sum(map(_bytes, outputs)), operands, flops)
                value = recorder.add(*row, whole)
                nodes.append(position)
            values.update(dict.fromkeys(operator.outputs, value))
        return recorder.graph(self.name), nodes


def shape_of(leaf):
    """Return shape and type of an argument as a ``jax.ShapeDtypeStruct``.

    Args:
        leaf: An array, a number or a ``jax.ShapeDtypeStruct``.
    """
    import jax

    return jax.ShapeDtypeStruct(jax.numpy.shape(leaf), jax.numpy.result_type(leaf))


def _bytes(shape) -> float:
    return float(prod(shape.shape)) * shape.dtype.itemsize


def _unrolled(loop: dict) -> Callable:
    """Return the function of a ``scan`` with these parameters, without a loop."""
    from jax import lax
    from jax.extend.core import jaxpr_as_fun

    body = jaxpr_as_fun(loop["jaxpr"])
    fixed = loop["num_consts"]
    end = loop["num_consts"] + loop["num_carry"]

    def run(*inputs):
        state = list(inputs[fixed:end])
        kept = []
        for step in range(loop["length"])[:: -1 if loop["reverse"] else 1]:
            rows = [lax.index_in_dim(whole, step, keepdims=False) for whole in inputs[end:]]
            made = body(*inputs[:fixed], *state, *rows)
            state = made[: end - fixed]
            kept.append([lax.expand_dims(value, (0,)) for value in made[end - fixed :]])
        columns = zip(*kept[:: -1 if loop["reverse"] else 1], strict=True)
        return [*state, *(lax.concatenate(column, 0) for column in columns)]

    return run


def _where(equation) -> str:
    """Return the line of the user's file that an equation stems from, in parentheses."""
    from jax._src.source_info_util import summarize

    place = summarize(equation.source_info).partition(" ")[0].rpartition("/")[2]
    return f" ({':'.join(place.split(':')[:2])})" if place else ""


def _is_spread(equation) -> bool:
    """Return whether an equation joins several devices; an axis that ``jax.vmap`` named is a number here."""
    axes = equation.params.get("axes", ())
    of_vmap = bool(axes) and all(isinstance(axis, int) for axis in axes)
    return equation.primitive.name in _SPREAD and not of_vmap


def _opcode(equation) -> str:
    name = equation.primitive.name
    return "reduce" if name.startswith("reduce_") else _HLO.get(name, name.replace("_", "-"))


def _cost(equation, recorder: Recorder, known: Sequence[Any] = ()) -> np.ndarray:
    """Return FLOPs and roofline seconds of an equation.

    Args:
        equation: JAX's equation.
        recorder: Has the device, and keeps the loops without a known count, each of which is one round.
        known: Value of each operand, None where it is not known; by default only literals are known.
    """
    device = recorder.device
    name = equation.primitive.name
    parameters = equation.params
    opcode = _opcode(equation)
    if inner := [parameters[body] for body in _BODIES.get(name, [_CALLS[name]] if name in _CALLS else [])]:
        choices = [body if isinstance(body, tuple) else (body,) for body in inner]
        rounds = parameters.get("length", 1)
        if name == "while":
            trips = _trip_count(equation, known or [getattr(atom, "val", None) for atom in equation.invars])
            if trips is None:
                recorder.uncounted.add((id(parameters["body_jaxpr"]), _where(equation)))
            else:
                rounds = trips
                choices = choices[:1]
        costs = [[_costs(function, recorder) for function in body] for body in choices]
        return rounds * sum(max(body, key=lambda cost: cost[1]) for body in costs)
    shapes = [list(atom.aval.shape) for atom in equation.invars]
    attributes = {}
    if opcode == "dot":
        (contracted, _), _ = parameters["dimension_numbers"]
        attributes["contracted"] = prod(shapes[0][axis] for axis in contracted)
    elif opcode == "convolution":
        attributes["output_features"] = shapes[1][parameters["dimension_numbers"].rhs_spec[0]]
    flops = operator_flops(opcode, equation.outvars[0].aval.shape, shapes, **attributes)
    size, moved = (sum(_bytes(v.aval) for v in body) for body in (equation.outvars, equation.invars))
    seconds = device.seconds(flops, size + (min(size, moved) if opcode in SPARSE else moved))
    return np.array([flops, 0.0 if opcode in LEAVES or name in _SAME else seconds])


def _costs(function, recorder: Recorder) -> np.ndarray:
    """Return FLOPs and seconds of a function, one operation after the other."""
    return sum(
        (_cost(equation, recorder) for equation in getattr(function, "jaxpr", function).eqns), np.zeros(2)
    )


def _trip_count(equation, known: Sequence[Any]) -> int | None:
    """Return the trip count of a ``while`` whose condition is ``i < N``, None where it is not known.

    As in HLO (:func:`fastslow_programs.compiler.cycle_estimates.trip_count`) a start that is not known is 0.

    Args:
        equation: The ``while``, whose body adds a constant to ``i`` and leaves ``N`` as it is.
        known: Value of each operand, None where it is not known.
    """
    parameters = equation.params
    condition, body = (parameters[f"{part}_jaxpr"].jaxpr for part in ("cond", "body"))
    outer, inner = (parameters[f"{part}_nconsts"] for part in ("cond", "body"))
    test = _source(condition, condition.outvars[0])
    if _primitive(test) != "lt":
        return None
    counter, bound = (_source(condition, atom) for atom in test.invars)
    state = condition.invars[outer:]
    if counter not in state:
        return None
    place = state.index(counter)
    changed = _source(body, body.outvars[place])
    if _primitive(changed) != "add":
        return None
    parts = [_source(body, atom) for atom in changed.invars]
    steps = [step for step in (_integer(getattr(part, "val", None)) for part in parts) if step is not None]
    last = _integer(getattr(bound, "val", None))
    if bound in condition.invars[:outer]:
        last = _integer(known[condition.invars.index(bound)])
    elif bound in state and body.outvars[state.index(bound)] is body.invars[inner + state.index(bound)]:
        last = _integer(known[outer + inner + state.index(bound)])
    if last is None or len(steps) != 1 or steps[0] < 1 or body.invars[inner + place] not in parts:
        return None
    start = _integer(known[outer + inner + place]) or 0
    return max(0, -((start - last) // steps[0]))


def _primitive(found: Any) -> str:
    """Return the name of the primitive of an equation, "" of an input or a literal."""
    return found.primitive.name if hasattr(found, "primitive") else ""


def _source(jaxpr, atom) -> Any:
    """Return the equation, the input or the literal that gives a value, which others only convert."""
    from jax.extend.core import Literal

    made = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    while not isinstance(atom, Literal) and atom in made:
        if made[atom].primitive.name not in _CONVERTED:
            return made[atom]
        (atom,) = made[atom].invars
    return atom


def _integer(value: Any) -> int | None:
    """Return an integer as a number of Python; None of anything else."""
    import jax

    if value is None:
        return None
    shape = shape_of(value)
    return int(value) if not shape.shape and jax.numpy.issubdtype(shape.dtype, np.integer) else None
