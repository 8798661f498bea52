"""Layout files of any size made by repeating a real program and drawing its tied choices anew."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastslow.competition.reader import CompetitionFile
from fastslow.competition.tied_choices import Choices

_ROWS = 64  # configurations written at a time


def write_repeated(
    path: Path, file: CompetitionFile, num_nodes: int, num_configurable: int, num_configs: int
) -> None:
    """Write copies of a program side by side as one competition file, streamed.

    Tensors that are tied in the program are tied with those of every copy, as layers of equal shapes are in
    the real files. Each group takes its choice from a random configuration of the file.

    Args:
        path: The npz file; its layouts are compressed as ``numpy.savez_compressed`` does it.
        file: The program.
        num_nodes: N of the file written; the last copy is cut short.
        num_configurable: K, at most what the copies have.
        num_configs: C.
    """
    offset = np.arange(-(-num_nodes // len(file.node_opcode)))[:, None] * len(file.node_opcode)
    edges = (file.edge_index[None] + offset[:, :, None]).reshape(-1, 2)
    ids = (file.node_config_ids + offset).ravel()
    chosen = np.flatnonzero(ids < num_nodes)[:num_configurable]
    if len(chosen) < num_configurable:
        raise ValueError(f"{path}: the copies have {len(chosen)} configurable nodes, not {num_configurable}")
    rng = np.random.default_rng(0)
    arrays = {
        "node_feat": np.tile(file.node_feat, (len(offset), 1))[:num_nodes],
        "node_opcode": np.tile(file.node_opcode, len(offset))[:num_nodes],
        "edge_index": edges[(edges < num_nodes).all(1)],
        "node_config_ids": ids[chosen],
        "node_splits": np.array([[0, num_nodes]]),
        "config_runtime": rng.integers(1, 10**6, num_configs),
    }
    np.savez(path, **arrays)
    choices = file.choices
    own = chosen % len(file.node_config_ids)
    choices = replace(choices, group=choices.group[own], codes=choices.codes[own])
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("node_config_feat.npy", "w", force_zip64=True) as member,
    ):
        shape = (num_configs, num_configurable, 18)
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for start in range(0, num_configs, _ROWS):
            drawn = _draw(choices, min(_ROWS, num_configs - start), rng)
            member.write(file.layouts.astype(np.float32)[drawn.layout_codes()].tobytes())


def _draw(choices: Choices, count: int, rng: np.random.Generator) -> Choices:
    """Return ``count`` configurations, each group's choice from a random one."""
    groups = np.arange(choices.num_groups)
    return replace(
        choices, values=choices.values[rng.integers(0, len(choices), (count, len(groups))), groups]
    )
