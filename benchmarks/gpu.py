"""Measure one GPU: exactness by precision, seconds and memory of a step.

``python benchmarks/gpu.py [--files NPZ ...] [--only PART ...] [--quick]``. Without a GPU it runs on the CPU
at the smallest size, with a message.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from scipy.stats import kendalltau

from common import report
from common.command_line import run_main
from common.contest import peak_bytes, seconds
from common.graph_files import OneGraph, default_files, load_graph, program_of
from common.made_graphs import write_repeated
from common.options import make_parser
from fastslow.competition.reader import read_npz
from fastslow.networks.hardware import devices
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.networks.training.train import Training
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network import graphs_of
from fastslow.steps.network_settings import TrainSettings

TABLE = {"hours": 0.1, "needs": ("gpu",)}
CPU = torch.device("cpu")
TOLERANCE = {"float32": (1e-4, 1e-3), "bfloat16": (3e-2, 0.15), "float16": (1e-2, 0.05)}
"""Largest difference allowed from float32 on the CPU: of a prediction, relative to the largest; of the
gradient, as a vector. The head stays in float64 in every precision."""
NODES, CONFIGURABLE = 43_614, 848
"""Size of the made graph: the nodes of TpuGraphs' largest, the configurable nodes of a genuine one."""
STEPS = 30


def training(path: Path, device: torch.device, **given) -> Training:
    """Return a training on one layout file, pruned as the features are; runtimes are drawn."""
    program = program_of(path)
    graph = load_graph(program, FeatureSettings().hops)
    runtime = 1.0 + np.random.default_rng(0).permutation(graph.num_configs)
    features = OneGraph(program, replace(graph, runtime=runtime))
    settings = TrainSettings(**{"dropout": 0.0, "epochs": STEPS, **given}, device=str(device))
    return Training(settings, graphs_of(settings, [features]))


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Compute in a precision, whatever the device prefers."""
    with mock.patch.object(devices, "pick_precision", lambda device: getattr(torch, name)):
        yield


def _answers(one: Training, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions (C,) of at most 128 configurations, and the gradient of their loss."""
    features, device = one.dataset, one.dataset.device
    configs = np.arange(min(128, features.num_configs("train", name)))
    runtime = torch.arange(len(configs), dtype=torch.float64, device=device)
    with devices.autocast(device):
        prediction = one.network.eval()(features.batch("train", name, configs))
    one.network.zero_grad()
    pairwise_hinge(prediction, runtime).backward()
    gradient = torch.cat([p.grad.flatten() for p in one.network.parameters() if p.grad is not None])
    return prediction.detach().cpu().double().numpy(), gradient.cpu().double().numpy()


def exactness(options: argparse.Namespace) -> list[dict]:
    """Compare predictions and gradients with float32 on the CPU, in every precision."""
    rows = []
    for path in options.files:
        on_device = training(path, options.device)
        reference = training(path, CPU)
        reference.network.load_state_dict(on_device.network.state_dict())
        (name,) = on_device.names
        wanted, slope = _answers(reference, name)
        for kind, (allowed, allowed_slope) in TOLERANCE.items():
            if kind != "float32" and options.device.type == "cpu":
                continue
            with precision(kind):
                found, gradient = _answers(on_device, name)
            difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
            of_gradient = float(np.linalg.norm(gradient - slope) / np.linalg.norm(slope))
            rows.append(
                {
                    "file": path.stem[:20],
                    "precision": kind,
                    "prediction": difference,
                    "gradient": of_gradient,
                    "tau": float(kendalltau(wanted, found)[0]),
                    "ok": difference <= allowed and of_gradient <= allowed_slope,
                }
            )
    return rows


def large(options: argparse.Namespace) -> list[dict]:
    """Time a step and a prediction on a made graph of the largest real size."""
    rows = []
    num_configs = 64 if options.quick else 5_000
    nodes, configurable = (600, 40) if options.quick else (NODES, CONFIGURABLE)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "layout/nlp/default/test/large.npz")
        path.parent.mkdir(parents=True)
        source = read_npz(program_of(options.files[0]))
        write_repeated(path, source, nodes, configurable, num_configs)
        for size in (64, 128) if options.quick else (64, 256, 1024):
            one = training(path, options.device, configs_per_step=size)
            one.run_epoch()  # one graph, hence one step
            took = float(np.median([seconds(one.run_epoch, options.device) for _ in range(5)]))
            above, _ = peak_bytes(one.run_epoch, options.device)
            rows.append({"what": f"step of {size} configurations", "seconds": took, "MB": above / 2**20})
        (name,) = one.names
        predict = _predictor(one, name)
        predict()
        took = seconds(predict, options.device)
        above, _ = peak_bytes(predict, options.device)
        rows.append({"what": f"prediction of {num_configs}", "seconds": took, "MB": above / 2**20})
    return [row | {"ok": True} for row in rows]


def _predictor(one: Training, name: str) -> Callable[[], object]:
    from fastslow.networks.predict.dataset import predict

    slug = name.split("/")[0]
    return lambda: predict(one.network, one.dataset, slug, "test")


def _largest(files: list[Path]) -> Path:
    return max(files, key=lambda path: path.stat().st_size)


PARTS: dict[str, Callable[[argparse.Namespace], list[dict]]] = {"exactness": exactness, "large": large}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; the device is the GPU where there is one."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--files", nargs="+", type=Path, metavar="NPZ", help="layout files in folders as published"
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART", help=", ".join(PARTS)
    )
    options = parser.parse_args(arguments)
    options.device = devices.pick_device("auto")
    if options.device.type == "cpu":
        print("No GPU: on the CPU, at the smallest size.", file=sys.stderr)
        options.quick = True
    options.files = [path.resolve() for path in options.files or default_files(options.quick)]
    return options


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where a part is not as it must be."""
    options = parse(arguments)
    found = {}
    for part in options.only:
        began = time.perf_counter()
        found[part] = PARTS[part](options)
        print(f"\n## {part} ({time.perf_counter() - began:.0f} s)\n", flush=True)
        rows = [{k: f"{v:.3g}" if isinstance(v, float) else v for k, v in r.items()} for r in found[part]]
        print(report.table(rows), flush=True)
    report.finish(
        {"benchmark": "gpu", "environment": report.environment(device=options.device.type), "parts": found}
    )
    return int(not all(row["ok"] for rows in found.values() for row in rows))


if __name__ == "__main__":
    run_main(main)
