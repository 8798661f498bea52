"""Guard against regressions: a small run must match its recorded scores and its speed over dense.

``make guard``, or ``python benchmarks/guard.py [--quick] [--record]``. The data are made up by a seed
(``common/made_competition.py``), so that they do not change with the sample. Every model is trained with
three seeds and scored on test. Two ratios compare a training step of the network with the same step computed
densely, every pair of node and configuration: CPU seconds in the same process, and the number of rows.
``guard.json`` holds the record. A mean score may fall by 3 standard errors of the recorded seeds, or by 0.01
if that is more. A ratio may fall to 60 %. After a change that is meant to move them, ``make guard
SET=--record`` records again.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from common import report
from common.graph_files import OneGraph, load_graph
from common.made_competition import write_competition
from common.options import make_parser
from fastslow.competition.catalog import Collection, get_collection, list_programs
from fastslow.competition.metrics import collection_score
from fastslow.core.files import read_json, write_json
from fastslow.evaluation.ensemble import EnsembleSettings, build_ensemble
from fastslow.evaluation.predictions import read_predictions
from fastslow.evaluation.scores import read_solution, runtimes_of
from fastslow.features.build import build_features
from fastslow.features.settings import FeatureSettings
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import Training, train
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.train import train_ranker
from reference.dense import DenseInputs, make_dense

RECORD = Path(__file__).with_suffix(".json")
COLLECTIONS = ("layout:xla:random", "tile:xla")
SEEDS = 3
FLOOR = 0.01  # of the tolerance of a score: seeds may agree by chance
STANDARD_ERRORS = 3.0
SHARE = 0.6  # of a recorded ratio: CPU time on a busy machine varies by a third
_NETWORK = {"device": "cpu", "hidden_channels": 32, "epochs": 8, "evaluate_every": 2}
_QUICK = {"device": "cpu", "hidden_channels": 8, "epochs": 1, "evaluate_every": 1}

Scores = dict[str, list[float]]  # test score of each seed, by collection's kind and model


def measure_scores(root: Path, seeds: int, quick: bool) -> Scores:
    """Train every model of a layout and of the tile collection and score it on test."""
    sizes = {"train": 2, "valid": 1, "test": 1} if quick else {"train": 8, "valid": 3, "test": 4}
    write_competition(root, sizes, 24 if quick else 96)
    solution, scores = read_solution(root / "solution.csv"), {}
    for name in COLLECTIONS:
        collection = get_collection(name)
        folder = root / collection.slug
        features = {"features": str(folder / "features")}
        build_features(
            FeatureSettings(collection=name, data_root=str(root), folder=features["features"], workers=1)
        )
        runs = _train_models(collection, folder, seeds, _QUICK if quick else _NETWORK, 5 if quick else 100)
        members = [run for own in runs.values() for run in own]
        manifest = build_ensemble(EnsembleSettings(**features, runs=members, folder=str(folder / "ensemble")))
        runs["ensemble"] = [str(folder / "ensemble")]
        runs |= {rule: [own["folder"]] for rule, own in manifest["baselines"].items()}
        truth = runtimes_of(solution, collection)
        for model, own in runs.items():
            tests = [read_predictions(Path(run))["test"] for run in own]
            values = [collection_score(collection.kind, truth, test)["mean"] for test in tests]
            scores[f"{collection.kind} {model}"] = values
    return scores


def _train_models(
    collection: Collection, folder: Path, seeds: int, network: dict, trees: int
) -> dict[str, list[str]]:
    """Train every seed of every model; return the run folders by model."""
    source = str(folder / "features")
    boosted = {"features": source, "num_iterations": trees}
    if collection.kind == "layout":
        boosted["train_on"] = "collection"
    runs: dict[str, list[str]] = {}
    for seed in range(seeds):
        place = {model: str(folder / f"{model}-s{seed}") for model in ("gnn", "ranker")}
        settings = {"features": [source], "runs": [place["gnn"]], "folder": f"{place['gnn']}-training"}
        train(TrainSettings(kind=collection.kind, seed=seed, **settings, **network))
        train_ranker(RankerSettings(**boosted, folder=place["ranker"], seed=seed, objective="regression"))
        for model, run in place.items():
            runs.setdefault(model, []).append(run)
    return runs


def measure_ratios(root: Path, configs: int, repeats: int) -> dict[str, float]:
    """Return the time of a training step computed densely over ours, and its rows over our states."""
    write_competition(root, {"train": 0, "valid": 0, "test": 1}, configs, seed=1)
    collection = get_collection(COLLECTIONS[0])
    (program,) = list_programs(root, collection, "test")
    graph = load_graph(program, hops=2)
    runtime = 1.0 + np.random.default_rng(0).permutation(graph.num_configs)
    features = OneGraph(program, replace(graph, runtime=runtime))
    settings = TrainSettings(**{**_NETWORK, "configs_per_step": configs, "epochs": 2 * repeats + 2})
    trainings = {}
    for name, kind in (("ours", GraphDataset), ("dense", DenseInputs)):
        trainings[name] = Training(settings, kind(settings, [features]))
    make_dense(trainings["dense"].network)
    seconds = {name: _cpu_seconds(training.run_epoch, repeats) for name, training in trainings.items()}
    states = trainings["ours"].dataset.graph("train", f"{collection.slug}/{graph.name}")
    rows = sum(len(level) for level in states.states(np.arange(configs), settings.num_layers))
    pairs = graph.num_nodes * graph.num_configs * (settings.num_layers + 1)
    return {"step, dense over ours": seconds["dense"] / seconds["ours"], "pairs over states": pairs / rows}


def _cpu_seconds(step: Callable[[], object], repeats: int) -> float:
    """Return the CPU seconds of a step, the minimum of some after a first one."""
    step()
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        step()
        taken.append(time.process_time() - began)
    return min(taken)


def tolerance(recorded: list[float], measured: list[float]) -> float:
    """Return by how much a mean over seeds may be below the recorded one.

    Args:
        recorded: Recorded scores, one per seed.
        measured: Scores to compare; assumed to have the spread of the recorded ones.
    """
    spread = stdev(recorded) if len(recorded) > 1 else 0.0
    error = spread * math.sqrt(1 / len(recorded) + 1 / len(measured))
    return max(FLOOR, STANDARD_ERRORS * error)


def compare(recorded: Mapping, measured: Mapping) -> list[dict]:
    """Compare a run with the recorded one.

    Args:
        recorded: ``scores`` (a list per model) and ``ratios`` (a number each).
        measured: The same.

    Returns:
        One row per score and ratio: ``what``, ``recorded``, ``lowest`` allowed, ``measured`` and ``verdict``:
        ``as recorded``, ``WORSE``, ``better`` (beyond the same tolerance), ``MISSING`` or ``not recorded``.
    """
    rows = []
    for what in {**recorded["scores"], **measured["scores"]}:
        had, has = recorded["scores"].get(what), measured["scores"].get(what)
        within = tolerance(had, has) if had and has else 0.0
        rows.append(
            _row(what, had and mean(had), has and mean(has), lambda value, w=within: (value - w, value + w))
        )
    for what in {**recorded["ratios"], **measured["ratios"]}:
        had, has = recorded["ratios"].get(what), measured["ratios"].get(what)
        rows.append(_row(what, had, has, lambda value: (value * SHARE, value / SHARE)))
    return rows


def _row(what: str, recorded: float | None, measured: float | None, bounds: Callable) -> dict:
    if recorded is None or measured is None:
        verdict = "MISSING" if measured is None else "not recorded"
        return {"what": what, "recorded": recorded, "lowest": None, "measured": measured, "verdict": verdict}
    lowest, highest = bounds(recorded)
    # a number that is not one compares with nothing
    verdict = "WORSE" if not measured >= lowest else "better" if measured > highest else "as recorded"
    return {"what": what, "recorded": recorded, "lowest": lowest, "measured": measured, "verdict": verdict}


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where something is worse than recorded."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} instead of comparing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        seeds = 1 if options.quick else SEEDS
        scores = measure_scores(root / "scores", seeds, options.quick)
        configs, repeats = (64, 1) if options.quick else (512, 5)
        ratios = measure_ratios(root / "ratios", configs, repeats)
    measured = {"scores": scores, "ratios": ratios}
    result = {"benchmark": "guard", "environment": report.environment(), **measured}
    if options.quick:
        report.finish(result)
        return 0
    if options.record:
        write_json(RECORD, {"environment": result["environment"], **measured})
    rows = compare(read_json(RECORD), measured)
    numbers = ("recorded", "lowest", "measured")
    print(report.table([{k: _text(v) if k in numbers else v for k, v in row.items()} for row in rows]))
    worse = [row["what"] for row in rows if row["verdict"] in ("WORSE", "MISSING")]
    if worse:
        print(
            f"\nworse than recorded: {', '.join(worse)}. Meant so: make guard SET=--record", file=sys.stderr
        )
    report.finish({**result, "worse": worse})
    return int(bool(worse))


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
