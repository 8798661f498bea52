"""The table of a converted program's configurable nodes."""

import pandas as pd

from fastslow.competition.layouts import ROLES
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module
from fastslow_programs.compiler.layout_space import ConfigurableNode

_TYPE_NAMES = {number: name for name, number in PRIMITIVE_TYPES.items()}


def _layouts(node: ConfigurableNode, role: int) -> int:
    """Return the number of possible layouts of one of a node's tensors, 0 where there is no choice."""
    return sum(
        len({option[choice.roles.index(role)] for option in choice.options} - {()})
        for choice in node.choices
        if role in choice.roles
    )


def list_configurable(module: Module, nodes: list[ConfigurableNode]) -> pd.DataFrame:
    """Return a table of a module's configurable nodes.

    One row per node: its number, name and opcode, and shape and number of layouts of each tensor.
    """
    by_node = {node.node: node for node in nodes}
    rows, number = [], 0
    for computation in module.computations:
        shape_of = {i.id: format_shape(i.shape) for i in computation.instructions}
        for instruction in computation.instructions:
            if node := by_node.get(number):
                row = {"node": number, "name": instruction.name, "opcode": node.opcode}
                shapes = [shape_of[i] for i in (instruction.id, *instruction.operand_ids)]
                for role, (tensor, shape) in enumerate(zip(ROLES, [*shapes, ""], strict=False)):
                    row |= {tensor: shape, f"{tensor}_layouts": _layouts(node, role)}
                rows.append(row)
            number += 1
    return pd.DataFrame(rows)


def format_shape(shape) -> str:
    """Format a shape as HLO text without layout, such as ``f32[8,128]``."""
    sizes = ",".join(map(str, shape.dimensions))
    return f"{_TYPE_NAMES.get(shape.element_type, '?')}[{sizes}]"
