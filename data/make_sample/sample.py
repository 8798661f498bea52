"""Make a sample competition from source: programs of the zoo, labelled by the TPU compiler (``make sample``).

Every compile is cached, and every program that is labelled whole (:mod:`make_sample.finished`), so an
interrupted run resumes where it stopped. What was compiled once is kept in ``data/compiled``
(:mod:`make_sample.compiled`) and never compiled again.
"""

import base64
import importlib.metadata
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastslow.competition.catalog import SPLITS
from fastslow.core.errors import SettingsError
from fastslow.core.files import file_digest, read_json, write_json
from fastslow.core.progress import progress
from fastslow.core.settings import (
    NonNegative,
    NonNegativeFloat,
    PositiveFloat,
    Settings,
    Threads,
    find_data,
    resolve,
    unkeyed,
)
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.compile_pool import NOT_TRIED, program_before_layout, tile_label
from fastslow_programs.compiler.layout_choices import layouts_of, tie
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import ConfigurableNode, configurable_nodes
from fastslow_programs.compiler.libtpu import TOPOLOGIES, lower
from make_sample.compiled import compiler_version, known_first
from make_sample.finished import finished_path, keep_finished, read_finished
from make_sample.layout_search import SEARCHES, Search
from make_sample.sample_files import (
    KERNELS,
    SampleGraph,
    layout_graphs,
    ordered,
    read_kernels,
    structure,
    tile_graphs,
    why_left_out,
    write_competition,
)
from make_sample.sample_readme import sample_readme
from make_sample.zoo import LONGER, PROGRAMS, ZooProgram, in_turns, split_of

TOGETHER = 12  # programs whose searches take turns; an interrupted run has labelled the others whole

COMMITTED = "data/sample"
CONFIGURATIONS = {"small": 24, "large": 200, "more": 24}
"""Labels per program and search, by size of the sample; the large one has the small one's programs, too."""
LONG_SEARCH = 96
"""Labels per search of the programs in ``LONGER``, at least."""


class SampleSettings(Settings):
    """Settings of a sample competition."""

    size: Literal[*CONFIGURATIONS] = "small"
    """Size of the sample: ``small`` is in the repository, ``large`` has four times the programs and labels
    and takes days on two cores, ``more`` has layouts of programs with many reshapes or large tensors."""
    out: str = unkeyed("")
    """Folder to write; if empty ``data/sample``, ``data/large`` or ``data/more`` by size, or
    ``data/selection`` if ``programs`` is set."""
    labels: str = unkeyed("data/labels")
    """Folder of the cache of labels; programs whose labels are there are not compiled again."""
    compiled: str = unkeyed("data/compiled")
    """Folder of labels and programs to keep and to commit; what is there is not compiled again either."""
    programs: str = ""
    """Programs of the zoo to include, separated by spaces; all of the size if empty."""
    generation: Literal[*TOPOLOGIES] = "v3"
    """TPU generation to compile for; TpuGraphs was measured on v3."""
    processes: Threads = unkeyed(0)
    """Number of compiles side by side, 0 for one per core; each takes 1.4 cores and up to 1 GB."""
    seconds: PositiveFloat = 120.0
    """Time limit of one compile in seconds; a configuration that exceeds it has no label."""
    hours: NonNegativeFloat = unkeyed(0.0)
    """Stop compiling after this many hours and leave out the programs that are not fully labelled by then; a
    later run resumes there. 0 for no limit."""
    memory_gb: PositiveFloat = 6.0
    """Memory limit of one compile in GB; a configuration that exceeds it has no label."""
    seed: NonNegative = 0
    """Seed of the searches for configurations and of the order of rows."""

    def check(self) -> None:
        """Check that the programs exist.

        Raises:
            SettingsError: The zoo has no program of a name in ``programs``.
        """
        unknown = [name for name in self.programs.split() if name not in PROGRAMS]
        self.require(not unknown, "programs", f"a list of programs of the zoo ({' '.join(unknown)} are not)")

    def configurations(self, program: ZooProgram) -> int:
        """Return the wanted number of labels of each search of a program."""
        usual = CONFIGURATIONS[self.size]
        return max(usual, LONG_SEARCH) if program.name in LONGER else usual

    @property
    def folder(self) -> Path:
        """Folder of the competition."""
        if self.programs and not self.out:
            return resolve("data/selection")  # a selection must not replace the whole sample
        return resolve(self.out or (COMMITTED if self.size == "small" else f"data/{self.size}"))

    def zoo(self) -> list[ZooProgram]:
        """Return the programs to label, every split and source in its share of any first few of them."""
        names = self.programs.split()
        sizes = ("small", "large") if self.size == "large" else (self.size,)
        return in_turns(p for p in PROGRAMS.values() if (p.name in names if names else p.size in sizes))

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that labels and files depend on."""
        versions = {name: importlib.metadata.version(name) for name in ("jax", "numpy")}
        return {"libtpu": compiler_version(find_data(self.compiled)), **versions}

    @property
    def kernels(self) -> Path:
        """File with the names of the committed sample's tile files by program, which are not made again."""
        root = find_data(self.compiled)
        return root / compiler_version(root) / "kernels.json"


@dataclass
class LabelledProgram:
    """A program of the zoo with its labels.

    Args:
        program: The program.
        split: Its split, decided by its family.
        configurations: Wanted number of labels of each search.
        module: The program before layout assignment, on which configurations are imposed.
        nodes: Its configurable nodes, with the compiler's own layouts.
        searches: By name, see :data:`make_sample.layout_search.SEARCHES`.
        tiles: Record of :func:`fastslow_programs.compiler.compile_pool.tile_label`; empty where the committed
            sample has its kernels, and for a program of the size ``more``, which has layouts only.
        compiles: Records of all layout compiles, including failures.
        layouts: The compiler's layouts, of which the nodes were made; none where it was read again.
    """

    program: ZooProgram
    split: str
    configurations: int
    module: Module
    nodes: list[ConfigurableNode]
    searches: dict[str, Search]
    tiles: dict
    compiles: list[dict]
    layouts: Any = None

    def is_late(self) -> bool:
        """Return whether a layout has no label because it was not compiled."""
        return any(record.get("failure") == NOT_TRIED for record in self.compiles)


def label_programs(settings: SampleSettings) -> tuple[list[LabelledProgram], dict[str, str]]:
    """Label the configurations of both searches and the tile candidates of every kernel.

    A program with a small layout space, or with failures, has fewer labels than wanted.

    Returns:
        The labelled programs, and the reason by name of each program that did not compile, or not in time.
    """
    programs = settings.zoo()
    hours = settings.hours or math.inf
    limits = {
        "generation": settings.generation,
        "processes": settings.processes,
        "seconds": settings.seconds,
        "memory": int(settings.memory_gb * 2**30),
        "deadline": time.monotonic() + 3600 * hours,
    }
    paths = {program.name: _finished_path(program, settings) for program in programs}
    kept = {program.name: _read_finished(program, paths[program.name], settings) for program in programs}
    labelled = {name: one for name, one in kept.items() if one is not None}
    if labelled:
        print(f"{len(labelled)} of {len(programs)} programs were labelled before")
    missing = [program for program in programs if program.name not in labelled]
    failed = {}
    for start in range(0, len(missing), TOGETHER):
        some, reasons = _label(missing[start : start + TOGETHER], settings, limits)
        for one in some:
            path = paths[one.program.name]
            keep_finished(path, one.module, one.layouts, one.searches, one.tiles, one.compiles)
            labelled[one.program.name] = one
        failed |= reasons
        print(f"{len(labelled) + len(failed)} of {len(programs)} programs, {len(failed)} not labelled")
    return [labelled[program.name] for program in programs if program.name in labelled], failed


def _finished_path(program: ZooProgram, settings: SampleSettings) -> Path:
    depends = {
        "versions": settings.versions(),
        "size": program.size,
        "configurations": settings.configurations(program),
        "kernels": settings.kernels.is_file() and file_digest(settings.kernels),
        **{name: getattr(settings, name) for name in ("generation", "seconds", "memory_gb", "seed")},
    }
    folder = resolve(settings.labels) / "finished"
    return finished_path(folder, "make_sample.sample:label_programs", program.name, depends)


def _read_finished(program: ZooProgram, path: Path, settings: SampleSettings) -> LabelledProgram | None:
    facts = read_finished(path, _seed(program, settings))
    return facts and LabelledProgram(program, split_of(program), settings.configurations(program), **facts)


def _seed(program: ZooProgram, settings: SampleSettings) -> str:
    return f"{settings.seed}/{program.name}"


def _label(
    programs: list[ZooProgram], settings: SampleSettings, limits: dict
) -> tuple[list[LabelledProgram], dict[str, str]]:
    """Label some programs, as :func:`label_programs` does for all."""
    stores = find_data(settings.compiled), resolve(settings.labels) / "labels.sqlite"
    kernels = read_json(settings.kernels) if settings.kernels.is_file() else ()
    lowered = [lower(*p.build()) for p in progress(programs, desc="lowering", unit="program")]
    with known_first(*stores, task=program_before_layout, **limits) as label:
        records = label(lowered, "programs before layout assignment")
    labelled, failed = [], {}
    for program, record in zip(programs, records, strict=True):
        if "failure" in record:
            failed[program.name] = f"{record['failure']}: {record['message']}"
            continue
        module = Module.FromString(base64.b64decode(record["module"]))
        nodes = configurable_nodes(module, record["layouts"])
        choices = tie(nodes)
        searches = {kind: Search(kind, choices, _seed(program, settings)) for kind in SEARCHES}
        one = LabelledProgram(
            program,
            split_of(program),
            settings.configurations(program),
            module,
            nodes,
            searches,
            tiles={},
            compiles=[],
            layouts=record["layouts"],
        )
        labelled.append(one)
    with known_first(*stores, task=tile_label, **limits) as label:
        asked = [one for one in labelled if one.program.size != "more" and one.program.name not in kernels]
        serialised = [one.module.SerializeToString(deterministic=True) for one in asked]
        for one, record in zip(asked, label(serialised, "tile candidates"), strict=True):
            one.tiles = record
    with known_first(*stores, **limits) as label:
        _run_searches(labelled, label)
    late = {one.program.name for one in labelled if one.is_late()}
    failed |= dict.fromkeys(late, f"{NOT_TRIED}: it was not labelled in the time given")
    return [one for one in labelled if one.program.name not in late], failed


def _run_searches(labelled: list[LabelledProgram], label) -> None:
    """Alternate between proposals of all searches and labels for them, until every search is complete."""
    for number in itertools.count(1):
        batch = list(_proposals(labelled))
        if not batch:
            return
        modules = [
            constrain(one.module, layouts_of(c, one.searches[kind].choices), one.nodes).SerializeToString(
                deterministic=True
            )
            for one, kind, c in batch
        ]
        for (one, kind, configuration), record in zip(batch, label(modules, f"round {number}"), strict=True):
            one.compiles.append(record)
            one.searches[kind].labels.append((configuration, record.get("cycles")))


def _proposals(labelled: list[LabelledProgram]) -> Iterator:
    for one in labelled:
        if one.is_late():
            continue
        for kind, search in one.searches.items():
            missing = one.configurations - len(search.succeeded())
            hopeless = len(search.labels) >= 2 * one.configurations
            if missing and not search.exhausted and not hopeless and search.choices:
                for configuration in search.propose(missing):
                    yield one, kind, configuration


def kernel_graphs(
    labelled: list[LabelledProgram], kernels: int, seed: int, kept: Mapping[str, list[SampleGraph]]
) -> list[SampleGraph]:
    """Return the tile graphs of all programs, at most ``kernels`` of each; isomorphic ones are in one split.

    Programs of ``kept`` have the graphs given there. Of the others test programs choose first, then valid,
    then train, each split in the order given.
    """
    graphs = [graph for one in labelled for graph in kept.get(one.program.name, [])]
    seen = {structure(graph.arrays): graph.split for graph in graphs}
    for one in sorted(labelled, key=lambda one: -SPLITS.index(one.split)):
        if one.program.name not in kept and "kernels" in one.tiles:
            graphs += tile_graphs(one, kernels, seed, seen)
    return graphs


def make_sample(settings: SampleSettings) -> Path:
    """Make a sample competition with the TPU compiler, print where it is, and return its folder.

    Raises:
        SettingsError: libtpu or JAX is not installed, or no program gave a graph.
        DataError: The cache of labels is not readable.
    """
    labelled, left_out = label_programs(settings)
    graphs = []
    for one in labelled:
        layouts = layout_graphs(one, settings.seed)
        if why := why_left_out(layouts, one.configurations):
            left_out[one.program.name] = why
        else:
            graphs += layouts
    kept = read_kernels(find_data(COMMITTED), settings.kernels)
    tiles = kernel_graphs(labelled, KERNELS, settings.seed, kept)
    graphs += tiles
    if not graphs:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise SettingsError("programs", f"none gave a graph ({reasons})")
    graphs = ordered(graphs)
    readme = sample_readme(graphs, labelled, left_out, settings)
    write_competition(graphs, readme, settings.folder)
    if settings.folder == resolve(COMMITTED):
        names = {
            program: [g.name for g in tiles if g.program == program]
            for program in sorted(one.program.name for one in labelled)  # whatever their turns were
        }
        write_json(settings.kernels, names)
    print(f"{settings.folder}: made; its README.md describes the content")
    return settings.folder
