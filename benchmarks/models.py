"""Compare every part and setting of our layout network by cross-validation, and what variety adds.

``python benchmarks/models.py [--quick] [--minutes M] [--variants NAME ...]``. Each variant
(``common/variants.py``) changes one setting of the base; half of the architectures of train and valid are
held out in turn (``common/held_out.py``), over three seeds. So that all of them fit into about an hour of
one core, a training is cut to ``EPOCHS`` epochs without averaging of weights (that of ``make submit``:
``--set gnn.layout.epochs=20 gnn.layout.average_last=5 gnn.layout.evaluate_every=2``). Time is the processor
time of a training over that of the base with the same seed and fold. Stop it at any time, and the next call
resumes.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from common import comparison, held_out, report, rules
from common.folds import HeldOut
from common.held_out import BASE, Run
from common.variants import CUT, GROUPS, LEFT_OUT, VARIANTS
from fastslow.competition.catalog import VALID
from fastslow.competition.metrics import kendall_tau
from fastslow.evaluation.ensemble_weights import min_max

DRAWS = 20  # random ensembles of different variants
SIZE = 3  # members of an ensemble


Member = dict[tuple[str, str], np.ndarray]  # (collection, graph) -> predictions, min-max normalised


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    quick = ["convolution gcn", "readout mean"]
    options = held_out.parse(__doc__.splitlines()[0], VARIANTS, arguments, quick)
    options.set = [*([] if options.quick else CUT), *options.set]
    return options


def time_ratios(results: list[dict]) -> dict[str, float]:
    """Return the processor time of each variant over that of the base, mean over seeds and folds."""
    base = {(r["seed"], r["fold"]): r["seconds"] for r in results if r["variant"] == BASE}
    ratios: dict[str, list[float]] = {}
    for result in results:
        if key := base.get((result["seed"], result["fold"])):
            ratios.setdefault(result["variant"], []).append(result["seconds"] / key)
    return {variant: float(np.mean(own)) for variant, own in ratios.items()}


def read_labels(runs: Iterable[Run]) -> Member:
    """Return the runtimes of every held-out graph."""
    labels = {}
    for run in runs:
        for source in (HeldOut(folder, set(run.held_out)) for folder in run.features):
            labels |= {(source.collection.name, graph): own for graph, own in source.labels(VALID).items()}
    return labels


def read_members(results: list[dict], num_graphs: int) -> dict[str, list[Member]]:
    """Return the members by variant, one per seed: the predictions of every fold together.

    A seed of which a fold is missing is left out.
    """
    members: dict[tuple[str, int], Member] = {}
    for result in results:
        own = members.setdefault((result["variant"], result["seed"]), {})
        for collection, graphs in result["predictions"].items():
            own |= {(collection, graph): min_max(np.array(values)) for graph, values in graphs.items()}
    found: dict[str, list[Member]] = {}
    for (variant, _), own in members.items():
        if len(own) == num_graphs:
            found.setdefault(variant, []).append(own)
    return found


def joint_tau(labels: Member, members: list[Member]) -> float:
    """Return Kendall's tau of the sum of some members, mean over graphs and then over collections."""
    taus: dict[str, list[float]] = {}
    for key, runtime in labels.items():
        taus.setdefault(key[0], []).append(kendall_tau(runtime, sum(member[key] for member in members)))
    return float(np.mean([np.mean(own) for own in taus.values()]))


def measure_variety(labels: Member, members: Mapping[str, list[Member]]) -> list[dict]:
    """Compare ensembles of several seeds of one variant with those of as many different variants.

    Returns:
        One row per group of variants, and one of all: mean tau of a single network, of the ensembles of
        ``SIZE`` seeds of one variant (mean over variants), and of ``SIZE`` variants (mean over random draws).
    """
    rng, rows = np.random.default_rng(0), []
    groups = {name: [BASE, *own] for name, own in GROUPS.items()}
    for name, variants in {**groups, "all": list(VARIANTS)}.items():
        whole = [v for v in variants if len(members.get(v, [])) >= SIZE]
        if len(whole) < SIZE:
            continue
        drawn = []
        for _ in range(DRAWS):
            chosen = rng.choice(whole, SIZE, replace=False)
            drawn.append([members[v][rng.integers(SIZE)] for v in chosen])
        rows.append(
            {
                "group": name,
                "variants": len(whole),
                "one network": np.mean([joint_tau(labels, [m]) for v in whole for m in members[v][:SIZE]]),
                f"{SIZE} seeds of one": np.mean([joint_tau(labels, members[v][:SIZE]) for v in whole]),
                f"{SIZE} different": np.mean([joint_tau(labels, own) for own in drawn]),
                "base, one network": np.mean([joint_tau(labels, [m]) for m in members[BASE][:SIZE]]),
                f"base, {SIZE} seeds": joint_tau(labels, members[BASE][:SIZE]),
                "one of each": joint_tau(labels, [members[v][0] for v in whole]),
            }
        )
    return [{key: v if isinstance(v, str | int) else float(v) for key, v in row.items()} for row in rows]


def show_groups(rows: list[dict], ratios: Mapping[str, float]) -> None:
    """Print one table per group of variants, each with the base."""
    for row in rows:
        row["time over base"] = f"{ratios[row['variant']]:.2f}"
        del row["seconds a run"]
    print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum);")
    print("±: standard error of the gain over the base, over architectures")
    for name, own in GROUPS.items():
        table = [row for row in rows if row["variant"] in (BASE, *own)]
        print(f"\n{name}\n\n{report.table(table)}" if len(table) > 1 else "")


def run(options: Namespace, place: Path) -> None:
    """Do every training that there is time for, then print the tables and the JSON object."""
    runs = held_out.plan(options, place, VARIANTS, LEFT_OUT)
    results = list(held_out.finished(runs, options, place))
    print(f"\n{len(results)} of {len(runs)} runs are finished")
    first = [r for r in runs if (r.variant, r.seed) == (BASE, 0)]
    simple = rules.rule_means(first)
    print(
        f"\nTrivial rules\n\n{report.table([{'rule': r, **report.cells(own)} for r, own in simple.items()])}"
    )
    summary, ratios, variety = comparison.summarise(runs, results), time_ratios(results), []
    if summary[BASE]["tau"]:
        show_groups(comparison.variant_rows(summary), ratios)
        labels = read_labels(first)
        variety = measure_variety(labels, read_members(results, len(labels)))
        print("\nEnsembles: mean of min-max normalised predictions\n")
        print(report.table([report.cells(row) for row in variety]))
    report.finish(
        {
            "benchmark": "models",
            "environment": report.environment(options.threads, options.device),
            "runs": {"finished": len(results), "of": len(runs)},
            "set": options.set,
            "rules": simple,
            "variants": {
                v: {"set": VARIANTS[v], "left out": LEFT_OUT.get(v, ()), "time": ratios.get(v), **own}
                for v, own in summary.items()
            },
            "variety": variety,
        }
    )


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
