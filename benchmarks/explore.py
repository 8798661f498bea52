"""Compare variants of our layout network by cross-validation on train and valid, over seeds.

``python benchmarks/explore.py [--quick] [--minutes M] [--variants NAME ...]``. Train and valid of the sample
competition are split into folds grouped by architecture; each fold is held out in turn, and test is never
read. A variant is the preset with a few settings changed or columns left out (``common/variants.py``).
Collections that are trained on together share a run. The evaluated weights are the last ones, averaged as
configured: nothing is selected on the held-out programs. Finished runs are kept in
``benchmarks/results/explore`` and are not repeated: stop it at any time, and the next call resumes.
"""

import shutil
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import torch

from common import options as shared
from common import report
from common.folds import HeldOut, build_layouts, family_of, split_source
from common.variants import BASE, LEFT_OUT, VARIANTS
from fastslow.competition.catalog import COLLECTIONS, VALID, get_collection, training_groups
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import commit
from fastslow.core.errors import ConfigError
from fastslow.core.files import digest, read_json, write_json
from fastslow.core.source import source_digest
from fastslow.features.store import Features
from fastslow.networks.config import ENTRY, TrainConfig
from fastslow.networks.dataset import predict
from fastslow.networks.train import Training, make_dataset
from fastslow.presets import network_settings, preset_settings
from fastslow.steps import parse_overrides

LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        variant: A key of ``VARIANTS``.
        seed: Seed of the network.
        fold: Number of the held-out fold.
        held_out: Its architectures.
        features: Features folders of the collections.
        settings: Settings of the network.
    """

    variant: str
    seed: int
    fold: int
    held_out: tuple[str, ...]
    features: list[Path]
    settings: dict

    def config(self) -> TrainConfig:
        """Return the validated settings."""
        return TrainConfig(**{**self.settings, "seed": self.seed})

    def path(self, place: Path) -> Path:
        """Return the path of its result, whose name is a digest of everything that changes the result."""
        inputs = [Features(folder).fingerprint for folder in self.features]
        code, settings = source_digest(ENTRY), self.config().identity()
        key = [code, settings, sorted(self.held_out), inputs, LEFT_OUT.get(self.variant)]
        return place / "explore" / f"{digest(key)}.json"


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser, threads=1)
    shared.add_data_option(parser)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each variant (default 3)")
    parser.add_argument("--folds", type=int, default=2, help="folds of the cross-validation (default 2)")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no training after this many minutes"
    )
    parser.add_argument("--jobs", type=int, default=1, help="trainings in parallel (default 1)")
    parser.add_argument(
        "--variants", nargs="+", default=list(VARIANTS), help="names of variants (default all)"
    )
    parser.add_argument(
        "--collections", nargs="+", default=[c.slug for c in LAYOUTS], help="slugs (default all layouts)"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.preset = 1, "smoke"
        options.variants, options.collections = [BASE, "dropout .1"], ["layout-xla-random"]
        options.set = ["gnn.epochs=1", "gnn.layout.train_on=collection", *options.set]
    options.variants = list(dict.fromkeys([BASE, *options.variants]))
    for name in options.variants:
        if name not in VARIANTS:
            raise ConfigError(f"--variants: {name!r} is not one of {', '.join(VARIANTS)}")
    return options


def plan(options: Namespace, place: Path) -> list[Run]:
    """List every run, seed by seed, and build the features that the runs need."""
    runs = []
    for variant in options.variants:
        overrides = parse_overrides([*options.set, *VARIANTS[variant]])
        of_features = preset_settings(options.preset, overrides, "features", "layout")
        folder = place / "features" / "explore" / digest(of_features)
        build_layouts(of_features, options.data_root, folder)
        settings, train_on = network_settings(options.preset, overrides, "layout")
        settings["device"] = options.device
        for group in training_groups("layout", train_on).values():
            slugs = [collection.slug for collection in group]
            if set(slugs).isdisjoint(options.collections):
                continue
            folds, features = _folds(folder, slugs, options.folds), [folder / slug for slug in slugs]
            for seed in range(options.seeds):
                for fold, families in enumerate(folds):
                    runs.append(Run(variant, seed, fold, tuple(sorted(families)), features, settings))
    return sorted(runs, key=lambda run: run.seed)


def _folds(folder: Path, slugs: list[str], num_folds: int) -> list[set[str]]:
    """Return the architectures of each fold; both searches of a source have the same folds."""
    by_source = [split_source(folder, slug, num_folds) for slug in slugs]
    return [set().union(*fold) for fold in zip(*by_source, strict=True)]


def train_held_out(run: Run, place: Path, threads: int) -> dict:
    """Train without the held-out programs and evaluate on them, or read the result of an earlier call."""
    path = run.path(place)
    if not path.is_file():
        torch.set_num_threads(threads)
        config, families = run.config(), set(run.held_out)
        began = time.perf_counter()
        sources = [HeldOut(folder, families, LEFT_OUT.get(run.variant, ())) for folder in run.features]
        training = Training(config, make_dataset(config, sources))
        checkpoints = path.with_suffix("")
        training.run(checkpoints, path.stem)
        if training.validation.recent:
            training.network.load_state_dict(training.validation.recent_average())
        seconds = time.perf_counter() - began
        facts = {"variant": run.variant, "seed": run.seed, "seconds": seconds, "commit": commit()}
        per_graph = {
            get_collection(slug).name: _held_out_tau(training, slug) for slug in training.validation.labels
        }
        write_json(path, {**facts, "settings": config.identity(), "per_graph": per_graph})
        shutil.rmtree(checkpoints)
    return {**read_json(path), "variant": run.variant, "fold": run.fold}


def _held_out_tau(training: Training, slug: str) -> dict[str, float]:
    """Return Kendall's tau per held-out graph of one of the collections that were trained on together."""
    together = training.config.inference_configs
    predictions = predict(training.network, training.dataset, slug, VALID, together)
    # a diverged network predicts NaN, which counts as one constant: tau 0
    predictions = {name: np.nan_to_num(own) for name, own in predictions.items()}
    return collection_score("layout", training.validation.labels[slug], predictions)["per_graph"]


def finished(runs: list[Run], options: Namespace, place: Path) -> Iterator[dict]:
    """Yield results as they finish, until the time is up; results of earlier calls need no time."""
    end = time.monotonic() + 60 * options.minutes
    jobs = (
        joblib.delayed(train_held_out)(run, place, options.threads)
        for run in runs
        if time.monotonic() < end or run.path(place).is_file()
    )
    parallel = joblib.Parallel(options.jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
    for result in parallel(jobs):
        taus = ", ".join(f"{c} {np.mean(list(t.values())):.3f}" for c, t in result["per_graph"].items())
        what = f"seed {result['seed']} fold {result['fold']} {result['variant']}"
        print(f"{what}: {taus}, {result['seconds']:.0f} s", flush=True)
        yield result


def tau_by_graph(results: list[dict]) -> dict[str, dict[str, dict[int, float]]]:
    """Arrange results as collection -> graph -> seed -> tau."""
    found: dict = {}
    for result in results:
        for collection, taus in result["per_graph"].items():
            for graph, tau in taus.items():
                found.setdefault(collection, {}).setdefault(graph, {})[result["seed"]] = tau
    return found


def means_by_seed(graphs: dict[str, dict[str, dict[int, float]]]) -> dict[int, dict[str, float]]:
    """Average :func:`tau_by_graph` as seed -> collection -> mean tau over its graphs."""
    means: dict = {}
    for collection, per_graph in graphs.items():
        for seed in {seed for taus in per_graph.values() for seed in taus}:
            held = [taus[seed] for taus in per_graph.values() if seed in taus]
            means.setdefault(seed, {})[collection] = float(np.mean(held))
    return means


def standard_error(graphs: dict, base: dict) -> float | None:
    """Return the standard error of a variant's gain over the base.

    Args:
        graphs: The variant's :func:`tau_by_graph`.
        base: The base's.

    Returns:
        Standard error over architectures of the gain, paired by graph and seed; None for one architecture.
    """
    gains: dict[str, list[float]] = {}
    for collection, per_graph in graphs.items():
        for graph, taus in per_graph.items():
            paired = base.get(collection, {}).get(graph, {})
            known = [tau - paired[seed] for seed, tau in taus.items() if seed in paired]
            gains.setdefault(family_of(graph), []).extend(known)
    means = [np.mean(known) for known in gains.values() if known]
    return float(np.std(means, ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None


def summarise(runs: list[Run], results: list[dict]) -> dict[str, dict]:
    """Return tau and the gain over the base per variant, over the seeds whose runs are all finished."""
    planned = Counter((run.variant, run.seed) for run in runs)
    done = Counter((result["variant"], result["seed"]) for result in results)
    whole = {key for key, count in planned.items() if done[key] == count}
    counted = {
        variant: [r for r in results if r["variant"] == variant and (variant, r["seed"]) in whole]
        for variant in dict.fromkeys(run.variant for run in runs)
    }
    base_graphs = tau_by_graph(counted[BASE])
    summary: dict[str, dict] = {}
    for variant, own in counted.items():
        graphs = tau_by_graph(own)
        means = means_by_seed(graphs)
        tau = {seed: float(np.mean(list(means[seed].values()))) for seed in sorted(means)}
        base = summary[BASE]["tau"] if variant != BASE else tau
        summary[variant] = {
            "tau": tau,
            "gain over base": [tau[seed] - base[seed] for seed in tau if seed in base],
            "standard error": standard_error(graphs, base_graphs),
            "by collection": {
                c: [means[seed][c] for seed in tau]
                for c in dict.fromkeys(c for r in own for c in r["per_graph"])
            },
            "by graph": {
                c: {graph: list(taus.values()) for graph, taus in by_seed.items()}
                for c, by_seed in graphs.items()
            },
            "seconds": float(np.mean([result["seconds"] for result in own])) if own else 0.0,
        }
    return summary


def variant_rows(summary: dict[str, dict]) -> list[dict]:
    """Return one table row per variant, best first; the gain over the base is paired by seed."""
    rows = sorted(summary.items(), key=lambda item: -np.mean(item[1]["gain over base"] or [-np.inf]))
    collections = list(summary[BASE]["by collection"])
    return [
        {
            "variant": variant,
            "seeds": len(part["tau"]),
            "tau": report.spread(list(part["tau"].values())),
            "gain over base": report.spread(part["gain over base"]) if variant != BASE else "",
            "±": f"{part['standard error']:.3f}" if part["standard error"] else "",
            **{c: f"{np.mean(part['by collection'].get(c) or [np.nan]):.3f}" for c in collections},
            "seconds a run": f"{part['seconds']:.0f}",
        }
        for variant, part in rows
        if part["tau"]
    ]


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
    runs = plan(options, place)
    results = list(finished(runs, options, place))
    print(f"\n{len(results)} of {len(runs)} runs are finished")
    summary = summarise(runs, results)
    if summary[BASE]["tau"]:
        print("\nKendall's tau of held-out programs: mean over seeds (minimum to maximum);")
        print("±: standard error of the gain over the base, over architectures\n")
        print(report.table(variant_rows(summary)))
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
