"""Convert a program of yours to a competition file.

The graph of an HLO file or of a JAX function becomes node features, edges and configurable nodes;
configurations are sampled from its layout space. ``fastslow.convert``, ``make convert`` and notebook 50 call
:func:`write_conversion`; a ranking and a search call :func:`make_program`.
"""

import hashlib
import math
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TEST, ProgramFile, get_collection
from fastslow.competition.layouts import LAYOUT_WIDTH
from fastslow.competition.opcodes import NEAREST, OPCODES, opcode_number
from fastslow.competition.reader import Program, program_of
from fastslow.competition.rules.program_rules import check_program
from fastslow.competition.schema import REMEDY
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import DataError, counted
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, check_writable
from fastslow.core.settings import resolve
from fastslow.hlo.graph_arrays import graph_arrays, operand_nodes
from fastslow.hlo.messages import Module
from fastslow.hlo.module_checks import WRITE_AGAIN
from fastslow.hlo.reader import HloProgram
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.layout_choices import (
    Configuration,
    TiedChoice,
    default_configuration,
    draw_configuration,
    encode_defaults,
    imposable,
    layouts_of,
)
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import ConfigurableNode, configurable_nodes, encode
from fastslow_programs.program.graph_picture import plot_graph
from fastslow_programs.program.measured import find_measured
from fastslow_programs.program.program_settings import MEASURED, ConvertSettings
from fastslow_programs.program.program_tables import list_configurable
from fastslow_programs.program.user_program import refuse_failure

PICTURE = "graph.png"
TABLE = "nodes.csv"
_TRIES = 500  # draws in a row without a new configuration, after which the space counts as exhausted
_MOSTLY = 0.5  # share of the computing instructions with an unknown opcode, above which a program is refused
_COMPUTES_NOTHING = ("parameter", "constant", "tuple", "get-tuple-element")
_SHOWN, _REASONS = 200, 3  # characters of the compiler's message, and different messages, that are shown


@dataclass(frozen=True)
class ConvertedProgram(Program):
    """A program that was made from HLO.

    Args:
        module: Its HLO.
        nodes: Its configurable nodes.
        arrays: Its arrays as a competition file holds them, by key.
        labels: Meaning of ``config_runtime``, in words.
        measured: Whether the configurations are the source's own, with measured runtimes.
        known: Values of configurations that were measured before, by position.
        known_from: Where these values are from, in words.
    """

    module: Module | None = None
    nodes: Sequence[ConfigurableNode] = ()
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: str = ""
    measured: bool = False
    known: Mapping[int, Sequence[float]] = field(default_factory=dict)
    known_from: str = ""


def make_program(settings: ConvertSettings, ask_compiler: bool = False) -> ConvertedProgram:
    """Make a program from HLO, with its configurations; nothing is written.

    Args:
        settings: Settings of a conversion.
        ask_compiler: Ask the compiler for its own layouts of an HLO file even where no label needs them.

    Raises:
        SettingsError: The source is neither an HLO file nor ``model.py:FUNCTION``, or the compiler is needed
            and not installed.
        DataError: The file is missing or not HLO, the competition's format cannot represent the program, or
            the compiler failed on it.
    """
    source = settings.origin
    labeller = settings.labeller()
    hlo = source.read(labeller, ask_compiler=settings.label or ask_compiler)
    module = hlo.module
    nodes = checked_nodes(source.path, hlo)
    if not nodes and "config_feat" not in hlo.runs:
        problem = "it has no convolution, dot or reshape, the configurable instructions"
        raise DataError(source.path, problem, "Convert a program with one of them")
    arrays = graph_arrays(module)
    collection = get_collection(settings.collection)
    known, values, known_from = {}, {}, ""
    if settings.configs == MEASURED:
        arrays |= _measured(source.path, hlo.runs, collection.kind)
        labels = "measured runtime, ns"
    else:
        choices = imposable(nodes)
        if settings.cache:
            values, known_from = find_measured(resolve(settings.data_root), labeller, module, nodes)
        configurations = draw_configurations(choices, settings.configs, settings.seed)
        configurations = list(dict.fromkeys([*configurations, *values]))
        known = {place: values[c] for place, c in enumerate(configurations) if c in values}
        drawn = [layouts_of(c, choices) for c in configurations]
        cycles = [0] * len(drawn)
        labels = "none"
        if settings.label:
            programs = [constrain(module, layouts, nodes) for layouts in drawn]
            estimated, failures = estimate_cycles(source.path, programs, labeller)
            drawn, cycles = zip(*((d, e) for d, e in zip(drawn, estimated, strict=True) if e), strict=True)
            labels = "the compiler's estimated cycles"
            if failures:
                labels += f"; {count_failures(failures, len(programs))}"
        arrays["node_config_ids"] = np.array([node.node for node in nodes], np.int64)
        arrays["node_config_feat"] = np.stack([encode(layouts, nodes) for layouts in drawn])
        arrays["config_runtime"] = np.array(cycles, np.int64)
        arrays |= encode_defaults(nodes)
    try:
        program = program_of(ProgramFile(collection, TEST, settings.npz), arrays, settings.label)
        check_program(program)
    except DataError as error:  # of a file that is not there yet
        _, problem, remedy = error.args
        raise DataError(source.path, problem, WRITE_AGAIN if remedy == REMEDY else remedy) from None
    return ConvertedProgram(
        **vars(program) | {"operands": operand_nodes(module)},
        module=module,
        nodes=nodes,
        arrays=arrays,
        labels=labels,
        measured=settings.configs == MEASURED,
        known=known,
        known_from=known_from,
    )


def write_conversion(settings: ConvertSettings) -> ConvertedProgram:
    """Write the competition file of a program, a picture of its graph and a table of its configurable nodes.

    Errors are as for :func:`make_program`.
    """
    settings.require_read()
    check_writable(settings.npz)
    program = make_program(settings)
    write_npz(program)
    _write_report(program, settings)
    return program


def _measured(path: Path, runs: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    if {"layout": "node_config_feat", "tile": "config_feat"}[kind] not in runs:
        remedy = "Set configs to the number of configurations to sample"
        if runs:
            remedy = f"Choose a collection of the other kind: its runs are not for {kind}"
        raise DataError(path, f"holds no measured {kind} runs", remedy)
    return runs


def write_npz(program: ConvertedProgram) -> None:
    """Write a program's competition file."""
    with atomic_path(program.path) as temporary:
        np.savez_compressed(temporary, **program.arrays)


def _write_report(program: ConvertedProgram, settings: ConvertSettings) -> None:
    content = hashlib.sha256(program.module.SerializeToString(deterministic=True)).hexdigest()
    folder = resolve(settings.folder)
    artifact = Artifact(folder, settings.identity(), {"module": content}, products=(settings.npz,))
    with artifact.building():
        save_figure(plot_graph(program.arrays, settings.program), artifact.folder / PICTURE)
        with atomic_path(artifact.folder / TABLE) as temporary:
            list_configurable(program.module, program.nodes).to_csv(temporary, index=False)
        artifact.finish((PICTURE, TABLE), summary=summarise(program).to_dict())


def checked_nodes(path: Path, program: HloProgram) -> list[ConfigurableNode]:
    """Return the configurable nodes of a program that the competition's format can represent.

    Args:
        path: Source of the program, for messages, and for a warning of newer opcodes.
        program: The program.

    Raises:
        DataError: Most of what is computed has an opcode without a near known one, or a tensor of a
            configurable node has more dimensions than a file holds.
    """
    module = program.module
    opcodes = Counter(i.opcode for computation in module.computations for i in computation.instructions)
    unknown = sum(count for opcode, count in opcodes.items() if not opcode_number(opcode))
    words = newer_opcodes(opcodes)
    if unknown > _MOSTLY * (opcodes.total() - sum(opcodes[opcode] for opcode in _COMPUTES_NOTHING)):
        raise DataError(path, f"most of it is unknown to the competition: {words}", "Rank another program")
    if words:
        print(f"warning: {path}: newer than the competition's opcodes: {words}", file=sys.stderr)
    nodes = configurable_nodes(module, program.layouts)
    _check_ranks(path, module, nodes)
    return nodes


def newer_opcodes(opcodes: Iterable[str]) -> str:
    """Return in words the known opcode for each one that the competition does not number."""
    newer = sorted({opcode for opcode in opcodes if opcode not in OPCODES})
    return ", ".join(f"{opcode} (taken for {NEAREST.get(opcode, 'no known opcode')})" for opcode in newer)


def _check_ranks(path: Path, module: Module, nodes: Sequence[ConfigurableNode]) -> None:
    """Raise :class:`DataError` if a tensor of a configurable node has more dimensions than a file holds."""
    instructions = [i for computation in module.computations for i in computation.instructions]
    operands = operand_nodes(module)
    for number in (tensor for node in nodes for tensor in (node.node, *operands[node.node])):
        if (rank := len(instructions[number].shape.dimensions)) > LAYOUT_WIDTH:
            problem = f"{instructions[number].name} has {counted(rank, 'dimension')}"
            held = f"; the competition's format holds {LAYOUT_WIDTH}"
            raise DataError(path, problem + held, "Merge dimensions that need not be apart")


def draw_configurations(choices: list[TiedChoice], count: int, seed: int) -> list[Configuration]:
    """Sample distinct configurations of tied choices, the default first.

    Args:
        choices: The choices of the program, see
            :func:`fastslow_programs.compiler.layout_choices.imposable`.
        count: Maximum number of configurations. There are fewer where the space is small.
        seed: Seed of the draw.

    Returns:
        The configurations, the option of each choice.
    """
    rng = random.Random(seed)
    drawn = {default_configuration(choices): None}  # a set in the order drawn
    in_vain = 0
    while len(drawn) < count and in_vain < _TRIES:
        configuration = draw_configuration(choices, rng)
        in_vain = in_vain + 1 if configuration in drawn else 0
        drawn[configuration] = None
    return list(drawn)


def estimate_cycles(
    path: Path, programs: list[Module], labeller: Labeller
) -> tuple[list[int | None], list[str]]:
    """Ask the compiler for the cycles of modules.

    Args:
        path: The source, for the messages.
        programs: The modules; the first one, the default or the program without constraints, must compile.
        labeller: Compiles them, or reads earlier results.

    Returns:
        The cycles, None where the compile failed; and the failures, each its kind and the compiler's message.

    Raises:
        SettingsError: libtpu is not installed.
        DataError: The compiler failed on the first module.
    """
    with labeller.workers() as label:
        codes = [program.SerializeToString(deterministic=True) for program in programs]
        records = label(codes, "configurations")
    refuse_failure(path, records[0])
    failures = [f"{record['failure']}: {record['message']}" for record in records if "failure" in record]
    return [record.get("cycles") for record in records], failures


def count_failures(failures: list[str], configurations: int) -> str:
    """Return in one line how many compiles failed, and the reasons."""
    of = counted(configurations, "configuration")
    return f"none for {len(failures):,} of {of} ({count_reasons(failures)})"


def count_reasons(failures: Sequence[str]) -> str:
    """Return in one line the reasons of failures with their numbers, the commonest first."""
    reasons = Counter(" ".join(failure.split())[:_SHOWN] for failure in failures)
    return "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(_REASONS))


def summarise(program: ConvertedProgram) -> pd.Series:
    """Return the sizes of the graph, of its configuration space and of the file, named after the npz."""
    arrays, nodes = program.arrays, program.nodes
    opcodes = (i.opcode for c in program.module.computations for i in c.instructions)
    options = [len(choice.options) for choice in imposable(nodes)]
    possible = math.prod(options)
    about = f"about 10^{math.log10(possible):.0f}"
    facts = {
        "nodes": len(arrays["node_opcode"]),
        "edges": len(arrays["edge_index"]),
        "computations": len(program.module.computations),
        "newer opcodes": newer_opcodes(opcodes) or "none",
        "configurable nodes": len(nodes),
        "tied choices": sum(number > 1 for number in options),
        "possible configurations": f"{possible:,}" if possible < 1e9 else about,
        "configurations written": len(arrays["config_runtime"]),
        "labels": program.labels,
    }
    return pd.Series(facts, name=program.name)
