"""Estimate the CPU hours of the layout networks of the preset kaggle from training steps on published files.

``python benchmarks/scale.py [--quick]`` takes training steps with the preset's settings of each layout
collection on every published file of its source. A straight line over the number of nodes gives the seconds
of a program of the published mean size; where the line over all files is above it, that one. With the
published number of programs these are the CPU hours of one network of the collection. Early stopping,
features, rankers and tile networks are not counted. Seconds are CPU seconds of one thread.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common import report
from common.command_line import run_main
from common.graph_files import REAL, SAMPLE, OneGraph, program_of
from common.options import at_least, make_parser, network_settings
from common.real_size import REAL_SIZE
from fastslow.competition.reader import read_npz
from fastslow.features.build import build_graph
from fastslow.features.graph import Graph
from fastslow.networks.hardware.memory import FreedMemory
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.networks.predict.dataset import make_network, predict
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network import graphs_of
from fastslow.steps.network_settings import TrainSettings

TABLE = {"hours": 0.1, "needs": ("real",), "sample": False, "commands": (("--steps=3",),)}
MEAN_NODES = {name.split(":")[1]: size.nodes for name, size in REAL_SIZE.items() if name != "tile:xla"}
"""Mean nodes of a layout program."""
GRAPHS = {name.replace(":", "-"): size.files[:2] for name, size in REAL_SIZE.items() if name != "tile:xla"}
"""Train and valid programs of each layout collection."""
SEEDS, CORES = 3, 2


class Steps:
    """A network of the preset ``kaggle`` that takes training steps on one graph.

    Args:
        path: The graph's file.
        graph: The graph.
        slug: The collection whose settings the preset gives.
    """

    def __init__(self, path: Path, graph: Graph, slug: str):
        program = program_of(path)
        self.settings = TrainSettings(**network_settings("kaggle", {}, slug)[0], device="cpu")
        source = OneGraph(program, graph, split="test")
        self.dataset = graphs_of(self.settings, [source])
        self.network = make_network(self.settings, self.dataset)
        self.slug, self.name, self.configs = program.collection.slug, program.name, graph.num_configs
        self._optimizer, self._freed = torch.optim.AdamW(self.network.parameters()), FreedMemory()
        self._rng = np.random.default_rng(0)

    def step(self, fewest: int, most: int) -> float:
        """Take a step of some number of configurations; return its CPU seconds."""
        began = time.process_time()
        size = min(self.configs, int(self._rng.integers(fewest, most + 1)))
        drawn = self._rng.choice(self.configs, size, replace=False)
        batch = self.dataset.batch("test", f"{self.slug}/{self.name}", drawn)
        self._optimizer.zero_grad(set_to_none=True)
        pairwise_hinge(self.network(batch), torch.rand(size)).backward()
        self._optimizer.step()
        self._freed.after_step()
        return time.process_time() - began

    def predict(self, most: int | None = None) -> np.ndarray:
        """Predict all configurations, or the first of them."""
        only = {self.name: np.arange(min(most, self.configs))} if most else None
        (found,) = predict(self.network, self.dataset, self.slug, "test", only).values()
        return found


def seconds_of(path: Path, steps: int) -> dict | None:
    """Measure a file: nodes, and by collection the CPU seconds of a step and of an evaluation.

    Returns:
        None where the file has a single distinct configuration: no network learns from it.
    """
    program = program_of(path)
    graph, _ = build_graph(program, FeatureSettings(collection=program.collection.name))
    if graph.num_configs < 2:
        return None
    nodes = len(read_npz(program).node_opcode)
    source = program.collection.name.split(":")[1]
    found = {"file": f"{program.collection.name} {path.stem[:12]}", "source": source, "nodes": nodes}
    for slug in GRAPHS:
        network = Steps(path, graph, slug)
        size = network.settings.configs_per_step
        network.step(2, 2)  # what is made once
        taken = float(np.mean([network.step(size, size) for _ in range(steps)]))
        began = time.process_time()
        network.predict(network.settings.valid_configs)
        found[slug] = (taken, time.process_time() - began)
    return found


def at_mean(rows: list[dict], source: str, value: Callable[[dict], float]) -> float:
    """Return a value at a source's mean number of nodes, see the module's docstring."""

    def line(files: list[dict]) -> float:
        nodes, values = [row["nodes"] for row in files], [value(row) for row in files]
        if len(set(nodes)) < 2:
            return float(np.mean(values))
        slope, start = np.polyfit(nodes, values, 1)
        return float(start + slope * MEAN_NODES[source])

    return max(line([row for row in rows if row["source"] == source]), line(rows))


def estimate_hours(options: Namespace) -> dict:
    """Print the seconds of every file and the CPU hours of one network of each layout collection."""
    files = sorted(REAL.glob("npz_all/npz/layout/*/*/*/*.npz"))
    if options.quick:
        files = [sorted(SAMPLE.glob(f"npz_all/npz/layout/{source}/*/*/*.npz"))[0] for source in MEAN_NODES]
    torch.set_num_threads(1)
    rows = [row for path in files if (row := seconds_of(path, options.steps))]
    shown = [
        {"file": row["file"], "nodes": row["nodes"]}
        | {slug: "{:.3f}, {:.2f}".format(*row[slug]) for slug in GRAPHS}
        for row in rows
    ]
    print(f"CPU seconds of a step, of an evaluation\n\n{report.table(shown)}\n")
    hours = []
    for slug, (train, valid) in GRAPHS.items():
        source = slug.split("-")[1]
        settings = TrainSettings(**network_settings("kaggle", {}, slug)[0], device="cpu")
        step = at_mean(rows, source, lambda row, slug=slug: row[slug][0])
        evaluation = at_mean(rows, source, lambda row, slug=slug: row[slug][1])
        epoch = train * step + valid * evaluation / settings.evaluate_every
        whole = settings.epochs * epoch / 3600
        shape = {"configurations": settings.configs_per_step, "epochs": settings.epochs}
        hours.append({"network": slug, **shape, "CPU s a step": step, "CPU hours": whole})
    print(report.table([report.cells(row) for row in hours]))
    total = SEEDS * sum(row["CPU hours"] for row in hours)
    print(f"\nLayout networks of {SEEDS} seeds: {total:.0f} CPU hours, {total / CORES:.0f} on {CORES} cores.")
    return {"files": rows, "hours": hours, "CPU hours": total}


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=at_least(1), default=10, help="training steps")
    options = parser.parse_args(arguments)
    options.steps = 2 if options.quick else options.steps
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    report.finish({"benchmark": "scale", "environment": report.environment(), **estimate_hours(options)})
    return 0


if __name__ == "__main__":
    run_main(main)
