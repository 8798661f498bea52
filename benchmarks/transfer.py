"""Rank programs for another TPU generation with models that were trained on labels for TPU v3.

``python benchmarks/transfer.py [--quick] [--runs runs/sample] [--generations v2 v5e]``, after ``make
submit`` and ``.venv/bin/pip install -e '.[compiler]'``. The compiler labels programs of architectures that
training has not seen for another generation, under the sample's own configurations. The predictors are models
trained for v3 without change, the same after fine-tuning on a few *training* programs with labels of the new
generation, a ranker trained on these few programs only, v3's own labels, and v3's best single feature.

Tables show Kendall's tau with the compiler's estimated cycles, mean over programs; mean (minimum to maximum)
over seeds, each with its own draw of the programs to fine-tune on. The programs of valid chose epochs and
weights, for v3. Nothing is chosen on these scores. An instruction without an estimate counts the bytes that
it moves. Labels are kept in ``benchmarks/results/transfer``: an interrupted call resumes.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import lightgbm
import numpy as np
import torch

from common import report
from common.options import make_parser
from common.relabel import Relabelled, relabel, smallest_programs
from fastslow.competition.catalog import TEST, get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.core.settings import resolve
from fastslow.evaluation.baselines import Columns, fit_baselines, predict_configs
from fastslow.features.store import Features
from fastslow.features.unseen import UnseenGraphs, build_unseen
from fastslow.networks.losses import pairwise_hinge
from fastslow.networks.trained import TrainedNetwork
from fastslow.rankers.fit import Fitted
from fastslow.rankers.objectives import OBJECTIVES, make_dataset
from fastslow.rankers.table import Table, read_table
from fastslow.rankers.train import read_ranker
from fastslow.ranking.inference import FinishedRun, runs_folder
from fastslow.xla.compile_pool import Labeller
from fastslow.xla.libtpu import TOPOLOGIES, require_compiler

TABLE = {"hours": 2.0, "needs": ("run", "libtpu")}
COLLECTION = "layout:xla:random"
SHOTS = (5, 10, 20)
SEEDS = 3
EPOCHS, LEARNING_RATE = 20, 2e-4  # of the network's fine-tuning; a fifth of the rate of its training
ROUNDS = 60  # trees added to the ranker's, or grown from none
TREES = {
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "verbosity": -1,
    "deterministic": True,
    "force_col_wise": True,
    "num_threads": 1,
}


def tune_network(folder: Path, graphs: UnseenGraphs, epochs: int, seed: int) -> TrainedNetwork:
    """Go on training a network on all configurations of some graphs, with pairwise hinge and AdamW."""
    trained, rng = TrainedNetwork(folder), np.random.default_rng(seed)
    torch.manual_seed(seed)  # for dropout
    dataset, slug = trained.dataset(graphs), graphs.collection.slug
    optimizer = torch.optim.AdamW(trained.network.parameters(), lr=LEARNING_RATE)
    trained.network.train()
    for _ in range(epochs):
        for name in rng.permutation(graphs.names(TEST)):
            graph = graphs.graph(TEST, name)
            optimizer.zero_grad()
            prediction = trained.network(dataset.batch(TEST, f"{slug}/{name}", np.arange(graph.num_configs)))
            pairwise_hinge(prediction, torch.from_numpy(graph.runtime)).backward()
            torch.nn.utils.clip_grad_norm_(trained.network.parameters(), 1.0)
            optimizer.step()
    return trained


def tune_ranker(ranker: Fitted, table: Table, seed: int, scratch: bool) -> Fitted:
    """Add trees that are fitted to a table to a ranker's, or grow them from none."""
    data = make_dataset(table.select(ranker.booster.feature_name()), ranker.objective, seed)
    data.data = np.concatenate(data.data)  # from a list, trees cannot be continued
    parameters = {**TREES, "objective": OBJECTIVES[ranker.objective].lightgbm, "seed": seed}
    booster = lightgbm.train(parameters, data, ROUNDS, init_model=None if scratch else ranker.booster)
    return Fitted(ranker.objective, booster, booster.num_trees(), [], ranker.opponents)


def taus(programs: Sequence[Relabelled], generation: str, predictions: dict[str, np.ndarray]) -> float:
    """Return the mean tau of predictions by name of the file."""
    found = [kendall_tau(p.cycles[generation], predictions[p.program.name]) for p in programs]
    return float(np.mean(found))


class Transfer:
    """The predictors of one generation.

    Args:
        run: The ensemble trained for v3.
        single: The single feature that is best on v3's train and valid.
        test: Programs to rank.
        tune: Programs to fine-tune on.
        generation: The generation of the labels.
        epochs: Epochs of fine-tuning.
    """

    def __init__(
        self,
        run: FinishedRun,
        single: Columns,
        test: list[Relabelled],
        tune: list[Relabelled],
        generation: str,
        epochs: int,
    ):
        self.run, self.single, self.epochs = run, single, epochs
        self.test, self.tune, self.generation = test, tune, generation
        self.graphs = build_unseen(run.folder, [p.file(generation) for p in test])

    def member(self, model: str, seed: int) -> Path:
        """Return the run folder of a model and seed."""
        return next(
            run.folder
            for name, run in self.run.members.items()
            if name.startswith(model) and name.endswith(f"-s{seed}")
        )

    def score(self, predictions: dict[str, np.ndarray]) -> float:
        """Return the mean tau over the programs to rank."""
        return taus(self.test, self.generation, predictions)

    def without_labels(self, seeds: int) -> dict[str, list[float]]:
        """Return the taus of what needs no label of the generation, by predictor."""
        members = self.run.predict_members(self.graphs)
        single = {
            name: predict_configs(self.single, self.graphs.graph(TEST, name))
            for name in self.graphs.names(TEST)
        }
        own = {p.program.name: p.cycles["v3"] for p in self.test}
        found = {
            "best single feature of v3": [self.score(single)],
            "v3's own labels": [self.score(own)],
            "ensemble, zero-shot": [self.score(members[self.run.name])],
        }
        for model in ("gnn", "ranker"):
            runs = [self.member(model, seed).name for seed in range(seeds)]
            found[f"{model}, zero-shot"] = [self.score(members[name]) for name in runs]
        return found

    def after(self, shots: int, seeds: int) -> dict[str, list[float]]:
        """Return the taus after some programs of the generation are known, by predictor and seed."""
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            drawn = np.random.default_rng([seed, shots]).permutation(len(self.tune))[:shots]
            known = build_unseen(self.run.folder, [self.tune[i].file(self.generation) for i in drawn])
            network = tune_network(self.member("gnn", seed), known, self.epochs, seed)
            found.setdefault("gnn", []).append(self.score(network(self.graphs, TEST)))
            ranker = read_ranker(self.member("ranker", seed))
            known_table, table = read_table(known, TEST), read_table(self.graphs, TEST)
            for name, scratch in (("ranker", False), ("ranker of these programs only", True)):
                tuned = tune_ranker(ranker, known_table, seed, scratch)
                found.setdefault(name, []).append(self.score(tuned.predict(table)))
        return {f"{name}, {shots} programs": values for name, values in found.items()}


def useful(programs: list[Relabelled], generation: str) -> list[Relabelled]:
    """Return the programs of which two configurations differ for v3 and for the generation."""
    return [p for p in programs if all(len(np.unique(p.cycles[g])) > 1 for g in ("v3", generation))]


def evaluate(run: FinishedRun, single: Columns, labeller: Labeller, options: argparse.Namespace) -> dict:
    """Label, rank and fine-tune for every generation."""
    test = dict.fromkeys(
        smallest_programs(options.data_root, COLLECTION, ("valid", "test"), options.programs), options.configs
    )
    every = smallest_programs(options.data_root, COLLECTION, ("train",), max(options.shots, default=0))
    results = {}
    for generation in options.generations:
        tune = dict.fromkeys(every if generation in options.tuned else [], options.tune_configs)
        labelled = relabel(options.data_root, {**test, **tune}, [generation], labeller)
        kept = useful(labelled, generation)
        own = [p for p in kept if p.program in test]
        transfer = Transfer(
            run, single, own, [p for p in kept if p.program in tune], generation, options.epochs
        )
        found = transfer.without_labels(options.seeds)
        for shots in options.shots if tune else []:
            if len(transfer.tune) >= shots:
                found |= transfer.after(shots, options.seeds)
        results[generation] = {
            "programs": [p.name for p in own],
            "fine-tuned on at most": len(transfer.tune),
            "configs": sum(len(p.rows) for p in own),
            "without estimate": float(np.mean([p.missing[generation] for p in labelled])),
            "tau": found,
        }
    return results


def make_page(results: dict) -> str:
    """Return the Markdown tables of all generations."""
    names = dict.fromkeys(name for own in results.values() for name in own["tau"])
    rows = [
        {"predictor": name} | {g: report.spread(own["tau"].get(name, [])) for g, own in results.items()}
        for name in names
    ]
    facts = [
        {
            "generation": generation,
            "programs": len(own["programs"]),
            "configurations": own["configs"],
            "instructions without an estimate": f"{own['without estimate']:.0%}",
            "programs to fine-tune on": own["fine-tuned on at most"],
        }
        for generation, own in results.items()
    ]
    return f"{report.table(facts)}\n\n{report.table(rows)}"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--runs", type=Path, help="folder of a run of make submit (default: the newest)")
    add("--data-root", type=Path, default=resolve("data/sample"), help="the sample (default data/sample)")
    add("--generations", nargs="+", default=["v2", "v5e"], choices=[g for g in TOPOLOGIES if g != "v3"])
    add("--tuned", nargs="*", default=["v2"], help="generations to fine-tune for (default v2)")
    add("--programs", type=int, default=6, help="programs to rank, the smallest (default 6)")
    add("--configs", type=int, default=12, help="configurations of each (default 12)")
    add("--tune-configs", type=int, default=4, help="configurations to fine-tune on (default 4 a program)")
    add("--seeds", type=int, default=SEEDS, help=f"seeds of models and draws (default {SEEDS})")
    add("--processes", type=int, default=2, help="compiles side by side (default 2)")
    options = parser.parse_args(arguments)
    options.shots, options.epochs = list(SHOTS), EPOCHS
    if options.quick:
        options.shots, options.epochs, options.seeds = [2], 1, 1
        options.programs, options.configs, options.tune_configs = 2, 3, 3
        options.generations, options.tuned = ["v2"], ["v2"]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse_options(arguments)
    require_compiler()
    torch.set_num_threads(1)
    runs = runs_folder(options.runs)
    run = FinishedRun(runs / f"ensemble-{get_collection(COLLECTION).slug}")
    features = Features(runs.parents[1] / "features" / runs.name / run.collection.slug)
    single = fit_baselines(features)["best single feature"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.quick else report.RESULTS / "transfer"
        labeller = Labeller(folder / "labels.sqlite", processes=options.processes, seconds=600)
        results = evaluate(run, single, labeller, options)
    print(f"Run `{runs.name}` of commit {run.manifest['commit']}, {COLLECTION}, {options.seeds} seeds.\n")
    print(make_page(results))
    facts = {"environment": report.environment(), "run": runs.name, "generations": results}
    report.finish({"benchmark": "transfer", **facts})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
