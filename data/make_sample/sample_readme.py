"""Generate the README of a sample competition: its labels, how it was made, and its contents."""

import json
import platform
from collections import Counter

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, TRAIN, VALID
from fastslow.competition.opcodes import distance, opcode_shares
from fastslow_programs.compiler.compile_pool import NOT_TRIED
from fastslow_programs.compiler.libtpu import TOPOLOGIES
from make_sample.layout_search import BATCH, CROSSOVER, ELITE, MUTATION_RATES
from make_sample.sample_files import (
    KERNELS,
    MAX_CANDIDATES,
    MIN_CANDIDATES,
    MIN_DISTINCT,
    MIN_SPREAD,
    SampleGraph,
)
from make_sample.zoo.families import APART

_TEXT = """# Sample competition

A competition in the schema of "Google - Fast or Slow? Predict AI Model Runtime" (TpuGraphs, arXiv 2308.13490)
made of small JAX programs ([`make_sample.zoo`](../make_sample/zoo)). They were compiled
ahead of time for a TPU {generation} (`{topology}`) by the real TPU compiler, on a machine without a TPU.
Folders, keys, types, file names, IDs and node features are the competition's. Graphs and configurations are
real compiler inputs; **the labels are the compiler's estimated cycles, not measured time**. The sample shares
no graph with the published data. Every file here, including this one, was made by `make sample SIZE={size}`.

## Labels

- **Layout** `config_runtime` (int64): the sum of `estimated_cycles` over the scheduled entry computation of
  the optimised module; the body of a `while` is multiplied by its trip count, of a `conditional` only the
  slowest branch counts. Instructions without an estimate ({without}reshapes,
  gathers, custom calls) count the bytes that they move, at the rate of a copy. Labels are deterministic.
- **Tile** `config_runtime`: the cycles that the compiler's window selection computed for the candidate;
  `config_runtime_normalizers`: the cycles of the tile that it chose, the one with the smallest estimate.
- Test files hold 0 as `config_runtime` (and 1 as normaliser), as published; the true labels are in
  `solution.csv` (ID, config_index, runtime). `sample_submission.csv` ranks by index (tile: the first five).
- Accuracy: tile estimates of the same compiler were compared with TpuGraphs' runtimes measured on a TPU v3:
  Kendall's tau 0.76 to 0.90 on the six kernels with at least 16 tiles. Layout estimates were compared with
  the measured runs of one program of TpuGraphs, AlexNet's training step: tau 0.70 on runs that did not choose
  the rule that binds configurations, 0.40 to 0.88 on 95 % of halves of them
  ([table](../../benchmarks/tables/label_truth.md)).

## Configurations

- **Graph** of a layout program: the module right before the compiler pass layout-assignment. Configurable:
  every convolution, dot and reshape. Convolutions and dots choose which of two dimensions of output, input
  and kernel is minor-most (feature and batch; the last free and the last contracting one); the file names
  only these two. A reshape chooses layouts of output and input together, such that no element moves. A row of
  -1: the compiler decides, possible for both operands of a dot of matrices and for reshapes of vectors.
- Choices are **tied** as in TpuGraphs: nodes that agree in opcode, options and the compiler's default layouts
  share them ([`tied_choices`](../../src/fastslow_programs/compiler/layout_choices.py)).
- Layouts are imposed by `LayoutConstraint` custom calls; the rule that is nearest to measured runtimes is in
  [`layout_constraints`](../../src/fastslow_programs/compiler/layout_constraints.py): outputs bind, operands
  do not.
- **random**: every option of a choice is equally likely. In TpuGraphs the compiler may also decide some
  reshapes with two and more dimensions on both sides; here it may not ([differences](../README.md)).
- **default**: a genetic search from the compiler's default in rounds of {batch}: crossovers (probability
  {crossover}) and mutations (each choice is drawn again with probability {mutation_rates}) of the {elite}
  fastest so far. It contains the default twice.
- A search ends when {lengths}.
- Rows of a file are shuffled. Both searches of a program are in the same split.
- **Tile**: a graph is the computation of a fusion and the computations called from it. A kernel has at
  least {candidates} candidates. A program has at most {kernels} kernels, convolutions and dots first.
  Identical candidate tables occur once. A table has at most {max_candidates} candidates: a random sample,
  and the chosen one. Kernels of different splits are not isomorphic (opcodes and directed edges): test
  chooses first, then valid, then train.
- **Splits are by structure** ([`make_sample.zoo`](../make_sample/zoo/families.py)):
  programs of one family, or whose distance (half the sum of the differences of their opcode shares) is less
  than {apart}, are in one split. Distance to the nearest train program, median (minimum to maximum):
  {nearest}.

Left out of the layout collections by rule (fewer than 2/3 of the labels, slowest less than {spread} times the
fastest, or fewer than one in {distinct:.0f} labels distinct): {left_out}.

Not labelled in the time given to this run, which runs out for programs that compile slowly: {late}.

## Contents

{contents}

Median (minimum to maximum) of slowest over fastest: layout {layout_spread}, tile {tile_spread}.
Distinct labels: layout {layout_distinct:.0%}. {compiles:,} layout compiles, failures: {failures}.
Versions: {versions}. Seed: {seed}.

### Layout graphs

{layouts}

### Tile kernels, by program

{tiles}
"""


def sample_readme(graphs: list[SampleGraph], labelled, left_out: dict[str, str], settings) -> str:
    """Return the text of the README.

    Args:
        graphs: All graphs of the competition, in order.
        labelled: All :class:`make_sample.sample.LabelledProgram`.
        left_out: Reason by name of each program that is not among the layout graphs.
        settings: The :class:`make_sample.sample.SampleSettings`.
    """
    by_rule = {name: why for name, why in left_out.items() if not why.startswith(NOT_TRIED)}
    records = [record for one in labelled for record in one.compiles]
    failures = Counter(record["failure"] for record in records if "failure" in record)
    estimated, without = (sum(r.get(key, 0) for r in records) for key in ("estimated", "without_estimate"))
    layouts = [g for g in graphs if g.collection != "tile:xla"]
    tiles = [g for g in graphs if g.collection == "tile:xla"]
    return _TEXT.format(
        size=settings.size,
        generation=settings.generation,
        topology=TOPOLOGIES[settings.generation],
        without=f"{without / (estimated + without):.0%} of those that do work: " if estimated else "",
        batch=BATCH,
        elite=ELITE,
        mutation_rates=", ".join(f"{rate:g}" for rate in MUTATION_RATES),
        crossover=CROSSOVER,
        candidates=MIN_CANDIDATES,
        kernels=KERNELS,
        max_candidates=MAX_CANDIDATES,
        spread=MIN_SPREAD,
        distinct=1 / MIN_DISTINCT,
        lengths=_lengths(labelled),
        left_out="; ".join(f"{name} ({why})" for name, why in sorted(by_rule.items())) or "none",
        late=", ".join(sorted(left_out.keys() - by_rule.keys())) or "none",
        apart=APART,
        nearest="; ".join(_nearest(layouts, split) for split in (VALID, TEST)),
        contents=markdown(_contents(graphs)),
        layout_spread=_quartiles(layouts),
        tile_spread=_quartiles(tiles),
        layout_distinct=sum(g.distinct for g in layouts) / max(1, sum(len(g.labels) for g in layouts)),
        compiles=len(records),
        failures=", ".join(f"{count} {kind}" for kind, count in sorted(failures.items())) or "none",
        versions=json.dumps(settings.versions())[1:-1].replace('"', "")
        + f", Python {platform.python_version()}",
        seed=settings.seed,
        layouts=markdown(_layout_table(layouts)),
        tiles=markdown(_tile_table(tiles)),
    )


def _lengths(labelled) -> str:
    """Return how many labels end a search, and how many programs have longer searches, in words."""
    wanted = [one.configurations for one in labelled]
    usual, most = min(wanted, default=0), max(wanted, default=0)
    words = f"{usual} configurations have a label"
    if usual == most:
        return words
    count = sum(number > usual for number in wanted)
    return f"{words}, of {count} programs {most}, since ten of {usual} are nearly half"


def _nearest(graphs: list[SampleGraph], split: str) -> str:
    """Return the distances of a split's programs to their nearest train program, in words."""
    own, train = (
        opcode_shares(g.arrays["node_opcode"] for g in graphs if g.split == wanted)
        for wanted in (split, TRAIN)
    )
    if not (len(own) and len(train)):
        return f"{split} none"
    found = distance(own, train).min(1)
    return f"{split} {np.median(found):.3f} ({found.min():.3f} to {found.max():.3f})"


def _quartiles(graphs: list[SampleGraph]) -> str:
    spreads = [g.spread for g in graphs] or [1.0]
    return f"{np.median(spreads):.2f} ({min(spreads):.2f} to {max(spreads):.2f})"


def _contents(graphs: list[SampleGraph]) -> pd.DataFrame:
    rows = []
    for collection in COLLECTIONS:
        cells = {"collection": collection.name}
        for split in SPLITS:
            own = [g for g in graphs if (g.collection, g.split) == (collection.name, split)]
            cells[split] = f"{len(own)} files, {sum(len(g.labels) for g in own):,} configurations"
        rows.append(cells)
    return pd.DataFrame(rows)


def _layout_table(graphs: list[SampleGraph]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "collection": g.collection.removeprefix("layout:"),
            "split": g.split,
            "program": g.program,
            "nodes": len(g.arrays["node_opcode"]),
            "configurable": len(g.arrays["node_config_ids"]),
            "configs": len(g.labels),
            "distinct": g.distinct,
            "fastest, cycles": f"{g.labels.min():,}",
            "slowest / fastest": f"{g.spread:.2f}",
            "default / fastest": f"{g.chosen / g.labels.min():.2f}" if g.chosen else "",
        }
        for g in graphs
    )


def _tile_table(graphs: list[SampleGraph]) -> pd.DataFrame:
    rows = []
    for program in sorted({g.program for g in graphs}):
        own = [g for g in graphs if g.program == program]
        counts = [len(g.labels) for g in own]
        row = {"program": program, "split": own[0].split, "kernels": len(own)}
        row["candidates"] = f"{min(counts)} to {max(counts)}"
        rows.append(row | {"slowest / fastest": _quartiles(own)})
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown, or ``none``."""
    if table.empty:
        return "none"
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
