"""Compare parts and settings of our layout network on programs of architectures that training has not seen.

``python benchmarks/models.py [--quick] [--seeds N] [--variants NAME ...]``. Each variant changes one setting
of the base, the settings of ``make submit``. The architectures of train and valid are split into two halves
(``common/folds.py``); a network learns from one half and is scored on the other. Test is not read. A training
is cut to ``EPOCHS`` epochs, and its last weights are scored: nothing is selected on the held-out programs.

*gain*: over the base with the same seed. *±*: its standard error over architectures, paired by program and
seed. It lacks the noise of the training: the table has one seed. Two whole trainings of one setting differ
as *One training against another* of ``scores.py`` tells, which is more than nearly every gain. So the table
names no better setting. Its 19 comparisons are not corrected for their number. *time*: CPU seconds
of a training over the base's.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from common import options as shared
from common import report
from common.command_line import run_main
from common.folds import HeldOut, build_layouts, family_of, split_families
from common.kept import kept_parts
from common.options import at_least, network_settings
from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID, get_collection
from fastslow.competition.metrics import ranking_tau
from fastslow.core.errors import SettingsError
from fastslow.core.files import digest
from fastslow.ensemble.baselines import fit_baselines, predict_configs
from fastslow.networks.predict.dataset import predict
from fastslow.networks.training.train import Training
from fastslow.steps.network import graphs_of
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.training_groups import training_groups
from fastslow.workflow.settings.sections import preset_settings
from fastslow.workflow.steps import parse_overrides

TABLE = {"hours": 0.2, "commands": (("--threads", "1", "--seeds", "1"),)}
BASE = "base"
LAYOUTS = [collection for collection in COLLECTIONS if collection.kind == "layout"]
EPOCHS = 6
CUT = [f"gnn.layout.epochs={EPOCHS}", "gnn.layout.average_last=0", f"gnn.layout.evaluate_every={EPOCHS}"]
QUICK = ("convolution gcn", "hops 0")
Taus = dict[str, dict[str, float]]  # by collection and held-out program


def _each(field: str, *values: str) -> dict[str, list[str]]:
    """Return a variant for each value of a setting of the network."""
    return {f"{field} {value}": [f"gnn.layout.{field}={value}"] for value in values}


VARIANTS: dict[str, list[str]] = {
    BASE: [],
    **_each("convolution", "gcn", "mlp_gcn"),
    **_each("loss", "list_mle", "mse_log"),
    **_each("readout", "mean", "unit_sum"),
    **_each("node_inputs", "numeric", "picked+tiles"),
    **_each("num_layers", "2"),
    **_each("hidden_channels", "32", "128"),
    **_each("cross_config", "False"),
    **_each("pair_edges", "False"),
    "the network of PRESET=kaggle": [
        "gnn.hidden_channels=128",
        "gnn.layout.num_layers=2",
        "gnn.layout.pair_edges=False",
    ],
    # as many steps as the base, on fewer graphs
    "train_on source": ["gnn.layout.train_on=source", f"gnn.layout.epochs={2 * EPOCHS}"],
    "train_on collection": ["gnn.layout.train_on=collection", f"gnn.layout.epochs={4 * EPOCHS}"],
    "hops 0": ["features.hops=0"],
    "compiler_defaults False": ["features.compiler_defaults=False"],
    "padding 0": ["features.padding=0"],
}
"""Settings that each variant changes, as for ``--set``."""


class Comparison:
    """Trainings without half of the architectures, scored on these.

    Args:
        options: The command line.
        place: Folder of the features and of trainings in progress.
    """

    def __init__(self, options: Namespace, place: Path):
        self.options, self.place = options, place

    def overrides(self, variant: str) -> dict[str, dict]:
        """Return the settings of a variant by section: its own come before the settings of ``--set``."""
        found: dict[str, dict] = {}
        for texts in (self.options.cut, self.options.set, VARIANTS[variant]):
            for section, given in parse_overrides(texts).items():
                found[section] = found.get(section, {}) | given
        return found

    def features(self, variant: str) -> Path:
        """Build the features that a variant needs; return the folder that has one for each collection."""
        overrides = self.overrides(variant)
        settings = preset_settings(self.options.preset, overrides, "features", "layout")
        folder = self.place / "features" / digest([settings, self.options.data_root])
        build_layouts(settings, self.options.data_root, folder)
        return folder

    def sources(self, folder: Path, slugs: Iterable[str]) -> list[HeldOut]:
        """Return collections with half of the architectures as valid and the other half as train.

        The halves are the same for every variant, whatever is trained together.
        """
        every = [HeldOut(folder / collection.slug, set()) for collection in LAYOUTS]
        half = split_families((name for features in every for name in features.names(TRAIN)), 2)[0]
        return [HeldOut(folder / slug, half) for slug in slugs]

    def train(self, variant: str, seed: int) -> dict:
        """Train the networks of a variant; return ``taus`` of the held-out programs and CPU ``seconds``."""
        folder = self.features(variant)
        overrides = self.overrides(variant)
        settings, train_on = network_settings(self.options.preset, overrides, "layout")
        settings |= {"seed": seed, "device": self.options.device}
        taus: Taus = {}
        began = time.process_time()
        for group in training_groups("layout", train_on).values():
            train_settings = TrainSettings(**settings)
            training = Training(
                train_settings, graphs_of(train_settings, self.sources(folder, [c.slug for c in group]))
            )
            training.run()
            if training.validation.recent:
                training.network.load_state_dict(training.validation.recent_average())
            for slug, labels in training.validation.labels.items():
                found = predict(training.network, training.dataset, slug, VALID)
                # a diverged network predicts NaN, which counts as one constant: tau 0
                scores = {name: ranking_tau(labels[name], np.nan_to_num(v)) for name, v in found.items()}
                taus[get_collection(slug).name] = scores
        return {"taus": taus, "seconds": time.process_time() - began}

    def rules(self) -> dict[str, Taus]:
        """Fit the best single feature and the ridge regression as a network learns; score both."""
        folder, found = self.features(BASE), {}
        for features in self.sources(folder, [collection.slug for collection in LAYOUTS]):
            for name, rule in fit_baselines(features).items():
                found.setdefault(name, {})[features.collection.name] = {
                    graph: ranking_tau(runtime, predict_configs(rule, features.graph(VALID, graph)))
                    for graph, runtime in features.labels(VALID).items()
                }
        return found


def collection_means(taus: Taus) -> dict[str, float]:
    """Return the mean tau of each collection's programs, and last ``tau``, the mean of the collections."""
    means = {
        collection: float(np.mean(list(program_taus.values()))) for collection, program_taus in taus.items()
    }
    return means | {"tau": float(np.mean(list(means.values())))}


def standard_error(gains: list[Taus]) -> float:
    """Return the standard error of the gain in ``tau``, see :func:`collection_means`, over architectures.

    Programs of an architecture are one draw: their residuals, each with its weight in the mean, are added
    before they are squared (Liang and Zeger, Biometrika 1986). It is NaN with one architecture.

    Args:
        gains: For each seed the gain of every program, see :data:`Taus`.
    """
    residuals: dict[str, float] = {}
    for seed_gains in gains:
        for program_gains in seed_gains.values():
            mean = np.mean(list(program_gains.values()))
            weight = 1 / len(program_gains) / len(seed_gains) / len(gains)
            for name, gain in program_gains.items():
                family = family_of(name)
                residuals[family] = residuals.get(family, 0.0) + weight * (gain - mean)
    count = len(residuals)
    squares = sum(residual**2 for residual in residuals.values())
    return float(np.sqrt(squares * count / (count - 1))) if count > 1 else float("nan")


def variant_row(name: str, results: list[dict], base: list[dict]) -> dict:
    """Return a variant's row of the table; ``results`` and ``base`` have the same seeds."""
    means = [collection_means(one["taus"]) for one in results]
    gains = [
        {
            c: {name: tau - two["taus"][c][name] for name, tau in program_taus.items()}
            for c, program_taus in one["taus"].items()
        }
        for one, two in zip(results, base, strict=True)
    ]
    gain = [collection_means(seed_gains)["tau"] for seed_gains in gains]
    row = {"variant": name, "tau": float(np.mean([seed_means["tau"] for seed_means in means]))}
    if name != BASE:
        row |= {"gain": report.spread(gain) if len(gain) > 1 else gain[0], "±": standard_error(gains)}
    row = {"variant": "", "tau": "", "gain": "", "±": ""} | row
    row |= {c: float(np.mean([seed_means[c] for seed_means in means])) for c in means[0] if c != "tau"}
    ratios = [one["seconds"] / two["seconds"] for one, two in zip(results, base, strict=True)]
    return row | {"time": f"{np.mean(ratios):.2f}"}


def compare(options: Namespace, place: Path) -> None:
    """Do every training, then print the tables and the JSON object."""
    torch.set_num_threads(options.threads)
    comparison, kept = Comparison(options, place), kept_parts(__file__, options)
    found: dict[str, list[dict]] = {variant: [] for variant in options.variants}
    for seed in range(options.seeds):
        for variant, seed_results in found.items():
            seed_results.append(
                kept.part(f"{variant}, seed {seed}", lambda v=variant, s=seed: comparison.train(v, s))
            )
            print(
                variant, seed, collection_means(seed_results[-1]["taus"])["tau"], file=sys.stderr, flush=True
            )
    rules = kept.part("rules", comparison.rules)
    rows = [report.cells({"rule": rule, **collection_means(taus)}) for rule, taus in rules.items()]
    print(f"Trivial rules\n\n{report.table(rows)}\n")
    rows = [
        report.cells(variant_row(variant, seed_results, found[BASE]))
        for variant, seed_results in found.items()
    ]
    print(f"Kendall's tau of held-out programs, {options.seeds} seeds\n\n{report.table(rows)}")
    environment = report.environment(options.threads, options.device)
    facts = {"environment": environment, "set": options.set, "rules": rules, "variants": found}
    report.finish({"benchmark": "models", **facts})


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line; the base is always among the variants.

    Raises:
        SettingsError: A variant is unknown.
    """
    parser = shared.make_parser(__doc__.splitlines()[0])
    shared.add_model_options(parser, threads=1)
    parser.add_argument("--data-root", default="data/sample", help="folder that has npz_all/ (data/sample)")
    parser.add_argument("--seeds", type=at_least(1), default=3, help="seeds of each variant (default 3)")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), help="variants (default all)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.variants if name not in VARIANTS]:
        raise SettingsError(f"--variants: {unknown[0]!r} is not one of {', '.join(VARIANTS)}")
    if options.quick:
        options.preset, options.variants, options.seeds = "smoke", QUICK, 1
    options.cut = ["gnn.layout.epochs=1"] if options.quick else CUT
    options.variants = list(dict.fromkeys([BASE, *options.variants]))
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    return report.keeping_results(compare, parse_arguments(arguments))


if __name__ == "__main__":
    run_main(main)
