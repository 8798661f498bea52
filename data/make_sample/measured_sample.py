"""A sample competition whose labels are measured on this machine (``make sample LABELS=device``).

Programs are inference of each family of the zoo in float32, and products. Configurations are drawn as for the
``random`` search of the sample, but only for outputs: the local XLA decides on the layouts of operands. All
configurations of a program run in interleaved rounds. The labels join the rounds; labels of both halves of
the rounds are kept beside them, so that each graph has a replicate tau. Every measurement is cached: an
interrupted call resumes.
"""

import importlib.metadata
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import SPLITS
from fastslow.competition.metrics import kendall_tau
from fastslow.core.errors import DataError
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.progress import progress
from fastslow.core.settings import (
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Settings,
    resolve,
    unkeyed,
)
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.device import (
    Bench,
    LocalProgram,
    Times,
    device_name,
    lower_function,
    run_rounds,
)
from fastslow_programs.compiler.layout_choices import (
    Configuration,
    TiedChoice,
    encode_defaults,
    layouts_of,
    tie,
)
from fastslow_programs.compiler.layout_constraints import bind_differences, is_imposed
from fastslow_programs.compiler.layout_space import ConfigurableNode, configurable_nodes
from make_sample.layout_search import Search
from make_sample.sample_files import SampleGraph, layout_graphs, ordered, shuffled_rows, write_competition
from make_sample.sample_readme import markdown
from make_sample.zoo import PRODUCTS, PROGRAMS, ZooProgram, in_turns, split_of

RELIABLE = 0.5  # replicate tau below which a program is left out
SLOWEST = 0.02  # seconds of one run; slower programs are left out
LARGEST = 400  # nodes; larger programs compile for seconds, once for each configuration
FEWEST = 12  # labels of a program
COLLECTION, REPLICATES = "layout:xla:random", "replicates.csv"
_TEXT = """# Measured sample competition

Runtimes of small JAX programs under layout configurations, **measured on this machine** ({device}, {rounds}
rounds). Made by `make sample LABELS=device`. Folders, keys, types and file names are the competition's. All
programs are in one collection, `{collection}`; splits are by family, as in the sample.

- **Label** `config_runtime`: nanoseconds of one run, the median over rounds of the time over the
  unconstrained program's in the same round, times the unconstrained program's median. A round runs every
  configuration once, in random order. Test files hold 0; the true labels are in `solution.csv`.
- **Configurations** bind outputs of convolutions, dots and reshapes where they differ from row-major, without
  barriers. Operands are left to the compiler. A configuration whose outputs differ from the unconstrained
  program's is left out.
- **Noise**: `{replicates}` holds the labels of the first and of the second half of the rounds. *Replicate
  tau* is Kendall's tau between the two; *noise* is the median difference of two runs of the unconstrained
  program in one round.
- Left out: programs of more than {largest} nodes or {slowest:g} s, with fewer than {fewest} labels, or with a
  replicate tau below {reliable} ({left_out}).

{table}
"""


class MeasuredSampleSettings(Settings):
    """Settings of ``make sample LABELS=device``: a sample competition that is measured on this machine."""

    out: str = unkeyed("data/device")
    """Folder to write."""
    cache: str = unkeyed("data/labels/device")
    """Folder of the measurements; programs that are there are not measured again."""
    programs: str = ""
    """Programs to include, separated by spaces; products and inference of each family in float32 if empty."""
    configurations: Positive = 24
    """Configurations of a program."""
    rounds: Positive = 30
    """Number of times that each configuration is executed."""
    seconds: PositiveFloat = 120.0
    """Time limit in seconds of compiling and executing one configuration."""
    hours: NonNegativeFloat = unkeyed(0.0)
    """Begin no program after this many hours, and write what is measured; a later run resumes there. 0 for
    no limit."""
    seed: NonNegative = 0
    """Seed of the configurations, of the inputs and of the order of rows."""

    def check(self) -> None:
        """Check that the programs exist."""
        unknown = [name for name in self.programs.split() if name not in PRODUCTS | PROGRAMS]
        self.require(not unknown, "programs", f"a list of programs of the zoo ({' '.join(unknown)} are not)")

    def zoo(self) -> list[ZooProgram]:
        """Return the programs to measure, every split and source in its share of any first few of them."""
        if names := self.programs.split():
            return in_turns((PRODUCTS | PROGRAMS)[name] for name in names)
        families = {
            (program.source, program.family): program
            for program in PROGRAMS.values()
            if program.size == "large" and program.name.endswith("_f32") and "_forward_" in program.name
        }
        return in_turns([*PRODUCTS.values(), *families.values()])


@dataclass
class MeasuredProgram:
    """A program of the zoo with its measured configurations, in the form that the sample's files are made of.

    Args:
        program: The program.
        module: Its module, as JAX lowers it.
        nodes: Its configurable nodes; the default layouts are row-major.
        searches: The ``random`` search, with labels in nanoseconds, None where there is none.
        halves: By configuration with a label, its labels of the two halves of the rounds, in nanoseconds.
        seconds: Median time of the unconstrained program.
        noise: Median difference of two times of the unconstrained program in one round, as a fraction.
    """

    program: ZooProgram
    module: Module
    nodes: list[ConfigurableNode]
    searches: dict[str, Search]
    halves: dict[Configuration, tuple[float, float]]
    seconds: float
    noise: float

    @property
    def split(self) -> str:
        """Its split, decided by its family."""
        return split_of(self.program)

    @property
    def replicate_tau(self) -> float:
        """Kendall's tau between the labels of the two halves."""
        return float(kendall_tau(*np.array([*self.halves.values()]).T))

    def graph(self, seed: int) -> tuple[SampleGraph, pd.DataFrame]:
        """Return its graph, and the labels of the halves in the order of the graph's rows."""
        (graph,) = layout_graphs(self, seed)
        graph = replace(graph, collection=COLLECTION)  # one, so that models learn from all programs
        rows = shuffled_rows(self.searches["random"], f"{seed}/{self.program.name}/random/order")
        halves = pd.DataFrame([self.halves[configuration] for configuration, _ in rows]).round(1)
        halves.columns = ["first", "second"]
        halves.insert(0, "config_index", range(len(halves)))
        halves.insert(0, "ID", f"{graph.collection}:{graph.name}")
        return replace(graph, arrays=graph.arrays | encode_defaults(self.nodes)), halves


def row_major_nodes(module: Module) -> list[ConfigurableNode]:
    """Return the configurable nodes of a module as JAX lowers it, whose default layouts are row-major."""
    defaults = {}
    for computation in module.computations:
        shapes = {i.id: i.shape for i in computation.instructions}
        for instruction in computation.instructions:
            tensors = [instruction.shape, *(shapes[i] for i in instruction.operand_ids)][:3]
            layouts = [tuple(reversed(range(len(shape.dimensions)))) for shape in tensors]
            defaults[instruction.name] = [*layouts, *[()] * (3 - len(layouts))]
    return configurable_nodes(module, defaults)


def imposed_choices(nodes: list[ConfigurableNode]) -> list[TiedChoice]:
    """Return the tied choices that the local XLA can be made to take."""
    return [choice for choice in tie(nodes) if is_imposed(choice.roles) and len(choice.options) > 1]


def measure_program(program: ZooProgram, settings: MeasuredSampleSettings) -> MeasuredProgram | str:
    """Measure a program, or read its cached measurement.

    Returns:
        The measured program, or why it is left out, in words.

    Raises:
        DataError: The cached measurement is not readable.
    """
    wanted, (function, arguments) = settings.configurations, program.build()
    local = lower_function(function, arguments, settings.seed)
    if (size := sum(len(c.instructions) for c in local.module.computations)) > LARGEST:
        return f"{size} nodes"
    nodes = row_major_nodes(local.module)
    search = Search("random", imposed_choices(nodes), f"{settings.seed}/{program.name}")
    while len(search.labels) < wanted and not search.exhausted:
        search.labels += [(own, None) for own in search.propose(wanted - len(search.labels))]
    drawn = [configuration for configuration, _ in search.labels]
    if len(drawn) < min(FEWEST, wanted):
        return f"{len(drawn)} configurations"
    times = _measure(program, local, search, nodes, settings)
    if times is None:
        return f"takes longer than {SLOWEST:g} s"
    default = float(np.median(times.seconds[:, :2]))
    halves = np.array_split(times.ratios, 2)
    whole, *parts = (1e9 * default * np.median(own, 0) for own in (times.ratios, *halves))
    measured = np.isfinite(whole)  # NaN in any round where it failed
    if measured.sum() < min(FEWEST, wanted):
        return f"{measured.sum()} of {wanted} labels"
    search.labels = [
        (c, round(own) if np.isfinite(own) else None) for c, own in zip(drawn, whole, strict=True)
    ]
    own_halves = {c: pair for c, *pair, there in zip(drawn, *parts, measured, strict=True) if there}
    noise = float(np.median(times.noise))
    return MeasuredProgram(program, local.module, nodes, {"random": search}, own_halves, default, noise)


def _measure(
    program: ZooProgram,
    local: LocalProgram,
    search: Search,
    nodes: list[ConfigurableNode],
    settings: MeasuredSampleSettings,
) -> Times | None:
    """Return the times of configurations, measured or cached; None where the program is too slow."""
    path = resolve(settings.cache) / f"{program.name}-{_key(local.module, search, settings)}.json"
    if not path.is_file():
        record: dict = {}
        unconstrained = [local.module.SerializeToString(deterministic=True)]
        trial, _ = run_rounds(unconstrained, local.inputs, rounds=2, seed=0)
        if np.median(trial) <= SLOWEST:
            drawn = [layouts_of(configuration, search.choices) for configuration, _ in search.labels]
            with Bench(local, settings.rounds, settings.seconds).running() as times:
                found = times([bind_differences(local.module, own, nodes) for own in drawn])
            known = np.where(np.isfinite(found.seconds), found.seconds, -1.0)
            record = {"seconds": known.tolist(), "failures": found.failures}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    try:
        record = read_json(path)
        seconds = np.array(record["seconds"], float) if record else None
        return Times(np.where(seconds < 0, np.nan, seconds), record["failures"]) if record else None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(path, f"is not a measurement ({error})", "Delete it: it is measured again") from None


def _key(module: Module, search: Search, settings: MeasuredSampleSettings) -> str:
    """Return what a measurement depends on; a module's bytes differ by process, its graph does not."""
    graph = [array.tolist() for _, array in sorted(graph_arrays(module).items())]
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    configurations = [configuration for configuration, _ in search.labels]
    return digest([graph, configurations, device_name(), versions, settings.rounds, settings.seed])


def measured_programs(settings: MeasuredSampleSettings) -> Iterator[tuple[str, MeasuredProgram | str]]:
    """Yield each program's name and measurement, or why it is left out, within the settings' hours."""
    ends = time.monotonic() + 3600 * (settings.hours or math.inf)
    programs = settings.zoo()
    with progress(total=len(programs), desc="measuring", unit="program") as bar:
        for number, program in enumerate(programs):
            if time.monotonic() > ends:
                print(f"{len(programs) - number} programs are not measured; the same command resumes")
                return
            bar.set_postfix_str(program.name)
            yield program.name, measure_program(program, settings)
            bar.update()


def make_measured_sample(settings: MeasuredSampleSettings) -> Path:
    """Measure programs on this machine, write a competition folder, print where it is, and return it.

    Raises:
        SettingsError: JAX is not installed, or no program gave a graph.
        DataError: A cached measurement is not readable.
    """
    device, left_out, graphs, replicates, rows = device_name(), {}, [], [], []
    for name, measured in measured_programs(settings):
        if isinstance(measured, str):
            left_out[name] = measured
        elif not measured.replicate_tau >= RELIABLE:
            left_out[name] = f"replicate tau {measured.replicate_tau:.2f}"
        else:
            graph, halves = measured.graph(settings.seed)
            graphs.append(graph)
            replicates.append(halves)
            rows.append(_row(graph, measured))
    reasons = "; ".join(f"{name} ({why})" for name, why in sorted(left_out.items())) or "none"
    settings.require(graphs, "programs", f"some with a replicate tau of {RELIABLE}; none has it: {reasons}")
    readme = _TEXT.format(
        device=device,
        collection=COLLECTION,
        rounds=settings.rounds,
        replicates=REPLICATES,
        largest=LARGEST,
        slowest=SLOWEST,
        reliable=RELIABLE,
        fewest=FEWEST,
        left_out=reasons,
        table=markdown(pd.DataFrame(sorted(rows, key=lambda row: SPLITS.index(row["split"])))),
    )
    folder = resolve(settings.out)
    write_competition(ordered(graphs), readme, folder, {REPLICATES: pd.concat(replicates)})
    print(f"{folder}: made of {len(graphs)} programs; its README.md describes the content")
    return folder


def _row(graph: SampleGraph, measured: MeasuredProgram) -> dict[str, str]:
    return {
        "split": graph.split,
        "program": graph.program,
        "configs": str(len(graph.labels)),
        "choices": str(len(measured.searches["random"].choices)),
        "ms": f"{1000 * measured.seconds:.3f}",
        "slowest / fastest": f"{graph.spread:.2f}",
        "default / fastest": f"{1e9 * measured.seconds / graph.labels.min():.2f}",
        "noise": f"{measured.noise:.3f}",
        "replicate tau": f"{measured.replicate_tau:.2f}",
    }
