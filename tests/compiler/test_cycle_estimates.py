"""Sums of cycles over synthetic optimised modules."""

import json

import pytest

from fastslow.hlo.messages import PRIMITIVE_TYPES, Instruction, Module
from fastslow_programs.compiler.cycle_estimates import (
    BYTES_PER_CYCLE,
    CYCLES_PER_INSTRUCTION,
    Estimate,
    estimate,
    padded_bytes,
    trip_count,
)
from fastslow_programs.compiler.libtpu import CompilerError
from helpers.cases import cases

ALONE = CYCLES_PER_INSTRUCTION
"""Cycles of an instruction that has no estimate and, as most here, no shape."""


def shape(dims, order=None, kind="f32", **fields):
    """Return the fields of a shape, row-major by default."""
    order = range(len(dims))[::-1] if order is None else order
    layout = {"minor_to_major": list(order)}
    return {"element_type": PRIMITIVE_TYPES[kind], "dimensions": list(dims), "layout": layout, **fields}


def literal_of(value):
    """Return the literal of an integer, and an empty one of None."""
    return {} if value is None else {"s32s": [value]}


class Optimised:
    """An optimised module under construction, its computations by name; the entry is ``main``."""

    def __init__(self):
        self.module = Module()
        self.computations = {}

    def computation(self, name):
        if name not in self.computations:
            self.computations[name] = self.module.computations.add(name=name, id=len(self.computations) + 1)
        return self.computations[name]

    def add(self, where, opcode, cycles=None, called=(), **fields):
        """Append an instruction; its id."""
        computation = self.computation(where)
        settings = {} if cycles is None else {"window_config": {"estimated_cycles": str(cycles)}}
        new_id = 100 * computation.id + len(computation.instructions)
        called = [self.computation(name).id for name in called]
        computation.instructions.add(
            name=f"{opcode}.{new_id}",
            opcode=opcode,
            id=new_id,
            backend_config=json.dumps(settings).encode(),
            called_computation_ids=called,
            **fields,
        )
        computation.root_id = new_id
        return new_id

    def loop(self, where, body, condition, count, opcode="compare", direction="LT", bound="constant"):
        """Append a while with the condition i < count."""
        counter = self.add(condition, "parameter")
        literal = {"literal": {"s32s": [count]}} if count is not None else {}
        limit = self.add(condition, bound, **literal)
        self.add(condition, opcode, operand_ids=[counter, limit], comparison_direction=direction)
        state = self.add(where, "parameter")
        return self.add(where, "while", called=[body, condition], operand_ids=[state])

    def counted_loop(self, start, bound, step, through=(), counter="get-tuple-element", change="add"):
        """Append a while over (matrix, counter) with a fusion of a cycle in its body; None is not visible."""

        def number(where, value):
            found = self.add(where, "constant" if value is not None else "fusion", literal=literal_of(value))
            for opcode in through:
                found = self.add(where, opcode, operand_ids=[found])
            return found

        def count(where, opcode="get-tuple-element"):
            state = self.add(where, "parameter")
            return self.add(where, opcode, operand_ids=[state], tuple_index=1)

        matrix = self.add("body", "fusion", 1)
        changed = self.add("body", change, operand_ids=[count("body"), number("body", step)])
        self.add("body", "tuple", operand_ids=[matrix, changed])
        operands = [count("condition", counter), number("condition", bound)]
        self.add("condition", "compare", operand_ids=operands, comparison_direction="LT")
        matrix = self.add("main", "parameter")
        state = self.add("main", "tuple", operand_ids=[matrix, number("main", start)])
        return self.add("main", "while", called=["body", "condition"], operand_ids=[state])

    def trips(self, number):
        """Trip count of a while in ``main``."""
        main = self.computation("main")
        (found,) = (i for i in main.instructions if i.id == number)
        return trip_count(found, main, {part.id: part for part in self.module.computations})

    def estimate(self):
        self.module.entry_computation_id = self.computation("main").id
        return estimate(self.module)


@pytest.fixture
def program():
    return Optimised()


def test_cycles_add_up_and_what_has_none_counts_for_an_instruction(program):
    program.add("main", "parameter")
    program.add("main", "fusion", 100)
    program.add("main", "copy", 20)
    program.add("main", "fusion", called=["gather"])  # a gather fusion states none
    program.add("main", "custom-call")
    program.add("main", "tuple")
    program.add("gather", "gather", 999)  # is inside a fusion, whose estimate stands for it
    assert program.estimate() == Estimate(120 + 2 * ALONE, estimated=2, without_estimate=2)


def test_an_instruction_without_an_estimate_counts_the_bytes_it_reads_and_writes(program):
    source = program.add("main", "parameter", shape=shape((64, 256)))
    index = program.add("main", "parameter", shape=shape((3,), kind="s32"))
    program.add("main", "gather", shape=shape((8, 384)), operand_ids=[source, index])
    program.add("main", "fusion", 100, shape=shape((8, 384)), operand_ids=[source])
    for opcode in ("bitcast", "opt-barrier", "get-tuple-element", "tuple"):  # cost nothing by themselves
        program.add("main", opcode, shape=shape((64, 256)), operand_ids=[source])
    moved = 4 * (64 * 256 + 128 + 8 * 384)  # three numbers are padded to 128
    assert program.estimate() == Estimate(100 + ALONE + moved // BYTES_PER_CYCLE, 1, 1)


@cases(
    "fields, size",
    [
        (shape((8, 128)), 4 * 8 * 128),
        (shape((9, 129)), 4 * 16 * 256),
        (shape((9, 129), order=(0, 1)), 4 * 128 * 136),
        (shape((5, 9, 129)), 4 * 5 * 16 * 256),
        (shape((5, 9, 129), order=(0, 2, 1)), 4 * 128 * 136 * 9),
        (shape(()), 4),
        (shape((), kind="token"), 0),
        ({}, 0),
        (shape((), kind="tuple", tuple_shapes=[shape((8, 128)), shape((3,))]), 4 * (8 * 128 + 128)),
        ({**shape((8, 128)), "element_type": 19}, 8 * 128),
    ],
)
def test_bytes_are_padded_to_tiles(fields, size):
    assert padded_bytes(Instruction(shape=fields).shape) == size


def test_an_estimate_of_zero_is_one_and_a_configuration_that_is_no_json_states_none(program):
    program.add("main", "fusion", 0)
    assert program.estimate() == Estimate(0, 1, 0)
    program.add("main", "fusion", 7)
    program.add("main", "custom-call")
    program.computation("main").instructions[2].backend_config = b"\x08\x01"
    assert program.estimate() == Estimate(7 + ALONE, 2, 1)


def test_loops_within_loops_multiply_and_one_that_never_runs_costs_nothing(program):
    program.add("main", "fusion", 3)
    program.loop("main", "outer body", "outer condition", None)
    program.computation("outer condition").instructions[1].literal.s64s.append(5)  # a bound of 64 bits
    program.add("outer body", "fusion", 10)
    program.loop("outer body", "inner body", "inner condition", 4)
    program.add("inner body", "fusion", 2)
    program.add("inner body", "copy")
    program.loop("main", "idle", "never", 0)
    program.add("idle", "fusion", 10)
    assert program.estimate().cycles == 3 + 5 * (10 + 4 * (2 + ALONE))


@cases(
    "start, bound, step, times",
    [
        (0, 1000, 1, 1000),
        (990, 1000, 1, 10),  # each counted 1000
        (0, 1000, 100, 10),
        (1, 1000, 100, 10),
        (-5, 6, 3, 4),
        (7, 7, 1, 0),
        (9, 7, 2, 0),
        (None, 7, 2, 4),
        (3, 7, None, 4),
    ],
)
@pytest.mark.parametrize("through", [(), ("copy", "bitcast", "convert")])
def test_a_loop_runs_from_its_start_by_its_step(start, bound, step, times, through):
    program = Optimised()
    assert program.trips(program.counted_loop(start, bound, step, through)) == times


@cases("step, opcode", [(0, "get-tuple-element"), (-1, "get-tuple-element"), (1, "add")], program=Optimised)
def test_a_loop_without_end_or_with_another_counter_is_refused(program, step, opcode):
    loop = program.counted_loop(0, 5, step, counter=opcode)
    with pytest.raises(CompilerError, match=rf"while\.{loop}: its condition .*trip count is unknown"):
        program.trips(loop)


@cases("change", ["multiply", "shift-left", "subtract", "maximum", "select"], program=Optimised)
def test_a_loop_that_visibly_does_not_add_is_refused(program, change):
    loop = program.counted_loop(1, 1024, 2, change=change)
    with pytest.raises(CompilerError, match=rf"while\.{loop}: its condition .*trip count is unknown"):
        program.trips(loop)


def test_a_counter_that_a_fusion_hides_goes_by_one():
    program = Optimised()
    assert program.trips(program.counted_loop(2, 10, 3, change="fusion")) == 8


def test_a_conditional_costs_its_slowest_branch_and_a_call_its_computation(program):
    program.add("main", "conditional", called=["fast", "slow"])
    program.add("main", "call", called=["slow"])
    program.add("fast", "fusion", 1)
    program.add("slow", "fusion", 50)
    program.add("slow", "copy")
    assert program.estimate() == Estimate(2 * (50 + ALONE), 3, 2)


@cases(
    "condition",
    [
        {"count": 5, "direction": "LE"},
        {"count": 5, "opcode": "and"},
        {"count": 5, "bound": "parameter"},
        {"count": None},
    ],
    program=Optimised,
)
def test_an_unknown_trip_count_is_refused(program, condition):
    program.add("main", "fusion", 3)
    while_id = program.loop("main", "body", "condition", **condition)
    program.add("body", "fusion", 10)
    with pytest.raises(CompilerError, match=rf"while\.{while_id}: its condition .*trip count is unknown"):
        program.estimate()


def test_a_module_without_any_estimate_is_refused(program):
    program.add("main", "custom-call")
    with pytest.raises(CompilerError, match="no estimated_cycles"):
        program.estimate()
