"""Files of any size made by repeating a real program and drawing its configurations anew."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.noisy_labels import Level, noisy_rows
from fastslow.competition import node_columns
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import Program
from fastslow.competition.schema import TILE_ROLES, TILE_WIDTH
from fastslow.competition.tied_choices import Choices

_ROWS = 64  # configurations written at a time
_NOISE = 0.03
_BOUNDS = (64, 16, 4)  # times the largest bound of a role
_QUICK = 3  # level of zlib: as fast as 1 on layouts, in a third of the bytes


def write_repeated(
    path: Path,
    file: Program,
    num_nodes: int,
    num_configurable: int,
    num_configs: int,
    seed: int = 0,
    level: Level | None = None,
    damaged: bool = False,
    labelled: bool = True,
) -> None:
    """Write copies of a program side by side as one competition file, streamed.

    Tensors that are tied in the program are tied across all copies, like layers of equal shapes in the real
    files. Each group takes its choice from a random configuration of the file; every option of a group adds
    its own cost to the runtime, and there is noise.

    Args:
        path: The npz file; it is compressed.
        file: The program.
        num_nodes: N of the file written; the last copy is cut short.
        num_configurable: K, at most the number in all copies.
        num_configs: C.
        seed: Seed of the configurations and their runtimes.
        level: Noise, and repeated rows; by default a noise of a few percent and no repeats.
        damaged: Whether the runtimes jump in blocks of rows; needs a level.
        labelled: Whether runtimes are written; else zeros, as in the test files.
    """
    ids = configurable_ids(file, num_nodes)[:num_configurable]
    if len(ids) < num_configurable:
        raise ValueError(f"{path}: the copies have {len(ids)} configurable nodes, not {num_configurable}")
    rng = np.random.default_rng(seed)
    source_nodes = np.arange(len(ids)) % len(file.node_config_ids)
    choices = replace(
        file.choices, group=file.choices.group[source_nodes], codes=file.choices.codes[source_nodes]
    )
    choices = _draw(choices, level.distinct(num_configs) if level else num_configs, rng)
    cost = _costs(choices, rng)
    if level:
        rows, runtime = noisy_rows(cost, num_configs, level, damaged, rng)
        choices = choices.take(rows)
    else:
        runtime = _noisy(cost, rng)
    arrays = _repeat_graph(file, num_nodes) | {
        "node_config_ids": ids,
        "node_splits": np.array([[0, num_nodes]]),
        "config_runtime": runtime if labelled else np.zeros_like(runtime),
    }
    with open(path, "wb") as handle:
        np.savez_compressed(handle, **arrays)
    layouts = file.layouts.astype(np.float32).view("V24").ravel()  # an item each: twice as fast to take
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=_QUICK) as archive,
        archive.open("node_config_feat.npy", "w", force_zip64=True) as member,
    ):
        shape = (num_configs, num_configurable, 18)
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for start in range(0, num_configs, _ROWS):
            codes = choices.layout_codes(slice(start, start + _ROWS))
            member.write(layouts.take(codes).tobytes())


def write_kernel(
    path: Path, file: Program, num_nodes: int, num_configs: int, seed: int = 0, labelled: bool = True
) -> None:
    """Write copies of a tile program side by side as one competition file.

    Bounds are drawn up to a multiple of the file's largest, where tensors are that large. A tile costs a
    fixed time and its work, a configuration all its tiles; there is noise of a few percent.

    Args:
        path: The npz file.
        file: The program.
        num_nodes: N of the file written.
        num_configs: C.
        seed: Seed of the configurations and their runtimes.
        labelled: Whether runtimes and normalisers are written; else zeros and ones, as in the test files.
    """
    rng = np.random.default_rng(seed)
    largest = file.config_feat.reshape(-1, len(TILE_ROLES), TILE_WIDTH)[..., :-2].max(0)
    size, volume = (
        file.node_feat[:, columns].max() for columns in (node_columns.SHAPE, node_columns.SHAPE_PRODUCT)
    )
    limits = (np.minimum(largest * factor, size) for factor in _BOUNDS)
    limit = next(
        (fitting for fitting in limits if np.maximum(1, fitting).prod(-1).max() <= volume), largest
    ).astype(int)
    bounds = np.zeros((num_configs, len(TILE_ROLES), TILE_WIDTH), np.float32)
    bounds[..., :-2] = np.where(
        limit, rng.integers(1, limit + 1 + (limit == 0), (num_configs, *limit.shape)), 0
    )
    tile = np.maximum(1, bounds[..., :-2])
    bounds[..., -2], bounds[..., -1] = bounds[..., :-2].sum(-1), tile.prod(-1) * limit.any(-1)
    tiles = np.ceil(np.maximum(1, limit) / tile).prod((-2, -1))
    runtime = _noisy(tiles * (300 + tile.prod(-1).sum(-1)), rng)
    unit = np.full(num_configs, max(1, runtime.min()))
    arrays = _repeat_graph(file, num_nodes) | {
        "config_feat": bounds.reshape(num_configs, -1),
        "config_runtime": runtime if labelled else np.zeros_like(runtime),
        "config_runtime_normalizers": unit if labelled else np.ones_like(unit),
    }
    with open(path, "wb") as handle:
        np.savez_compressed(handle, **arrays)


def configurable_ids(file: Program, num_nodes: int) -> np.ndarray:
    """Return the configurable nodes of copies side by side that have some number of nodes together."""
    ids = (file.node_config_ids + _offsets(file, num_nodes)[:, None]).ravel()
    return ids[ids < num_nodes]


def _offsets(file: Program, num_nodes: int) -> np.ndarray:
    return np.arange(-(-num_nodes // len(file.node_opcode))) * len(file.node_opcode)


def _repeat_graph(file: Program, num_nodes: int) -> dict[str, np.ndarray]:
    offset = _offsets(file, num_nodes)
    edges = (file.edge_index[None] + offset[:, None, None]).reshape(-1, 2)
    feat = np.tile(file.node_feat, (len(offset), 1))[:num_nodes]
    feat[-1, node_columns.IS_ROOT] = 1  # the file's own may be cut off
    opcodes = np.tile(file.node_opcode, len(offset))[:num_nodes]
    parameters = np.flatnonzero(opcodes == OPCODES["parameter"])
    (numbers,) = node_columns.LISTS["parameter_number"]
    ends = np.cumsum(feat[:, node_columns.IS_ROOT])[parameters]  # a computation ends with its root
    first = np.searchsorted(ends, ends)
    feat[parameters, numbers] = (np.arange(len(parameters)) - first)[:, None]
    return {
        "node_feat": feat,
        "node_opcode": opcodes,
        "edge_index": edges[(edges < num_nodes).all(1)],
    }


def _draw(choices: Choices, count: int, rng: np.random.Generator) -> Choices:
    """Return ``count`` configurations, each group's choice from a random one."""
    groups = np.arange(choices.num_groups)
    return replace(
        choices, values=choices.values[rng.integers(0, len(choices), (count, len(groups))), groups]
    )


def _costs(choices: Choices, rng: np.random.Generator) -> np.ndarray:
    """Return the cost of each configuration: one of every group's option."""
    costs = rng.exponential(1000, (choices.num_groups, choices.options.max()))
    return 10_000 + costs[np.arange(choices.num_groups), choices.values].sum(1)


def _noisy(cost: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (cost * np.exp(_NOISE * rng.standard_normal(len(cost)))).astype(np.int64)
