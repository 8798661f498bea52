"""Time and memory of one training step: ours, ours computed densely, the winner's.

``python benchmarks/train_step.py [--quick] [--files NPZ ...]``. A step draws 128 configurations of a graph
pruned as the winner's, prepares them, and does forward pass, backward pass and optimizer step. Runtimes are
random, since test files have none. The first command has our network of ``make submit``, the second the
larger one of the preset kaggle.
"""

from argparse import Namespace
from dataclasses import replace

import numpy as np
import torch

from common import contest, report
from common.command_line import run_main
from common.graph_files import OneGraph, load_graph
from common.options import our_settings
from fastslow.competition.catalog import ProgramFile
from fastslow.core.memory import step_memory
from fastslow.networks.hardware.devices import pick_device
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.training.train import Training
from fastslow.steps.network_settings import TrainSettings
from reference.dense import DenseInputs, make_dense
from reference.winner import HOPS, WinnerInputs, standardisation, winner_graph
from reference.winner_recipe import WinnerTraining

TABLE = {
    "hours": 0.2,
    "needs": ("real", "torch_geometric"),
    "sample": False,
    "commands": (
        ("--threads", "1", "--limit", "3", "--most-nodes", "2000"),
        ("--threads", "1", "--limit", "3", "--most-nodes", "2000", "--preset", "kaggle"),
    ),
}
CONFIGS = 128
TOLERANCE = {"prediction": 1e-5, "gradient": 1e-4}  # relative, in float32


class Contest:
    """All contenders on one file, see :class:`contest.Contest`.

    Args:
        program: The file.
        options: The command line.
    """

    contenders = ("ours", "dense", "winner")
    limited = ("dense", "winner")

    def __init__(self, program: ProgramFile, options: Namespace):
        graph = winner_graph(load_graph(program, HOPS))
        rng = np.random.default_rng(0)
        graph = replace(graph, runtime=1.0 + rng.permutation(graph.num_configs))
        self.device, self.features = pick_device(options.device), OneGraph(program, graph)
        self.name = f"{program.collection.slug}/{graph.name}"
        settings = our_settings(options, "gnn")
        self.settings = TrainSettings(**{**settings, "configs_per_step": CONFIGS, "graphs_per_step": 1})
        self.num_configs = min(CONFIGS, graph.num_configs)
        self.nodes = {"winner's pruning": graph.num_nodes}
        self.parts = {"of which preparation": self.prepare, "of which states": self.build_states}
        self.trainings = {name: self._training(name) for name in ("ours", "dense")}
        self.winner = WinnerTraining(program.collection, 0, self.device)
        self.winner_inputs = WinnerInputs(graph, standardisation([graph]), self.device)
        self._rng = rng

    def _training(self, name: str) -> Training:
        kind = GraphDataset if name == "ours" else DenseInputs
        training = Training(self.settings, kind(self.settings, [self.features], memory=step_memory()))
        if name == "dense":
            make_dense(training.network)
        return training

    def run(self, contender: str, num_configs: int) -> None:
        """Do one step with ``num_configs`` configurations."""
        if contender == "winner":
            self.winner.size = num_configs
            self.winner.step(self.winner_inputs)
            return
        training = self.trainings[contender]
        training.options = self.settings.replace(configs_per_step=num_configs)
        training.run_epoch()  # one graph, hence one step

    def _draw(self) -> np.ndarray:
        return self._rng.choice(self.features.only.num_configs, self.num_configs, replace=False)

    def prepare(self) -> None:
        """Prepare the inputs of our network: states of the drawn configurations and their tensors."""
        self.trainings["ours"].dataset.batch("train", self.name, self._draw())

    def build_states(self) -> None:
        """Compute the states of the drawn configurations."""
        graph = self.trainings["ours"].dataset.graph("train", self.name)
        graph.states(self._draw(), self.settings.num_layers)

    def exactness(self, memory: dict[str, dict]) -> dict:
        """Return the largest relative differences of predictions and gradients between ours and dense."""
        configs = np.arange(memory["dense"]["configs"])
        network = self.trainings["ours"].network
        runtime = torch.from_numpy(self.features.only.runtime[configs]).to(self.device)
        self.trainings["dense"].network.load_state_dict(network.state_dict())
        values = {}
        for form, training in self.trainings.items():
            network = training.network.eval()  # no dropout
            network.zero_grad()
            prediction = network(training.dataset.batch("train", self.name, configs))
            pairwise_hinge(prediction, runtime).backward()
            gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
            values[form] = {"prediction": prediction.detach(), "gradient": gradient}
        return {
            "difference": {
                key: float((values["ours"][key] - dense).abs().max() / dense.abs().max())
                for key, dense in values["dense"].items()
            }
        }


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where ours and dense differ."""
    options = contest.parse_timing_options(__doc__.splitlines()[0], arguments)
    results = contest.run_files(__file__, Contest, options)
    if not results:
        return 0
    heading = f"## Preset {options.preset}\n\nSeconds of a training step with {CONFIGS} configurations"
    total = contest.report(results, heading)
    largest = {key: max(result["difference"][key] for result in results) for key in TOLERANCE}
    for key, allowed in TOLERANCE.items():
        print(f"\nThe {key}s of ours and dense differ by at most {largest[key]:.1e} (allowed {allowed}).")
    report.finish(
        {
            "benchmark": "train_step",
            "environment": report.environment(options.threads, options.device),
            "settings": our_settings(options, "gnn"),
            "total": total,
            "largest difference": largest,
            "files": results,
        }
    )
    return int(any(largest[key] > allowed for key, allowed in TOLERANCE.items()))


if __name__ == "__main__":
    run_main(main)
