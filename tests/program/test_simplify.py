"""A module is simplified as the compiler does before layout assignment."""

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module, message_classes
from fastslow.hlo.reader import read_hlo
from fastslow_programs.program.simplify import check_inlined, simplify
from helpers.cases import cases
from helpers.dot_module import add, varied_module

CONTRACT = {"dot": {"lhs_contracting": [1], "rhs_contracting": [0]}}


def module(form):
    """Two dots and a tanh: as they are, between instructions that do nothing, or in calls of one another."""
    hlo_module = Module(name="m", entry_computation_name="main", entry_computation_id=9)
    if form == "calls":
        inner = hlo_module.computations.add(name="inner", id=1)
        inner.root_id = add(inner, "tanh", (8, 8), add(inner, "parameter", (8, 8)))
        outer = hlo_module.computations.add(name="outer", id=2)
        weight = add(outer, "parameter", (8, 8), parameter_number=1)  # before the first
        product = add(outer, "dot", (8, 8), add(outer, "parameter", (8, 8)), weight, **CONTRACT)
        outer.root_id = add(outer, "call", (8, 8), product, called_computation_ids=[1])
    main = hlo_module.computations.add(name="main", id=9)
    last, weight = add(main, "parameter", (8, 8)), add(main, "parameter", (8, 8), parameter_number=1)
    for _ in range(2):
        if form == "calls":
            last = add(main, "call", (8, 8), last, weight, called_computation_ids=[2])
            continue
        if form in NOTHING:
            last = NOTHING[form](main, last)
        last = add(main, "tanh", (8, 8), add(main, "dot", (8, 8), last, weight, **CONTRACT))
    main.root_id = last
    return hlo_module


def pair(main, last):
    """The second part of a tuple, and a tuple of it alone."""
    both = add(main, "tuple", (), add(main, "tanh", (8, 8), last), last)
    part = add(main, "get-tuple-element", (8, 8), both, tuple_index=1)
    return add(main, "get-tuple-element", (8, 8), add(main, "tuple", (), part))


def dead(main, last):
    """A dot, a reshape of it and a loop over that: nobody uses them."""
    product = add(main, "dot", (8, 8), last, last, **CONTRACT)
    add(main, "while", (64,), add(main, "reshape", (64,), product))
    return last


def turned(main, last):
    """Three transposes that bring every dimension back."""
    for sizes, order in (((8, 2, 4), [2, 0, 1]), ((4, 8, 2), [2, 0, 1]), ((2, 4, 8), [2, 0, 1])):
        last = add(main, "transpose", sizes, last, dimensions=order)
    return last


NOTHING = {
    "reshape": lambda main, last: add(main, "reshape", (8, 8), last),
    "transpose": lambda main, last: add(main, "transpose", (8, 8), last, dimensions=[0, 1]),
    "there and back": lambda main, last: add(main, "reshape", (8, 8), add(main, "reshape", (64,), last)),
    "three reshapes": lambda main, last: add(
        main, "reshape", (8, 8), add(main, "reshape", (2, 32), add(main, "reshape", (64,), last))
    ),
    "turned": lambda main, last: add(
        main, "reshape", (8, 8), turned(main, add(main, "reshape", (2, 4, 8), last))
    ),
    "copies": lambda main, last: add(main, "copy", (8, 8), add(main, "copy", (8, 8), last)),
    "convert": lambda main, last: add(main, "convert", (8, 8), last),
    "bitcast": lambda main, last: add(main, "bitcast", (8, 8), last),
    "bitcast-convert": lambda main, last: add(main, "bitcast-convert", (8, 8), last),
    "broadcast": lambda main, last: add(main, "broadcast", (8, 8), last, dimensions=[0, 1]),
    "slice": lambda main, last: add(main, "slice", (8, 8), last),
    "concatenate": lambda main, last: add(main, "concatenate", (8, 8), last, dimensions=[1]),
    "set-dimension-size": lambda main, last: add(
        main, "set-dimension-size", (8, 8), last, add(main, "constant", ()), dimensions=[0]
    ),
    "a part of a tuple": pair,
    "dead": dead,
}


@cases("form", [*NOTHING, "calls"])
def test_what_does_nothing_leaves_the_graph_of_the_program_without_it(form):
    found, wanted = graph_arrays(simplify(module(form))), graph_arrays(module("plain"))
    assert len(graph_arrays(module(form))["node_opcode"]) > len(wanted["node_opcode"])
    for key in ("node_opcode", "node_feat", "edge_index"):
        np.testing.assert_array_equal(found[key], wanted[key])
    names = [i.name for c in simplify(module(form)).computations for i in c.instructions]
    assert len(set(names)) == len(names)


def test_a_reshape_in_a_call_undoes_one_before_it():
    hlo_module = Module(name="m", entry_computation_name="main", entry_computation_id=9)
    inner = hlo_module.computations.add(name="inner", id=1)
    inner.root_id = add(inner, "reshape", (8, 8), add(inner, "parameter", (64,)))
    main = hlo_module.computations.add(name="main", id=9)
    flat = add(main, "reshape", (64,), add(main, "parameter", (8, 8)))
    main.root_id = add(main, "tanh", (8, 8), add(main, "call", (8, 8), flat, called_computation_ids=[1]))
    (left,) = simplify(hlo_module).computations
    assert [i.opcode for i in left.instructions] == ["parameter", "tanh"]


@cases("axes, left", [([1, 0, 2], ["parameter", "tanh"]), ([2, 1, 0], 5 * ["x"])])
def test_a_reshape_reads_past_a_transpose_of_axes_of_size_1(axes, left):
    hlo_module = Module(name="m", entry_computation_name="main", entry_computation_id=9)
    main = hlo_module.computations.add(name="main", id=9)
    first = add(main, "reshape", (8, 1, 8), add(main, "parameter", (8, 8)))
    moved = add(main, "transpose", [(8, 1, 8)[axis] for axis in axes], first, dimensions=axes)
    main.root_id = add(main, "tanh", (8, 8), add(main, "reshape", (8, 8), moved))
    (simple,) = simplify(hlo_module).computations
    opcodes = [i.opcode for i in simple.instructions]
    assert opcodes == left or len(opcodes) == len(left)


def test_calls_that_double_are_refused_before_they_are_inlined():
    hlo_module = Module(name="m", entry_computation_name="main", entry_computation_id=40)
    for number in range(1, 41):
        part = hlo_module.computations.add(name=f"part {number}", id=number)
        last = add(part, "parameter", (8,))
        for _ in range(2 if number > 1 else 0):
            last = add(part, "call", (8,), last, called_computation_ids=[number - 1])
        part.root_id = last
    with pytest.raises(DataError, match="has .* instructions once its calls are inlined"):
        check_inlined("x", hlo_module)
    check_inlined("x", module("calls"))


def looped():
    """Return a module whose result is that of a loop, which calls two computations."""
    hlo_module = varied_module()
    main = hlo_module.computations[0]
    for number in (5, 6):
        called = hlo_module.computations.add(name=f"called {number}", id=number)
        called.root_id = add(called, "tanh", (2, 3, 4, 4), add(called, "parameter", (2, 3, 4, 4)))
    main.root_id = add(main, "while", (2, 3, 4, 4), main.root_id, called_computation_ids=[5, 6])
    return hlo_module


def mapped():
    """Return a module with an instruction that applies one computation to its elements."""
    module = looped()
    main = module.computations[0]
    main.root_id = add(main, "map", (2, 3, 4, 4), main.root_id, called_computation_ids=[5])
    return module


def called_wrongly():
    """Return a module with a call of a computation that has a parameter more than the call has operands."""
    module = looped()
    add(module.computations[1], "parameter", (2, 3, 4, 4), parameter_number=1)
    main = module.computations[0]
    main.root_id = add(main, "call", (2, 3, 4, 4), main.root_id, called_computation_ids=[5])
    return module


def with_tuples():
    """Return a module whose loop and custom call read a tuple; its parts are read from other instructions."""
    module = looped()
    main = module.computations[0]
    given = add(main, "parameter", (), parameter_number=7)
    part = add(main, "get-tuple-element", (2, 3, 4, 4), given, tuple_index=1)
    both = add(main, "tuple", (), part, main.root_id)
    loop = add(main, "while", (), both, called_computation_ids=[5, 6])
    looked_at = add(main, "custom-call", (2, 3, 4, 4), both)
    main.root_id = add(main, "tuple", (), looked_at, add(main, "get-tuple-element", (2, 3, 4, 4), loop))
    return module


def converted():
    """Return a module with conversions to another type and back."""
    module = varied_module()
    main = module.computations[0]
    for name in ("pred", "f32"):
        main.root_id = add(main, "convert", (2, 3, 4, 4), main.root_id)
        main.instructions[-1].shape.element_type = PRIMITIVE_TYPES[name]
    return module


@cases("make", [varied_module, looped, mapped, called_wrongly, with_tuples, converted])
def test_nothing_else_is_changed(make):
    """What moves or converts something, calls computations or reads tuples, and a broken call."""
    before = make()
    assert simplify(before) == make() == before


def called_directly():
    """Return a module that calls a computation which calls no other."""
    hlo_module = module("calls")
    main = hlo_module.computations[-1]
    main.root_id = add(main, "call", (8, 8), main.root_id, called_computation_ids=[1])
    del hlo_module.computations[1]
    for instruction in main.instructions[2:4]:
        instruction.opcode = "dot"
        instruction.called_computation_ids[:] = []
    return hlo_module


@cases("make", [lambda: module("calls"), called_directly])
def test_instructions_of_calls_have_numbers_of_their_own_in_newer_modules(make):
    """XLA reads the lower 32 bits of an id, and its newer modules number each computation from 1."""
    called = make()
    main = called.computations[-1]
    for _ in range(8):
        main.root_id = add(main, "tanh", (8, 8), main.root_id)
    opcodes = [[i.opcode for i in computation.instructions] for computation in simplify(called).computations]
    for high, computation in enumerate(reversed(called.computations)):
        new = {i.id: (high << 32) + n for n, i in enumerate(computation.instructions, start=1)}
        computation.root_id = new[computation.root_id]
        for instruction in computation.instructions:
            instruction.id = new[instruction.id]
            instruction.operand_ids[:] = [new[number] for number in instruction.operand_ids]
    given = {i.id for computation in called.computations for i in computation.instructions}
    simplified = simplify(called).computations
    assert [[i.opcode for i in computation.instructions] for computation in simplified] == opcodes
    for computation in simplified:
        numbers = [i.id for i in computation.instructions]
        assert len({number % 2**32 for number in numbers}) == len(numbers)
        assert {number >> 32 for number in {*numbers} - given} <= {max(given) >> 32}


def test_what_only_dead_code_calls_goes_with_it():
    hlo_module = looped()
    hlo_module.computations[0].root_id = 1
    (left,) = simplify(hlo_module).computations
    assert [i.opcode for i in left.instructions] == ["parameter", "parameter"], "parameters stay"


WITH_TYPE = message_classes(  # of the program, which is beside its instructions
    "tests.shapes",
    """
message Shape { repeated int64 dimensions = 3; repeated bool is_dynamic_dimension = 6; }
message ProgramShape { repeated Shape parameters = 1; Shape result = 2; }
message Module { ProgramShape program_shape = 4; }
""",
)["Module"]


@cases("size, left", [(4, False), (-1, True)])
def test_a_dynamic_dimension_has_its_bound_as_size(size, left):
    """One without a bound stays dynamic, also within a tuple and in the type of the program."""
    made = varied_module()
    main = made.computations[0]
    main.root_id = add(main, "tuple", (), main.root_id)
    shapes = [i.shape for i in main.instructions[:-1]]
    shapes.append(main.instructions[-1].shape.tuple_shapes.add(dimensions=[2, 3, 4, 4]))
    for shape in shapes:
        shape.dimensions[-1] = size
        shape.is_dynamic_dimension[:] = [False] * (len(shape.dimensions) - 1) + [True]
    typed = WITH_TYPE()
    for shape in (typed.program_shape.parameters.add(), typed.program_shape.result):
        shape.dimensions[:] = [2, size]
        shape.is_dynamic_dimension[:] = [False, True]
    simple = simplify(Module.FromString(made.SerializeToString() + typed.SerializeToString()))
    *others, last = simple.computations[0].instructions
    assert len(others) == len(main.instructions) - 1
    for shape in (*(i.shape for i in others), *last.shape.tuple_shapes):
        assert shape.dimensions[-1] == size
        assert [*shape.is_dynamic_dimension] == [False] * (len(shape.dimensions) - 1) + [left]
    of_program = WITH_TYPE.FromString(simple.SerializeToString()).program_shape
    for shape in (*of_program.parameters, of_program.result):
        assert [*shape.is_dynamic_dimension] == [False, left]


TEXT = """HloModule m
inner { ROOT p = f32[8] parameter(0) }
sends {
  x = f32[8] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t)
  ROOT y = f32[8] add(x, x)
}
ENTRY main {
  x = f32[8] parameter(0)
  unused = f32[8] parameter(1)
  pure = f32[8] custom-call(x), custom_call_target="pure"
  told = f32[8] custom-call(x), custom_call_target="told", custom_call_has_side_effect=true
  first = f32[8] copy(x)
  second = f32[8] negate(x), control-predecessors={first}
  idle = f32[8] call(x), to_apply=inner
  c = pred[] constant(true)
  sent = f32[8] conditional(c, x, x), true_computation=sends, false_computation=sends
  ROOT z = f32[8] tanh(x)
}
"""


def test_what_has_an_effect_stays_though_nobody_uses_its_value(tmp_path):
    pytest.importorskip("jaxlib", reason="jaxlib reads the text of HLO")
    (tmp_path / "m.hlo").write_text(TEXT)
    found = simplify(read_hlo(tmp_path / "m.hlo").module)
    names = {c.name: [i.name for i in c.instructions] for c in found.computations}
    left = {"x", "unused", "told", "first", "second", "c", "sent", "z"}
    assert {name.partition(".")[0] for name in names["main"]} == left
    assert set(names) == {"sends", "main"} and len(names["sends"]) == 4
