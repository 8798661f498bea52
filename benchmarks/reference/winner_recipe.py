"""A training step and inference as in the competition's 1st place, with the network of ``winner.py``.

They are timed. Not reproduced: the schedule of the learning rate, the average over ten shuffles of the
configurations at inference, and the average over 5 to 20 seeds.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastslow.competition.catalog import Collection
from fastslow.networks.hardware.devices import autocast
from reference.winner import WinnerInputs, WinnerNetwork

LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 1e-5, 1.0
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
    """A training of the recipe, one graph per step.

    Args:
        collection: Determines cross-config attention and the configurations per step.
        seed: Seed of weights, dropout and choice of configurations.
        device: Device to train on.
    """

    def __init__(self, collection: Collection, seed: int, device: torch.device):
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.size = configs_per_step(collection)
        self.network = WinnerNetwork(is_default(collection)).to(device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )

    def step(self, inputs: WinnerInputs) -> None:
        """Do one optimizer step."""
        graph = inputs.graph
        configs = self.rng.choice(graph.num_configs, min(self.size, graph.num_configs), replace=False)
        runtime = torch.from_numpy(graph.runtime[configs]).to(inputs.device)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(inputs.device):
            prediction = self.network(inputs.batch(configs))
        hinge(prediction, runtime).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimizer.step()
