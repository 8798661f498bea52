"""What a configurable node costs under its layouts: tiles, work on padding, reordered and moved bytes.

Everything is computed per distinct (node, layouts) state
(:class:`fastslow.rankers.node_layouts.LayoutStates`), a few thousand times a graph, and summed for its
configurations.
"""

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow.competition.schema import ROLES
from fastslow.features.store import Graph
from fastslow.features.tpu_tiling import LANES, tile
from fastslow.rankers.node_layouts import LayoutStates

KINDS = {"convolution": CONVOLUTION, "dot": DOT, "reshape": RESHAPE}
BINS = {
    "minor": {
        "1": (1, 1),
        "2_to_7": (2, 7),
        "8_to_31": (8, 31),
        "32_to_127": (32, 127),
        "128_up": (128, np.inf),
    },
    "second_minor": {"1": (1, 1), "2_to_7": (2, 7), "8_up": (8, np.inf)},
}
"""Least and most size of the minor-most and of the second-minor dimension, by name of the bin."""
_FEATURE_AXES = ("minor_batch", "minor_feature", "minor_spatial")
_KERNEL_AXES = ("minor_input_feature", "minor_output_feature", "minor_spatial")
_PLAIN_AXES = ("minor_last", "minor_second_last", "minor_other")
_CONVOLUTION_AXES = (
    (node_columns.OUTPUT_BATCH, node_columns.OUTPUT_FEATURE),
    (node_columns.INPUT_BATCH, node_columns.INPUT_FEATURE),
    (node_columns.KERNEL_INPUT_FEATURE, node_columns.KERNEL_OUTPUT_FEATURE),
)


def node_flops(graph: Graph) -> np.ndarray:
    """Floating-point operations of each configurable node, ``(K,)`` float64; 0 for a reshape.

    A convolution: twice the output's elements times the kernel's elements per output feature (which counts
    window and feature groups). A dot: twice batch x rows x columns x contracted size, of which the sizes of
    the three tensors tell the product; there is taken to be one contracted dimension, or, where the sizes
    contradict that, no batch dimension.
    """
    dims = graph.tensor_sizes.astype(np.float64)
    kind = graph.node_opcode[graph.config_index]
    volume = np.where(dims > 0, dims, 1).prod(2)
    axis = graph.node_feat[graph.config_index, node_columns.KERNEL_OUTPUT_FEATURE].astype(np.int64).clip(0, 5)
    features = np.take_along_axis(dims[:, 2], axis[:, None], 1)[:, 0].clip(1)
    rank = (dims > 0).sum(2)
    batches = (rank[:, 1] + rank[:, 2] - rank[:, 0] - 2)[:, None]
    batch = np.where((np.arange(6) < batches) & (dims[:, 0] > 0), dims[:, 0], 1).prod(1)
    product = volume.prod(1)
    work = np.sqrt(product / batch)
    work = np.where((work == np.rint(work)) & ((volume % batch[:, None]) == 0).all(1), work, np.sqrt(product))
    known = (dims[:, :, 0] > 0).all(1)
    flops = np.select([kind == CONVOLUTION, kind == DOT], [volume[:, 0] * volume[:, 2] / features, work], 0.0)
    return 2 * flops * known


def strides(dims: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """How many elements apart two neighbours along each axis lie, without padding.

    Args:
        dims: (..., 6) int64 sizes, 0-padded.
        layouts: (..., 6) minor to major, -1 padded; axes that it does not name follow in row-major order.

    Returns:
        (..., 6) int64, of broadcast leading shape; meaningless beyond the rank.
    """
    dims, place = np.broadcast_arrays(np.where(dims > 0, dims, 1).astype(np.int64), _places(layouts))
    order = np.argsort(place, axis=-1, kind="stable")
    sizes = np.take_along_axis(dims, order, -1)
    before = np.concatenate([np.ones_like(sizes[..., :1]), sizes[..., :-1].cumprod(-1)], -1)
    found = np.empty_like(before)
    np.put_along_axis(found, order, before, -1)
    return found


def _places(layouts: np.ndarray) -> np.ndarray:
    """Place of each axis from minor to major, (..., 6); axes that no layout names follow, last first."""
    axes = np.arange(6)
    named = np.asarray(layouts)[..., None, :] == axes[:, None]  # axis by place
    return np.where(named.any(-1), named.argmax(-1), 11 - axes)


def is_reordered(dims: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Whether the elements lie in another order than row-major, (...) bool; axes of size 1 do not count."""
    counts = np.asarray(dims) > 1
    place = np.where(counts, _places(layouts), 12)
    least_before = np.minimum.accumulate(place, -1)[..., :-1]
    return (counts[..., 1:] & (place[..., 1:] > least_before)).any(-1)


def is_bitcast(
    dims: np.ndarray, layouts: np.ndarray, new_dims: np.ndarray, new_layouts: np.ndarray
) -> np.ndarray:
    """Whether a reshape leaves every element where it is, padding apart.

    Conservative: False where the row-major strides of the two shapes do not divide one another (6 by 4 to 8
    by 3, say) and a layout is not row-major, which may be a bitcast all the same.

    Args:
        dims: (n, 6) sizes before, 0-padded.
        layouts: (n, 6) layouts before, minor to major, -1 padded.
        new_dims: (n, 6) sizes after, of the same number of elements.
        new_layouts: (n, 6) layouts after.

    Returns:
        (n,) bool.
    """
    sides = [(dims, layouts), (new_dims, new_layouts)]
    # An element's place is linear in its digits. Where the row-major strides of both shapes divide one
    # another they are the weights of digits that both share, and one element per digit is enough to look at.
    suffixes = [strides(sizes, np.full(6, -1)) for sizes, _ in sides]
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
    """0, 1 or 2: what the minor-most axis is to the operation, in the order of :func:`axis_names`."""
    if kind == "convolution":
        first, second = graph.node_feat[graph.config_index[nodes]][:, _CONVOLUTION_AXES[role]].T
    else:
        rank = (graph.tensor_sizes[nodes, role] > 0).sum(-1)
        first, second = rank - 1, rank - 2
    return np.where(minor == first, 0, np.where(minor == second, 1, 2))


def axis_names(kind: str, role: str) -> tuple[str, str, str]:
    """Names of what the minor-most axis may be: of a convolution's tensor, or counted from the last."""
    if kind != "convolution":
        return _PLAIN_AXES
    return _KERNEL_AXES if role == "kernel" else _FEATURE_AXES


def roles_of(kind: str) -> tuple[str, ...]:
    """Tensors that a configuration arranges for an operation of this kind."""
    return ROLES[:2] if kind == "reshape" else ROLES


def state_terms(graph: Graph, kind: str, states: LayoutStates) -> tuple[np.ndarray, list[str]]:
    """What every state of the nodes of one kind adds to the sums of a configuration.

    A tensor of unknown shape, or whose layout does not fit it, adds nothing; one left to the compiler counts
    as row-major.

    Args:
        graph: The graph.
        kind: One of ``KINDS``.
        states: States of its nodes of this kind.

    Returns:
        (S, F) float64 and the F names; a name that ends in ``_bytes`` or ``_flops`` is in that unit, the
        others count tensors or nodes.
    """
    names, flops = roles_of(kind), node_flops(graph)[states.node]
    dims = graph.tensor_sizes[states.node, : len(names)].astype(np.int64)  # (S, roles, 6)
    layouts = graph.layouts[states.codes[:, : len(names)]].astype(np.int64)
    minor = np.where(layouts[..., 0] < 0, (dims > 0).sum(-1) - 1, layouts[..., 0])
    size = graph.tensor_bytes[states.node, : len(names)]
    every = _tensor_terms(dims, layouts, size, ~_paired(graph)[states.node, : len(names)])
    there, padded_flops = every.pop("there"), every.pop("padded_over_volume") * flops[:, None]
    every = {term: values * there for term, values in every.items()}
    terms: dict[str, np.ndarray] = {}
    minor_roles = []
    for role, name in enumerate(names):
        own = {term: values[:, role] for term, values in every.items()}
        minor_roles.append(_minor_axis_role(graph, states.node, role, kind, minor[:, role]))
        for number, axis in enumerate(axis_names(kind, name)):
            own[axis] = (minor_roles[-1] == number) & there[:, role]
            if kind != "reshape":
                own[f"{axis}_flops"] = flops * own[axis]
        if kind != "reshape":
            own["padded_flops"] = padded_flops[:, role] * there[:, role]
            own["lane_violating_flops"] = flops * own["lane_violations"]
        terms |= {f"{kind}_{name}_{term}": values for term, values in own.items()}
    terms |= _node_terms(kind, dims, layouts, size, flops, minor_roles)
    return np.stack(list(terms.values()), 1, dtype=np.float64), list(terms)


def _tensor_terms(dims, layouts, element_bytes, unpaired) -> dict[str, np.ndarray]:
    """What tensors (..., 6) under layouts (..., 6) add to their node; ``there``: they do."""
    tiling = tile(dims, layouts)
    ratio = tiling.padded_volume / tiling.volume
    size = tiling.volume * element_bytes
    lanes, sublanes = tiling.minor_size % LANES != 0, tiling.second_padded != tiling.second_size
    reordered = is_reordered(dims, layouts)
    terms = {
        "there": tiling.fits & (dims[..., 0] > 0),
        "padded_over_volume": ratio,
        "default": tiling.is_default,
        "lane_violations": lanes,
        "sublane_violations": sublanes,
        "largest_not_minor": tiling.violates,
        "padded_bytes": size * ratio,
        "wasted_bytes": size * (ratio - 1),
        "lane_violating_bytes": size * lanes,
        "sublane_violating_bytes": size * sublanes,
        "largest_not_minor_bytes": size * tiling.violates,
        "reordered_bytes": size * reordered,
        "unpaired_reordered_bytes": size * reordered * unpaired,
    }
    for axis, sizes in (("minor", tiling.minor_size), ("second_minor", tiling.second_size)):
        for label, (least, most) in BINS[axis].items():
            terms[f"{axis}_{label}_bytes"] = size * ((sizes >= least) & (sizes <= most))
    return terms


def _node_terms(kind, dims, layouts, element_bytes, flops, minor_roles) -> dict[str, np.ndarray]:
    """What depends on the output's and the input's layout together."""
    known = (dims[:, :2, 0] > 0).all(1)
    size = np.where(dims[:, 0] > 0, dims[:, 0], 1).prod(1) * element_bytes[:, 0]
    if kind != "reshape":
        turned = known & (minor_roles[0] != minor_roles[1])
        return {
            f"{kind}_turned": turned,
            f"{kind}_turned_bytes": size * turned,
            f"{kind}_turned_flops": flops * turned,
        }
    moved = known & ~is_bitcast(dims[:, 1], layouts[:, 1], dims[:, 0], layouts[:, 0])
    return {"reshape_moved": moved, "reshape_moved_bytes": size * moved}


def _paired(graph: Graph) -> np.ndarray:
    """(K, 3) bool: another configurable node has a layout for the same tensor."""
    paired = np.zeros((len(graph.config_index), len(ROLES)), bool)
    producer, consumer, role = graph.pairs.T
    paired[producer, 0] = True
    paired[consumer, role] = True
    return paired
