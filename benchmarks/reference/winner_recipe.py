"""Training and inference as the competition's 1st place did them, with the network of ``winner.py``."""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastslow.competition.catalog import Collection
from fastslow.competition.metrics import collection_score
from fastslow.features.store import Features, Graph
from fastslow.networks.devices import autocast
from reference.winner import WinnerInputs, WinnerNetwork, standardisation, winner_graph

LEARNING_RATE, WEIGHT_DECAY, WARMUP, CLIP = 1e-3, 1e-5, 0.05, 1.0


def is_default(collection: Collection) -> bool:
    """Whether it is one of the default collections, which have a recipe of their own."""
    return collection.name.endswith(":default")


def configs_per_step(collection: Collection) -> int:
    """Configurations drawn from a graph for one training step."""
    return 64 if is_default(collection) else 128


def inference_chunk(collection: Collection) -> int:
    """Configurations scored together."""
    return 128 if is_default(collection) else 256


def without_duplicates(graph: Graph) -> Graph:
    """Keep the first of each set of identical configurations."""
    codes = np.asarray(graph.codes)
    first = np.sort(np.unique(codes.reshape(len(codes), -1), axis=0, return_index=True)[1])
    per_config = ("codes", "config_feat", "runtime", "count", "config_ids")
    return replace(graph, **{name: getattr(graph, name)[first] for name in per_config})


def hinge(score: Tensor, runtime: Tensor) -> Tensor:
    """Pairwise hinge with margin 1, averaged over all n x n ordered pairs."""
    slower = (runtime[:, None] > runtime[None, :]).to(score.dtype)
    return (functional.relu(1 - (score[:, None] - score[None, :])) * slower).mean()


@torch.no_grad()
def predict(network: WinnerNetwork, inputs: WinnerInputs, chunk: int) -> np.ndarray:
    """``(C,)`` float64 scores of all configurations, in chunks in file order."""
    network.eval()
    scores = []
    for configs in np.split(
        np.arange(inputs.graph.num_configs), range(chunk, inputs.graph.num_configs, chunk)
    ):
        with autocast(inputs.device):
            scores.append(network(inputs.batch(configs)).cpu().double().numpy())
    return np.concatenate(scores)


class WinnerTraining:
    """One run of the recipe: one graph a step.

    Args:
        collection: Decides cross-config attention, configurations a step and the inference chunk.
        seed: Seed of weights, dropout, order of graphs and choice of configurations.
        device: Where to train.
    """

    def __init__(self, collection: Collection, seed: int, device: torch.device):
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.size, self.chunk = configs_per_step(collection), inference_chunk(collection)
        self.network = WinnerNetwork(is_default(collection)).to(device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )

    def step(self, inputs: WinnerInputs, done: float = 0.5) -> None:
        """One optimizer step; ``done`` is the share of the budget used, which sets the learning rate."""
        graph = inputs.graph
        configs = self.rng.choice(graph.num_configs, min(self.size, graph.num_configs), replace=False)
        runtime = torch.from_numpy(graph.runtime[configs]).to(inputs.device)
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * schedule(done)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(inputs.device):
            score = self.network(inputs.batch(configs))
        hinge(score, runtime).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimizer.step()

    def scores(self, split: dict[str, WinnerInputs]) -> dict[str, np.ndarray]:
        """Scores of every configuration by graph."""
        return {name: predict(self.network, inputs, self.chunk) for name, inputs in split.items()}


def schedule(done: float) -> float:
    """Factor of the learning rate: linear warm-up, then cosine to 0."""
    if done < WARMUP:
        return done / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def read_inputs(
    features: Features, device: torch.device, also: Sequence[Features] = ()
) -> dict[str, dict[str, WinnerInputs]]:
    """The graphs of a features folder by split and name, as the recipe prepares them.

    Train graphs of further folders join, but for programs that are valid here.
    """
    graphs = {
        split: {name: features.graph(split, name) for name in features.names(split)}
        for split in ("train", "valid", "test")
    }
    for other in also:
        for name in set(other.names("train")) - set(graphs["valid"]):
            graphs["train"][f"{other.folder.name}/{name}"] = other.graph("train", name)
    graphs["train"] = {name: without_duplicates(graph) for name, graph in sorted(graphs["train"].items())}
    graphs = {
        split: {name: winner_graph(g) for name, g in by_name.items()} for split, by_name in graphs.items()
    }
    moments = standardisation(list(graphs["train"].values()))
    return {
        split: {name: WinnerInputs(graph, moments, device) for name, graph in by_name.items()}
        for split, by_name in graphs.items()
    }


def train_winner(
    features: Features,
    seed: int,
    device: torch.device,
    evaluate_every: int,
    also: Sequence[Features] = (),
    *,
    steps: int = 0,
    seconds: float = 0.0,
) -> dict:
    """Train with the recipe for so many steps, or for exactly so many seconds all in all.

    In time the schedule follows the share of the seconds used, so its cosine ends when they do however fast
    the machine is; the seconds hold everything from reading the graphs to scoring the test split.

    Args:
        features: A features folder with one hop and duplicates, of a layout collection.
        seed: Seed of the run.
        device: Where to train.
        evaluate_every: Passes over the train graphs between two evaluations on valid.
        also: Further folders whose train graphs are trained on as well.
        steps: The budget in steps, or 0.
        seconds: The budget in seconds, or 0; one of both is given.

    Returns:
        ``scores`` of valid and test by graph, ``steps`` and ``seconds`` used.
    """
    began = time.perf_counter()
    inputs, labels = read_inputs(features, device, also), features.labels("valid")
    training = WinnerTraining(features.collection, seed, device)
    reserve = _seconds_of_ending(training, inputs)
    best, taken, epoch = {}, 0, 0

    def done() -> float:
        return taken / steps if steps else (time.perf_counter() - began) / max(seconds - reserve, 1e-9)

    while not best or done() < 1:
        for name in training.rng.permutation(list(inputs["train"])):
            if done() < 1:
                training.step(inputs["train"][name], done())
                taken += 1
        epoch += 1
        if epoch % evaluate_every == 0 or done() >= 1:
            scores = training.scores(inputs["valid"])
            tau = collection_score("layout", labels, scores)["mean"]
            if not best or tau > best["tau"]:
                weights = copy.deepcopy(training.network.state_dict())
                best = {"tau": tau, "valid": scores, "weights": weights}
    training.network.load_state_dict(best["weights"])
    scores = {"valid": best["valid"], "test": training.scores(inputs["test"])}
    return {"scores": scores, "steps": taken, "seconds": time.perf_counter() - began}


def _seconds_of_ending(training: WinnerTraining, inputs: dict) -> float:
    """How long the last evaluation and the test scores will take."""
    began = time.perf_counter()
    training.scores(inputs["valid"])
    training.scores(inputs["test"])
    return time.perf_counter() - began
