"""Measure compiles per minute of the TPU compiler by TPU generation and graph size, and count failures.

``python benchmarks/compiler.py [--quick] [--processes N]``. Compiles the programs of the committed sample,
each with its own layouts and under one random configuration, in worker processes and without a cache.
"""

import base64
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from common import report
from common.options import make_parser
from fastslow.core.errors import SettingsError
from fastslow.core.progress import progress
from fastslow.programs.zoo import PROGRAMS
from fastslow.xla.compile_pool import Labeller, layout_label, program_before_layout
from fastslow.xla.layout_choices import draw, layouts_of, tie
from fastslow.xla.layout_constraints import constrain
from fastslow.xla.layout_space import ConfigurableNode, configurable_nodes
from fastslow.xla.libtpu import TOPOLOGIES, Compiler, lower, require_compiler
from fastslow.xla.messages import Module

SIZES = (0, 100, 200, 400, 800)
"""Minimum number of nodes of each size class."""
SPREAD = 8  # number of programs, evenly spread over the sizes, that every generation compiles
QUICK = 2  # number of programs that --quick compiles, one of them to warm up

Program = tuple[Module, list[ConfigurableNode]]
"""A module before layout assignment, and its configurable nodes with the compiler's own layouts."""


def programs_before_layout(names: list[str], folder: Path, processes: int) -> list[Program]:
    """Return programs of the zoo as of before v3's layout assignment, by increasing number of nodes."""
    lowered = [lower(*PROGRAMS[name].build()) for name in progress(names, desc="lowering", unit="program")]
    labeller = Labeller(folder / "programs.sqlite", task=program_before_layout, processes=processes)
    with labeller.workers() as label:
        records = label(lowered, "before layout assignment")
    found = [r for r in records if "failure" not in r]
    modules = [Module.FromString(base64.b64decode(record["module"])) for record in found]
    programs = [(m, configurable_nodes(m, r["layouts"])) for m, r in zip(modules, found, strict=True)]
    return sorted(programs, key=num_nodes)


def num_nodes(program: Program) -> int:
    """Count the instructions of all computations."""
    return sum(len(computation.instructions) for computation in program[0].computations)


def to_compile(program: Program) -> list[bytes]:
    """Return the module unchanged and, if it has a configurable node, under a random configuration."""
    module, nodes = program
    choices = tie(nodes)
    configured = constrain(module, layouts_of(draw(choices, random.Random(0)), choices), nodes)
    codes = [one.SerializeToString(deterministic=True) for one in (module, configured)]
    return list(dict.fromkeys(codes))


def measure_compiles(label, programs: list[Program], title: str) -> dict:
    """Compile some programs; return compiles per minute of wall time, and failures."""
    began = time.perf_counter()
    records = label([each for program in programs for each in to_compile(program)], title)
    minutes = (time.perf_counter() - began) / 60
    failed = [record for record in records if "failure" in record]
    seconds = [record["seconds"] for record in records if "seconds" in record]
    return {
        "programs": len(programs),
        "nodes": [num_nodes(programs[0]), num_nodes(programs[-1])],
        "compiles": len(records),
        "compiles per minute": len(records) / minutes,
        "seconds of a compile": median(seconds) if seconds else None,
        "failures": dict(Counter(record["failure"] for record in failed)),
        "messages": sorted({record["message"][:200] for record in failed}),
        "without estimate": share_without_estimate(records),
    }


def share_without_estimate(records: list[dict]) -> float | None:
    """Return the share of working instructions for which the compiler gives no cycle estimate."""
    estimated, without = (sum(r.get(key, 0) for r in records) for key in ("estimated", "without_estimate"))
    return without / (estimated + without) if estimated else None


def by_generation(programs: list[Program], generations: list[str], folder: Path, options) -> dict:
    """Apply :func:`measure_compiles` to the same programs for each TPU generation."""
    found = {}
    for generation in generations:
        with start(folder / generation, generation, options) as label:
            label(to_compile(programs[0]), f"{generation}, warming up")
            found[generation] = measure_compiles(label, programs[1:], generation)
    return found


def by_size(programs: list[Program], folder: Path, options) -> dict:
    """Apply :func:`measure_compiles` to each size class, for TPU v3."""
    found = {}
    with start(folder, "v3", options) as label:
        label(to_compile(programs[0]), "v3, warming up")
        for minimum, limit in zip(SIZES, [*SIZES[1:], None], strict=True):
            of_size = [p for p in programs[1:] if minimum <= num_nodes(p) < (limit or sys.maxsize)]
            if of_size:
                title = f"{minimum} nodes or more" if limit is None else f"{minimum} to {limit - 1} nodes"
                found[title] = measure_compiles(label, of_size, title)
    return found


def start(folder: Path, generation: str, options):
    """Start workers for one generation, without a cache of labels."""
    labeller = Labeller(
        folder / "labels.sqlite",
        generation=generation,
        task=layout_label,
        processes=options.processes,
        seconds=options.seconds,
    )
    return labeller.workers()


def rows(found: dict[str, dict]) -> list[dict]:
    """Return the table rows."""
    return [
        {
            "": name,
            "programs": part["programs"],
            "nodes": "{} to {}".format(*part["nodes"]),
            "compiles": part["compiles"],
            "per minute": f"{part['compiles per minute']:.1f}",
            "median s": "" if part["seconds of a compile"] is None else f"{part['seconds of a compile']:.2f}",
            "no estimate": "" if part["without estimate"] is None else f"{part['without estimate']:.0%}",
            "failures": ", ".join(f"{n} {kind}" for kind, n in part["failures"].items()) or "none",
        }
        for name, part in found.items()
    ]


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where the compiler is missing."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of a compile (default 120)")
    options = parser.parse_args(arguments)
    try:
        require_compiler()
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    names = [name for name, program in PROGRAMS.items() if program.size == "small"]
    generations = list(TOPOLOGIES)
    if options.quick:
        names, generations = names[:QUICK], ["v3"]
    with tempfile.TemporaryDirectory() as folder:
        programs = programs_before_layout(names, Path(folder), options.processes)
        step = max(1, (len(programs) - 1) // SPREAD)
        generation_parts = by_generation(programs[::step], generations, Path(folder), options)
        size_parts = by_size(programs, Path(folder), options)
    show(generation_parts, size_parts, options)
    return 0


def show(generation_parts: dict, size_parts: dict, options) -> None:
    """Print the tables and the JSON object."""
    print(f"\nPer TPU generation, {options.processes} compiles at a time\n")
    print(report.table(rows(generation_parts)))
    print("\nPer size of the graph, TPU v3\n")
    print(report.table(rows(size_parts)))
    environment = report.environment()
    report.finish(
        {
            "benchmark": "compiler",
            "environment": environment | {"libtpu": Compiler.version()},
            "processes": options.processes,
            "seconds limit": options.seconds,
            "generations": generation_parts,
            "sizes": size_parts,
        }
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
