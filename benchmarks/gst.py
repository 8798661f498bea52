"""Time and memory of a step of Graph Segment Training beside a step on the whole graph.

``python benchmarks/gst.py [--quick] [--nodes N ...] [--steps N]``. A graph of the real competition's size is
made by repeating a program side by side (``common/made_graphs.py``; a published file where there is one).
Each variant takes its steps in a process of its own with one thread. Seconds are CPU seconds; memory is the
peak of the process above its memory before the first step. *rows of the table*: embeddings that the table
holds; *share of J C*: over all pairs of a segment and a configuration.
"""

import subprocess
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from common import report
from common.command_line import run_main
from common.contest import read_status
from common.graph_files import REAL, SAMPLE, OneGraph, program_of
from common.made_graphs import write_repeated
from common.options import at_least, make_parser
from fastslow.competition.catalog import TRAIN
from fastslow.competition.reader import read_npz
from fastslow.core.progress import progress
from fastslow.features.build import build_graph
from fastslow.networks.hardware.memory import FreedMemory, resident_bytes
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.networks.predict.dataset import make_network
from fastslow.networks.segments.training import SegmentTraining
from fastslow.networks.settings.segments import VARIANTS
from fastslow.runs.features_folder import read_graph, write_graph
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network import graphs_of
from fastslow.steps.network_settings import TrainSettings

TABLE = {
    "hours": 0.15,
    "needs": ("real",),
    "sample": False,
    "commands": (("--nodes", "21918", "--steps", "2"),),
}
WHOLE = "none"
COSTS = [
    ("none", "halo"),
    ("edges", "halo"),
    ("one", "halo"),
    ("gst", "halo"),
    ("gst", "cut"),
    ("gst+e", "halo"),
    ("gst+e", "cut"),
    ("gst+ed", "halo"),
    ("gst+ef", "halo"),
    ("gst+efd", "halo"),
]
"""Variants and borders whose cost is measured; with ``+f`` only the head is trained."""


def cost_config(options: Namespace) -> TrainSettings:
    """Return the settings of one step: two layers, no pair edges, as in the preset ``kaggle``."""
    name, changes = options.variant, {}
    if name != WHOLE:
        changes = {"segment_training": name, "segment_nodes": options.segment_nodes}
        changes["segment_border"] = options.border
    if name != WHOLE and VARIANTS[name].head:
        changes |= {"head_epochs": 1, "epochs": 2}
    return TrainSettings(
        device="cpu",
        num_layers=2,
        hidden_channels=options.channels,
        configs_per_step=options.configs_per_step,
        pair_edges=False,
        **changes,
    )


def step_cost(options: Namespace) -> dict:
    """Take steps of one variant on one graph; with ``+f`` the last epoch trains only the head."""
    settings, folder = cost_config(options), Path(options.made[1])
    program = program_of(Path(options.made[0]))
    source = OneGraph(program, read_graph(folder, "test", program.name))
    dataset = graphs_of(settings, [source])
    network, name = make_network(settings, dataset), f"{program.collection.slug}/{program.name}"
    segments = SegmentTraining(settings, dataset, network) if options.variant != WHOLE else None
    optimizer, rng = torch.optim.AdamW(network.parameters()), np.random.default_rng(0)
    total = dataset.graph(TRAIN, name).graph.num_configs
    dataset.graph(TRAIN, name).reach(settings.num_layers)  # found once a graph, not at every step
    if segments:
        segments.graph(name)
    forget_peak()
    freed, before, seconds = FreedMemory(), resident_bytes(), []
    for number in range(options.steps + 1):
        began = time.process_time()
        configs = rng.choice(total, min(total, settings.configs_per_step), replace=False)
        if segments:
            segments.begin(1 if VARIANTS[options.variant].head else 0)
            prediction = segments(segments.example(name, configs, number))
        else:
            prediction = network(dataset.batch(TRAIN, name, configs))
        optimizer.zero_grad(set_to_none=True)
        pairwise_hinge(prediction, torch.rand(len(configs))).backward()
        optimizer.step()
        del prediction
        freed.after_step()
        seconds.append(time.process_time() - began)
    found = {"first step": seconds[0], "seconds": float(np.mean(seconds[1:]))}
    if segments:
        found |= {"segments": segments.graph(name).num_segments}
        states = segments.tables.get(name)
        if states is not None:
            pairs = segments.graph(name).num_segments * total
            found |= {"rows of the table": len(states.sums), "share of J C": len(states.sums) / pairs}
    return {**found, "peak MB": (read_status("VmHWM") - before) / 2**20, "before MB": before / 2**20}


def forget_peak() -> None:
    """Reset the peak memory that Linux counts for this process."""
    Path("/proc/self/clear_refs").write_text("5")


def measured(changes: list[str]) -> dict:
    """Measure one variant in a process of its own; return its figures, or its exit status."""
    try:
        return report.in_process(__file__, *changes, **report.ONE_THREAD)
    except subprocess.CalledProcessError as error:
        return {"exit status": error.returncode}  # such as -9: memory ran out


def make_file(options: Namespace, nodes: int, folder: Path) -> Path:
    """Write a graph of some nodes as a file of the competition, and its features, unpruned."""
    real = sorted(REAL.glob("npz_all/npz/layout/nlp/default/test/3a0c5517*.npz"))
    sample = sorted(SAMPLE.glob("npz_all/npz/layout/nlp/random/*/*.npz"))
    source = sample[0] if options.quick or not real else real[0]
    place = folder.joinpath(str(nodes), *source.resolve().parts[-5:-2], "test")
    place.mkdir(parents=True)
    file = read_npz(program_of(source))
    configurable = min(848, nodes // len(file.node_opcode) * len(file.node_config_ids))
    write_repeated(place / "made.npz", file, nodes, configurable, options.configs)
    program = program_of(place / "made.npz")
    graph, _ = build_graph(program, FeatureSettings(collection=program.collection.name, hops=-1))
    write_graph(folder / str(nodes), "test", graph, "")
    return place / "made.npz"


def measure_cost(options: Namespace) -> list[dict]:
    """Return a row for each number of nodes, variant and border."""
    rows = []
    with tempfile.TemporaryDirectory() as made:
        for nodes in options.nodes:
            path = make_file(options, nodes, Path(made))
            where = ["--made", str(path), str(Path(made) / str(nodes))]
            costs = COSTS[::3] if options.quick else COSTS
            for name, border in progress(costs, desc=f"{nodes} nodes", unit="variant"):
                found = measured([*where, "--variant", name, "--border", border])
                rows.append({"nodes": nodes, "variant": name, "border": border, **found})
    return rows


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--nodes", type=at_least(1), nargs="+", default=[21_918, 43_614], help="N of the made graphs"
    )
    parser.add_argument("--configs", type=at_least(1), default=1000, help="C of the made graphs")
    parser.add_argument("--channels", type=at_least(1), default=64, help="hidden channels")
    parser.add_argument("--configs-per-step", type=at_least(1), default=128, help="configurations of a step")
    parser.add_argument("--segment-nodes", type=at_least(1), default=1000, help="nodes of a segment")
    parser.add_argument("--steps", type=at_least(1), default=3, help="timed steps, after one that is not")
    parser.add_argument("--variant", choices=VARIANTS, help="take the steps of one variant in this process")
    parser.add_argument("--border", default="halo", help="border of --variant")
    parser.add_argument("--made", nargs=2, metavar=("NPZ", "FOLDER"), help="the made graph, and its features")
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.configs, options.steps, options.channels = [900], 200, 1, 16
        options.segment_nodes, options.configs_per_step = 100, 32
    return options


def _aligned(rows: list[dict]) -> list[dict]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key, "") for key in keys} for row in rows]


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else str(value).partition(".")[0]


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    torch.set_num_threads(1)
    if options.variant:
        report.finish(step_cost(options))
        return 0
    cost = measure_cost(options)
    print(report.table([{key: _shown(value) for key, value in row.items()} for row in _aligned(cost)]))
    report.finish({"benchmark": "gst", "environment": report.environment(), "cost": cost})
    return 0


if __name__ == "__main__":
    run_main(main)
