"""Tables of a converted program: its opcodes, its configurable nodes and their layouts."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.tensors import format_layout
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module
from fastslow_programs.compiler.layout_choices import TiedChoice, tie
from fastslow_programs.compiler.layout_space import ConfigurableNode

_TYPE_NAMES = {number: name for name, number in PRIMITIVE_TYPES.items()}


def log10_configurations(choices: list[TiedChoice]) -> float:
    """Return the decimal logarithm of the number of configurations of tied choices."""
    return sum(math.log10(len(choice.options)) for choice in choices)


def _layouts(node: ConfigurableNode, role: int) -> int:
    """Return the number of possible layouts of one of a node's tensors, 0 where there is no choice."""
    return sum(
        len({option[choice.roles.index(role)] for option in choice.options} - {()})
        for choice in node.choices
        if role in choice.roles
    )


def count_opcodes(module: Module, nodes: list[ConfigurableNode]) -> pd.DataFrame:
    """Return a table of a module's opcodes, the most frequent first.

    One row per opcode: its number in the competition, the number of nodes and of configurable nodes, the
    maximum number of ``layouts`` of one tensor, the number of tied ``choices`` that its nodes share, and
    ``log10_configurations`` of these.
    """
    counts = Counter(i.opcode for c in module.computations for i in c.instructions)
    rows = []
    for opcode, count in counts.most_common():
        configurable = [node for node in nodes if node.opcode == opcode]
        layouts = [_layouts(node, role) for node in configurable for role in range(len(ROLES))]
        choices = tie(configurable)
        rows.append(
            {
                "opcode": opcode,
                "number": OPCODES.get(opcode, 0),
                "nodes": count,
                "configurable": len(configurable),
                "layouts": max(layouts, default=0),
                "choices": len(choices),
                "log10_configurations": round(log10_configurations(choices), 1),
            }
        )
    return pd.DataFrame(rows)


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


def list_layouts(arrays: Mapping[str, np.ndarray], config: int = -1) -> pd.DataFrame:
    """Return a table of the layouts that one configuration chooses.

    Args:
        arrays: Arrays of a layout file: ``node_config_ids`` (K,) and ``node_config_feat`` (C, K, 18).
        config: Number of the configuration, 0 to C - 1; -1 for the last one.

    Returns:
        One row per configurable node with the minor-to-major order of each tensor as in HLO text, ``{1,0}``;
        ``compiler`` where the compiler decides or the node has no such tensor.
    """
    layouts = arrays["node_config_feat"][config].reshape(-1, len(ROLES), LAYOUT_WIDTH).astype(int)
    rows = [map(format_layout, tensors) for tensors in layouts]
    return pd.DataFrame(rows, pd.Index(arrays["node_config_ids"], name="node"), ROLES)
