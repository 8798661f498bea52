"""Costs of a configurable node under its layouts: tiles, work on padding, reordered and moved bytes.

Everything is computed per distinct combination of layouts of a node, a few thousand per graph
(:class:`fastslow.features.configs.layout_states.LayoutStates`).
"""

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, num_elements, tensor_bytes
from fastslow.competition.opcodes import CONVOLUTION, DOT
from fastslow.features.configs.config_tensors import roles_of
from fastslow.features.configs.default_layouts import is_off_default
from fastslow.features.configs.tpu_tiling import Tiling, tile
from fastslow.features.graph import Graph


def graph_tensor_bytes(graph: Graph) -> np.ndarray:
    """Return the bytes ``(K, 3)`` int64 of each configurable tensor, unpadded; 0 where there is none."""
    return tensor_bytes(graph.tensor_sizes.astype(np.int64), graph.tensor_bytes)


def node_flops(graph: Graph) -> np.ndarray:
    """Estimate the floating-point operations of each configurable node, ``(K,)`` float64; 0 for a reshape.

    A convolution: twice the output's elements times the kernel's elements per output feature (which counts
    window and feature groups). A dot: twice batch x rows x columns x contracted size, from the product of the
    sizes of the three tensors. The npz does not name the contracted dimensions: one is assumed, or, where the
    sizes contradict that, no batch dimension.
    """
    dims = graph.tensor_sizes.astype(np.float64)
    kind = graph.node_opcode[graph.config_index]
    volume = num_elements(dims)
    axis = graph.node_feat[graph.config_index, node_columns.KERNEL_OUTPUT_FEATURE].astype(np.int64)
    features = np.take_along_axis(dims[:, 2], axis.clip(0, LAYOUT_WIDTH - 1)[:, None], 1)[:, 0].clip(1)
    rank = (dims > 0).sum(2)
    batches = (rank[:, 1] + rank[:, 2] - rank[:, 0] - 2)[:, None]
    batch = np.where((np.arange(LAYOUT_WIDTH) < batches) & (dims[:, 0] > 0), dims[:, 0], 1).prod(1)
    product = volume.prod(1)
    work = np.sqrt(product / batch)
    work = np.where((work == np.rint(work)) & ((volume % batch[:, None]) == 0).all(1), work, np.sqrt(product))
    known = (dims[:, :, 0] > 0).all(1)
    flops = np.select([kind == CONVOLUTION, kind == DOT], [volume[:, 0] * volume[:, 2] / features, work], 0.0)
    return 2 * flops * known


def strides(dims: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Return the distance in elements between neighbours along each axis, without padding.

    Args:
        dims: (..., 6) int64 sizes, 0-padded.
        layouts: (..., 6) minor to major, -1 padded; axes that a layout does not name follow in row-major
            order.

    Returns:
        (..., 6) int64, of broadcast leading shape; meaningless beyond the rank.
    """
    axes = np.arange(LAYOUT_WIDTH)
    named = np.asarray(layouts)[..., None, :] == axes[:, None]  # axis by place from minor to major
    place = np.where(named.any(-1), named.argmax(-1), 2 * LAYOUT_WIDTH - 1 - axes)
    inside = place[..., None, :] < place[..., None]  # for each axis, those whose neighbours are nearer
    size = np.where(dims > 0, dims, 1)
    return np.where(inside, size[..., None, :], 1).prod(-1)


_ROW_MAJOR = np.full(LAYOUT_WIDTH, -1)


def is_reordered(dims: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Return whether the elements are stored in another order than row-major, ``(...)`` bool.

    Axes of size 1 do not count; arguments as for :func:`strides`.
    """
    moved = (strides(dims, layouts) != strides(dims, _ROW_MAJOR)) & (dims > 1)
    odd: np.ndarray = moved.any(-1)
    return odd


def is_bitcast(
    dims: np.ndarray, layouts: np.ndarray, new_dims: np.ndarray, new_layouts: np.ndarray
) -> np.ndarray:
    """Return whether a reshape leaves every element in place, padding aside.

    Conservative: False where the row-major strides of the two shapes do not divide one another (for example 6
    by 4 to 8 by 3) and a layout is not row-major, although that may be a bitcast too.

    Sizes (n, 6), 0-padded, and layouts (n, 6), -1 padded, are before and after the reshape; the result is
    (n,) bool.
    """
    sides = [(dims, layouts), (new_dims, new_layouts)]
    # The address of an element is linear in its digits. Where the row-major strides of both shapes divide one
    # another they are the weights of digits that both share, and one element per digit is enough to compare.
    suffixes = [strides(sizes, _ROW_MAJOR) for sizes, _ in sides]
    weights = np.sort(np.concatenate(suffixes, 1), axis=1)
    shares_digits = (weights[:, 1:] % weights[:, :-1] == 0).all(1)
    places = []
    for (sizes, layout), suffix in zip(sides, suffixes, strict=True):
        size = np.where(sizes > 0, sizes, 1)[:, None]
        digits = weights[..., None] // suffix[:, None] % size
        places.append((digits * strides(sizes, layout)[:, None]).sum(-1))
    plain = ~is_reordered(*sides[0]) & ~is_reordered(*sides[1])
    return plain | (shares_digits & (places[0] == places[1]).all(1))


def _minor_axis_role(graph: Graph, nodes: np.ndarray, role: int, kind: str, minor: np.ndarray) -> np.ndarray:
    """Return what the minor-most axis is to the operation: 0, 1 or 2, in the order of :func:`axis_names`."""
    if kind == "convolution":
        first, second = graph.node_feat[graph.config_index[nodes]][:, node_columns.CONVOLUTION_AXES[role]].T
    else:
        rank = (graph.tensor_sizes[nodes, role] > 0).sum(-1)
        first = rank - 1
        second = rank - 2
    return np.where(minor == first, 0, np.where(minor == second, 1, 2))


def axis_names(kind: str, role: str) -> tuple[str, str, str]:
    """Return names of what the minor-most axis may be: a convolution's batch, say, or the last axis."""
    if kind != "convolution":
        return "minor_last", "minor_second_last", "minor_other"
    if role == "kernel":
        return "minor_input_feature", "minor_output_feature", "minor_spatial"
    return "minor_batch", "minor_feature", "minor_spatial"


def state_terms(graph: Graph, kind: str, node: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Compute what every state of the nodes of one kind adds to the sums of a configuration.

    A tensor of unknown shape, or whose layout does not fit it, adds nothing; one left to the compiler counts
    as row-major.

    Args:
        graph: A layout graph.
        kind: A name in :data:`fastslow.competition.opcodes.CONFIGURED`.
        node: ``(S,)`` position of the node of each state.
        codes: ``(S, 3)`` its layouts, positions in ``graph.layouts``.

    Returns:
        ``(S, F)`` float64 and the F names; a name that ends in ``_bytes`` or ``_flops`` is in that unit, the
        others count tensors or nodes.
    """
    roles = roles_of(kind)
    flops = node_flops(graph)[node]
    dims = graph.tensor_sizes[node, : len(roles)].astype(np.int64)  # (S, roles, 6)
    layouts = graph.layouts[codes[:, : len(roles)]].astype(np.int64)
    tiling = tile(dims, layouts)
    there = tiling.fits & (dims[..., 0] > 0)
    ratio = tiling.padded_volume / tiling.volume
    every = _tensor_terms(graph, node, dims, layouts, tiling)
    every = {term: values * there for term, values in every.items()}
    terms: dict[str, np.ndarray] = {}
    minor_roles = []
    for role, name in enumerate(roles):
        of_tensor = {term: values[:, role] for term, values in every.items()}
        minor_roles.append(_minor_axis_role(graph, node, role, kind, tiling.minor_axis[:, role]))
        for number, axis in enumerate(axis_names(kind, name)):
            of_tensor[axis] = (minor_roles[-1] == number) & there[:, role]
            if kind != "reshape":
                of_tensor[f"{axis}_flops"] = flops * of_tensor[axis]
        if kind != "reshape":
            of_tensor["padded_flops"] = ratio[:, role] * flops * there[:, role]
            of_tensor["off_default_flops"] = flops * of_tensor["off_default"]
            of_tensor["lane_violating_flops"] = flops * of_tensor["lane_violations"]
        terms |= {f"{kind}_{name}_{term}": values for term, values in of_tensor.items()}
    # what depends on the output's and the input's layout together
    known = (dims[:, :2, 0] > 0).all(1)
    output_bytes = graph_tensor_bytes(graph)[node, 0]
    if kind == "reshape":
        moved = known & ~is_bitcast(dims[:, 1], layouts[:, 1], dims[:, 0], layouts[:, 0])
        terms |= {"reshape_moved": moved, "reshape_moved_bytes": output_bytes * moved}
    else:
        turned = known & (minor_roles[0] != minor_roles[1])
        terms[f"{kind}_turned"] = turned
        terms[f"{kind}_turned_bytes"] = output_bytes * turned
        terms[f"{kind}_turned_flops"] = flops * turned
    return np.stack(list(terms.values()), 1, dtype=np.float64), list(terms)


def _tensor_terms(
    graph: Graph, node: np.ndarray, dims: np.ndarray, layouts: np.ndarray, tiling: Tiling
) -> dict[str, np.ndarray]:
    """Return what the tensors ``(S, roles)`` of nodes add to the sums, given that they exist and fit."""
    width = dims.shape[1]
    paired = np.zeros(graph.tensor_bytes.shape, bool)  # by a layout of another configurable node
    producer, consumer, role = graph.pairs.T
    paired[producer, 0] = True
    paired[consumer, role] = True
    element_bytes = graph.tensor_bytes[node, :width]
    default_layouts = graph.default_layouts[node, :width]
    default = tile(dims, default_layouts)
    ratio = tiling.padded_volume / tiling.volume
    size = tiling.volume * element_bytes
    reordered = is_reordered(dims, layouts)
    off_default = is_off_default(layouts, default_layouts)
    # a copy reads the compiler's own layout and writes the other
    both = tiling.padded_volume + default.padded_volume * default.fits
    return {
        "left": tiling.is_left,
        "lane_violations": tiling.minor_unaligned,
        "sublane_violations": tiling.second_unaligned,
        "largest_not_minor": tiling.violates,
        "padded_bytes": size * ratio,
        "wasted_bytes": size * (ratio - 1),
        "lane_violating_bytes": size * tiling.minor_unaligned,
        "sublane_violating_bytes": size * tiling.second_unaligned,
        "largest_not_minor_bytes": size * tiling.violates,
        "reordered_bytes": size * reordered,
        "unpaired_reordered_bytes": size * reordered * ~paired[node, :width],
        "off_default": off_default,
        "off_default_bytes": size * off_default,
        "off_default_padded_bytes": both * element_bytes * off_default,
    }
