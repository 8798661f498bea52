"""Measure CPU time and peak memory of each stage at the real competition's size, for one graph or for all.

``python benchmarks/scale.py [--quick] [--file NPZ] [--nodes N] [--configurable K] [--configs C]``. A program
is repeated side by side and its tied choices are drawn anew (``common/made_graphs.py``), so any size can be
made; without ``--file`` a program of the sample is repeated. Each stage is a process of its own with one
thread, on the settings of the preset ``kaggle``: features from the npz, training steps of a network,
its prediction of all configurations, and the ranker's table of all configurations. Seconds are CPU seconds.

``python benchmarks/scale.py --competition FOLDER [--quick] [--size KERNELS PROGRAMS SIZES]``: every stage of
``make submit PRESET=kaggle`` on a competition made in the folder (``common/real_size.py``), by default with
all 7,229 tile kernels and a 30th of the layout programs, and the extrapolation to the whole
(``common/whole_run.py``). Interrupted, the same command resumes. ``--rehearsal`` spoils it as the real one is
(``common/rehearsal.py``) and prints whether the report names what is wrong.
"""

import os
import resource
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from common import report
from common.graph_files import SAMPLE, OneGraph, program_of
from common.made_graphs import write_repeated
from common.options import make_parser
from common.real_size import Size
from common.whole_run import WholeRun
from fastslow.competition.reader import read_npz
from fastslow.core.memory import FreedMemory, resident_bytes
from fastslow.features.build import build_graph
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import read_graph, write_graph
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.networks.predict.dataset import GraphDataset, predict
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import make_network
from fastslow.rankers.table_features import tabulate
from fastslow.workflow.presets import network_settings


def features(path: Path, folder: Path, options: Namespace) -> dict:
    """Build the graph's features and write them as a test graph."""
    program = program_of(path)
    graph, _ = build_graph(program, FeatureSettings(collection=program.collection.name))
    write_graph(folder, "test", graph, "")
    return {"nodes kept": graph.num_nodes, "groups": graph.choices.num_groups, "configs": graph.num_configs}


def _network(path: Path, folder: Path):
    program, settings = (
        program_of(path),
        TrainSettings(**network_settings("kaggle", {}, "layout")[0], device="cpu"),
    )
    source = OneGraph(program, read_graph(folder, "test", program.name), split="test")
    dataset = GraphDataset(
        [source], settings.num_layers, torch.device("cpu"), pair_edges=settings.joins_pairs()
    )
    return settings, dataset, make_network(settings, dataset), f"{program.collection.slug}/{program.name}"


def training(path: Path, folder: Path, options: Namespace) -> dict:
    """Take steps of changing sizes: half to all of the configurations of a step."""
    settings, dataset, network, name = _network(path, folder)
    optimizer, rng = torch.optim.AdamW(network.parameters()), np.random.default_rng(0)
    freed, held, seconds = FreedMemory(), [], []
    total = dataset.graph("test", name).graph.num_configs
    for _ in range(options.steps):
        began = time.process_time()
        most = options.configs_per_step or settings.configs_per_step
        size = min(total, int(rng.integers(most // 2, most + 1)))
        batch = dataset.batch("test", name, rng.choice(total, size, replace=False))
        optimizer.zero_grad(set_to_none=True)
        pairwise_hinge(network(batch), torch.rand(size)).backward()
        optimizer.step()
        freed.after_step()
        seconds.append(time.process_time() - began)
        held.append(resident_bytes() / 2**30)
    return {
        "seconds a step": float(np.mean(seconds)),
        "states": len(batch.levels[-1].node_ids),
        "GB held, by twentieths of the steps": [
            float(part.max()) for part in np.array_split(held, min(20, len(held)))
        ],
    }


def inference(path: Path, folder: Path, options: Namespace) -> dict:
    """Predict all configurations with a network."""
    settings, dataset, network, name = _network(path, folder)
    FreedMemory()
    slug, _, _ = name.partition("/")
    (prediction,) = predict(network, dataset, slug, "test", settings.configs_together).values()
    return {"configs": len(prediction)}


def ranker(path: Path, folder: Path, options: Namespace) -> dict:
    """Tabulate all configurations for the LightGBM ranker."""
    graph = read_graph(folder, "test", path.stem)
    names = [f"config_feat_{i}" for i in range(graph.config_feat.shape[1])]
    table, _ = tabulate(graph, "layout", names)
    return {"columns": table.shape[1], "table GB": table.nbytes / 2**30}


TABLE = {
    "hours": 1.0,
    "needs": ("real",),
    "commands": (
        (
            "--steps=6",
            "--file=../shared/real/npz_all/npz/layout/nlp/default/test/3a0c5517a87df8d82fd637b83298a3ba.npz",
        ),
        ("--competition", "benchmarks/results/competition", "--size", "1", "0.0166667", "1"),
    ),
}
QUICK = (0.002, 0.002, 0.03)
STAGES = {"features": features, "training": training, "inference": inference, "ranker": ranker}


def run_stage(options: Namespace) -> dict:
    """Run one stage in this process; return its figures."""
    torch.set_num_threads(1)
    path, folder = map(Path, options.made)
    began = time.process_time()
    found = STAGES[options.stage](path, folder, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"CPU s": time.process_time() - began, "peak GB": peak, **found}


def make_file(options: Namespace, folder: Path) -> Path:
    """Write the made graph as a file of the competition."""
    source = options.file or sorted(SAMPLE.glob("npz_all/npz/layout/nlp/random/*/*.npz"))[0]
    place = folder.joinpath(*source.resolve().parts[-5:-2], "test")
    place.mkdir(parents=True)
    path = place / "made.npz"
    sizes = options.nodes, options.configurable, options.configs
    write_repeated(path, read_npz(program_of(source)), *sizes)
    return path


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--file", type=Path, metavar="NPZ", help="layout file to repeat, in folders as published"
    )
    parser.add_argument("--nodes", type=int, default=43_614, help="N of the made graph")
    parser.add_argument("--configurable", type=int, default=848, help="K of the made graph")
    parser.add_argument("--configs", type=int, default=100_040, help="C of the made graph")
    parser.add_argument("--steps", type=int, default=10, help="training steps")
    parser.add_argument("--configs-per-step", type=int, help="maximum of a step (default: from the preset)")
    parser.add_argument("--only", nargs="+", choices=STAGES, default=[*STAGES], help="stages to measure")
    parser.add_argument("--stage", choices=STAGES, help="measure one stage of --made in this process only")
    parser.add_argument("--made", nargs=2, metavar=("NPZ", "FOLDER"), help="the made graph, and its features")
    parser.add_argument(
        "--competition", type=Path, metavar="FOLDER", help="measure a whole competition there"
    )
    parser.add_argument(
        "--rehearsal", action="store_true", help="spoil the competition as the real one is: repeats, damage"
    )
    shares = ("KERNELS", "PROGRAMS", "SIZES")
    parser.add_argument("--size", nargs=3, type=float, metavar=shares, help="shares of the real competition")
    options = parser.parse_args(arguments)
    if options.quick:
        options.size = options.size or QUICK
        options.nodes, options.configurable, options.configs, options.steps = 900, 40, 2500, 2
    return options


def whole_competition(options: Namespace) -> None:
    """Measure every stage on a made-up competition."""
    torch.set_num_threads(1)
    options.competition.mkdir(parents=True, exist_ok=True)
    os.environ.update({"FASTSLOW_HOME": str(options.competition.absolute()), **report.ONE_THREAD})
    size = Size(*options.size) if options.size else Size()
    run = WholeRun(options.competition, size, options.rehearsal)
    run.measure(notebooks=not options.quick)
    stages = run.stages()
    shown = [
        {
            "stage": row["stage"],
            "CPU s": f"{row['CPU s']:.1f}",
            "wall s": f"{row['wall s']:.0f}",
            "peak GB": f"{row['peak GB']:.2f}",
            "whole, CPU h": f"{row['whole CPU s'] / 3600:.2f}",
        }
        for row in stages
    ]
    print(report.table(shown))
    hours = sum(row["whole CPU s"] for row in stages) / 3600
    planned = {f"{cores} cores, hours": run.planned_hours(cores) for cores in (2, 16)}
    print(" ".join(f"{name}: {value:.1f}" for name, value in planned.items()))
    found = {**planned, "size": vars(run.size), "stages": stages, "whole CPU h": hours, "costs": run.costs}
    if options.rehearsal:
        found["named by the report"] = run.found()
        print("named by the report:", ", ".join(f"{name} {yes}" for name, yes in run.found().items()))
    report.finish({"benchmark": "scale", "environment": report.environment(), **found})


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    if options.competition:
        whole_competition(options)
        return 0
    if options.stage:
        report.finish(run_stage(options))
        return 0
    with tempfile.TemporaryDirectory() as place:
        path = make_file(options, Path(place))
        made = ("--made", str(path), place)
        stages = {
            stage: report.in_process(__file__, "--stage", stage, *made, **report.ONE_THREAD)
            for stage in options.only
        }
    rows = [
        {"stage": name, "CPU s": f"{found['CPU s']:.1f}", "peak GB": f"{found['peak GB']:.2f}"}
        for name, found in stages.items()
    ]
    print(report.table(rows))
    made = {key: getattr(options, key) for key in ("nodes", "configurable", "configs", "steps")}
    report.finish({"benchmark": "scale", "environment": report.environment(), "made": made, "stages": stages})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
