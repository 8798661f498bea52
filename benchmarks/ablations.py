"""Redo the ablation tables of three published reports on the sample competition, beside their figures.

``python benchmarks/ablations.py [--quick] [--tables google harvard ie] [--minutes M]``. Each table starts
from the preset that rebuilds its network (``docs/baselines.md``) and changes one thing in each row, over
three seeds; half of the architectures of train and valid are held out in turn (``common/held_out.py``). The
sample has smaller graphs and fewer configurations than the reports' data, so sizes (segments, kept nodes,
batches, epochs) are cut: ``Table.cut`` and the rows' settings say to what. Published figures are of the real
data; what can be compared is the direction of each row's change. Stop it at any time, and the next call
resumes.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common import held_out, report, rules
from common import options as shared
from common.comparison import by_graph, means_by_seed, standard_error, whole_results
from common.folds import HeldOut
from common.held_out import BASE, Run
from fastslow.competition.catalog import VALID
from fastslow.evaluation.metric_table import graph_metrics

RANDOM = "random scores"
DRAWS = 20  # of random scores


@dataclass(frozen=True)
class Row:
    """One row of a published table.

    Args:
        settings: What it changes, as for ``--set``, without the prefix ``gnn.layout.``.
        published: The published figures of the row; empty where there are none.
    """

    settings: tuple[str, ...] = ()
    published: str = ""

    def overrides(self) -> list[str]:
        """Return the settings as ``--set`` takes them."""
        return [f"gnn.layout.{setting}" for setting in self.settings]


@dataclass(frozen=True)
class Table:
    """One published table.

    Args:
        source: The report.
        preset: The preset that rebuilds its network.
        cut: Settings of all rows, for the size of the sample.
        metrics: What the report measures.
        figures: What the published figures of a row are.
        rows: The rows by name; the first one is the base.
    """

    source: str
    preset: str
    cut: tuple[str, ...]
    metrics: tuple[str, ...]
    figures: str
    rows: dict[str, Row] = field(default_factory=dict)

    def variants(self) -> dict[str, list[str]]:
        """Return the settings of each row but random scores, the first one as the base."""
        named = {BASE if i == 0 else name: row for i, (name, row) in enumerate(self.rows.items())}
        return {name: row.overrides() for name, row in named.items() if name != RANDOM}


METIS = "segment_partition=metis"
SEGMENTS = (METIS, "segment_nodes=200")  # a third of a graph of the sample

TABLES = {
    "google": Table(
        "Google slides, Graph Segment Training",
        "tpugraphs-sage",
        ("train_on=layout", "hidden_channels=64", "learning_rate=1e-3", "graphs_per_step=4", "epochs=6")
        + ("evaluate_every=6", "patience=0", "configs_per_step=16"),
        ("top_1_error", "top_10_error", "top_100_error", "tau"),
        "top-1, top-10, top-100 error in %, valid / test",
        {
            "best: segments, METIS": Row(SEGMENTS, "24.3, 6.4, 0.4 / 25.3, 10.4, 1.2"),
            "full graph": Row(
                ("segment_training=none", "segment_border=halo"), "34.3, 11.5, 0.7 / 39.6, 14.9, 2.6"
            ),
            "small segment": Row((METIS, "segment_nodes=50"), "37.9, 13.3, 1.4 / 47.3, 17.9, 3.5"),
            "topological partition": Row(("segment_nodes=200",), "27.5, 6.5, 0.6 / 27.1, 10.1, 1.5"),
            "fewer layers": Row((*SEGMENTS, "num_layers=1"), "26.9, 7.9, 0.7 / 28.2, 12.5, 1.7"),
            "MSE loss": Row((*SEGMENTS, "loss=mse_log"), "42.7, 12.6, 1.6 / 53.1, 18.8, 3.8"),
            RANDOM: Row((), "58.1, 15.7, 1.8 / 90.5, 20.6, 3.6"),
        },
    ),
    "harvard": Table(
        "Harvard report, 107th of 616 in the competition",
        "harvard",
        ("epochs=3", "evaluate_every=3", "patience=0", "configs_per_step=8", "segment_nodes=100"),
        ("opa", "tau"),
        "ordered pair accuracy on valid",
        {
            "attention and violation ratio": Row((), ".751, all collections; .75 xla:random"),
            "without violation ratio": Row(("config_inputs=none",), ".64, all collections; .65 xla:random"),
            "without attention": Row(("input_attention=False",), ""),
            "without either": Row(("input_attention=False", "config_inputs=none"), ".52, all collections"),
            "30 of the 140 features": Row(("node_inputs=picked",), ".625 xla:random, .70 with all"),
            "400 kept nodes, not 100": Row(
                ("segment_nodes=400",), "10,000 kept, not 500: steadier, no clear gain, 5.4 times slower"
            ),
        },
    ),
    "ie": Table(
        "IE slides, 239th of 616 in the competition",
        "ie-slides",
        ("train_on=layout", "patience=0", "evaluate_every=6"),
        ("opa", "tau"),
        "ordered pair accuracy on valid; score on Kaggle's private board",
        {
            "batch 10, attention, 6 epochs": Row((), "board 23.06 %; mean OPA with attention .740"),
            "batch 10, attention, 1 epoch": Row(("epochs=1", "evaluate_every=1"), "board 23.18 %"),
            "batch 10, no attention, 6 epochs": Row(
                ("cross_config=False",), "mean OPA without attention .768"
            ),
            "batch 10, no attention, 1 epoch": Row(("cross_config=False", "epochs=1", "evaluate_every=1")),
            "batch 50, attention, 6 epochs": Row(("graphs_per_step=50",), "board 22.17 %"),
            "batch 50, no attention, 6 epochs": Row(("graphs_per_step=50", "cross_config=False")),
            "batch 100, attention, 6 epochs": Row(("graphs_per_step=100",), "board 17.58 %"),
            "batch 100, no attention, 6 epochs": Row(("graphs_per_step=100", "cross_config=False")),
            "no edge dropout": Row(("edge_dropout=0.0",)),
            "edge dropout .3": Row(("edge_dropout=0.3",)),
        },
    ),
}


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_setting_options(parser, threads=1)
    held_out.add_options(parser)
    parser.add_argument(
        "--tables", nargs="+", choices=TABLES, default=list(TABLES), help="reports (default all)"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        held_out.make_quick(options)
    return options


def plan(table: Table, options: Namespace, place: Path) -> list[Run]:
    """List the runs of a table; with ``--quick`` those of its first two rows."""
    variants = table.variants()
    chosen = list(variants)[: 2 if options.quick else None]
    cut = [f"gnn.layout.{setting}" for setting in table.cut]
    own = {**vars(options), "preset": table.preset, "variants": chosen, "set": [*cut, *options.set]}
    return held_out.plan(Namespace(**own), place, variants)


def random_results(runs: Sequence[Run]) -> list[dict]:
    """Return the metrics of random scores on what the runs hold out, a result per draw as its seed."""
    results = []
    for run in runs:
        for folder in run.features:
            features = HeldOut(folder, set(run.held_out))
            labels = features.labels(VALID)
            for draw in range(DRAWS):
                rng = np.random.default_rng(draw)
                scores = {graph: rng.random(len(runtime)) for graph, runtime in labels.items()}
                per_graph = {features.collection.name: graph_metrics(labels, scores).to_dict(orient="index")}
                results.append({"seed": draw, "per_graph": per_graph})
    return results


def measure(table: Table, runs: Sequence[Run], results: list[dict]) -> dict[str, dict]:
    """Return the metrics of each row of a table over the seeds of which every run is finished.

    Returns:
        By row, and for random scores, the best single feature and the ridge regression: per metric
        ``seeds``, one value per seed, the mean over collections, and ``standard error`` of the gain over the
        first row, over architectures.
    """
    whole = whole_results(runs, results)
    first = [run for run in runs if (run.variant, run.seed) == (BASE, 0)]
    found = {**whole, RANDOM: random_results(first)}
    for result in rules.rule_results(first):
        found.setdefault(result["variant"], []).append(result)
    rows: dict[str, dict] = {}
    for name, own in found.items():
        rows[name] = {}
        for metric in table.metrics:
            graphs, base = (by_graph(part, metric) for part in (own, whole[BASE]))
            means = [float(np.mean(list(m.values()))) for m in means_by_seed(graphs).values()]
            error = standard_error(graphs, base) if name in whole and name != BASE else None
            rows[name][metric] = {"seeds": means, "standard error": error}
    return rows


def cells(table: Table, rows: dict[str, dict]) -> list[dict]:
    """Return a table with the published figures beside ours; the gain over the base with its error below."""
    names = {BASE: next(iter(table.rows))}
    lines = []
    for name, metrics in rows.items():
        row = table.rows.get(names.get(name, name), Row())
        line = {"row": names.get(name, name), "published": row.published}
        for metric, own in metrics.items():
            base = rows[BASE][metric]["seeds"]
            line[metric] = f"{np.mean(own['seeds']):.3f}" if own["seeds"] else ""
            if own["standard error"] is not None and base:
                gain = np.mean(own["seeds"]) - np.mean(base)
                line[metric] += f" ({gain:+.3f} ± {own['standard error']:.3f})"
        lines.append({**line, "seeds": "" if name == RANDOM else len(next(iter(metrics.values()))["seeds"])})
    return lines


def run(options: Namespace, place: Path) -> None:
    """Do every training that there is time for, then print the tables and the JSON object."""
    found, end = {}, time.monotonic() + 60 * options.minutes
    for name in options.tables:
        table = TABLES[name]
        runs = plan(table, options, place)
        options.minutes = max(0.0, (end - time.monotonic()) / 60)
        results = list(held_out.finished(runs, options, place))
        rows = measure(table, runs, results)
        print(f"\n{table.source}: {len(results)} of {len(runs)} runs are finished")
        print(f"Published: {table.figures}")
        print("In brackets the gain over the first row ± its standard error over architectures\n")
        print(report.table(cells(table, rows)), flush=True)
        found[name] = {"finished": len(results), "of": len(runs), "rows": rows}
    environment = report.environment(options.threads, options.device)
    report.finish({"benchmark": "ablations", "environment": environment, "tables": found})


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
