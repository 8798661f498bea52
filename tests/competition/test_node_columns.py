"""The names of the node features' columns and of the opcodes."""

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, OPCODES, RESHAPE, opcode_name


def test_every_constant_names_its_columns():
    names = node_columns.COLUMN_NAMES
    assert len(set(names)) == len(names) == 140
    for constant, value in vars(node_columns).items():
        if constant.isupper() and isinstance(value, int | slice):
            own = names[value] if isinstance(value, slice) else [names[value]]
            assert all(name.startswith(constant.lower()) for name in own), constant
    lists = {
        "parameter_number": "parameter_number",
        "window": "window_ base_dilation",
        "convolution": "input_batch input_feature kernel_ output_",
        "convolution_spatial": "input_spatial kernel_spatial",
        "edge_padding": "edge_padding_low edge_padding_high",
    }
    for name, blocks in node_columns.LISTS.items():
        columns = [column for block in blocks for column in names[block]]
        assert all(column.startswith(tuple(lists.get(name, name).split())) for column in columns), name
        assert not any(column.endswith(("_sum", "_product")) for column in columns), name
        assert len({block.stop - block.start for block in blocks}) == 1, name


def test_opcodes():
    assert (CONVOLUTION, DOT, RESHAPE) == (26, 34, 75)
    assert OPCODES["abs"] == 1
    assert OPCODES["transpose"] == 98
    assert OPCODES["tan"] == len(OPCODES) == 120
    assert [opcode_name(OPCODES[name]) for name in OPCODES] == list(OPCODES)
    assert opcode_name(0) == opcode_name(121) == "unknown"
