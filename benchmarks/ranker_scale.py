"""Time, memory and fit of the ranker on real files: the parts of ``benchmarks/ranker.py`` beside quality."""

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

from common import graph_files, measure
from fastslow.competition.catalog import Program, get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.evaluation.predictions import read_predictions
from fastslow.features.build import FeatureConfig, build_features, build_graph
from fastslow.features.store import Graph
from fastslow.networks.config import TrainConfig
from fastslow.networks.train import train
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.fit import Training, fit
from fastslow.rankers.table import Table
from fastslow.rankers.table_features import tabulate
from fastslow.rankers.train import train_ranker
from reference import ranker_pandas

HERE = Path(__file__).resolve().parent
UNET3D = "npz_all/npz/layout/xla/default/train/unet3d.npz"
UNSEEN = "npz_all/npz/layout/xla/default/valid/unet_3d.4x4.bf16.npz"
ALL_NODES = 64  # unet3d has 56 configurable nodes


def config_columns(graph: Graph) -> list[str]:
    """Names for the features of a configuration as a whole, which come with the graph."""
    return [f"config_feat_{i}" for i in range(graph.config_feat.shape[1])]


def table_of(graph: Graph) -> tuple[np.ndarray, list[str]]:
    """All columns of a graph that is not in a features folder."""
    return tabulate(graph, "layout", config_columns(graph))


def processor_seconds(run: Callable[[], object], calls: int = 5) -> float:
    """Processor time of one of several calls on end, of all threads: other work on the machine counts little.

    On end, as graph after graph is tabulated: a call after something else finds the caches cold.
    """
    began = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - began) / calls


def against_pandas(path: Path, repeats: int) -> dict:
    """Processor seconds of the whole table of a file, ours and pandas, and how far they differ.

    All start from the graph with its features of configurations as a whole; pandas leaves out columns that
    are 0. Straightforward pandas takes seconds and is timed once. Ours and pandas with our own idea, each
    distinct state once, run in turn after a first call, five calls on end; medians are told.
    """
    graph = graph_files.load_graph(graph_files.program_of(path), 2)
    names_given = config_columns(graph)
    runs = {
        "seconds": lambda: table_of(graph),
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
    """The graph with so many configurations: each node's layouts are those of a random one of its own."""
    rng = np.random.default_rng(0)
    nodes = np.arange(graph.codes.shape[1])
    codes = np.empty((count, *graph.codes.shape[1:]), graph.codes.dtype)
    for start in range(0, count, 1000):
        part = codes[start : start + 1000]
        part[:] = graph.codes[rng.integers(0, graph.num_configs, (len(part), len(nodes))), nodes]
    rows = rng.integers(0, graph.num_configs, count)
    per_config = {
        name: getattr(graph, name)[rows] for name in ("config_feat", "runtime", "count", "config_ids")
    }
    return replace(graph, codes=codes, **per_config)


def in_own_process(part: str, *arguments: str) -> dict:
    """A part of this file in a process of its own; the JSON object it prints."""
    command = [sys.executable, str(Path(__file__).resolve()), part, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def peak_gigabytes() -> float:
    """Peak memory of this process so far (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def large_graph(path: str, configs: str) -> dict:
    """Seconds and peak memory of all columns of a graph with many configurations."""
    graph = many_configs(graph_files.load_graph(graph_files.program_of(Path(path)), 2), int(configs))
    codes = graph.codes.nbytes / 2**30
    began = time.perf_counter()
    rows, _ = table_of(graph)
    return {
        "configs": len(rows),
        "configurable nodes": len(graph.config_index),
        "columns": rows.shape[1],
        "seconds": time.perf_counter() - began,
        "codes GB": codes,
        "table GB": rows.nbytes / 2**30,
        "peak GB of the process": peak_gigabytes(),
    }


def many_rows(rows: str, rounds: str, threads: str, objective: str) -> dict:
    """Seconds and peak memory of training on so many rows of real features with made-up runtimes."""
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
        score = (own - own.mean(0)) @ weights + rng.normal(size=size)
        runtimes.append(np.exp(score / 50))
    names = [f"g{i}" for i in range(len(tables))]
    train_table = Table(names, tables, runtimes, columns)
    few = Table(names[:2], tables[:2], runtimes[:2], columns)
    before = peak_gigabytes()
    settings = {"num_iterations": int(rounds), "evaluate_every": int(rounds), "num_threads": int(threads)}
    config = RankerConfig(objective=objective, num_leaves=63, pairs_per_config=1, **settings)
    bins = Table(names[::20], tables[::20], runtimes[::20], columns)
    began = time.perf_counter()
    fit(config, objective, Training("layout", train_table, bins, few))
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


def random_half(real: Path, repeat: int, epochs: int, rounds: int) -> dict:
    """Train on a random half of unet3d's distinct configurations, score the other half and an unseen program.

    A fifth of the half chooses the number of rounds or epochs.

    Args:
        real: Folder of the published files.
        repeat: Seed of the halves and of both models.
        epochs: Epochs of the network; 0 leaves it out.
        rounds: Most boosting rounds.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, labels = split_folder(real, Path(place), repeat)
        features = str(folder)
        ranker = RankerConfig(
            features=features,
            train_on="collection",
            seed=repeat,
            num_iterations=rounds,
            largest_nodes=ALL_NODES,
        )
        result = {}
        for objective in ("regression", "quantile", "pairwise"):
            scores = ranker_scores(replace(ranker, objective=objective), Path(place) / objective)
            result[objective] = {name: kendall_tau(labels[name], scores[name]) for name in labels}
        if epochs:
            run = Path(place) / "gnn"
            train(
                TrainConfig(
                    features=[features],
                    runs=[str(run)],
                    folder=str(Path(place) / "training"),
                    device="cpu",
                    seed=repeat,
                    epochs=epochs,
                    evaluate_every=max(1, epochs // 20),
                )
            )
            scores = read_predictions(run)["test"]
            result["gnn"] = {name: kendall_tau(labels[name], scores[name]) for name in labels}
    return result


def ranker_scores(config: RankerConfig, folder: Path) -> dict[str, np.ndarray]:
    """Test scores of a ranker."""
    train_ranker(config.replace(folder=str(folder)))
    return read_predictions(folder)["test"]


def split_folder(real: Path, place: Path, repeat: int) -> tuple[Path, dict[str, np.ndarray]]:
    """A features folder of unet3d's halves, and the runtimes of its test graphs."""
    collection = get_collection("layout:xla:default")
    settings = FeatureConfig(collection=collection.name)
    graph, _ = build_graph(Program(collection, "train", real / UNET3D), settings)  # duplicates merged
    order = np.random.default_rng(repeat).permutation(graph.config_ids)
    half = len(order) // 2
    parts = {"train": order[: half * 4 // 5], "valid": order[half * 4 // 5 : half], "test": order[half:]}
    known = dict(zip(graph.config_ids.tolist(), graph.runtime.tolist(), strict=True))
    with np.load(real / UNET3D) as npz:
        arrays = dict(npz)
    for split, ids in parts.items():
        target = collection.folder(place / "data", split) / f"{split}_half.npz"
        target.parent.mkdir(parents=True)
        runtime = np.array([round(known[i]) for i in ids.tolist()])
        part = {"node_config_feat": arrays["node_config_feat"][ids], "config_runtime": runtime}
        np.savez(target, **{**arrays, **part})
    unseen = collection.folder(place / "data", "test") / "unseen.npz"
    unseen.write_bytes((real / UNSEEN).read_bytes())
    folder = place / "features" / collection.slug
    where = {"data_root": str(place / "data"), "folder": str(folder), "workers": 1}
    build_features(settings.replace(**where))
    with np.load(unseen) as npz:
        labels = {"test_half": np.array([known[i] for i in parts["test"].tolist()])}
        return folder, {**labels, "unseen": npz["config_runtime"]}


if __name__ == "__main__":
    measure.finish({"large_graph": large_graph, "many_rows": many_rows}[sys.argv[1]](*sys.argv[2:]))
