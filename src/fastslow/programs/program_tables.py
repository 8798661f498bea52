"""Tables of a converted program: its opcodes, its configurable nodes and their layouts."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from fastslow.competition.opcodes import OPCODES
from fastslow.competition.schema import LAYOUT_WIDTH, ROLES
from fastslow.xla.layout_space import ConfigurableNode
from fastslow.xla.messages import PRIMITIVE_TYPES, Module

_TYPE_NAMES = {number: name for name, number in PRIMITIVE_TYPES.items()}


def log10_configurations(node: ConfigurableNode) -> float:
    """Return the decimal logarithm of the number of configurations of a node.

    Leaving the node to the compiler counts as one of them.
    """
    choices = math.prod(max(1, len(options)) for options in node.options)
    return math.log10(choices + any(node.options))


def count_opcodes(module: Module, nodes: list[ConfigurableNode]) -> pd.DataFrame:
    """Return a table of the opcodes, the most frequent first.

    Args:
        module: The program's HLO.
        nodes: Its configurable nodes.

    Returns:
        One row per opcode: its number in the competition, the number of nodes and of configurable nodes, the
        maximum number of ``layouts`` of one tensor, and ``log10_configurations`` of all its nodes together.
    """
    counts = Counter(i.opcode for c in module.computations for i in c.instructions)
    rows = []
    for opcode, count in counts.most_common():
        configurable = [node for node in nodes if node.opcode == opcode]
        layouts = [len(options) for node in configurable for options in node.options]
        rows.append(
            {
                "opcode": opcode,
                "number": OPCODES.get(opcode, 0),
                "nodes": count,
                "configurable": len(configurable),
                "layouts": max(layouts, default=0),
                "log10_configurations": round(sum(map(log10_configurations, configurable)), 1),
            }
        )
    return pd.DataFrame(rows)


def list_configurable(module: Module, nodes: list[ConfigurableNode]) -> pd.DataFrame:
    """Return a table of the configurable nodes.

    Args:
        module: The program's HLO.
        nodes: Its configurable nodes.

    Returns:
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
                for role, shape, options in zip(ROLES, [*shapes, ""], node.options, strict=False):
                    row |= {role: shape, f"{role}_layouts": len(options)}
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
    rows = [map(_format_layout, tensors) for tensors in layouts]
    return pd.DataFrame(rows, pd.Index(arrays["node_config_ids"], name="node"), ROLES)


def _format_layout(layout: np.ndarray) -> str:
    named = [str(dimension) for dimension in layout if dimension >= 0]
    return "{" + ",".join(named) + "}" if named else "compiler"
