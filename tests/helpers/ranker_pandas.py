"""The ranker's table in straightforward pandas, one row per (configuration, node, tensor).

The reference of the tests, written from the definitions in
``features/README.md``.
"""

from itertools import pairwise
from math import ceil, prod, sqrt

import numpy as np
import pandas as pd

from fastslow.competition import node_columns
from fastslow.competition.opcodes import opcode_name
from fastslow.features.graph import Graph

ROLES = ("output", "input", "kernel")
KINDS = ("convolution", "dot", "reshape")


def physical_sums(graph: Graph) -> pd.DataFrame:
    """Return the columns of ``fastslow.rankers.table.physical_sums``, one row per configuration."""
    nodes, layouts = node_table(graph), [[int(a) for a in row if a >= 0] for row in graph.layouts]
    chosen = long_table(graph)
    parts = [tensor_sums(nodes, layouts, chosen), node_sums(nodes, layouts, chosen)]
    parts.append(copy_sums(graph, nodes, layouts, chosen))
    table = pd.concat(parts, axis=1).reindex(range(graph.num_configs)).fillna(0.0)
    moved = [name for name in table if name.endswith(("copied_bytes", "reshape_moved_bytes"))]
    table["moved_bytes"] = table[moved].sum(axis=1)
    whole = {"bytes": sum(whole_bytes(node["dims"], node["bytes"]) for node in nodes)}
    whole["flops"] = sum(node["flops"] for node in nodes)
    for unit, total in whole.items():
        sizes = [name for name in table if name.endswith(f"_{unit}")]
        table[sizes] /= max(1, total)
        table = table.rename(columns={name: f"{name}_share" for name in sizes})
    return table


def long_table(graph: Graph) -> pd.DataFrame:
    """Return columns config, node, output, input, kernel: one row per pair, with its layout codes."""
    codes = graph.choices.layout_codes().astype(int)
    configs, nodes = (axis.ravel() for axis in np.indices(codes.shape[:2]))
    codes = dict(zip(ROLES, codes.reshape(-1, 3).T, strict=True))
    return pd.DataFrame({"config": configs, "node": nodes, **codes})


def sum_distinct(chosen: pd.DataFrame, keys: list[str], terms) -> pd.DataFrame:
    """Sum per configuration ``terms`` of the keys of each row, called once per distinct combination."""
    distinct = chosen[keys].drop_duplicates()
    rows = [terms(*row) or {} for row in distinct.itertuples(index=False)]
    table = distinct.join(pd.DataFrame(rows, index=distinct.index).astype(float).fillna(0.0))
    joined = chosen[["config", *keys]].merge(table, on=keys)
    return joined.drop(columns=keys).groupby("config").sum()


def node_table(graph: Graph) -> list[dict]:
    """Return shapes, kind and work of every configurable node."""
    paired = {(int(p), 0) for p, _, _ in graph.pairs} | {(int(c), int(r)) for _, c, r in graph.pairs}
    nodes = []
    for position, node in enumerate(graph.config_index):
        dims = [[int(size) for size in row if size > 0] for row in graph.tensor_sizes[position]]
        nodes.append(
            {
                "kind": opcode_name(graph.node_opcode[node]),
                "dims": dims,
                "bytes": [int(size) for size in graph.tensor_bytes[position]],
                "feat": graph.node_feat[node],
                "flops": flops(opcode_name(graph.node_opcode[node]), dims, graph.node_feat[node]),
                "defaults": [
                    [int(a) for a in layout if a >= 0] for layout in graph.default_layouts[position]
                ],
                "paired": [(position, role) in paired for role in range(3)],
            }
        )
    return nodes


def whole_bytes(dims: list[list[int]], element_bytes: list[int]) -> int:
    """Return the bytes of a node's tensors without padding."""
    return sum(prod(sizes) * size for sizes, size in zip(dims, element_bytes, strict=True) if sizes)


def flops(kind: str, dims: list[list[int]], feat: np.ndarray) -> float:
    """Return the floating-point operations of a node."""
    if kind not in ("convolution", "dot") or not all(dims):
        return 0.0
    output, lhs, rhs = (prod(sizes) for sizes in dims)
    if kind == "convolution":
        return 2 * output * rhs / dims[2][int(feat[node_columns.KERNEL_OUTPUT_FEATURE])]
    batch = prod(dims[0][: max(0, len(dims[1]) + len(dims[2]) - len(dims[0]) - 2)])
    work = sqrt(output * lhs * rhs / batch)
    whole = work == round(work) and not (output % batch or lhs % batch or rhs % batch)
    return 2 * (work if whole else sqrt(output * lhs * rhs))


def full_layout(layout: list[int], rank: int) -> list[int]:
    """Return the minor-to-major order of all axes: those named, then the others in row-major order."""
    return layout + [axis for axis in range(rank - 1, -1, -1) if axis not in layout]


def fits(dims: list[int], layout: list[int]) -> bool:
    """Return whether the tensor is known and has the axes that the layout names."""
    return bool(dims) and all(axis < len(dims) for axis in layout) and len(set(layout[:2])) == len(layout[:2])


def padded_volume(dims: list[int], layout: list[int]) -> int:
    """Return the elements of a tensor after padding to whole tiles."""
    sizes = [dims[axis] for axis in full_layout(layout, len(dims))]
    tiles = [ceil(size / unit) * unit for size, unit in zip(sizes, (128, 8), strict=False)]
    return prod([*tiles, *sizes[2:]])


def tensor_terms(node: dict, role: int, layout: list[int]) -> dict | None:
    """Return what one tensor under one layout adds to the sums; None if the layout does not fit it."""
    dims = node["dims"][role]
    if not fits(dims, layout):
        return None
    order, default = full_layout(layout, len(dims)), node["defaults"][role]
    minor, second = dims[order[0]], dims[order[1]] if len(dims) > 1 else None
    volume, padded = prod(dims), padded_volume(dims, layout)
    off_default = bool(layout and default) and layout != default
    both = padded + (padded_volume(dims, default) if fits(dims, default) else 0)
    size, ratio = volume * node["bytes"][role], padded / volume
    lanes, sublanes = minor % 128 != 0, second is not None and second % 8 != 0
    reordered = [axis for axis in order if dims[axis] > 1] != [
        axis for axis in range(len(dims) - 1, -1, -1) if dims[axis] > 1
    ]
    name = axis_name(node, role, order[0])
    terms = {
        "left": not layout,
        "lane_violations": lanes,
        "sublane_violations": sublanes,
        "largest_not_minor": minor < max(dims),
        "padded_bytes": size * ratio,
        "wasted_bytes": size * (ratio - 1),
        "lane_violating_bytes": size * lanes,
        "sublane_violating_bytes": size * sublanes,
        "largest_not_minor_bytes": size * (minor < max(dims)),
        "reordered_bytes": size * reordered,
        "unpaired_reordered_bytes": size * (reordered and not node["paired"][role]),
        "off_default": off_default,
        "off_default_bytes": size * off_default,
        "off_default_padded_bytes": both * node["bytes"][role] * off_default,
    }
    for axis in axis_names(node["kind"], role):
        terms[axis] = name == axis
        if node["kind"] != "reshape":
            terms[f"{axis}_flops"] = node["flops"] * (name == axis)
    if node["kind"] != "reshape":
        terms["padded_flops"] = node["flops"] * ratio
        terms["off_default_flops"] = node["flops"] * off_default
        terms["lane_violating_flops"] = node["flops"] * lanes
    return terms


def axis_names(kind: str, role: int) -> tuple[str, str, str]:
    """Return the possible names of a tensor's minor-most axis."""
    if kind != "convolution":
        return "minor_last", "minor_second_last", "minor_other"
    if role == 2:
        return "minor_input_feature", "minor_output_feature", "minor_spatial"
    return "minor_batch", "minor_feature", "minor_spatial"


def axis_name(node: dict, role: int, axis: int) -> str:
    """Return the name of an axis of a tensor."""
    if node["kind"] == "convolution":
        first = (node_columns.OUTPUT_BATCH, node_columns.INPUT_BATCH, node_columns.KERNEL_INPUT_FEATURE)[role]
        special = [int(value) for value in node["feat"][first : first + 2]]
    else:
        special = [len(node["dims"][role]) - 1, len(node["dims"][role]) - 2]
    place = special.index(axis) if axis in special else 2
    return axis_names(node["kind"], role)[place]


def tensor_sums(nodes: list[dict], layouts: list, chosen: pd.DataFrame) -> pd.DataFrame:
    """Sum what depends on one tensor and its layout, one row per configuration."""
    parts = []
    for kind in KINDS:
        kind_rows = chosen[chosen["node"].isin([i for i, node in enumerate(nodes) if node["kind"] == kind])]
        for role, name in enumerate(ROLES[: 2 if kind == "reshape" else 3]):

            def terms(node: int, code: int, role=role) -> dict | None:
                return tensor_terms(nodes[node], role, layouts[code])

            parts.append(sum_distinct(kind_rows, ["node", name], terms).add_prefix(f"{kind}_{name}_"))
    return pd.concat(parts, axis=1)


def node_sums(nodes: list[dict], layouts: list, chosen: pd.DataFrame) -> pd.DataFrame:
    """Sum what depends on a node's output and input together, one row per configuration."""

    def terms(node: int, output: int, source: int) -> dict:
        facts = nodes[node]
        kind, dims = facts["kind"], facts["dims"]
        if kind not in KINDS or not (dims[0] and dims[1]):
            return {}
        size = prod(dims[0]) * facts["bytes"][0]
        if kind == "reshape":
            moved = not stays(dims[1], layouts[source], dims[0], layouts[output])
            return {"reshape_moved": moved, "reshape_moved_bytes": size * moved}
        minor = [full_layout(layouts[code], len(dims[role]))[0] for role, code in enumerate((output, source))]
        turned = axis_name(facts, 0, minor[0]) != axis_name(facts, 1, minor[1])
        amounts = {"turned": 1, "turned_bytes": size, "turned_flops": facts["flops"]}
        return {f"{kind}_{name}": amount * turned for name, amount in amounts.items()}

    return sum_distinct(chosen, ["node", "output", "input"], terms)


def stays(dims: list[int], layout: list[int], new_dims: list[int], new_layout: list[int]) -> bool:
    """Return whether a reshape keeps the place in memory of about a hundred probed elements.

    As in the fast version, False if the shapes share no mixed-radix digits and a layout is not row-major.
    """
    if all(in_row_major_order(*side) for side in ((dims, layout), (new_dims, new_layout))):
        return True
    weights = sorted(prod(shape[axis:]) for shape in (dims, new_dims) for axis in range(1, len(shape) + 1))
    if any(large % small for small, large in pairwise(weights)):
        return False
    volume = prod(dims)
    tried = [2**k for k in range(62)] + list(range(64)) + [volume - 1]
    tried += [prod(dims[axis:]) for axis in range(1, len(dims))]
    tried += [prod(new_dims[axis:]) for axis in range(1, len(new_dims))]
    return all(place(dims, layout, i) == place(new_dims, new_layout, i) for i in tried if i < volume)


def in_row_major_order(dims: list[int], layout: list[int]) -> bool:
    """Return whether the elements are stored in row-major order; axes of size 1 do not count."""
    order = [axis for axis in full_layout(layout, len(dims)) if dims[axis] > 1]
    return order == sorted(order, reverse=True)


def place(dims: list[int], layout: list[int], element: int) -> int:
    """Return the place in memory of an element, given by its row-major number."""
    digits = []
    for size in reversed(dims):
        element, digit = divmod(element, size)
        digits.append(digit)
    digits.reverse()
    found, stride = 0, 1
    for axis in full_layout(layout, len(dims)):
        found += digits[axis] * stride
        stride *= dims[axis]
    return found


def copy_sums(graph: Graph, nodes: list[dict], layouts: list, chosen: pd.DataFrame) -> pd.DataFrame:
    """Sum copies between configurable nodes and the bytes they move, one row per configuration."""
    codes = chosen.set_index(["config", "node"])
    parts = []
    for number, (producer, consumer, role) in enumerate(graph.pairs.tolist()):
        first = codes["output"].xs(producer, level="node").rename("first")
        second = codes[ROLES[role]].xs(consumer, level="node").rename("second")
        parts.append(pd.concat([first, second], axis=1).reset_index().assign(pair=number))
    if not parts:
        return pd.DataFrame()

    def terms(pair: int, first: int, second: int) -> dict:
        producer, consumer, role = graph.pairs[pair]
        wanted = [int(graph.pair_axes[pair][axis]) for axis in layouts[second]]
        if not any(a != b for a, b in zip(layouts[first], wanted, strict=False)):
            return {}
        name = f"{nodes[producer]['kind']}_to_{nodes[consumer]['kind']}_{ROLES[role]}"
        sides = [tensor_terms(nodes[producer], 0, layouts[first])]
        sides.append(tensor_terms(nodes[consumer], role, layouts[second]))
        return {
            f"{name}_copies": 1,
            f"{name}_copied_bytes": prod(nodes[consumer]["dims"][role]) * nodes[consumer]["bytes"][role],
            f"{name}_copied_padded_bytes": sum(side["padded_bytes"] for side in sides if side),
        }

    return sum_distinct(pd.concat(parts, ignore_index=True), ["pair", "first", "second"], terms)
