"""Compare variants of our layout network by cross-validation on train and valid, over seeds.

``python benchmarks/explore.py [--quick] [--minutes M] [--variants NAME ...]``. A variant is the preset with a
few settings changed or columns left out (``common/variants.py``). How they are trained and what is kept:
``common/held_out.py``. Stop it at any time, and the next call resumes.
"""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np

from common import comparison, held_out, report
from common.held_out import BASE
from common.variants import LEFT_OUT, VARIANTS


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    return held_out.parse(__doc__.splitlines()[0], VARIANTS, arguments, quick=["dropout .1"])


def graph_rows(summary: dict[str, dict]) -> list[dict]:
    """Return one table row per graph: the base, and the variant that is best on average."""
    known = [variant for variant in summary if summary[variant]["gain over base"]]
    best = max(known, key=lambda variant: np.mean(summary[variant]["gain over base"]))
    return [
        {"collection": collection, "graph": graph}
        | {
            v: report.spread(summary[v]["by graph"][collection].get(graph, []))
            for v in dict.fromkeys((BASE, best))
        }
        for collection, graphs in summary[BASE]["by graph"].items()
        for graph in graphs
    ]


def explore(options: Namespace, place: Path) -> None:
    """Do every run that there is time for, then print the tables and the JSON object."""
    runs = held_out.plan(options, place, VARIANTS, LEFT_OUT)
    results = list(held_out.finished(runs, options, place))
    print(f"\n{len(results)} of {len(runs)} runs are finished")
    summary = comparison.summarise(runs, results)
    if summary[BASE]["tau"]:
        print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum);")
        print("±: standard error of the gain over the base, over architectures\n")
        print(report.table(comparison.variant_rows(summary)))
        print("\nPer graph\n")
        print(report.table(graph_rows(summary)))
    report.finish(
        {
            "benchmark": "explore",
            "environment": report.environment(options.threads, options.device),
            "runs": {"finished": len(results), "of": len(runs)},
            "variants": {
                variant: {"set": VARIANTS[variant], "left out": list(LEFT_OUT.get(variant, ())), **part}
                for variant, part in summary.items()
            },
        }
    )


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(explore, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
