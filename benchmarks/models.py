"""Compare every part and setting of our layout network by cross-validation.

``python benchmarks/models.py [--quick] [--minutes M] [--variants NAME ...]``. Each variant
(``common/variants.py``) changes one setting of the base. Train and valid are split into folds by
architecture, and each fold is held out in turn (``common/held_out.py``), over three seeds. A training is cut
to ``EPOCHS`` epochs without averaging of weights. The settings of ``make submit`` are
``--set gnn.layout.epochs=20 gnn.layout.average_last=5 gnn.layout.evaluate_every=2``. Time is the processor
time of a training over the time of the base with the same seed and fold. Interrupt it at any time: the next
call resumes.
"""

import sys
from argparse import Namespace
from pathlib import Path

from common import comparison, held_out, report
from common import options as shared
from common.held_out import BASE, LAYOUTS
from common.variants import CUT, GROUPS, VARIANTS
from fastslow.core.errors import SettingsError

TABLE = {"hours": 4.0, "commands": (("--held-out", "1"),)}
QUICK = ("convolution gcn", "readout mean")


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line; the base is always among the variants.

    Raises:
        SettingsError: A variant is unknown.
    """
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser, threads=1)
    shared.add_data_option(parser)
    add = parser.add_argument
    add("--seeds", type=int, default=3, help="seeds of each variant (default 3)")
    add("--folds", type=int, default=2, help="folds of the cross-validation (default 2)")
    add("--held-out", type=int, default=0, help="folds that are held out in turn (default 0: all)")
    add("--minutes", type=float, default=float("inf"), help="start no training after this many minutes")
    add("--jobs", type=int, default=1, help="trainings in parallel (default 1)")
    slugs = [collection.slug for collection in LAYOUTS]
    add("--collections", nargs="+", default=slugs, help="slugs (default all layouts)")
    add("--variants", nargs="+", default=list(VARIANTS), help="names of variants (default all)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.preset, options.variants, options.collections = "smoke", QUICK, ["layout-xla-random"]
        options.seeds, options.set = (
            1,
            ["gnn.layout.epochs=1", "gnn.layout.train_on=collection", *options.set],
        )
    else:
        options.set = [*CUT, *options.set]
    options.variants = list(dict.fromkeys([BASE, *options.variants]))
    for name in options.variants:
        if name not in VARIANTS:
            raise SettingsError(f"--variants: {name!r} is not one of {', '.join(VARIANTS)}")
    return options


def run(options: Namespace, place: Path) -> None:
    """Do every training that there is time for, then print the tables and the JSON object."""
    runs = held_out.plan(options, place, VARIANTS)
    results = list(held_out.finished(runs, options, place))
    print(f"\n{len(results)} of {len(runs)} runs are finished")
    rules = comparison.rule_means([r for r in runs if (r.variant, r.seed) == (BASE, 0)])
    rows = [{"rule": rule, **report.cells(own)} for rule, own in rules.items()]
    print(f"\nTrivial rules\n\n{report.table(rows)}")
    summary = comparison.summarise(runs, results)
    if summary[BASE]["tau"]:
        rows = comparison.variant_rows(summary)
        print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum);")
        print("±: standard error of the gain over the base, over architectures")
        for name, own in GROUPS.items():
            shown = [row for row in rows if row["variant"] in (BASE, *own)]
            print(f"\n{name}\n\n{report.table(shown)}" if len(shown) > 1 else "")
    report.finish(
        {
            "benchmark": "models",
            "environment": report.environment(options.threads, options.device),
            "runs": {"finished": len(results), "of": len(runs)},
            "set": options.set,
            "rules": rules,
            "variants": {v: {"set": VARIANTS[v], **own} for v, own in summary.items()},
        }
    )


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
