"""Programs that cannot exist: every instruction of the corpus, changed in every way that no program has."""

import re
from pathlib import Path

import pytest
from google.protobuf import text_format

from fastslow.competition.opcodes import NEAREST, OPCODES
from fastslow.competition.rules.opcode_rules import OPCODE_RULES
from fastslow.core.errors import DataError
from fastslow.hlo import forms
from fastslow.hlo.messages import PRIMITIVE_TYPES, CheckedModule, Module
from fastslow.hlo.module_checks import check_module
from fastslow.hlo.texts import split_text
from helpers.cases import cases
from helpers.hlo_message import Program

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


def last_larger(inst):
    inst.shape.dimensions[-1] += 1


def other_precision(inst):
    first_tensor(inst.shape).element_type = PRIMITIVE_TYPES["f16"]


def dynamic(inst):
    inst.shape.is_dynamic_dimension[:] = [True] * len(inst.shape.dimensions)


def contracts_less(inst):
    del inst.dot.rhs_contracting[:]


def swapped(inst):
    inst.operand_ids[:] = [*inst.operand_ids[2:], *inst.operand_ids[:2]]


def a_tensor_twice(inst):
    inst.operand_ids[1] = inst.operand_ids[0]


def no_direction(inst):
    inst.comparison_direction = "IS"


ALONE = {
    "a call of another precision": ("reshaping.hlo", "call", other_precision),
    "an element of another precision": ("loop.hlo", "get-tuple-element", other_precision),
    "a reshape of another precision": ("reshaping.hlo", "reshape", other_precision),
    "a transpose of another precision": ("reshaping.hlo", "transpose", other_precision),
    "a permute of another precision": ("collectives.hlo", "collective-permute", other_precision),
    "dynamic sizes from none": ("reshaping.hlo", "transpose", dynamic),
    "a larger bound": ("bounded_dynamic.hlo", "set-dimension-size", one_larger),
    "a bound that no number sets": ("bounded_dynamic.hlo", "set-dimension-size", a_tensor_twice),
    "a product of an unknown size and another": ("unbounded_dynamic.hlo", "dot", last_larger),
    "a scaled product of other sizes": ("scaled_dot_f4.hlo", "scaled-dot", contracts_less),
    "rows to all in another order": ("newer_collectives.hlo", "ragged-all-to-all", swapped),
    "a comparison of no direction": ("loop.hlo", "compare", no_direction),
}


@cases("name", ALONE)
def test_an_instruction_that_no_program_has_is_refused(name):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    source, opcode, change = ALONE[name]
    module = CheckedModule.FromString(program(source))
    for part in module.computations:
        for inst in part.instructions:
            if inst.opcode == opcode:
                change(inst)
        part.ClearField("program_shape")
    module.ClearField("program_shape")
    with pytest.raises(DataError, match=f"HLO module .*{opcode} "):
        check_module(Path("x"), Module.FromString(module.SerializeToString()))


@cases(
    "change, said",
    [
        (lambda shape: shape.parameters.add(), "1 parameter, and 2 in the program_shape"),
        (lambda shape: shape.parameters[0].dimensions.append(7), r"p is f32\[2,3\], and f32\[2,3,7\] in the"),
        (lambda shape: shape.result.dimensions.__setitem__(0, 5), r"n is f32\[2,3\], and f32\[5,3\] in the"),
    ],
)
def test_a_program_shape_that_is_another_names_the_instruction_and_both(change, said):
    source = Program()
    operand = source.add("parameter", (2, 3), name="p")
    source.computation.root_id = source.add("negate", (2, 3), [operand], name="n")
    source.computation.id = source.module.entry_computation_id = 1
    module = CheckedModule.FromString(source.module.SerializeToString())
    (part,) = module.computations
    for owner, name in ((part, "computation"), (module, "the module")):
        for inst, shape in zip(
            part.instructions, (owner.program_shape.parameters.add(), owner.program_shape.result), strict=True
        ):
            shape.CopyFrom(inst.shape)
        check_module(Path("x"), Module.FromString(module.SerializeToString()))
        before = owner.program_shape.SerializeToString()
        change(owner.program_shape)
        with pytest.raises(DataError, match=f"{said}.* {name}"):
            check_module(Path("x"), Module.FromString(module.SerializeToString()))
        owner.program_shape.ParseFromString(before)


IMPOSSIBLE = {
    "rng": "a = f32[] parameter(0); b = s32[] parameter(1); "
    "ROOT r = f32[4] rng(a, b), distribution=rng_uniform",
    "dynamic-slice": "a = f32[4,4] parameter(0); i = s32[] parameter(1); j = u32[] parameter(2); "
    "ROOT r = f32[1,1] dynamic-slice(a, i, j), dynamic_slice_sizes={1,1}",
    "bitcast-convert": "a = c64[4] parameter(0); ROOT r = s64[4] bitcast-convert(a)",
    "cholesky": "a = s32[4,4] parameter(0); ROOT r = s32[4,4] cholesky(a), lower=true",
    "subtract": "a = pred[4] parameter(0); ROOT r = pred[4] subtract(a, a)",
    "add": "a = f32[4] parameter(0); t = (f32[4]) tuple(a); ROOT r = (f32[4]) add(t, t)",
    "convert": "t = token[] after-all(); ROOT r = f32[] convert(t)",
    "batch-norm-training": "a = s32[4,8] parameter(0); s = s32[8] parameter(1); ROOT r = (s32[4,8], s32[8], "
    "s32[8]) batch-norm-training(a, s, s), epsilon=0.1, feature_index=1",
    "rng-bit-generator by ThreeFry": "a = u64[3] parameter(0); "
    "ROOT r = u32[9] rng-bit-generator(a), algorithm=rng_three_fry",
    "rng-bit-generator by Philox": "a = u32[2] parameter(0); "
    "ROOT r = u32[9] rng-bit-generator(a), algorithm=rng_philox",
    "rng-bit-generator of a table": "a = u64[1,2] parameter(0); "
    "ROOT r = u32[9] rng-bit-generator(a), algorithm=rng_default",
    "rng-get-and-update-state": "ROOT r = u32[2] rng-get-and-update-state(), delta=1",
    "all-to-all": "a = f32[4] parameter(0); b = f32[8] parameter(1); "
    "ROOT r = (f32[4], f32[8]) all-to-all(a, b), replica_groups={{0,1}}",
    "all-gather": "a = f32[4,8] parameter(0); "
    "ROOT s = f32[16,8] all-gather(a), replica_groups={{0,1}}, dimensions={0}",
    "all-gather-start": "a = f32[4,8] parameter(0); s = (f32[4,8], f32[9,8]) all-gather-start(a), "
    "replica_groups={{0,1}}, dimensions={0}; ROOT r = f32[9,8] all-gather-done(s)",
    "all-gather of a tuple": "a = f32[4] parameter(0); "
    "ROOT r = (f32[8]) all-gather(a), replica_groups={{0,1}}, dimensions={0}",
    "collective-permute": "a = f32[4] parameter(0); "
    "ROOT r = (f32[4]) collective-permute(a), source_target_pairs={{0,1},{1,0}}",
    "bitcast": "a = f32[4] parameter(0); ROOT r = (f32[4]) bitcast(a)",
    "rng-bit-generator without bits": "a = u64[2] parameter(0); "
    "ROOT r = (u64[2]) rng-bit-generator(a), algorithm=rng_default",
    "ragged-dot": "a = f32[8,6] parameter(0); b = f32[3,6,5] parameter(1); g = s32[3] parameter(2); "
    "ROOT r = s8[8,5] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
    "lhs_ragged_dims={0}, rhs_group_dims={0}",
    "ragged-dot of groups": "a = f32[8,6] parameter(0); b = f32[3,6,5] parameter(1); "
    "g = f32[3] parameter(2); ROOT r = f32[8,5] ragged-dot(a, b, g), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "set-dimension-size": "a = f32[4] parameter(0); n = u16[] parameter(1); "
    "ROOT r = f32[<=4] set-dimension-size(a, n), dimensions={0}",
    "dynamic-reshape": "a = f32[4] parameter(0); n = f32[] parameter(1); "
    "ROOT r = f32[4] dynamic-reshape(a, n)",
    "stochastic-convert": "a = f32[4] parameter(0); b = u32[4] parameter(1); "
    "ROOT r = s32[4] stochastic-convert(b, a)",
    "topk": "a = f32[8] parameter(0); ROOT r = (f32[3], u16[3]) topk(a), k=3, largest=true",
    "copy-start": "a = f32[4] parameter(0); s = (f32[4], f32[4], f32[]) copy-start(a); "
    "ROOT r = f32[4] copy-done(s)",
}


@cases("name", IMPOSSIBLE)
def test_what_the_parser_accepts_and_no_program_has_is_refused(name):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    lines = IMPOSSIBLE[name].replace("; ", "\n ")
    opcode = name.split()[0]
    code = forms.to_hlo(f"HloModule m\n\nENTRY main {{\n {lines}\n}}\n")
    with pytest.raises(DataError, match=f"HLO module 'm': {opcode} "):
        check_module(Path("x"), Module.FromString(code))


ATTRIBUTES = """HloModule m, replica_count=4

sum {
 x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT z = f32[] add(x, y)
}

ENTRY main {
 a = f32[4,8] parameter(0)
 s = f32[8] parameter(1)
 n = (f32[4,8], f32[8], f32[8]) batch-norm-training(a, s, s), epsilon=0.1, feature_index=1
 g = (f32[4,8], f32[8], f32[8]) batch-norm-grad(a, s, s, s, a), epsilon=0.1, feature_index=1
 i = f32[4,8] batch-norm-inference(a, s, s, s, s), epsilon=0.1, feature_index=1
 p = f32[4,8] reduce-precision(i), exponent_bits=5, mantissa_bits=10
 m = f32[4,4] parameter(2)
 t = f32[4,8] triangular-solve(m, p), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
 k = (f32[4,3], s32[4,3]) topk(t), k=3, largest=true
 u = u64[2] parameter(3)
 b = (u64[2], u32[9]) rng-bit-generator(u), algorithm=rng_three_fry
 w = f32[5,6,7] parameter(4)
 j = s32[5,3,1] parameter(5)
 v = f32[5,3,7] gather(w, j), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1},
  operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1,7}
 c = f32[5,6,7] scatter(w, j, v), update_window_dims={2}, inserted_window_dims={1},
  scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0},
  index_vector_dim=2, to_apply=sum
 r = f32[4,8] all-reduce(t), replica_groups={{0,1},{2,3}}, to_apply=sum
 h = f32[8,8] all-gather(r), replica_groups=[2,2]<=[4], dimensions={0}
 o = f32[8,8] all-to-all(h), replica_groups={{0,1,2,3}}, dimensions={1}
 q = (f32[8,8], f32[8,8]) all-to-all(o, o), replica_groups={{0,1},{2,3}}
 e = f32[8,8] collective-permute(o), source_target_pairs={{0,1},{1,0}}
 l = (f32[8,8], f32[8,8], u32[]) copy-start(e)
 d = f32[8,8] copy-done(l)
 x0 = s32[3] constant({1, 2, 3})
 x1 = bf16[3] constant({1, 2, 3})
 x2 = s32[4,5] iota(), iota_dimension=1
 x3 = f32[8] custom-call(s), custom_call_target="w", operand_layout_constraints={f32[8]{0}}
 ROOT all = ((f32[4,8], f32[8], f32[8]), (f32[4,8], f32[8], f32[8]), (f32[4,3], s32[4,3]), (u64[2], u32[9]),
  f32[5,6,7], (f32[8,8], f32[8,8]), f32[8,8]) tuple(n, g, k, b, c, q, d)
}
"""
# an instruction of it, and what takes the place of its field of that name
NO_PROGRAM_HAS = """
p exponent_bits: 0
p exponent_bits: 5000000000
p mantissa_bits: -1
n feature_index: 0
n feature_index: 2
n operand_ids: [%a, %s, %a]
g feature_index: 0
g operand_ids: [%a, %s, %s, %s, %s]
i feature_index: -1
t triangular_solve_options { left_side: true }
t triangular_solve_options { left_side: false transpose_a: 1 }
t triangular_solve_options { left_side: true transpose_a: 4 }
k k: 2
k k: 9
b rng_algorithm: 3
b shape { element_type: 13 }
v gather { offset_dims: 2 collapsed_slice_dims: 1 start_index_map: 1 operand_batching_dims: 0
 index_vector_dim: 2 }
v gather { offset_dims: 2 collapsed_slice_dims: 1 start_index_map: 0 operand_batching_dims: 0
 indices_batching_dims: 0 index_vector_dim: 2 }
v gather { offset_dims: 2 collapsed_slice_dims: 1 start_index_map: 1 operand_batching_dims: 0
 indices_batching_dims: 1 index_vector_dim: 2 }
c scatter { update_window_dims: 2 inserted_window_dims: 1 scatter_dims_to_operand_dims: 1
 operand_batching_dims: 0 indices_batching_dims: 2 index_vector_dim: 2 }
c scatter { update_window_dims: 2 inserted_window_dims: 1 scatter_dims_to_operand_dims: 1
 operand_batching_dims: 0 indices_batching_dims: 5 index_vector_dim: 2 }
r devices { replica_groups { replica_ids: [0, 1] } replica_groups { replica_ids: [1, 2] } }
r devices { replica_groups { replica_ids: [0, 1] } replica_groups { replica_ids: [2, 7] } }
r devices { replica_groups { replica_ids: [0, -1] } }
r devices { replica_groups { replica_ids: [0, 1] } replica_groups { } }
h iota_groups { num_groups: 1 num_devices_per_group: 4 reshape_dims: 4 transpose_perm: 0 }
h iota_groups { num_groups: 2 num_devices_per_group: 2 reshape_dims: 5 transpose_perm: 0 }
h iota_groups { num_groups: 2 num_devices_per_group: 2 reshape_dims: 4 transpose_perm: 1 }
h iota_groups { num_groups: 0 num_devices_per_group: 2 }
o devices { replica_groups { replica_ids: [0, 1, 2] } }
q devices { replica_groups { replica_ids: [0, 1, 2, 3] } }
e source_target_pairs { source: 0 target: 1 }
e source_target_pairs { source: -1 target: 3 }
d operand_ids: %q
x0 literal { shape { element_type: 4 dimensions: 3 } s32s: [1, 2] }
x0 literal { shape { element_type: 4 dimensions: 3 } s64s: [1, 2, 3] }
x0 literal { s32s: [1, 2, 3] }
x1 literal { shape { element_type: 16 dimensions: 3 } bf16s: "12345" }
x2 dimensions: []
x2 dimensions: [0, 1]
x3 operand_shapes_with_layout: []
x3 operand_shapes_with_layout { element_type: 11 dimensions: 9 layout { minor_to_major: 0 } }
x3 operand_shapes_with_layout { element_type: 16 dimensions: 8 layout { minor_to_major: 0 } }
x3 shape { element_type: 11 dimensions: 8 layout { } }
"""


def with_field(code, line):
    """Return a module in which an instruction has another value of a field, by ``name field: value``."""
    name, _, text = line.partition(" ")
    field = text.split()[0].removesuffix(":")
    module = CheckedModule.FromString(code)
    (*_, main) = module.computations
    by_name = {inst.name: inst for inst in main.instructions}
    inst = by_name[name]
    if field != "source_target_pairs":  # a pair is added to those
        inst.ClearField(field)
    text_format.Merge(re.sub(r"%(\w+)", lambda match: str(by_name[match[1]].id), text), inst)
    return Module.FromString(module.SerializeToString())


@cases("line", re.split(r"\n(?=\w)", NO_PROGRAM_HAS.strip()))
def test_an_attribute_that_no_program_has_is_refused(line):
    pytest.importorskip("jaxlib.xla_client", reason="text needs jaxlib, an optional requirement")
    code = forms.to_hlo(ATTRIBUTES)
    check_module(Path("x"), Module.FromString(code))
    with pytest.raises(DataError, match="HLO module 'm': "):
        check_module(Path("x"), with_field(code, line))


def test_an_attribute_of_broken_bytes_is_refused():
    module = Program()
    module.computation.root_id = module.add("parameter", (2,))
    module.module.entry_computation_id = module.computation.id
    check_module(Path("x"), module.module)
    module.computation.instructions[0].MergeFromString(b"\xe2\x05\x02\xff\xff")  # of field 92
    with pytest.raises(DataError, match="an attribute cannot be read"):
        check_module(Path("x"), module.module)


def test_every_known_opcode_has_a_row():
    assert sorted(OPCODE_RULES) == sorted({*OPCODES, *NEAREST})
