"""CPU hours of one layout network of a preset, from its training steps on genuine files.

``python benchmarks/hours.py [--quick] [--files NPZ ...] [--configs N ...] [--steps N] [--preset NAME]``:
takes training steps on every layout file with each number of configurations, and predicts ``valid_configs``
configurations of it, with one thread; seconds are CPU seconds, with those of preparing a batch. A straight
line over the number of nodes then gives the mean over a source's programs: its value at their mean number of
nodes, which is published. Rows are printed to stderr as they are measured.
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common import report
from common.graph_files import REAL, SAMPLE, OneGraph, program_of
from common.options import make_parser
from fastslow.competition.reader import read_competition_file
from fastslow.core.memory import FreedMemory
from fastslow.features.build import build_graph
from fastslow.features.settings import FeatureSettings
from fastslow.networks.dataset import GraphDataset, predict
from fastslow.networks.losses import Loss
from fastslow.networks.settings import TrainSettings
from fastslow.networks.train import make_network
from fastslow.workflow.presets import network_settings, preset_settings

MEAN_NODES = {"xla": 14_105, "nlp": 5_659}
"""Mean nodes of a program, from the slides of TpuGraphs' authors ("ML for ML Compilers at Google")."""
GRAPHS = {"xla": (130, 14), "nlp": (405, 40)}
"""Train and valid programs of both searches, by the competition's listing."""
CORES = 2


def seconds_of(path: Path, options: Namespace) -> dict | None:
    """Measure a file: nodes, CPU seconds a step by number of configurations, and of an evaluation.

    None where it has a single configuration: no network learns from it.
    """
    program, settings = program_of(path), settings_of(options)
    nodes = len(read_competition_file(path, "layout").node_opcode)
    recipe = preset_settings(options.preset, {}, "features", "layout")
    graph, columns = build_graph(program, FeatureSettings(collection=program.collection.name, **recipe))
    if graph.num_configs < 2:
        return None
    source, freed = OneGraph(program, graph, columns), FreedMemory()
    dataset = GraphDataset([source], settings.num_layers, torch.device("cpu"), settings.joins_pairs())
    network, name = make_network(settings, dataset), f"{program.collection.slug}/{program.name}"
    optimizer, loss, rng = (
        torch.optim.AdamW(network.parameters()),
        Loss(settings.loss),
        np.random.default_rng(0),
    )

    def step(size: int) -> float:
        began = time.process_time()
        batch = dataset.batch("test", name, rng.choice(graph.num_configs, size, replace=False))
        optimizer.zero_grad(set_to_none=True)
        loss([network(batch)], [torch.rand(size)]).backward()
        optimizer.step()
        freed.after_step()
        return time.process_time() - began

    found = {"source": program.collection.name.split(":")[1], "nodes": nodes, "kept": graph.num_nodes}
    step(2)  # what is made once
    found["step"] = {
        size: float(np.mean([step(min(size, graph.num_configs)) for _ in range(options.steps)]))
        for size in options.configs
    }
    began, only = (
        time.process_time(),
        {program.name: np.arange(min(settings.valid_configs, graph.num_configs))},
    )
    predict(network, dataset, program.collection.slug, "test", settings.inference_configs, only)
    return {
        "file": f"{program.collection.name} {path.stem[:12]}",
        **found,
        "evaluate": time.process_time() - began,
    }


def settings_of(options: Namespace) -> TrainSettings:
    """Return the settings of a layout network of the preset."""
    return TrainSettings(**network_settings(options.preset, {}, "layout")[0], device="cpu")


def at_mean(rows: list[dict], source: str, value: Callable[[dict], float]) -> float:
    """Return a value at a source's mean number of nodes, by straight lines over the nodes of the files.

    The larger of two lines counts, of the source's own files and of all: where its own are smaller than its
    mean, the first one alone says little.
    """
    own = [row for row in rows if row["source"] == source]
    return max(_line(files, MEAN_NODES[source], value) for files in (own, rows))


def _line(rows: list[dict], nodes: int, value: Callable[[dict], float]) -> float:
    x, y = [row["nodes"] for row in rows], [value(row) for row in rows]
    if len(set(x)) < 2:
        return float(np.mean(y))
    slope, start = np.polyfit(x, y, 1)
    return float(start + slope * nodes)


def estimate(rows: list[dict], options: Namespace) -> list[dict]:
    """Return for every source and number of configurations the hours of a network that stops at no epoch."""
    settings, found = settings_of(options), []
    for source, (train, valid) in GRAPHS.items():
        if not any(row["source"] == source for row in rows):
            continue
        evaluation = valid * at_mean(rows, source, lambda row: row["evaluate"])
        for size in options.configs:
            seconds = at_mean(rows, source, lambda row, size=size: row["step"][size])
            epoch = train * seconds + evaluation / settings.evaluate_every
            hours = settings.epochs * epoch / 3600 / CORES
            within = int(8 * 3600 * CORES / epoch)
            found.append(
                {
                    "source": source,
                    "configs_per_step": size,
                    "CPU s a step": seconds,
                    "CPU s an evaluation": evaluation,
                    f"hours of {settings.epochs} epochs": hours,
                    "epochs in 8 hours": within,
                }
            )
    return found


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="+", type=Path, metavar="NPZ", help="files, in folders as published")
    parser.add_argument(
        "--configs", nargs="+", type=int, default=[64, 128, 256], help="configurations a step"
    )
    parser.add_argument("--steps", type=int, default=4, help="steps of each kind (default 4)")
    parser.add_argument("--preset", default="kaggle", help="preset of the network (default kaggle)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    real = [] if options.quick else sorted(REAL.glob("npz_all/npz/layout/*/*/*/*.npz"))
    if options.quick:
        options.configs, options.steps = [4, 8], 1
    files = (
        options.files or real or [sorted(SAMPLE.glob(f"npz_all/npz/layout/{s}/*/*/*.npz"))[0] for s in GRAPHS]
    )
    rows = []
    for path in files:
        if row := seconds_of(path, options):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    shown = [
        {
            "file": row["file"],
            "nodes": row["nodes"],
            "kept": row["kept"],
            **{f"step of {size}": f"{seconds:.3f}" for size, seconds in row["step"].items()},
            "evaluation": f"{row['evaluate']:.2f}",
        }
        for row in rows
    ]
    print(report.table(shown), end="\n\n")
    hours = estimate(rows, options)
    print(report.table([{k: f"{v:.3g}" if isinstance(v, float) else v for k, v in h.items()} for h in hours]))
    figures = {"preset": options.preset, "cores": CORES, "files": rows, "hours": hours}
    report.finish({"benchmark": "hours", "environment": report.environment(), **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
