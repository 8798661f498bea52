"""Violation ratio and its refinements, held against plain loops written from their definitions."""

from dataclasses import replace
from math import ceil, log1p, prod, sqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.opcodes import CONVOLUTION, DOT, RESHAPE
from fastslow.features.configs.config_tensors import ConfigTensors, config_tensors
from fastslow.features.configs.default_layouts import commonest_layouts
from fastslow.features.configs.violation import violation_features
from helpers.cases import cases
from helpers.competition_files import SOME_LAYOUT_FILES, npz_program
from helpers.factorised import factorise
from helpers.random_graphs import graph_of_tensors

KINDS = {"convolution": CONVOLUTION, "dot": DOT, "reshape": RESHAPE}
ROLES = ("output", "input", "kernel")


def pad6(values, fill):
    return [*values, *[fill] * (6 - len(values))]


def make_tensors(shapes, element_bytes=4):
    """Tensors of the given sizes, [node][role] -> sizes, or None where not known."""
    known = np.array([[shape is not None for shape in node] for node in shapes])
    return ConfigTensors(
        dims=np.array([[pad6(shape or (), 0) for shape in node] for node in shapes]),
        rank=np.array([[len(shape or ()) for shape in node] for node in shapes]),
        element_bytes=np.where(known, element_bytes, 0),
        source_ids=np.where(known, 0, -1),
        known=known,
        ambiguous=np.zeros(len(shapes), dtype=bool),
    )


def random_case(seed, configs=7):
    """Tensors, kinds, layouts and codes; some layouts are partial, some name axes a tensor lacks."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(KINDS.values()), 9)
    sizes = [1, 3, 8, 10, 64, 100, 128, 130]
    shapes = [[rng.choice(sizes, rng.integers(0, 7)).tolist() for _ in ROLES] for _ in kinds]
    shapes[int(rng.integers(9))][int(rng.integers(3))] = None
    for node in np.flatnonzero(kinds == RESHAPE):
        shapes[node][2] = None
    orders = [
        rng.permutation(rank)[: rng.integers(1, rank + 1)].tolist() for rank in (1, 2, 2, 3, 3, 4, 5, 6, 6)
    ]
    layouts = np.array([pad6(order, -1) for order in [[], *orders]], dtype=np.int8)
    codes = rng.integers(0, len(layouts), (configs, len(kinds), 3)).astype(np.uint8)
    codes[rng.random(codes.shape) < 0.3] = 0
    return make_tensors(shapes, rng.integers(1, 5, (len(kinds), 3))), kinds, layouts, codes


def random_defaults(seed, layouts, num_nodes):
    """Default layouts (K, 3, 6), some unknown."""
    return layouts[np.random.default_rng(seed).integers(0, len(layouts), (num_nodes, 3))]


def reference(tensors, kinds, layouts, codes, defaults):
    """The features of one configuration (K, 3) by the words of features/README.md: {name: value}."""
    weights = {"bytes": [], "work": []}
    for dims, known, element_bytes in zip(tensors.dims, tensors.known, tensors.element_bytes, strict=True):
        sizes = [
            prod(lengths[lengths > 0].tolist()) if k else 0 for lengths, k in zip(dims, known, strict=True)
        ]
        weights["bytes"].append(sum(size * int(b) for size, b in zip(sizes, element_bytes, strict=True)))
        weights["work"].append(sqrt(prod(sizes)) if known.all() else sizes[0])
    # in units of 2**-36 of the largest
    weights = {
        k: [ceil(value / max(*tensor_weights, 1) * 2**36) for value in tensor_weights]
        for k, tensor_weights in weights.items()
    }
    rows = []
    for node, role in np.ndindex(codes.shape):
        if not tensors.known[node, role] or tensors.rank[node, role] == 0:
            continue
        rank = int(tensors.rank[node, role])
        dims = tensors.dims[node, role, :rank].tolist()
        order = [axis for axis in layouts[codes[node, role]].tolist() if axis >= 0]
        if order and max(order) >= rank:
            continue
        is_left = not order
        default = [axis for axis in defaults[node, role].tolist() if axis >= 0]
        off_default = bool(order) and bool(default) and order != default
        order += [axis for axis in range(rank - 1, -1, -1) if axis not in order]
        sizes = [dims[axis] for axis in order]
        padded = [-(-sizes[0] // 128) * 128, *(-(-size // 8) * 8 for size in sizes[1:2]), *sizes[2:]]
        rows.append(
            {
                "cell": (int(kinds[node]), role),
                "left": is_left,
                "off_default": off_default,
                "violation": sizes[0] < max(sizes),
                "minor_unaligned": sizes[0] % 128 > 0,
                "second_unaligned": rank > 1 and sizes[1] % 8 > 0,
                "volume": prod(sizes),
                "padded": prod(padded),
                "bytes": prod(padded) * int(tensors.element_bytes[node, role]),
                "padding": prod(padded) / prod(sizes),
                **{f"node_{name}": tensor_weights[node] for name, tensor_weights in weights.items()},
            }
        )

    def share(rows, key, weight=None):
        above = sum(row[key] * (row[weight] if weight else 1) for row in rows)
        below = sum(row[weight] if weight else 1 for row in rows)
        return above / below if below else 0.0

    def padding(rows):
        return sum(row["padded"] for row in rows) / max(1, sum(row["volume"] for row in rows))

    features = {
        "violation_ratio": share(rows, "violation"),
        "padded_over_volume": padding(rows),
        "left_share": share(rows, "left"),
        "violation_ratio_by_volume": share(rows, "violation", "volume"),
        "minor_unaligned_share": share(rows, "minor_unaligned"),
        "second_minor_unaligned_share": share(rows, "second_unaligned"),
        "off_default_share": share(rows, "off_default"),
        "log_padded_bytes": log1p(sum(row["bytes"] for row in rows)),
    }
    for kind, opcode in KINDS.items():
        for role, role_name in enumerate(ROLES):
            if (kind, role_name) == ("reshape", "kernel"):
                continue
            cell = [row for row in rows if row["cell"] == (opcode, role)]
            features[f"{kind}_{role_name}_violation_ratio"] = share(cell, "violation")
            features[f"{kind}_{role_name}_padded_over_volume"] = padding(cell)
            features[f"{kind}_{role_name}_left_share"] = share(cell, "left")
            features[f"{kind}_{role_name}_off_default_share"] = share(cell, "off_default")
    outputs = [row for row in rows if row["cell"][1] == 0]
    features["output_violation_ratio"] = share(outputs, "violation")
    features["output_padded_over_volume"] = padding(outputs)
    features["output_off_default_share"] = share(outputs, "off_default")
    for weight in ("bytes", "work"):
        features[f"output_violation_ratio_by_{weight}"] = share(outputs, "violation", f"node_{weight}")
    for weight in ("bytes", "work"):
        padded = sum(round(row["padding"] * row[f"node_{weight}"]) for row in outputs)
        counts = sum(row[f"node_{weight}"] for row in outputs)
        features[f"output_padding_by_{weight}"] = padded / max(1, counts)
    for weight in ("bytes", "work"):
        features[f"output_off_default_by_{weight}"] = share(outputs, "off_default", f"node_{weight}")
    return features


def assert_as_reference(tensors, kinds, layouts, codes, defaults):
    graph = graph_of_tensors(tensors.dims, tensors.element_bytes, layouts, factorise(codes))
    graph = replace(graph, node_opcode=np.asarray(kinds, np.uint8), default_layouts=defaults)
    values, names = violation_features(graph)
    wanted = [reference(tensors, kinds, layouts, config, defaults) for config in codes]
    assert names == list(wanted[0])
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [list(row.values()) for row in wanted], rtol=1e-6)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_random_tensors_as_plain_loops_count_them(seed):
    tensors, kinds, layouts, codes = random_case(seed)
    defaults = random_defaults(seed, layouts, len(kinds))
    assert_as_reference(tensors, kinds, layouts, codes, defaults)


@cases("path", SOME_LAYOUT_FILES)
def test_files_as_plain_loops_count_them(path):
    file = npz_program(path, "layout", labelled=False)
    tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids)
    kinds = file.node_opcode[file.node_config_ids]
    few, defaults = file.choices.layout_codes(slice(6)), commonest_layouts(file.layouts, file.choices)
    assert_as_reference(tensors, kinds, file.layouts, few, defaults)
