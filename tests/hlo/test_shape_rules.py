"""Programs that cannot exist: every instruction of the corpus, changed in every way that no program has."""

import re
from pathlib import Path

import pytest

from fastslow.competition.opcodes import NEAREST, OPCODES
from fastslow.competition.rules.opcode_rules import OPCODE_RULES
from fastslow.core.errors import DataError
from fastslow.hlo import forms
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module
from fastslow.hlo.module_checks import check_module
from fastslow.hlo.texts import split_text
from helpers.cases import cases

CORPUS = Path(__file__).with_name("corpus.txt").read_text()
PROGRAMS = (
    "of_many_kinds.hlo",
    "loop.hlo",
    "conditional.hlo",
    "convolution.hlo",
    "batched_dots.hlo",
    "collectives.hlo",
    "reshaping.hlo",
)
# where another output, operand or computation is another program that can exist
MAY_CHANGE = {
    "type": "parameter constant iota convert dot convolution custom-call rng-bit-generator",
    "size": "parameter constant iota rng-bit-generator",
    "rank": "parameter constant iota rng-bit-generator",
}


def program(name):
    text = re.search(rf"^==== {re.escape(name)}[^\n]*\n(.*?)(?=^====|\Z)", CORPUS, re.M | re.S)[1]
    (source,) = split_text(text)
    return forms.to_hlo(source)


def first_tensor(shape):
    while shape.tuple_shapes:
        shape = shape.tuple_shapes[0]
    return shape


def other_type(inst):
    first_tensor(inst.shape).element_type = PRIMITIVE_TYPES["u16"]


def one_larger(inst):
    shape = first_tensor(inst.shape)
    assert shape.dimensions
    shape.dimensions[0] += 1


def one_more_rank(inst):
    shape = first_tensor(inst.shape)
    assert shape.element_type != PRIMITIVE_TYPES["token"]
    shape.dimensions.append(7)
    shape.layout.minor_to_major.append(len(shape.dimensions) - 1)


def operand_lost(inst):
    assert inst.opcode not in ("tuple", "after-all", "infeed", "outfeed")
    del inst.operand_ids[-1]


def operand_more(inst):
    assert inst.opcode not in ("after-all",)
    inst.operand_ids.append(inst.operand_ids[0])


def computation_lost(inst):
    del inst.called_computation_ids[-1]


CHANGES = {
    "type": other_type,
    "size": one_larger,
    "rank": one_more_rank,
    "operand lost": operand_lost,
    "operand more": operand_more,
    "computation lost": computation_lost,
}


@cases("name", PROGRAMS)
def test_no_instruction_can_be_changed_alone(name):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    code = program(name)
    check_module(Path("x"), Module.FromString(code))
    passed = []
    for what, change in CHANGES.items():
        for part in range(len(Module.FromString(code).computations)):
            for place in range(len(Module.FromString(code).computations[part].instructions)):
                module = Module.FromString(code)
                inst = module.computations[part].instructions[place]
                try:
                    change(inst)
                except (AssertionError, IndexError):  # it has nothing of that kind
                    continue
                try:
                    check_module(Path("x"), module)
                except DataError:
                    continue
                passed.append((what, inst.opcode, inst.name))
    assert [each for each in passed if each[1] not in MAY_CHANGE.get(each[0], "").split()] == []


def test_every_known_opcode_has_a_row():
    assert sorted(OPCODE_RULES) == sorted({*OPCODES, *NEAREST})
