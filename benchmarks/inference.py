"""Time and memory of predicting all configurations of test files: ours, ours computed densely, the winner's.

``python benchmarks/inference.py [--quick] [--files NPZ ...]``. Timed from a graph in memory to predictions in
memory, preparation included. The networks have random weights, which does not affect the time. The first
command has our network of ``make submit``, the second the larger one of the preset kaggle.
"""

import copy
from argparse import Namespace
from functools import partial

import numpy as np
import torch

from common import contest, report
from common.command_line import run_main
from common.graph_files import OneGraph, first_configs, load_graph
from common.options import our_settings
from fastslow.competition.catalog import TEST, ProgramFile
from fastslow.features.nodes.node_encodings import WHOLE_GRAPH
from fastslow.networks.hardware.devices import pick_device
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset, make_network, predict
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network_settings import TrainSettings
from reference.dense import DenseInputs, make_dense
from reference.winner import HOPS, WinnerInputs, WinnerNetwork, standardisation, winner_graph
from reference.winner_recipe import inference_chunk, is_default
from reference.winner_recipe import predict as winner_predict

TABLE = {
    "hours": 0.2,
    "needs": ("real", "torch_geometric"),
    "sample": False,
    "commands": (
        ("--threads", "1", "--limit", "3", "--most-nodes", "2000"),
        ("--threads", "1", "--limit", "3", "--most-nodes", "2000", "--preset", "kaggle"),
    ),
}
TOLERANCE = 1e-5  # relative to the largest prediction, in float32
CHUNKS = 4


class Contest:
    """All contenders on one file, see :class:`contest.Contest`.

    Args:
        program: The file.
        options: The command line.
    """

    contenders = ("ours whole", "dense whole", "ours pruned", "dense pruned", "winner")
    limited = ("dense whole", "dense pruned")

    def __init__(self, program: ProgramFile, options: Namespace):
        pruning = our_settings(options, "features").get("hops", FeatureSettings().hops)
        hops = {"whole": WHOLE_GRAPH, "pruned": pruning}
        self.program, self.device = program, pick_device(options.device)
        self.settings = TrainSettings(**{**our_settings(options, "gnn"), "device": options.device})
        graphs = {kind: load_graph(program, hops[kind]) for kind in hops}
        self.features = {kind: OneGraph(program, graph, split=TEST) for kind, graph in graphs.items()}
        self.winner_graph = winner_graph(load_graph(program, HOPS))
        self.scaler = standardisation([self.winner_graph])
        self.winner = WinnerNetwork(is_default(program.collection)).to(self.device)
        self.networks = {}
        for kind, features in self.features.items():
            network = make_network(self.settings, self._inputs("ours", features))
            self.networks |= {f"ours {kind}": network, f"dense {kind}": make_dense(copy.deepcopy(network))}
        self.num_configs = self.winner_graph.num_configs
        self.parts = {f"of which preparation, {kind}": partial(self.prepare, kind) for kind in hops}
        self.parts[f"pruned, in {CHUNKS} chunks"] = self.run_in_chunks
        nodes = {kind: features.only.num_nodes for kind, features in self.features.items()}
        self.nodes = nodes | {"winner": self.winner_graph.num_nodes}

    def _inputs(self, form: str, features: OneGraph, together: int | None = None) -> GraphDataset:
        inputs = GraphDataset if form == "ours" else DenseInputs
        return inputs(self.settings, [features], configs_together=together or self.settings.configs_together)

    def run(self, contender: str, num_configs: int) -> np.ndarray:
        """Predict the first configurations: ``(C,)`` float64."""
        if contender == "winner":
            inputs = WinnerInputs(first_configs(self.winner_graph, num_configs), self.scaler, self.device)
            return winner_predict(self.winner, inputs, inference_chunk(self.program.collection))
        form, kind = contender.split()
        inputs = self._inputs(form, self.features[kind].first_configs(num_configs))
        if form == "dense":
            return self._all_at_once(self.networks[contender], inputs, num_configs)
        return self._predict(self.networks[contender], inputs)

    def _predict(self, network: RankingNetwork, inputs: GraphDataset) -> np.ndarray:
        slug, name = self.program.collection.slug, self.program.name
        return predict(network, inputs, slug, "test")[name]

    @torch.no_grad()
    def _all_at_once(self, network: RankingNetwork, inputs: GraphDataset, num_configs: int) -> np.ndarray:
        # our own path predicts large graphs node by node, which needs deduplicated states
        path = f"{self.program.collection.slug}/{self.program.name}"
        batch = inputs.batch("test", path, np.arange(num_configs))
        return network.eval()(batch).cpu().numpy().astype(np.float64)

    def run_in_chunks(self) -> np.ndarray:
        """Predict on the pruned graph in several passes, as for a set too large for memory."""
        inputs = self._inputs("ours", self.features["pruned"], -(-self.num_configs // CHUNKS))
        return self._predict(self.networks["ours pruned"], inputs)

    def prepare(self, kind: str) -> None:
        """Prepare the inputs of our network: scaling, states and their tensors."""
        inputs = self._inputs("ours", self.features[kind])
        path = f"{self.program.collection.slug}/{self.program.name}"
        inputs.batch("test", path, np.arange(self.num_configs))

    def exactness(self, memory: dict[str, dict]) -> dict:
        """Return the largest relative difference: ours from dense, in chunks from all at once."""
        found = {}
        for kind in self.features:
            num_configs = memory[f"dense {kind}"]["configs"]
            ours, dense = (self.run(f"{form} {kind}", num_configs) for form in ("ours", "dense"))
            found[kind] = float(np.abs(ours - dense).max() / np.abs(dense).max())
        whole, parts = self.run("ours pruned", self.num_configs), self.run_in_chunks()
        found["in chunks"] = float(np.abs(parts - whole).max() / np.abs(whole).max())
        return {"difference": found}


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where predictions differ that must not."""
    options = contest.parse_timing_options(__doc__.splitlines()[0], arguments)
    results = contest.run_files(__file__, Contest, options)
    if not results:
        return 0
    heading = f"## Preset {options.preset}\n\nSeconds to predict all configurations, preparation included"
    total = contest.report(results, heading)
    largest = max(max(result["difference"].values()) for result in results)
    print(f"\nOurs, dense and in chunks differ by at most {largest:.1e} of the largest prediction", end=" ")
    print(f"(allowed {TOLERANCE}).\n")
    report.finish(
        {
            "benchmark": "inference",
            "environment": report.environment(options.threads, options.device),
            "settings": our_settings(options, "gnn"),
            "total": total,
            "largest difference": largest,
            "files": results,
        }
    )
    return int(largest > TOLERANCE)


if __name__ == "__main__":
    run_main(main)
