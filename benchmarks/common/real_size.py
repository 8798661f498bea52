"""A made-up competition of the size of the real one: as many files, nodes and configurations.

The numbers of files are the competition's, the means are from TpuGraphs' authors (arXiv 2308.13490 and the
slides "ML for ML Compilers at Google"). Around them sizes are log-normal. A layout program
is a genuine one, repeated side by side or cut; without genuine files, one of the sample. Labels are as noisy,
as repeated and, in a tenth of the graphs, as damaged as genuine ones. Few programs of a split are distinct;
hard links under other names make up the number of files.
"""

import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist

import joblib
import numpy as np

from common.graph_files import REAL, SAMPLE
from common.made_graphs import configurable_ids, write_kernel, write_repeated
from common.noisy_labels import DAMAGED, LEVELS
from fastslow.competition.catalog import (
    COLLECTIONS,
    LABELLED_SPLITS,
    SPLITS,
    TEST,
    TRAIN,
    Collection,
    ProgramFile,
)
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.submission_csv import SAMPLE as SUBMISSION
from fastslow.core.files import atomic_path, read_json, write_json
from fastslow.core.progress import progress


@dataclass(frozen=True)
class Size:
    """The size of a collection.

    Args:
        files: Number of train, valid and test files.
        nodes: Mean nodes of a program.
        configs: Mean configurations of a labelled program.
    """

    files: tuple[int, int, int]
    nodes: int
    configs: int


REAL_SIZE = {
    "tile:xla": Size((5_709, 676, 844), 40, 1_842),
    "layout:xla:default": Size((61, 7, 8), 14_105, 10_147),
    "layout:xla:random": Size((69, 7, 8), 14_105, 11_648),
    "layout:nlp:default": Size((198, 20, 17), 5_659, 56_534),
    "layout:nlp:random": Size((207, 20, 17), 5_659, 66_089),
}
TINY_SIZE = {name: Size((3, 1, 2), 700, 60) for name in REAL_SIZE} | {"tile:xla": Size((5, 2, 20), 20, 60)}
"""For a check that everything runs."""
DISTINCT, TINY_DISTINCT = {"layout": 12, "tile": 200}, {"layout": 2, "tile": 18}
"""Programs of a split that differ, by kind."""
MOST_NODES, MOST_CONFIGS = 43_614, 100_040
FEWEST_CONFIGURABLE, MOST_CONFIGURABLE = 20, 3_143
TEST_CONFIGS, LONGER = 1_000, "layout:nlp:random"
"""Configurations of a layout test file; the first made one of a collection has one more, as a genuine file
of nlp:default has."""
FEW_TILES = 16
"""Kernels of the test split with two to four configurations."""
MANY_TILES = 50
"""Configurations of a kernel that others are made from."""
_SINGLE = {("tile:xla", TEST): FEW_TILES, (LONGER, TEST): 1}
"""How many programs of a split, the first, have no other names."""
_FEWEST_NODES = {"layout": 500, "tile": 16}
_WIDTH = 0.8  # standard deviation of the logarithm of nodes and of configurations
_RECORD = "made.json"


@dataclass(frozen=True)
class Made:
    """A file to make from another.

    Args:
        file: The file.
        base: The genuine program.
        nodes: N.
        configs: C.
        seed: Seed of its configurations.
    """

    file: ProgramFile
    base: ProgramFile
    nodes: int
    configs: int
    seed: int

    def write(self) -> None:
        """Write the file, whole or not at all."""
        base, labelled = _read(self.base), self.file.split in LABELLED_SPLITS
        with atomic_path(self.file.path) as temporary:
            if self.file.collection.kind == "tile":
                write_kernel(temporary, base, self.nodes, self.configs, self.seed, labelled)
                return
            rng = np.random.default_rng(self.seed)
            level = LEVELS[str(rng.choice([*LEVELS]))] if labelled else None
            damaged = labelled and rng.random() < DAMAGED
            sizes = self.nodes, min(MOST_CONFIGURABLE, _configurable(self.base, self.nodes)), self.configs
            write_repeated(temporary, base, *sizes, self.seed, level, damaged, labelled)


def make_competition(
    root: Path,
    sizes: Mapping[str, Size] = REAL_SIZE,
    distinct: Mapping[str, int] = DISTINCT,
    genuine: Path | None = None,
    workers: int = 2,
) -> None:
    """Write the npz files of all collections and ``sample_submission.csv``; what is there already stays.

    Args:
        root: Folder to write into.
        sizes: Size of each collection, by its name.
        distinct: Programs of a split that differ, by kind.
        genuine: Folder of published files: those under ``npz_all`` are among the files made, and test files
            have the names of its ``sample_submission.csv``.
        workers: Processes.

    Raises:
        ValueError: The folder holds data of other sizes.
    """
    facts = {
        "sizes": {name: [*size.files, size.nodes, size.configs] for name, size in sizes.items()},
        "distinct": dict(distinct),
        "genuine": genuine is not None,
    }
    if (root / _RECORD).is_file() and read_json(root / _RECORD) != facts:
        raise ValueError(f"{root}: holds data of other sizes; give another folder or remove it")
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / _RECORD, facts)
    ids = _published_ids(genuine) if genuine else {}
    made: list[Made] = []
    links: dict[Path, Path] = {}
    for collection in COLLECTIONS:
        for split in SPLITS:
            size = sizes[collection.name]
            files = [*_files(root, collection, split, size.files[SPLITS.index(split)], genuine, ids)]
            for file in [file for file in files if _original(file, root, genuine)]:
                files.remove(file)
                if not file.path.exists():
                    with atomic_path(file.path) as temporary:
                        shutil.copyfile(_original(file, root, genuine), temporary)
            first = distinct[collection.kind]
            made += _sized(files[:first], size)
            alike = files[min(_SINGLE.get((collection.name, split), 0), first - 1) : first]
            links |= {file.path: alike[n % len(alike)].path for n, file in enumerate(files[first:])}
    made = [one for one in made if not one.file.path.exists()]
    made.sort(key=lambda one: -one.nodes * one.configs)  # the longest first
    parallel = joblib.Parallel(workers, return_as="generator_unordered")
    tasks = parallel(joblib.delayed(one.write)() for one in made)
    for _ in progress(tasks, total=len(made), desc="made programs", unit="file"):
        pass
    for path, other in links.items():
        if not path.exists():
            os.link(other, path)
    _write_sample_submission(root, ids)


def _published_ids(genuine: Path) -> dict[str, list[str]]:
    """Return the names of the test files of each collection, in the order of the published CSV."""
    names: dict[str, list[str]] = {}
    for line in (genuine / SUBMISSION).read_text().splitlines()[1:]:
        collection, _, name = line.partition(",")[0].rpartition(":")
        names.setdefault(collection, []).append(name)
    return names


def _files(
    root: Path, collection: Collection, split: str, count: int, genuine: Path | None, ids: dict
) -> Iterator[ProgramFile]:
    """Yield the files of a split. Programs of both searches have the same names, as in the real one."""
    source = collection.name.split(":")[1]
    names = [path.stem for path in sorted(collection.folder(genuine, split).glob("*.npz"))] if genuine else []
    if split == TEST and genuine:
        names = [*ids[collection.name]]
    names += [f"made-{source}-{split}-{number:04}" for number in range(count - len(names))]
    for name in names[:count]:
        yield ProgramFile(collection, split, collection.folder(root, split) / f"{name}.npz")


def _original(file: ProgramFile, root: Path, genuine: Path | None) -> Path | None:
    """Return the published file of a file, if there is one."""
    path = genuine / file.path.relative_to(root) if genuine else None
    return path if path and path.is_file() else None


def _sized(files: Sequence[ProgramFile], size: Size) -> Iterator[Made]:
    """Yield what to make of the distinct files of a split."""
    if not files:
        return
    collection, split = files[0].collection, files[0].split
    source = collection.name.split(":")[1]  # programs of both searches have the same nodes
    rng = np.random.default_rng(zlib.crc32(f"{source} {split}".encode()))
    nodes = spread(len(files), size.nodes, _FEWEST_NODES[collection.kind], MOST_NODES, rng)
    bases = rng.permutation(len(files))
    seeds = np.random.default_rng(zlib.crc32(f"{collection.name} {split}".encode()))
    configs = spread(len(files), size.configs, 5, MOST_CONFIGS, seeds)
    if split == TEST and collection.kind == "tile":
        configs[:FEW_TILES] = 2 + np.arange(len(configs[:FEW_TILES])) % 3
    elif split == TEST:
        configs[:] = min(TEST_CONFIGS, 2 * size.configs)
        configs[0] += collection.name == LONGER
    for number, file in enumerate(files):
        known = [base for base in _bases(collection) if _fits(base, nodes[number])]
        base = known[bases[number] % len(known)]
        yield Made(file, base, int(nodes[number]), int(configs[number]), int(seeds.integers(2**32)))


def spread(count: int, mean: float, least: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return evenly spaced quantiles of a log-normal distribution, cut at both ends, in random order.

    Args:
        count: Number of values.
        mean: Their mean, up to rounding.
        least: Lower end.
        most: Upper end.
        rng: Source of the order.
    """
    normal = np.array([NormalDist().inv_cdf((number + 0.5) / count) for number in range(count)])
    low, high = np.log(least) - 5, np.log(most) + 5
    for _ in range(60):
        middle = (low + high) / 2
        values = np.clip(np.exp(middle + _WIDTH * normal), least, most)
        low, high = (middle, high) if values.mean() < mean else (low, middle)
    return rng.permutation(np.rint(values).astype(int))


@cache
def _bases(collection: Collection) -> list[ProgramFile]:
    """Return the programs that a collection's are made from: of its source, with two choices or more."""
    pattern = "tile/xla" if collection.kind == "tile" else f"layout/{collection.name.split(':')[1]}/*"
    if collection.kind == "layout":
        paths = sorted(REAL.glob(f"npz_all/npz/{pattern}/*/*.npz"))
        found = [ProgramFile(collection, TEST, path) for path in paths]
        found = [file for file in found if len(_read(file).choices.varying)]
        if found:
            return found
    paths = sorted(SAMPLE.glob(f"npz_all/npz/{pattern}/{TRAIN}/*.npz"))[::8]
    found = [ProgramFile(collection, TEST, path) for path in paths]
    return [file for file in found if collection.kind == "layout" or len(_read(file).runtime) >= MANY_TILES]


def _fits(base: ProgramFile, nodes: int) -> bool:
    """Return whether a program of some nodes can be made: a whole kernel, or enough configurable nodes."""
    if base.collection.kind == "tile":
        return len(_read(base).node_opcode) <= nodes
    return _configurable(base, nodes) >= FEWEST_CONFIGURABLE


def _configurable(base: ProgramFile, nodes: int) -> int:
    return len(configurable_ids(_read(base), nodes))


@cache
def _read(file: ProgramFile) -> Program:
    return read_npz(file)


def _write_sample_submission(root: Path, ids: dict[str, list[str]]) -> None:
    """Write the placeholders of every test file: 5 and 1,000 indices, however many a file has."""
    lines = ["ID,TopConfigs"]
    for collection in COLLECTIONS:
        there = {path.stem for path in collection.folder(root, TEST).glob("*.npz")}
        indices = ";".join(map(str, range(5 if collection.kind == "tile" else TEST_CONFIGS)))
        for name in ids.get(collection.name, sorted(there)):
            lines.append(f"{collection.name}:{name},{indices}")
    with atomic_path(root / SUBMISSION) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines))
