"""The names of the node features' columns and of the opcodes."""

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name


def test_every_constant_names_its_columns():
    named = set()
    for constant, value in vars(node_columns).items():
        if not constant.isupper() or not isinstance(value, int | slice):
            continue
        indices = range(140)[value] if isinstance(value, slice) else [value]
        assert all(node_columns.COLUMN_NAMES[index].startswith(constant.lower()) for index in indices), (
            constant
        )
        named.update(indices)
    assert named == set(range(140))
    assert len(set(node_columns.COLUMN_NAMES)) == len(node_columns.COLUMN_NAMES) == 140


def test_opcodes():
    assert (CONVOLUTION, DOT, RESHAPE) == (26, 34, 75)
    assert OPCODES["abs"] == 1
    assert OPCODES["transpose"] == 98
    assert OPCODES["tan"] == len(OPCODES) == 120
    assert [opcode_name(OPCODES[name]) for name in OPCODES] == list(OPCODES)
    assert opcode_name(0) == opcode_name(121) == "unknown"
