"""Make a competition of the real size from programs of the sample.

A layout program of the sample is repeated side by side to the wanted size, and its tied choices are drawn
again (``made_graphs.py``): every second copy has groups of its own, which makes 32 to 48 of them (real 17 to
55). A tile kernel keeps its graph; the bounds of its configurations are drawn. Runtimes follow from the
choices, with noise, so that there is something to learn. Every file is written whole or not at all: the same
call resumes.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from common.graph_files import SAMPLE, program_of
from common.made_graphs import write_repeated
from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, Collection, list_programs
from fastslow.competition.reader import read_npz
from fastslow.core.files import atomic_path, write_json
from fastslow.core.progress import progress


@dataclass(frozen=True)
class Real:
    """Published statistics of a collection.

    Args:
        graphs: Programs of train, valid and test, by the competition's listing.
        nodes: Minimum, mean and maximum nodes of a program (slides of TpuGraphs' authors).
        configs: Minimum, mean and maximum configurations of a train or valid program: the slides' totals over
            the number of programs; the maximum of tile is an assumption.
    """

    graphs: tuple[int, int, int]
    nodes: tuple[int, int, int]
    configs: tuple[int, int, int]


REAL = {
    "tile:xla": Real((5709, 676, 844), (2, 40, 400), (2, 1842, 8000)),
    "layout:xla:default": Real((61, 7, 8), (372, 14_105, 43_614), (20, 9_891, 100_040)),
    "layout:xla:random": Real((69, 7, 8), (372, 14_105, 43_614), (20, 10_689, 100_040)),
    "layout:nlp:default": Real((198, 20, 17), (876, 5_659, 21_919), (20, 54_448, 100_040)),
    "layout:nlp:random": Real((207, 20, 17), (876, 5_659, 21_919), (20, 66_089, 100_040)),
}
TEST_CONFIGS = 1000  # of a layout program of test
CONFIGURABLE = 0.04  # of the nodes: 848 of 21,918, and 2 to 8 % in the other published files
_FAMILIES = 2  # of copies whose tensors are tied with each other
_NOISE = 0.03


@dataclass(frozen=True)
class Size:
    """How large the made-up competition is, as shares of the real one.

    Args:
        kernels: Share of the 7,229 tile kernels.
        programs: Share of the 594 layout programs, at least one a split.
        sizes: Share of the nodes and configurations of a layout program and of a kernel's configurations.
    """

    kernels: float = 1.0
    programs: float = 1 / 30
    sizes: float = 1.0

    def graphs(self, name: str) -> dict[str, int]:
        """Return the number of graphs of a collection, by split."""
        share = self.kernels if name.startswith("tile") else self.programs
        return {split: max(1, round(n * share)) for split, n in zip(SPLITS, REAL[name].graphs, strict=True)}


def spread(count: int, minimum: int, mean: float, maximum: int) -> np.ndarray:
    """Return ``count`` sizes of about this mean: quantiles of a power law between minimum and maximum."""
    power = (maximum - minimum) / max(mean - minimum, 1) - 1
    middle = (np.arange(count) + 0.5) / count
    found = minimum + (maximum - minimum) * middle**power
    return np.clip(np.rint(found * mean / found.mean()), minimum, maximum).astype(int)


def write_real_size(root: Path, size: Size) -> Path:
    """Write the npz files of all five collections and ``sample_submission.csv``; existing files are kept.

    Raises:
        ValueError: The folder holds a competition of another size.
    """
    root.mkdir(parents=True, exist_ok=True)
    record = root / "size.json"
    if record.is_file() and json.loads(record.read_text()) != asdict(size):
        raise ValueError(f"{root}: holds another size, {record.read_text()}; choose another folder")
    write_json(record, asdict(size))
    jobs = [job for collection in COLLECTIONS for job in _files(root, collection, size)]
    for path, write in progress(jobs, desc="made-up competition", unit="file"):
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                write(temporary)
    rows = ["ID,TopConfigs"]
    for collection in COLLECTIONS:
        first = ";".join(map(str, range(5 if collection.kind == "tile" else TEST_CONFIGS)))
        rows += [f"{program.id},{first}" for program in list_programs(root, collection, TEST)]
    (root / "sample_submission.csv").write_text("".join(f"{row}\n" for row in rows))
    return root


def _files(root: Path, collection: Collection, size: Size) -> Iterator[tuple]:
    """Yield the path of every file of a collection, and the function that writes it."""
    real, made = REAL[collection.name], size.graphs(collection.name)
    for split in SPLITS:
        sources = list_programs(SAMPLE, collection, split)
        # the searches of a source share programs, of equal names, in the same split
        key = [zlib.crc32(f"{collection.name} {split}".encode())]
        order = np.random.default_rng(key).permutation(made[split])
        nodes = spread(made[split], *real.nodes)
        configs = spread(made[split], *real.configs)[order]
        for number in range(made[split]):
            source = sources[number % len(sources)].path
            path = collection.folder(root, split) / f"{split}-{number:04}.npz"
            wanted = max(2, int(configs[number] * size.sizes))
            seed = [*key, number]
            if collection.kind == "tile":
                yield path, _kernel_writer(source, wanted, split == TEST, seed)
                continue
            if split == TEST:
                wanted = max(2, int(TEST_CONFIGS * size.sizes))
            yield path, _program_writer(source, int(nodes[number] * size.sizes), wanted, split == TEST, seed)


def _program_writer(source: Path, nodes: int, configs: int, hidden: bool, seed: list[int]):
    def write(path: Path) -> None:
        file = read_npz(program_of(source))
        num_nodes = max(nodes, len(file.node_opcode))
        most = len(file.node_config_ids) * (num_nodes // len(file.node_opcode))
        configurable = min(max(20, int(num_nodes * CONFIGURABLE)), most)
        rng = np.random.default_rng(seed)
        write_repeated(path, file, num_nodes, configurable, configs, rng, _FAMILIES, hidden)

    return write


def _kernel_writer(source: Path, configs: int, hidden: bool, seed: list[int]):
    def write(path: Path) -> None:
        with np.load(source) as npz:
            arrays = dict(npz)
        np.savez_compressed(path, **_redraw(arrays, configs, hidden, np.random.default_rng(seed)))

    return write


def _redraw(arrays: dict[str, np.ndarray], configs: int, hidden: bool, rng: np.random.Generator) -> dict:
    """Return a kernel with so many configurations, whose bounds are powers of two times 1 to 7."""
    bounds = arrays["config_feat"].reshape(len(arrays["config_feat"]), 3, 8)
    used = bounds[..., :6].max(0) > 0
    drawn = np.zeros((configs, 3, 8), np.float32)
    kinds = np.array([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128])
    drawn[..., :6] = np.where(used, rng.choice(kinds, (configs, 3, 6)), 0)
    drawn[..., 6] = drawn[..., :6].sum(-1)
    drawn[..., 7] = np.where(drawn[..., :6] > 0, drawn[..., :6], 1).prod(-1) * used.any(-1)
    work = np.log2(np.maximum(drawn[..., 7], 1))
    cost = 1000 + 300 * ((work - 10) ** 2).sum(1)
    runtime = (cost * np.exp(_NOISE * rng.standard_normal(configs))).astype(np.int64)
    return {
        **arrays,
        "config_feat": drawn.reshape(configs, 24),
        "config_runtime": np.zeros_like(runtime) if hidden else runtime,
        "config_runtime_normalizers": np.full(configs, 1 if hidden else 1000, np.int64),
    }
