"""The sample's programs with their labels, as files of a competition."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, Collection, get_collection, list_programs
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import resolve
from fastslow.evaluation.scores import read_solution

KERNEL = 100  # tiles of a kernel that make a search worthwhile


def labelled_sample(folder: Path, split: str) -> Iterator[tuple[Collection, Path]]:
    """Write a split's programs: layouts of both searches in one file, kernels of at least ``KERNEL`` tiles.

    Args:
        folder: Folder of the files.
        split: ``train``, ``valid`` or ``test``, whose labels are in ``solution.csv``.

    Yields:
        The collection, of a layout program the one of the random search, and the file.
    """
    data = resolve("data/sample")
    solution = read_solution(data / "solution.csv") if split == TEST else {}
    for collection in (c for c in COLLECTIONS if not c.name.endswith(":default")):
        searches = [collection]
        if collection.kind == "layout":
            searches.append(get_collection(collection.name.replace(":random", ":default")))
        for program in list_programs(data, collection, split):
            parts = [_read_all(c.folder(data, split) / program.path.name) for c in searches]
            if split == TEST:
                labels = [solution[f"{c.name}:{program.name}"].astype(np.int64) for c in searches]
            else:
                labels = [part["config_runtime"] for part in parts]
            arrays = parts[0] | {"config_runtime": np.concatenate(labels)}
            if collection.kind == "layout":
                arrays["node_config_feat"] = np.concatenate([part["node_config_feat"] for part in parts])
            elif len(arrays["config_runtime"]) < KERNEL:
                continue
            path = folder / collection.slug / program.path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **arrays)
            yield collection, path


def _read_all(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        names = file.files
    return dict(read_arrays(path, names))
