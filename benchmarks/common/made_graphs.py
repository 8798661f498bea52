"""Layout files of any size made by repeating a real program and redrawing its tied choices."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastslow.competition.reader import Program
from fastslow.competition.tied_choices import Choices

_ROWS = 64  # configurations written at a time
_NOISE = 0.03


def write_repeated(
    path: Path,
    file: Program,
    num_nodes: int,
    num_configurable: int,
    num_configs: int,
) -> None:
    """Write copies of a program side by side as one competition file, streamed.

    Tensors that are tied in the program are tied across all copies, like layers of equal shapes in the real
    files. Each group takes its choice from a random configuration of the file; every option of a group adds
    its own cost to the runtime, and there is noise of a few percent.

    Args:
        path: The npz file; its layouts are compressed as ``numpy.savez_compressed`` does it.
        file: The program.
        num_nodes: N of the file written; the last copy is cut short.
        num_configurable: K, at most the number in all copies.
        num_configs: C.
    """
    offset = np.arange(-(-num_nodes // len(file.node_opcode)))[:, None] * len(file.node_opcode)
    edges = (file.edge_index[None] + offset[:, :, None]).reshape(-1, 2)
    ids = (file.node_config_ids + offset).ravel()
    chosen = np.flatnonzero(ids < num_nodes)[:num_configurable]
    if len(chosen) < num_configurable:
        raise ValueError(f"{path}: the copies have {len(chosen)} configurable nodes, not {num_configurable}")
    rng = np.random.default_rng(0)
    own = chosen % len(file.node_config_ids)
    choices = replace(file.choices, group=file.choices.group[own], codes=file.choices.codes[own])
    choices = _draw(choices, num_configs, rng)
    arrays = {
        "node_feat": np.tile(file.node_feat, (len(offset), 1))[:num_nodes],
        "node_opcode": np.tile(file.node_opcode, len(offset))[:num_nodes],
        "edge_index": edges[(edges < num_nodes).all(1)],
        "node_config_ids": ids[chosen],
        "node_splits": np.array([[0, num_nodes]]),
        "config_runtime": _runtimes(choices, rng),
    }
    with open(path, "wb") as handle:
        np.savez(handle, **arrays)
    layouts = file.layouts.astype(np.float32)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("node_config_feat.npy", "w", force_zip64=True) as member,
    ):
        shape = (num_configs, num_configurable, 18)
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for start in range(0, num_configs, _ROWS):
            codes = choices.layout_codes(slice(start, start + _ROWS))
            member.write(layouts[codes].tobytes())


def _draw(choices: Choices, count: int, rng: np.random.Generator) -> Choices:
    """Return ``count`` configurations, each group's choice from a random one."""
    groups = np.arange(choices.num_groups)
    return replace(
        choices, values=choices.values[rng.integers(0, len(choices), (count, len(groups))), groups]
    )


def _runtimes(choices: Choices, rng: np.random.Generator) -> np.ndarray:
    """Return the runtime of each configuration: a cost of every group's option, and noise."""
    costs = rng.exponential(1000, (choices.num_groups, choices.options.max()))
    total = 10_000 + costs[np.arange(choices.num_groups), choices.values].sum(1)
    return (total * np.exp(_NOISE * rng.standard_normal(len(choices)))).astype(np.int64)
