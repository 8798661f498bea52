"""Find out what the LightGBM ranker owes to its features, objective and size, by cross-validation over seeds.

``python benchmarks/ranker_variants.py [--quick] [--seeds N] [--variants NAME ...] [--confirm NAME ...]``.
Train and valid of the sample are split into three folds grouped by architecture, and each is held out in
turn. Every variant grows all of its rounds: nothing is selected on the held-out programs. Beside them stand
the best single feature, and ridge regressions of log runtimes or ranks on the features of configurations or
on the ranker's own table. ``--confirm`` trains variants on train as ``make submit`` does and scores them on
test and, where ``../shared/real`` has them, on measured programs: to be read once, after the choice. Finished
trainings are kept in ``benchmarks/results/ranker_variants``.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from common import comparison, report
from common import options as shared
from common.folds import HeldOut, build_layouts, split_families
from common.graph_files import REAL
from common.held_out import BASE, LAYOUTS
from fastslow.competition.catalog import SPLITS, TEST, TRAIN, VALID, Collection, Program, trained_together
from fastslow.competition.metrics import kendall_tau
from fastslow.core.artifacts import commit
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.settings import resolve
from fastslow.core.source import source_digest
from fastslow.evaluation.baselines import Example, choose_column, fit_ridge
from fastslow.evaluation.metric_table import graph_metrics
from fastslow.features.build import FeatureSettings, build_graph
from fastslow.features.scaling import log_labels, standardise, unit_ranks
from fastslow.features.store import Features
from fastslow.features.train_graphs import draw_configs, trainable
from fastslow.kaggle.solution import read_solution
from fastslow.rankers import settings as ranker_config
from fastslow.rankers.fit import Training, fit
from fastslow.rankers.objectives import OBJECTIVES
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.table import Table, read_table
from fastslow.rankers.table_features import ABOVE_LEAST, CONTEXT, tabulate
from fastslow.workflow.presets import preset_settings
from fastslow.workflow.steps import parse_overrides

DEFAULT = RankerSettings().objective
VARIANTS: dict[str, list[str]] = {
    BASE: [],
    **{name: [f"ranker.objective={name}"] for name in OBJECTIVES if name != DEFAULT},
    "own features": ["ranker.own_features=True"],  # 11th place
    "train on layout": ["ranker.layout.train_on=layout"],
    "train on collection": ["ranker.layout.train_on=collection"],
    "config features alone": [],
    "7 leaves": ["ranker.num_leaves=7"],
    "31 leaves": ["ranker.num_leaves=31"],
    "500 rounds at .03": ["ranker.num_iterations=500", "ranker.learning_rate=0.03"],
    "15 % of columns": ["ranker.feature_fraction=0.15"],
    "8 opponents": ["ranker.opponents=8"],
    "32 opponents": ["ranker.opponents=32"],
    "3 largest nodes": ["ranker.layout.largest_nodes=3"],
}
FEW_COLUMNS = "config features alone"
REAL_CONFIGS = 2000  # of a measured program


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser, threads=1)
    shared.add_data_option(parser)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each variant (default 3)")
    parser.add_argument("--folds", type=int, default=3, help="folds of the cross-validation (default 3)")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--confirm", nargs="*", choices=VARIANTS, default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.folds, options.preset = 1, 2, "smoke"
        options.set = ["ranker.num_iterations=3", "ranker.objective=pairwise", *options.set]
        options.variants, options.confirm = ["quantile", "own features"], ["quantile"]
    options.variants = list(dict.fromkeys([BASE, *options.variants]))
    return options


def make_config(options: Namespace, variant: str, seed: int) -> RankerSettings:
    """Return the settings of a variant."""
    overrides = parse_overrides([*options.set, *VARIANTS[variant]])
    settings = preset_settings(options.preset, overrides, "ranker", "layout")
    return RankerSettings(**{**settings, "seed": seed, "num_threads": options.threads})


class Source:
    """The features of all layout collections with some architectures held out as valid, or as they are.

    Args:
        folder: Features folders by slug.
        families: The held-out architectures; None keeps the splits.
    """

    def __init__(self, folder: Path, families: frozenset[str] | None):
        make = Features if families is None else lambda path: HeldOut(path, set(families))
        self.features = {collection: make(folder / collection.slug) for collection in LAYOUTS}

    @cache  # noqa: B019 - a few sources, each needed until the end
    def table(self, collection: Collection, split: str, train_on: str, largest_nodes: int) -> Table:
        """Return the table of a split; of train with the graphs of what is trained on together."""
        own, also, names = self.features[collection], {}, None
        if split == TRAIN:
            also = {other.slug: self.features[other] for other in trained_together(collection, train_on)}
            names = trainable({"": own, **also})
        return read_table(own, split, names, also, largest_nodes=largest_nodes)

    def predict(
        self, settings: RankerSettings, own: Collection, few: bool, tables: list[Table]
    ) -> list[dict]:
        """Train for a collection and predict tables."""
        train, valid = (self.table(own, s, settings.train_on, settings.largest_nodes) for s in (TRAIN, VALID))
        if few:
            kept = [*self.features[own].config_columns]
            kept += [name + ABOVE_LEAST for name in kept]
            kept += [name for name in train.columns if name.startswith(CONTEXT)]
            train, valid, *tables = (table.select(kept) for table in (train, valid, *tables))
        fitted = fit(settings, settings.objective, Training("layout", train, train, valid))
        return [fitted.predict(table) for table in tables]


def groups(settings: RankerSettings) -> list[list[Collection]]:
    """Return the collections that are learned from together: one training serves each group."""
    found: list[list[Collection]] = []
    for collection in LAYOUTS:
        if not any(collection in group for group in found):
            found.append([collection, *trained_together(collection, settings.train_on)])
    return found


def cross_validate(options: Namespace, folder: Path, place: Path) -> Iterator[dict]:
    """Yield the result of every variant, seed, fold and group of collections; train what is missing."""
    names = [name for c in LAYOUTS for s in (TRAIN, VALID) for name in Features(folder / c.slug).names(s)]
    folds = [frozenset(families) for families in split_families(names, options.folds)]
    sources = [Source(folder, families) for families in folds]
    inputs = [features.fingerprint for features in sources[0].features.values()]
    for seed in range(options.seeds):
        for variant in options.variants:
            settings = make_config(options, variant, seed)
            taus = []
            for fold, source in enumerate(sources):
                few = variant == FEW_COLUMNS
                key = [
                    source_digest(ranker_config.ENTRY),
                    settings.identity(),
                    sorted(folds[fold]),
                    inputs,
                    few,
                ]
                path = place / "ranker_variants" / f"{digest(key)}.json"
                if not path.is_file():
                    write_json(path, {"commit": commit(), "seed": seed, **train(source, settings, few)})
                result = {**read_json(path), "variant": variant, "fold": fold}
                yield result
                taus += [m["tau"] for own in result["per_graph"].values() for m in own.values()]
            print(f"seed {seed} {variant}: {np.mean(taus):.3f}", flush=True)


def train(source: Source, settings: RankerSettings, few: bool) -> dict:
    """Train a variant for every collection without the held-out architectures and evaluate on these."""
    per_graph, began = {}, time.process_time()
    for group in groups(settings):
        tables = [source.table(c, VALID, settings.train_on, settings.largest_nodes) for c in group]
        for collection, own in zip(group, source.predict(settings, group[0], few, tables), strict=True):
            labels = source.features[collection].labels(VALID)
            per_graph[collection.name] = graph_metrics(labels, own).to_dict(orient="index")
    return {"seconds": time.process_time() - began, "per_graph": per_graph}


def rules(options: Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Return the tau of rules without trees, by collection: features, labels and all but the trees differ."""
    names = [name for c in LAYOUTS for s in (TRAIN, VALID) for name in Features(folder / c.slug).names(s)]
    taus: dict[str, dict[str, list[float]]] = {}
    for families in split_families(names, options.folds):
        source = Source(folder, frozenset(families))
        for collection in LAYOUTS:
            train, valid = (source.table(collection, s, "collection", 0) for s in (TRAIN, VALID))
            own = source.features[collection].config_columns
            whole = [n for n in train.columns if not n.startswith(CONTEXT) and not n.endswith(ABOVE_LEAST)]
            for what, columns in (("config features", own), ("the table", whole)):
                few, held = train.select(columns), valid.select(columns)
                examples = [Example(standardise(r), t) for r, t in zip(few.rows, few.runtimes, strict=True)]
                found = {f"best single feature of {what}": choose_column(examples)}
                for label, labels in (("log runtimes", log_labels), ("ranks", _centred_ranks)):
                    found[f"ridge on {what}, {label}"] = fit_ridge(examples, labels)
                for name, rule in found.items():
                    for rows, runtime in zip(held.rows, held.runtimes, strict=True):
                        tau = kendall_tau(runtime, rule.predict(rows))
                        taus.setdefault(name, {}).setdefault(collection.name, []).append(tau)
    means = {name: {c: float(np.mean(t)) for c, t in own.items()} for name, own in taus.items()}
    return {name: {"tau": float(np.mean(list(own.values()))), **own} for name, own in means.items()}


def _centred_ranks(runtime: np.ndarray) -> np.ndarray:
    return unit_ranks(runtime) - 0.5


def confirm(options: Namespace, folder: Path) -> list[dict]:
    """Train variants on train, and score them on test and on measured programs, mean over seeds."""
    source, rows = Source(folder, None), []
    solution, measured = read_solution(resolve(options.data_root) / "solution.csv"), measured_tables(options)
    for variant in options.confirm:
        taus: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            settings = make_config(options, variant, seed)
            for group in groups(settings):
                for own in group:
                    test = source.table(own, TEST, settings.train_on, settings.largest_nodes)
                    real = [table for collection, table in measured if collection == own]
                    found, *others = source.predict(settings, own, variant == FEW_COLUMNS, [test, *real])
                    tau = [kendall_tau(solution[f"{own.name}:{n}"], p) for n, p in found.items()]
                    taus.setdefault(own.name, []).append(np.mean(tau))
                    for table, predicted in zip(real, others, strict=True):
                        name = table.names[0]
                        taus.setdefault(name, []).append(kendall_tau(table.runtimes[0], predicted[name]))
        mean = np.mean([np.mean(taus[c.name]) for c in LAYOUTS])
        means = {name: float(np.mean(own)) for name, own in taus.items()}
        rows.append({"variant": variant, "test": float(mean), **means})
        print(f"confirm {variant}: test {mean:.3f}", flush=True)
    return rows


def measured_tables(options: Namespace) -> list[tuple[Collection, Table]]:
    """Return a table for each layout file with runtimes in ``../shared/real``; none where there is none."""
    given, found = shared.our_settings(options, "features"), []
    for collection in LAYOUTS:
        for split in SPLITS[:2]:
            for path in sorted(collection.folder(REAL, split).glob("*.npz")):
                settings = FeatureSettings(**{**given, "collection": collection.name})
                graph, columns = build_graph(Program(collection, split, path), settings)
                if graph.runtime.min() < graph.runtime.max():
                    rows = draw_configs(graph.num_configs, REAL_CONFIGS, 0, graph.name)
                    table, names = tabulate(graph, "layout", columns, rows=rows)
                    found.append((collection, Table([graph.name], [table], [graph.runtime[rows]], names)))
    return found


def run(options: Namespace, place: Path) -> None:
    """Do every training, then print the tables and the JSON object."""
    settings = shared.our_settings(options, "features")
    folder = place / "features" / "held_out" / digest(settings)
    build_layouts(settings, options.data_root, folder)
    simple = rules(options, folder)
    print(report.table([{"rule": name, **report.cells(own)} for name, own in simple.items()]), flush=True)
    results = list(cross_validate(options, folder, place))
    base = comparison.by_graph([r for r in results if r["variant"] == BASE])
    rows = []
    for variant in options.variants:
        own = comparison.by_graph([r for r in results if r["variant"] == variant])
        means = comparison.means_by_seed(own)
        by_collection = {c.name: float(np.mean([m[c.name] for m in means.values()])) for c in LAYOUTS}
        tau = [float(np.mean(list(m.values()))) for m in means.values()]
        seconds = [r["seconds"] for r in results if r["variant"] == variant]
        rows.append(
            {
                "variant": variant,
                "tau": report.spread(tau),
                "gain": float(np.mean(tau)) - (rows[0]["mean"] if rows else float(np.mean(tau))),
                "±": comparison.standard_error(own, base) or 0.0,
                **by_collection,
                "seconds": float(np.sum(seconds)) / options.seeds,
                "mean": float(np.mean(tau)),
            }
        )
    print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum); ±: standard error of")
    print("the gain over the base, over architectures; seconds: processor time of all folds\n")
    print(report.table([report.cells({k: v for k, v in row.items() if k != "mean"}) for row in rows]))
    confirmed = confirm(options, folder) if options.confirm else []
    if confirmed:
        print(f"\nTest, and measured programs\n\n{report.table([report.cells(row) for row in confirmed])}")
    environment = report.environment(options.threads)
    result = {"benchmark": "ranker_variants", "environment": environment, "rules": simple}
    report.finish({**result, "variants": rows, "confirmed": confirmed})


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
