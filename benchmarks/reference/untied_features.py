"""Feature building before tied choices: a code for every tensor of every configuration, C x K x 3 of them.

The former path of fastslow (commit e09ba96) from the npz to the store, for time, memory and disk; the values
are the same.
"""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from fastslow.choices.layouts import BASE, LAYOUT_WIDTH, MAX_DIMENSION, ROLES, WEIGHTS, layouts_of
from fastslow.competition.reader import CompetitionFile
from fastslow.core.npz_io import stream_rows
from fastslow.features.config_tensors import ConfigTensors, config_chunks, config_tensors
from fastslow.features.copies import CopyPairs, copy_pairs, disagreements
from fastslow.features.list_padding import pad
from fastslow.features.pruning import prune
from fastslow.features.settings import FeatureSettings
from fastslow.features.violation import CELLS, features_of_sums, shape_rows, terms_of_shapes

_CHUNK = 8_000_000  # bytes of the file's array held at a time
_WORKING = 1 << 27  # bytes of working memory of one chunk of configurations


def read_codes(path: Path, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the layouts ``(L, 6)`` int8 of a file and the code of every tensor, ``(C, K, 3)``.

    Args:
        path: A layout file.
        limit: Number of configurations, the first ones, that are read; a chunk more where it is cut.
    """
    code_of = np.full(BASE**LAYOUT_WIDTH, -1, np.int32)
    code_of[0] = 0
    numbers, parts = [0], []
    for chunk in stream_rows(path, "node_config_feat", _CHUNK):
        values = chunk.astype(np.int8)
        if not (np.array_equal(values, chunk) and (values >= -1).all() and (values <= MAX_DIMENSION).all()):
            raise ValueError(f"{path}: node_config_feat has a value that is no axis")
        number = (values.reshape(*chunk.shape[:2], len(ROLES), LAYOUT_WIDTH) + 1) @ WEIGHTS
        seen = np.zeros(len(code_of), bool)
        seen[number] = True
        new = np.flatnonzero(seen & (code_of < 0))
        code_of[new] = len(numbers) + np.arange(len(new))
        numbers.extend(new.tolist())
        parts.append(code_of[number].astype(np.uint16))
        if sum(map(len, parts)) >= limit:
            break
    codes, layouts = np.concatenate(parts)[:limit], layouts_of(np.array(numbers))
    return layouts, codes.astype(np.uint8) if len(layouts) <= 256 else codes


def violation_features(
    tensors: ConfigTensors, kinds: np.ndarray, layouts: np.ndarray, codes: np.ndarray, default_layout: str
) -> np.ndarray:
    """Compute the columns of :func:`fastslow.features.violation.violation_features`, tensor by tensor."""
    sums, unknown = [], np.full(tensors.dims.shape, -1)
    for _, opcode, role in CELLS:
        rows = shape_rows(tensors, role, unknown)
        nodes = np.flatnonzero((kinds == opcode) & tensors.known[:, role] & (tensors.rank[:, role] > 0))
        shapes, shape_index = np.unique(rows[nodes], axis=0, return_inverse=True)
        terms = terms_of_shapes(shapes, layouts.astype(np.int64), default_layout)
        first_row = (shape_index.ravel() * len(layouts)).astype(np.int32)
        sums.append(_sum_rows(terms.reshape(-1, terms.shape[2]), first_row, codes, nodes, role))
    return features_of_sums(sums)


def _sum_rows(table, first_row, codes, nodes, role) -> np.ndarray:
    """Sum over nodes of ``table[first_row + code]`` for every configuration: (C, terms) float64."""
    sums = np.zeros((len(codes), table.shape[1]))
    for chunk in config_chunks(len(codes), 32 * len(nodes), _WORKING):
        rows = first_row + codes[chunk][:, nodes, role]
        starts = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(len(nodes))
        picks = sparse.csr_array((np.ones(rows.size), rows.ravel(), starts), shape=(len(rows), len(table)))
        sums[chunk] = picks @ table
    return sums


def copy_features(pairs: CopyPairs, layouts: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Compute the columns of :func:`fastslow.features.copies.copy_features`, pair by pair."""
    given = layouts[:, 0] >= 0
    ways, way = np.unique(pairs.axes, axis=0, return_inverse=True)
    disagree = disagreements(layouts, ways)
    copied = np.zeros((len(codes), 3))
    both, half = np.zeros(len(codes)), np.zeros(len(codes))
    for chunk in config_chunks(len(codes), 24 * len(pairs.elements), _WORKING):
        block = codes[chunk]
        producer = block[:, pairs.producer_index, 0]
        consumer = block[:, pairs.consumer_index, pairs.consumer_role]
        copied[chunk] = disagree[way.ravel(), producer, consumer].astype(np.float64) @ pairs.weights
        both[chunk] = (given[producer] & given[consumer]).sum(1)
        half[chunk] = (given[producer] ^ given[consumer]).sum(1)
    count, elements, size = copied.T
    share = np.divide(count, both, out=np.zeros(len(codes)), where=both > 0)
    return np.stack([count, np.log1p(elements), np.log1p(size), share, half], axis=1).astype(np.float32)


def graph_part(file: CompetitionFile, settings: FeatureSettings) -> tuple[ConfigTensors, CopyPairs]:
    """Do the work that does not depend on the configurations; it has stayed as it was."""
    ids, graph = file.node_config_ids, (file.node_feat, file.node_opcode, file.edge_index)
    tensors = config_tensors(*graph, ids)
    pairs = copy_pairs(*graph, ids, tensors, settings.copies_through)
    prune(file.edge_index, len(file.node_opcode), ids, settings.hops, settings.direction)
    pad(*graph)
    return tensors, pairs


def config_part(
    file: CompetitionFile,
    tensors: ConfigTensors,
    pairs: CopyPairs,
    layouts: np.ndarray,
    codes: np.ndarray,
    settings: FeatureSettings,
) -> tuple[np.ndarray, np.ndarray]:
    """Do the work on the configurations and return ``codes`` and ``config_feat`` of the distinct ones."""
    kinds = file.node_opcode[file.node_config_ids]
    violation = violation_features(tensors, kinds, layouts, codes, settings.default_layout)
    config_feat = np.concatenate([violation, copy_features(pairs, layouts, codes)], 1)
    digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in codes]
    group, _ = pd.factorize(np.array(digests, object))
    kept = np.unique(group, return_index=True)[1]
    return codes[kept], config_feat[kept]
