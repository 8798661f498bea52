"""Training and inference as in the competition's 1st place, with the network of ``winner.py``.

Not reproduced: the average over ten shuffles of the configurations at inference, the average over 5 to 20
seeds, and the length of the schedule (750 passes over the train graphs on xla, 1,000 on nlp), which is the
caller's ``steps`` or ``seconds``.
"""

import copy
import math
import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastslow.competition.catalog import SPLITS, TEST, TRAIN, VALID, Collection
from fastslow.competition.metrics import collection_score
from fastslow.features.store import Features, Graph
from fastslow.networks.hardware.devices import autocast
from reference.winner import WinnerInputs, WinnerNetwork, standardisation, winner_graph

LEARNING_RATE, WEIGHT_DECAY, WARMUP, CLIP = 1e-3, 1e-5, 0.05, 1.0
CHUNKS = {"layout:xla:default": 128, "layout:nlp:default": 256}
"""Maximum number of configurations predicted together (``max_configs_eval`` in the authors' scripts)."""
OTHER_CHUNK = 256  # without cross-config attention no prediction depends on it


def is_default(collection: Collection) -> bool:
    """Return whether it is one of the default collections, which use cross-config attention."""
    return collection.name.endswith(":default")


def configs_per_step(collection: Collection) -> int:
    """Return the number of configurations drawn from a graph for one training step."""
    return 64 if is_default(collection) else 128


def inference_chunk(collection: Collection) -> int:
    """Return the maximum number of configurations predicted together."""
    return CHUNKS.get(collection.name, OTHER_CHUNK)


def without_duplicates(graph: Graph) -> Graph:
    """Keep the first of each set of identical configurations."""
    codes = graph.choices.layout_codes()
    first = np.sort(np.unique(codes.reshape(len(codes), -1), axis=0, return_index=True)[1])
    return graph.take(first)


def hinge(prediction: Tensor, runtime: Tensor) -> Tensor:
    """Compute the pairwise hinge loss with margin 1, averaged over all n x n ordered pairs."""
    slower = (runtime[:, None] > runtime[None, :]).to(prediction.dtype)
    return (functional.relu(1 - (prediction[:, None] - prediction[None, :])) * slower).mean()


@torch.no_grad()
def predict(network: WinnerNetwork, inputs: WinnerInputs, chunk: int) -> np.ndarray:
    """Predict all configurations in file order, in equal chunks of at most ``chunk``: ``(C,)`` float64."""
    network.eval()
    rows = inputs.graph.config_row  # duplicates of the file included, as in the recipe
    predictions = []
    for configs in np.array_split(rows, math.ceil(len(rows) / chunk)):
        with autocast(inputs.device):
            predictions.append(network(inputs.batch(configs)).cpu().double().numpy())
    return np.concatenate(predictions)


class WinnerTraining:
    """One run of the recipe, one graph per step.

    Args:
        collection: Determines cross-config attention, configurations per step and the inference chunk.
        seed: Seed of weights, dropout, order of graphs and choice of configurations.
        device: Device to train on.
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
        """Do one optimizer step; ``done`` is the used share of the budget, which sets the learning rate."""
        graph = inputs.graph
        configs = self.rng.choice(graph.num_configs, min(self.size, graph.num_configs), replace=False)
        runtime = torch.from_numpy(graph.runtime[configs]).to(inputs.device)
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * schedule(done)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(inputs.device):
            prediction = self.network(inputs.batch(configs))
        hinge(prediction, runtime).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimizer.step()

    def predict_split(self, split: dict[str, WinnerInputs]) -> dict[str, np.ndarray]:
        """Predict every configuration of every graph."""
        return {name: predict(self.network, inputs, self.chunk) for name, inputs in split.items()}


def schedule(done: float) -> float:
    """Return the factor of the learning rate: linear warm-up, then cosine to 0."""
    if done < WARMUP:
        return done / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def read_inputs(features: Features, device: torch.device) -> dict[str, dict[str, WinnerInputs]]:
    """Return the graphs of a features folder per split and name, prepared as in the recipe."""
    graphs = {
        split: {name: features.graph(split, name) for name in features.names(split)} for split in SPLITS
    }
    graphs[TRAIN] = {name: without_duplicates(graph) for name, graph in sorted(graphs[TRAIN].items())}
    graphs = {
        split: {name: winner_graph(g) for name, g in by_name.items()} for split, by_name in graphs.items()
    }
    scaler = standardisation(list(graphs[TRAIN].values()))
    return {
        split: {name: WinnerInputs(graph, scaler, device) for name, graph in by_name.items()}
        for split, by_name in graphs.items()
    }


def train_winner(
    features: Features,
    seed: int,
    device: torch.device,
    evaluate_every: int,
    *,
    steps: int = 0,
    seconds: float = 0.0,
) -> dict:
    """Train with the recipe for a number of steps, or for a wall time.

    With a wall time the schedule follows the share of it that is used, so the cosine ends with it on any
    machine; it includes everything from reading the graphs to predicting the test split.

    Args:
        features: A features folder with one hop and duplicates, of a layout collection.
        seed: Seed of the run.
        device: Device to train on.
        evaluate_every: Passes over the train graphs between two evaluations on valid.
        steps: The budget in steps, or 0.
        seconds: The budget in seconds, or 0; exactly one budget is given.

    Returns:
        ``predictions`` of valid and test per graph, ``steps`` and ``seconds`` used.
    """
    began = time.perf_counter()
    inputs, labels = read_inputs(features, device), features.labels(VALID)
    training = WinnerTraining(features.collection, seed, device)
    reserve = _seconds_of_ending(training, inputs)
    best, taken, epoch = {}, 0, 0

    def done() -> float:
        return taken / steps if steps else (time.perf_counter() - began) / max(seconds - reserve, 1e-9)

    while not best or done() < 1:
        for name in training.rng.permutation(list(inputs[TRAIN])):
            if done() < 1:
                training.step(inputs[TRAIN][name], done())
                taken += 1
        epoch += 1
        if epoch % evaluate_every == 0 or done() >= 1:
            predictions = training.predict_split(inputs[VALID])
            tau = collection_score("layout", labels, predictions)["mean"]
            if not best or tau > best["tau"]:
                weights = copy.deepcopy(training.network.state_dict())
                best = {"tau": tau, VALID: predictions, "weights": weights}
    training.network.load_state_dict(best["weights"])
    predictions = {VALID: best[VALID], TEST: training.predict_split(inputs[TEST])}
    return {"predictions": predictions, "steps": taken, "seconds": time.perf_counter() - began}


def _seconds_of_ending(training: WinnerTraining, inputs: dict) -> float:
    """Measure how long the last evaluation and the test predictions take."""
    began = time.perf_counter()
    for split in (VALID, TEST):
        training.predict_split(inputs[split])
    return time.perf_counter() - began
