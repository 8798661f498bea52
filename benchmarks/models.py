"""Compare every part and setting of our layout network by cross-validation.

``python benchmarks/models.py [--quick] [--minutes M] [--variants NAME ...]``. Each variant
changes one setting of the base. Train and valid are split into folds by
architecture, and each fold is held out in turn (``common/held_out.py``), over three seeds. A training is cut
to ``EPOCHS`` epochs without averaging of weights. The settings of ``make submit`` are
``--set gnn.layout.epochs=20 gnn.layout.average_last=5 gnn.layout.evaluate_every=2``. Time is the processor
time of a training over the time of the base with the same seed and fold. Interrupt it at any time: the next
call resumes.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from common import comparison, held_out, report
from common import options as shared
from common.held_out import BASE, LAYOUTS
from fastslow.core.errors import SettingsError
from fastslow.networks.model.convolutions import CONVOLUTIONS
from fastslow.networks.model.losses import LOSSES
from fastslow.networks.settings.architecture import NODE_ATTENTIONS
from fastslow.networks.settings.terms import POOLS
from fastslow.networks.settings.train_settings import TrainSettings

TABLE = {"hours": 4.0, "commands": (("--held-out", "1"),)}
QUICK = ("convolution gcn", "readout mean")
EPOCHS = 6
CUT = [f"gnn.layout.epochs={EPOCHS}", "gnn.layout.average_last=0", f"gnn.layout.evaluate_every={EPOCHS}"]


def _each(field: str, values: Iterable[str]) -> dict[str, list[str]]:
    """Return a variant for each value of a setting; the default is the base."""
    default = TrainSettings.model_fields[field].get_default()
    return {f"{field} {v}": [f"gnn.layout.{field}={v}"] for v in values if v != default}


GROUPS: dict[str, dict[str, list[str]]] = {
    "convolution": {
        **_each("convolution", CONVOLUTIONS),
        **_each("node_attention", NODE_ATTENTIONS),
        **_each("edge_dropout", ["0.1"]),
    },
    "loss": {
        **_each("loss", LOSSES),
        **_each("loss", ["list_mle@10:1+mse_log:0.02"]),  # TpuGraphs' tile baseline
    },
    "readout": {
        **_each("readout", POOLS),
        # of the 16th place and of TpuGraphs' layout baseline
        **_each("readout", ["mean+max", "mean+sum+sum@configurable"]),
    },
    "node inputs": {
        **_each("node_inputs", ["numeric", "picked+tiles"]),
        **_each("node_inputs", ["numeric+tiles+depths"]),
    },
    "size": {
        **_each("num_layers", ["2"]),
        "num_layers 3, hops 3": ["gnn.layout.num_layers=3", "features.hops=3"],
        **_each("hidden_channels", ["32", "128"]),
        "the network of PRESET=kaggle": [
            "gnn.hidden_channels=128",
            "gnn.layout.num_layers=2",
            "gnn.layout.pair_edges=False",
        ],
        **_each("cross_config", ["False"]),
        **_each("pair_edges", ["False"]),
    },
    "training": {
        # as many steps as the base, on fewer graphs
        "train_on source": ["gnn.layout.train_on=source", f"gnn.layout.epochs={2 * EPOCHS}"],
        "train_on collection": ["gnn.layout.train_on=collection", f"gnn.layout.epochs={4 * EPOCHS}"],
        **_each("dropout", ["0.1", "0.4"]),
        **_each("learning_rate", ["5e-4", "2e-3"]),
        **_each("weight_decay", ["0.05"]),
        **_each("configs_per_step", ["16"]),
    },
    "features": {
        "hops 0": ["features.hops=0"],
        "hops 3": ["features.hops=3"],
        "whole graph": ["features.hops=-1"],
        "compiler_defaults False": ["features.compiler_defaults=False"],
        "copies of neighbours": ["features.copies_through=0"],
        "padding 0": ["features.padding=0"],
    },
}
VARIANTS = {BASE: [], **{name: own for group in GROUPS.values() for name, own in group.items()}}


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
