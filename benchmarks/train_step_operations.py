"""Where a training step of the layout network spends its time, beside the least that this machine could need.

``python benchmarks/train_step_operations.py [--quick]``. One thread takes the steps of ``make submit`` on
every fourth train program of the sample's layout collections. An operation is one of torch's. Its *bound* is
the time that its bytes take at this machine's bandwidth or, if that is longer, that its FLOPs take at this
machine's FLOP/s. *between them* is Python and autograd; it has no bound.
"""

import math
import time

import torch

from common import report
from common.command_line import run_main
from common.graph_files import SAMPLE
from common.operations import Cost, Machine, Operations
from common.options import add_model_options, make_parser, our_settings
from fastslow.competition.catalog import COLLECTIONS, TRAIN, VALID, list_programs
from fastslow.features.build import build_graphs
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.training.train import Training
from fastslow.steps.network_settings import TrainSettings

TABLE = {"hours": 0.02, "needs": ()}
EVERY = 4  # train programs
SHOWN = 16  # operations with a row
EPOCHS = 5


def begin_training(settings: TrainSettings, every: int) -> Training:
    """Return a training of the layout network on every so many train and valid programs of the sample."""
    sources = []
    for collection in COLLECTIONS:
        if collection.kind == "layout":
            files = [list_programs(SAMPLE, collection, split)[::every] for split in (TRAIN, VALID)]
            sources.append(build_graphs(sum(files, [])))
    return Training(settings, GraphDataset(settings, sources))


def row(name: str, steps: int, calls: int, seconds: float, bound: float) -> dict:
    """Return a row of the table: calls of a step, and times of a step in milliseconds."""
    return {
        "operation": name,
        "calls": f"{calls / steps:.0f}" if calls else "",
        "ms": f"{1000 * seconds / steps:.3f}",
        "bound, ms": f"{1000 * bound / steps:.3f}",
        "bound / time": f"{bound / seconds:.2f}" if bound else "",
    }


def rows_of(costs: dict[str, Cost], machine: Machine, steps: int, whole: float) -> list[dict]:
    """Return the rows of the table, the operation furthest above its bound first.

    Args:
        costs: Cost of each operation, of all steps.
        machine: Limits of this machine.
        steps: Number of steps.
        whole: CPU seconds of all steps.
    """
    bounds = {name: machine.bound(cost) for name, cost in costs.items()}
    names = sorted(costs, key=lambda name: bounds[name] - costs[name].seconds)
    rows = [row(name, steps, costs[name].calls, costs[name].seconds, bounds[name]) for name in names[:SHOWN]]
    others = [costs[name] for name in names[SHOWN:]]
    calls = sum(cost.calls for cost in others)
    seconds = sum(cost.seconds for cost in others)
    rows.append(row("others", steps, calls, seconds, sum(bounds[name] for name in names[SHOWN:])))
    between = whole - sum(cost.seconds for cost in costs.values())
    rows.append(row("between them", steps, 0, between, 0.0))
    rows.append(row("step", steps, 0, whole, sum(bounds.values())))
    return rows


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    parser = make_parser(__doc__.splitlines()[0])
    add_model_options(parser, threads=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    settings = TrainSettings(**our_settings(options, "gnn"))
    training = begin_training(settings, 16 if options.quick else EVERY)
    training.run_epoch()  # prepares the graphs
    epochs = 1 if options.quick else EPOCHS
    steps = epochs * math.ceil(len(training.names) / settings.graphs_per_step)

    def train() -> None:
        for _ in range(epochs):
            training.run_epoch()

    began = time.process_time()
    train()
    whole = time.process_time() - began
    with Operations.calibrated() as operations:
        train()
    machine = Machine.measured()
    rows = rows_of(operations.costs, machine, steps, whole)
    print(f"\nCPU time of a step, mean of {steps}, the largest gap first\n")
    print(report.table(rows))
    print(
        f"\nOne thread of this machine moves {machine.bandwidth / 1e9:.1f} GB/s and does "
        f"{machine.flops[torch.float32] / 1e9:.0f} GFLOP/s in float32, "
        f"{machine.flops[torch.float64] / 1e9:.0f} in float64."
    )
    report.finish({"environment": report.environment(options.threads), "rows": rows})
    return 0


if __name__ == "__main__":
    run_main(main)
