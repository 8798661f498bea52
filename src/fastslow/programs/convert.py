"""A program of the user as a file of the competition, from HLO or from a JAX function.

Its graph becomes node features, edges and configurable nodes; configurations are drawn from its layout space.
``make convert`` runs this through a notebook.
"""

import hashlib
import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fastslow.competition.catalog import get_collection
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import read_competition_file
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import DataError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.settings import Config, NonNegative, PositiveFloat, resolve, unkeyed
from fastslow.programs.graph_picture import plot_graph
from fastslow.programs.layout_search import DRAW_RATES
from fastslow.programs.program_tables import list_configurable, log10_configurations
from fastslow.programs.user_program import Source, refuse_failure
from fastslow.xla.compile_pool import Labeller
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.layout_space import (
    ConfigurableNode,
    Configuration,
    configurable_nodes,
    constrain,
    draw,
    encode,
)
from fastslow.xla.libtpu import TOPOLOGIES
from fastslow.xla.messages import Module

PICTURE = "graph.png"
TABLE = "nodes.csv"
MEASURED = 0  # configurations to draw, where the measured ones are taken
_TRIES = 500  # draws in a row without a new configuration, after which the space counts as exhausted


class ConvertConfig(Config):
    """Settings of the conversion of one program."""

    source: str = ""
    """An HLO file (HloModuleProto, HloProto, TpuGraphs' ``.pb``, text), or ``model.py:make`` with a function
    that returns ``(function, arguments)`` for ``jax.jit``."""
    data_root: str = unkeyed("data/converted")
    """Folder of a competition of your own; the npz goes to its ``npz_all/``."""
    collection: str = "layout:xla:random"
    """Layout collection to put it in: programs of ``nlp`` and ``xla`` are ranked by models trained on either,
    so choose the one that is more like yours."""
    name: str = ""
    """Name of the npz; that of the source if empty."""
    generation: Literal[*TOPOLOGIES] = "v3"
    """TPU generation that a JAX function is compiled for: v2, v3 (the one that TpuGraphs was measured on),
    v4, v5e, v5p, v6e, tpu7x. An HLO file is taken as it stands."""
    configs: NonNegative = 64
    """Configurations to draw, the compiler's default first; fewer if there are not as many. 0 takes those
    that the file holds instead, with their measured runtimes (TpuGraphs' ``.pb``)."""
    allow_unknown: bool = False
    """Number opcodes that the competition does not know 0 instead of refusing them."""
    seed: NonNegative = 0
    """Of the configurations drawn."""
    label: bool = False
    """Fill ``config_runtime`` with the compiler's estimated cycles, for ``generation``, instead of 0; minutes
    to hours. A configuration that the compiler refuses is left out."""
    seconds: PositiveFloat = unkeyed(600.0)
    """Time limit of one compile; raise it for a large program."""

    def check(self) -> None:
        """Check ranges."""
        kind = get_collection(self.collection).kind
        self.require(kind == "layout", "collection", "a layout collection")
        self.require(re.fullmatch(r"([\w-][\w.-]*)?", self.name), "name", "made of letters, digits, _ . -")
        self.require(not self.label or self.configs != MEASURED, "label", "False, since configs=0 has labels")

    @classmethod
    def _hint(cls, name: str) -> str:
        if name == "padding":
            return 'the file is 0-padded as the schema says; the feature step pads: SET="features.padding=-1"'
        return super()._hint(name)

    @property
    def program(self) -> str:
        """Name of the npz without its suffix."""
        return self.name or re.sub(r"[^\w.-]", "_", Source.of(self.source).name).lstrip(".")

    @property
    def npz(self) -> Path:
        """The competition file."""
        folder = get_collection(self.collection).folder(resolve(self.data_root), "test")
        return folder / f"{self.program}.npz"

    @property
    def folder(self) -> str:
        """Folder of the picture, the table of configurable nodes and the executed notebook."""
        return f"{self.data_root}/programs/{self.program}"


@dataclass(frozen=True)
class Conversion:
    """A converted program.

    Args:
        module: Its HLO.
        nodes: Its configurable nodes.
        arrays: Of the competition file, by key.
        npz: The competition file.
        labels: What ``config_runtime`` holds.
    """

    module: Module
    nodes: list[ConfigurableNode]
    arrays: dict[str, np.ndarray]
    npz: Path
    labels: str


def convert(config: ConvertConfig) -> Conversion:
    """Write the competition file of a program, with a picture and a table of it beside.

    Args:
        config: Settings.

    Raises:
        ConfigError: The source is no program, or what compiling needs is not installed.
        DataError: The file is missing or not HLO, the program has no place in the competition's format, or
            the compiler failed on it.
    """
    source = Source.of(config.source)
    labeller = Labeller(
        resolve(config.data_root) / "labels.sqlite", config.generation, seconds=config.seconds
    )
    program = source.read(labeller)
    module = program.module
    check_module(source.path, module, config.allow_unknown)
    nodes = configurable_nodes(module)
    if not nodes:
        problem = "it has no convolution, dot or reshape, the instructions that are configurable"
        raise DataError(source.path, problem, "Convert a program with one of them")
    arrays = graph_arrays(module)
    if config.configs == MEASURED:
        arrays |= _measured(source.path, program.runs)
        labels = "measured runtime, ns"
    else:
        configurations = draw_configurations(nodes, config.configs, config.seed)
        cycles, labels = [0] * len(configurations), "none"
        if config.label:
            configurations, cycles = estimate_cycles(source.path, module, configurations, labeller)
            labels = "the compiler's estimated cycles"
        arrays["node_config_ids"] = np.array([node.node for node in nodes], np.int64)
        arrays["node_config_feat"] = np.stack([encode(c, nodes) for c in configurations])
        arrays["config_runtime"] = np.array(cycles, np.int64)
    conversion = Conversion(module, nodes, arrays, config.npz, labels)
    _write(conversion, config)
    return conversion


def _measured(path: Path, runs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if "node_config_feat" not in runs:
        raise DataError(path, "holds no measured layout runs", "Set configs to how many are to be drawn")
    return runs


def _write(conversion: Conversion, config: ConvertConfig) -> None:
    content = hashlib.sha256(conversion.module.SerializeToString(deterministic=True)).hexdigest()
    folder, inputs = resolve(config.folder), {"module": content}
    artifact = Artifact(folder, config.identity(), inputs, products=(config.npz,))
    with artifact.building():
        with atomic_path(config.npz) as temporary:
            np.savez_compressed(temporary, **conversion.arrays)
            read_competition_file(temporary, "layout", config.label)
        save_figure(plot_graph(conversion.arrays, config.program), artifact.folder / PICTURE)
        with atomic_path(artifact.folder / TABLE) as temporary:
            list_configurable(conversion.module, conversion.nodes).to_csv(temporary, index=False)
        artifact.finish(summary=summarise(conversion).to_dict())


def check_module(path: Path, module: Module, allow_unknown: bool) -> None:
    """Refuse what the competition's format cannot hold.

    Args:
        path: Where the program comes from, for messages.
        module: Its HLO.
        allow_unknown: Whether an opcode may have no number.

    Raises:
        DataError: A shape is dynamic, or an opcode unknown.
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
            path, problem, "To give it the number 0, which no model has seen, set allow_unknown=True"
        )


def _is_dynamic(shape) -> bool:
    return any(shape.is_dynamic_dimension) or any(_is_dynamic(part) for part in shape.tuple_shapes)


def draw_configurations(nodes: list[ConfigurableNode], count: int, seed: int) -> list[Configuration]:
    """Distinct configurations, the compiler's default first, the others at random.

    Args:
        nodes: The configurable nodes.
        count: Configurations wanted; a small space has fewer.
        seed: Of the draw.
    """
    rng = random.Random(seed)
    found = {encode({}, nodes).tobytes(): {}}
    in_vain = 0
    while len(found) < count and in_vain < _TRIES:
        configuration = draw(nodes, rng, rng.choice(DRAW_RATES))
        row = encode(configuration, nodes).tobytes()
        in_vain = in_vain + 1 if row in found else 0
        found.setdefault(row, configuration)
    return list(found.values())


def estimate_cycles(
    path: Path, module: Module, configurations: list[Configuration], labeller: Labeller
) -> tuple[list[Configuration], list[int]]:
    """The compiler's estimated cycles of the configurations that it takes; the default must be one of them.

    Args:
        path: Where the program comes from, for messages.
        module: Its HLO.
        configurations: The default first.
        labeller: Of layouts.

    Raises:
        ConfigError: libtpu is not installed.
        DataError: The compiler failed on the program under its default.
    """
    programs = [constrain(module, c).SerializeToString(deterministic=True) for c in configurations]
    with labeller.workers() as label:
        records = label(programs, "configurations")
    refuse_failure(path, records[0])
    labelled = [(c, r["cycles"]) for c, r in zip(configurations, records, strict=True) if "cycles" in r]
    configurations, cycles = map(list, zip(*labelled, strict=True))
    return configurations, cycles


def summarise(conversion: Conversion) -> pd.Series:
    """What was found and written: sizes of the graph, of the space of configurations and of the file.

    Args:
        conversion: A converted program.
    """
    arrays, nodes = conversion.arrays, conversion.nodes
    unknown = {i.opcode for c in conversion.module.computations for i in c.instructions} - OPCODES.keys()
    facts = {
        "nodes": len(arrays["node_opcode"]),
        "edges": len(arrays["edge_index"]),
        "computations": len(conversion.module.computations),
        "unknown opcodes": ", ".join(sorted(unknown)) or "none",
        "configurable nodes": len(nodes),
        "possible configurations": f"10^{sum(map(log10_configurations, nodes)):.1f}",
        "configurations written": len(arrays["config_runtime"]),
        "labels": conversion.labels,
    }
    return pd.Series(facts, name=conversion.npz.stem)
