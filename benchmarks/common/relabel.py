"""Programs of the sample, their configurations labelled by the compiler for another TPU generation."""

import base64
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import TEST, Program, get_collection, list_programs
from fastslow.competition.reader import CompetitionFile, read_competition_file
from fastslow.core.errors import DataError
from fastslow.core.progress import progress
from fastslow.kaggle.solution import read_solution
from fastslow.programs.zoo import PROGRAMS
from fastslow.xla.compile_pool import Labeller, program_before_layout
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.layout_constraints import constrain
from fastslow.xla.layout_space import ConfigurableNode, configurable_nodes, decode
from fastslow.xla.libtpu import lower
from fastslow.xla.messages import Module


@dataclass(frozen=True)
class Relabelled:
    """Some configurations of a program with the labels of several generations.

    Args:
        program: The competition file that they are from.
        name: Name in the zoo.
        rows: ``(n,)`` positions of the configurations in the file.
        cycles: ``(n,)`` estimated cycles by generation; ``v3`` is the file's own label.
        missing: Share of the instructions that do work and have no estimate, by compiled generation.
    """

    program: Program
    name: str
    rows: np.ndarray
    cycles: dict[str, np.ndarray]
    missing: dict[str, float]

    def file(self, generation: str) -> CompetitionFile:
        """Return the file with only these configurations, and the labels of a generation."""
        file = read_competition_file(self.program.path, "layout")
        return replace(file, choices=file.choices.take(self.rows), runtime=self.cycles[generation])


def smallest_programs(root: Path, collection: str, splits: tuple[str, ...], count: int) -> list[Program]:
    """Return the smallest programs of some splits, by number of nodes."""
    found = [p for split in splits for p in list_programs(root, get_collection(collection), split)]
    sizes = {p: len(read_competition_file(p.path, "layout").node_opcode) for p in found}
    return sorted(found, key=lambda p: (sizes[p], p.name))[:count]


def relabel(
    root: Path, programs: dict[Program, int], generations: list[str], labeller: Labeller
) -> list[Relabelled]:
    """Label the first configurations of some programs of the sample for other generations.

    The sample's program before v3's layout assignment is compiled under the sample's own configurations: only
    the compiler's target changes.

    Args:
        root: The sample.
        programs: Number of configurations of each program.
        generations: TPU generations besides v3.
        labeller: Cache and limits.

    Raises:
        DataError: A program of the zoo differs from the sample's file.
    """
    zoo = {hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(): name for name in PROGRAMS}
    names = [zoo[p.name] if p.split == TEST else p.name for p in programs]
    lowered = [lower(*PROGRAMS[name].build()) for name in progress(names, desc="lowering", unit="program")]
    with replace(labeller, generation="v3", task=program_before_layout).workers() as label:
        records = label(lowered, "before layout assignment")
    modules = []
    for program, record in zip(programs, records, strict=True):
        module = Module.FromString(base64.b64decode(record["module"]))
        modules.append((module, configurable_nodes(module, record["layouts"])))
        _refuse_another(program, *modules[-1])
    solution = read_solution(root / "solution.csv")
    own = {p: _own_labels(p, solution)[:count] for p, count in programs.items()}
    found = {p: {"v3": labels} for p, labels in own.items()}
    missing: dict[Program, dict[str, float]] = {p: {} for p in programs}
    for generation in generations:
        with replace(labeller, generation=generation).workers() as label:
            for program, (module, nodes) in zip(programs, modules, strict=True):
                codes = _constrained(program, module, nodes, len(own[program]))
                records = label(codes, f"{generation} {program.name[:24]}")
                found[program][generation] = np.array([r.get("cycles", 0) for r in records])
                missing[program][generation] = _missing(records)
    result = []
    for name, program in zip(names, programs, strict=True):
        rows = np.flatnonzero(np.all([labels > 0 for labels in found[program].values()], 0))
        cycles = {generation: labels[rows] for generation, labels in found[program].items()}
        result.append(Relabelled(program, name, rows, cycles, missing[program]))
    return result


def _own_labels(program: Program, solution: dict[str, np.ndarray]) -> np.ndarray:
    if program.split == TEST:
        return solution[program.id]
    return read_competition_file(program.path, "layout").runtime


def _constrained(program: Program, module: Module, nodes: list[ConfigurableNode], count: int) -> list[bytes]:
    with np.load(program.path, allow_pickle=False) as file:
        rows = file["node_config_feat"][:count]
    programs = [constrain(module, decode(row, nodes), nodes) for row in rows]
    return [own.SerializeToString(deterministic=True) for own in programs]


def _refuse_another(program: Program, module: Module, nodes: list[ConfigurableNode]) -> None:
    file, arrays = read_competition_file(program.path, "layout"), graph_arrays(module)
    same = [node.node for node in nodes] == file.node_config_ids.tolist()
    if not (same and np.array_equal(arrays["node_feat"], file.node_feat)):
        raise DataError(program.path, "is not the program of the zoo any more", "Rebuild the sample")


def _missing(records: list[dict]) -> float:
    known = [record for record in records if "cycles" in record]
    without = sum(record["without_estimate"] for record in known)
    return without / max(1, without + sum(record["estimated"] for record in known))
