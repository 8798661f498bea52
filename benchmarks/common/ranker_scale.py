"""Time, memory and fit of the ranker on real files: the parts of ``benchmarks/ranker.py`` besides quality."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from common import graph_files, report
from fastslow.competition.catalog import TEST, TRAIN, VALID, Program, get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureSettings, build_features, build_graph
from fastslow.features.store import Graph
from fastslow.networks.settings import TrainSettings
from fastslow.networks.train import train
from fastslow.rankers.fit import Training, fit
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.table import Table
from fastslow.rankers.table_features import tabulate
from fastslow.rankers.train import train_ranker
from reference import ranker_pandas

BENCHMARKS = Path(__file__).resolve().parents[1]
UNET3D = "npz_all/npz/layout/xla/default/train/unet3d.npz"
UNSEEN = "npz_all/npz/layout/xla/default/valid/unet_3d.4x4.bf16.npz"
ALL_NODES = 64  # unet3d has 56 configurable nodes


def config_columns(graph: Graph) -> list[str]:
    """Return names for the columns of the graph's ``config_feat``."""
    return [f"config_feat_{i}" for i in range(graph.config_feat.shape[1])]


def table_of(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """Tabulate all columns of a graph that is not in a features folder: ``(C, columns)`` and their names."""
    return tabulate(graph, "layout", config_columns(graph))


def processor_seconds(run: Callable[[], object], calls: int = 5) -> float:
    """Return processor time per call over consecutive calls, of all threads; other load affects it little.

    Consecutive, since graphs are tabulated one after another: a single call starts with cold caches.
    """
    began = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - began) / calls


def against_pandas(path: Path, repeats: int) -> dict:
    """Return processor seconds of the whole table of a file, ours and pandas, and their largest difference.

    All start from the graph with its ``config_feat``; pandas leaves out columns that are 0. Straightforward
    pandas takes seconds and is timed once. Ours and pandas with deduplicated states alternate after a
    warm-up, five consecutive calls each; the result is the median.
    """
    graph = graph_files.load_graph(graph_files.program_of(path), 2)
    names_given = config_columns(graph)
    runs = {
        "seconds": lambda: table_of(replace(graph)),  # a copy keeps nothing of an earlier call
        "pandas, distinct states, seconds": lambda: ranker_pandas.tabulate(
            graph, names_given, ranker_pandas.sum_distinct
        ),
    }
    values, names = runs["seconds"]()
    began = time.process_time()
    table = ranker_pandas.tabulate(graph, names_given)
    straightforward = time.process_time() - began
    runs["pandas, distinct states, seconds"]()
    wanted = table.reindex(columns=names, fill_value=0.0).to_numpy()
    rounds = [{name: processor_seconds(run) for name, run in runs.items()} for _ in range(repeats)]
    medians = {name: median(times[name] for times in rounds) for name in runs}
    ours, distinct = medians.values()
    return {
        "file": path.stem,
        "configs": graph.num_configs,
        "configurable nodes": len(graph.config_index),
        "columns": len(names),
        "columns of pandas": table.shape[1],
        **medians,
        "pandas, straightforward, seconds": straightforward,
        "ratio": straightforward / ours,
        "ratio to distinct states": distinct / ours,
        "largest relative difference": float((np.abs(values - wanted) / (1 + np.abs(wanted))).max()),
    }


def many_configs(graph: Graph, count: int) -> Graph:
    """Return the graph with ``count`` configurations; each group takes its choice from a random one."""
    rng = np.random.default_rng(0)
    choices = graph.choices
    groups = np.arange(choices.num_groups)
    values = choices.values[rng.integers(0, graph.num_configs, (count, len(groups))), groups]
    rows = rng.integers(0, graph.num_configs, count)
    return replace(graph.take(rows), choices=replace(choices, values=values))


def in_own_process(part: str, *arguments: str) -> dict:
    """Run a function of this module in a process of its own and return the JSON object that it prints."""
    command = [sys.executable, "-m", "common.ranker_scale", part, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=BENCHMARKS)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def peak_gigabytes() -> float:
    """Return the peak memory of this process so far (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def large_graph(path: str, configs: str) -> dict:
    """Measure seconds and peak memory of all columns of a graph with many configurations."""
    graph = many_configs(graph_files.load_graph(graph_files.program_of(Path(path)), 2), int(configs))
    choices = graph.choices.values.nbytes / 2**30
    began = time.perf_counter()
    rows, _ = table_of(graph)
    return {
        "configs": len(rows),
        "configurable nodes": len(graph.config_index),
        "columns": rows.shape[1],
        "seconds": time.perf_counter() - began,
        "choices GB": choices,
        "table GB": rows.nbytes / 2**30,
        "peak GB of the process": peak_gigabytes(),
    }


def many_rows(rows: str, rounds: str, threads: str, objective: str) -> dict:
    """Measure seconds and peak memory of training on rows of real features with synthetic runtimes."""
    path = graph_files.default_files(quick=int(rows) < 100_000)[0 if int(rows) < 100_000 else 1]
    values, columns = table_of(graph_files.load_graph(graph_files.program_of(path), 2))
    rng = np.random.default_rng(0)
    size = min(1000, int(rows) // 4)
    weights = rng.normal(size=values.shape[1]) * (values.std(0) > 0) / np.maximum(values.std(0), 1e-9)
    tables, runtimes = [], []
    for _ in range(int(rows) // size):
        own = values[rng.integers(0, len(values), size)]
        own = own * rng.uniform(0.5, 2, values.shape[1]).astype(np.float32)
        tables.append(own)
        cost = (own - own.mean(0)) @ weights + rng.normal(size=size)
        runtimes.append(np.exp(cost / 50))
    names = [f"g{i}" for i in range(len(tables))]
    train_table = Table(names, tables, runtimes, columns)
    few = Table(names[:2], tables[:2], runtimes[:2], columns)
    before = peak_gigabytes()
    # evaluated once, at the end; the patience never ends it
    looks = dict.fromkeys(("num_iterations", "evaluate_every", "early_stopping_rounds"), int(rounds))
    given = {**looks, "num_threads": int(threads)}
    if objective == "pairwise":
        given["pairs_per_config"] = 1
    settings = RankerSettings(objective=objective, num_leaves=63, **given)
    bins = Table(names[::20], tables[::20], runtimes[::20], columns)
    began = time.perf_counter()
    fit(settings, objective, Training("layout", train_table, bins, few))
    return {
        "rows": sum(train_table.sizes),
        "columns": len(columns),
        "objective": objective,
        "num_iterations": int(rounds),
        "seconds": time.perf_counter() - began,
        "rows GB": sum(t.nbytes for t in tables) / 2**30,
        "peak GB before": before,
        "peak GB": peak_gigabytes(),
    }


def random_half(real: Path, repeat: int, epochs: int, rounds: int, device: str = "cpu") -> dict:
    """Train on a random half of unet3d's distinct configurations; evaluate on the rest and an unseen program.

    A fifth of the half is the valid split, which selects the number of rounds or epochs.

    Args:
        real: Folder of the published files.
        repeat: Seed of the halves and of both models.
        epochs: Epochs of the network; 0 leaves it out.
        rounds: Maximum number of boosting rounds.
        device: Device of the network.

    Returns:
        Model -> ``test_half`` or ``unseen`` -> Kendall's tau.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, labels = split_folder(real, Path(place), repeat)
        features = str(folder)
        ranker = RankerSettings(
            features=features,
            train_on="collection",
            seed=repeat,
            num_iterations=rounds,
            largest_nodes=ALL_NODES,
        )
        result = {}
        for objective in ("regression", "quantile", "pairwise"):
            predictions = predict_ranker(ranker.replace(objective=objective), Path(place) / objective)
            result[objective] = {name: kendall_tau(labels[name], predictions[name]) for name in labels}
        if epochs:
            run = Path(place) / "gnn"
            train(
                TrainSettings(
                    features=[features],
                    runs=[str(run)],
                    folder=str(Path(place) / "training"),
                    device=device,
                    seed=repeat,
                    epochs=epochs,
                    evaluate_every=max(1, epochs // 20),
                )
            )
            predictions = read_predictions(run)[TEST]
            result["gnn"] = {name: kendall_tau(labels[name], predictions[name]) for name in labels}
    return result


def predict_ranker(settings: RankerSettings, folder: Path) -> dict[str, np.ndarray]:
    """Train a ranker and return its predictions of test."""
    train_ranker(settings.replace(folder=str(folder)))
    return read_predictions(folder)[TEST]


def split_folder(real: Path, place: Path, repeat: int) -> tuple[Path, dict[str, np.ndarray]]:
    """Build a features folder of unet3d's halves; return it and the runtimes of its test graphs."""
    collection = get_collection("layout:xla:default")
    settings = FeatureSettings(collection=collection.name)
    graph, _ = build_graph(Program(collection, TRAIN, real / UNET3D), settings)  # duplicates merged
    order = np.random.default_rng(repeat).permutation(graph.config_ids)
    half = len(order) // 2
    parts = {TRAIN: order[: half * 4 // 5], VALID: order[half * 4 // 5 : half], TEST: order[half:]}
    known = dict(zip(graph.config_ids.tolist(), graph.runtime.tolist(), strict=True))
    with np.load(real / UNET3D) as npz:
        arrays = dict(npz)
    for split, ids in parts.items():
        target = collection.folder(place / "data", split) / f"{split}_half.npz"
        target.parent.mkdir(parents=True)
        runtime = np.array([round(known[i]) for i in ids.tolist()])
        part = {"node_config_feat": arrays["node_config_feat"][ids], "config_runtime": runtime}
        np.savez(target, **{**arrays, **part})
    unseen = collection.folder(place / "data", TEST) / "unseen.npz"
    unseen.write_bytes((real / UNSEEN).read_bytes())
    folder = place / "features" / collection.slug
    where = {"data_root": str(place / "data"), "folder": str(folder), "workers": 1}
    build_features(settings.replace(**where))
    with np.load(unseen) as npz:
        labels = {"test_half": np.array([known[i] for i in parts[TEST].tolist()])}
        return folder, {**labels, "unseen": npz["config_runtime"]}


if __name__ == "__main__":
    report.finish({"large_graph": large_graph, "many_rows": many_rows}[sys.argv[1]](*sys.argv[2:]))
