"""Convert a program, an HLO file or a JAX function, to a competition file.

Its graph becomes node features, edges and configurable nodes; configurations are sampled from its layout
space. ``fastslow.convert``, ``make convert`` and notebook 50 call it.
"""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import get_collection
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import read_competition_file
from fastslow.competition.schema import DEFAULTS
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.settings import resolve
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.layout_choices import (
    Configuration,
    TiedChoice,
    default_configuration,
    draw,
    encode_defaults,
    layouts_of,
    tie,
)
from fastslow_programs.compiler.layout_constraints import constrain
from fastslow_programs.compiler.layout_space import ConfigurableNode, configurable_nodes, encode
from fastslow_programs.program.graph_picture import plot_graph
from fastslow_programs.program.program_settings import MEASURED, ConvertSettings
from fastslow_programs.program.program_tables import list_configurable, log10_configurations
from fastslow_programs.program.user_program import refuse_failure

PICTURE = "graph.png"
TABLE = "nodes.csv"
_TRIES = 500  # draws in a row without a new configuration, after which the space counts as exhausted
_SHOWN, _REASONS = 200, 3  # characters of the compiler's message, and different messages, that are shown


@dataclass(frozen=True)
class Conversion:
    """A converted program.

    Args:
        module: Its HLO.
        nodes: Its configurable nodes.
        arrays: Arrays of the competition file ``npz`` by key.
        npz: The file.
        labels: What ``config_runtime`` holds, in words.
        measured: Whether the configurations are the file's own, with measured runtimes.
    """

    module: Module
    nodes: list[ConfigurableNode]
    arrays: dict[str, np.ndarray]
    npz: Path
    labels: str
    measured: bool = False


def convert(settings: ConvertSettings, ask_compiler: bool = False, report: bool = True) -> Conversion:
    """Write the competition file of a program, a picture of its graph and a table of its configurable nodes.

    Args:
        settings: Settings.
        ask_compiler: Ask the compiler for its own layouts of an HLO file even where no label needs them.
        report: Whether to write picture and table; without, only the competition file.

    Raises:
        SettingsError: The source is neither an HLO file nor ``model.py:FUNCTION``, or the compiler is needed
            and not installed.
        DataError: The file is missing or not HLO, the competition's format cannot represent the program, or
            the compiler failed on it.
    """
    source = settings.origin
    labeller = settings.labeller()
    program = source.read(labeller, ask_compiler=settings.label or ask_compiler)
    module = program.module
    check_module(source.path, module, settings.allow_unknown)
    nodes = configurable_nodes(module, program.layouts)
    if not nodes and "config_feat" not in program.runs:
        problem = "it has no convolution, dot or reshape, the configurable instructions"
        raise DataError(source.path, problem, "Convert a program with one of them")
    arrays = graph_arrays(module)
    if settings.configs == MEASURED:
        arrays |= _measured(source.path, program.runs, get_collection(settings.collection).kind)
        labels = "measured runtime, ns"
    else:
        choices = tie(nodes)
        drawn = [
            layouts_of(c, choices) for c in draw_configurations(choices, settings.configs, settings.seed)
        ]
        cycles, labels = [0] * len(drawn), "none"
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
        if (defaults := encode_defaults(nodes)) is not None:
            arrays[DEFAULTS] = defaults
    conversion = Conversion(module, nodes, arrays, settings.npz, labels, settings.configs == MEASURED)
    _write_npz(conversion, settings)
    if report:
        _write_report(conversion, settings)
    return conversion


def _measured(path: Path, runs: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    if {"layout": "node_config_feat", "tile": "config_feat"}[kind] not in runs:
        remedy = "Set configs to the number of configurations to sample"
        if runs:
            remedy = f"Choose a collection of the other kind: {kind} is not that of its runs"
        raise DataError(path, f"holds no measured {kind} runs", remedy)
    return runs


def _write_npz(conversion: Conversion, settings: ConvertSettings) -> None:
    with atomic_path(settings.npz) as temporary:
        np.savez_compressed(temporary, **conversion.arrays)
        read_competition_file(temporary, get_collection(settings.collection).kind, settings.label)


def _write_report(conversion: Conversion, settings: ConvertSettings) -> None:
    content = hashlib.sha256(conversion.module.SerializeToString(deterministic=True)).hexdigest()
    folder, inputs = resolve(settings.folder), {"module": content}
    artifact = Artifact(folder, settings.identity(), inputs, products=(settings.npz,))
    with artifact.building():
        shown = {"node_config_ids": np.zeros(0, np.int64)} | conversion.arrays  # a tile file has none
        save_figure(plot_graph(shown, settings.program), artifact.folder / PICTURE)
        with atomic_path(artifact.folder / TABLE) as temporary:
            list_configurable(conversion.module, conversion.nodes).to_csv(temporary, index=False)
        artifact.finish((PICTURE, TABLE), summary=summarise(conversion).to_dict())


def check_module(path: Path, module: Module, allow_unknown: bool) -> None:
    """Raise :class:`DataError` if a shape is dynamic, or an opcode has no number in the competition.

    ``allow_unknown`` accepts such opcodes. The source of the program, ``path``, is for messages.
    """
    opcodes: Counter = Counter()
    for computation in module.computations:
        for instruction in computation.instructions:
            opcodes[instruction.opcode] += 1
            if _is_dynamic(instruction.shape):
                problem = f"the shape of {instruction.opcode} {instruction.name} is dynamic"
                raise DataError(path, problem, "Give every dimension a fixed size")
    unknown = [f"{opcode!r} ({count} times)" for opcode, count in opcodes.items() if opcode not in OPCODES]
    if unknown and not allow_unknown:
        problem = f"the competition has no number for the opcode {', '.join(unknown)}"
        raise DataError(
            path, problem, "To give it the number 0, which no model was trained on, set allow_unknown=True"
        )


def _is_dynamic(shape) -> bool:
    return any(shape.is_dynamic_dimension) or any(_is_dynamic(part) for part in shape.tuple_shapes)


def draw_configurations(choices: list[TiedChoice], count: int, seed: int) -> list[Configuration]:
    """Sample at most ``count`` distinct configurations of tied choices, the default first."""
    rng = random.Random(seed)
    found = {default_configuration(choices): None}  # a set in the order drawn
    in_vain = 0
    while len(found) < count and in_vain < _TRIES:
        configuration = draw(choices, rng)
        in_vain = in_vain + 1 if configuration in found else 0
        found[configuration] = None
    return list(found)


def estimate_cycles(
    path: Path, programs: list[Module], labeller: Labeller
) -> tuple[list[int | None], list[str]]:
    """Ask the compiler for the cycles of constrained modules, the default first.

    Returns:
        The cycles, None where the compile failed; and the failures, each its kind and the compiler's message.

    Raises:
        SettingsError: libtpu is not installed.
        DataError: The compiler failed on the default configuration.
    """
    with labeller.workers() as label:
        codes = [program.SerializeToString(deterministic=True) for program in programs]
        records = label(codes, "configurations")
    refuse_failure(path, records[0])
    failures = [f"{record['failure']}: {record['message']}" for record in records if "failure" in record]
    return [record.get("cycles") for record in records], failures


def count_failures(failures: list[str], configurations: int) -> str:
    """Return in one line how many compiles failed, and the reasons, the commonest first."""
    reasons = Counter(" ".join(failure.split())[:_SHOWN] for failure in failures)
    listed = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(_REASONS))
    return f"{len(failures)} of {configurations} configurations have none ({listed})"


def summarise(conversion: Conversion) -> pd.Series:
    """Return the sizes of the graph, of its configuration space and of the file, named after the npz."""
    arrays, nodes = conversion.arrays, conversion.nodes
    unknown = {i.opcode for c in conversion.module.computations for i in c.instructions} - OPCODES.keys()
    facts = {
        "nodes": len(arrays["node_opcode"]),
        "edges": len(arrays["edge_index"]),
        "computations": len(conversion.module.computations),
        "unknown opcodes": ", ".join(sorted(unknown)) or "none",
        "configurable nodes": len(nodes),
        "possible configurations": f"10^{log10_configurations(tie(nodes)):.1f}",
        "configurations written": len(arrays["config_runtime"]),
        "labels": conversion.labels,
    }
    return pd.Series(facts, name=conversion.npz.stem)
