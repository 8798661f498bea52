"""A process of a training with torchrun's environment: one epoch, then gradients and weights go to a file."""

import json
import sys

import torch

from fastslow.networks.hardware import distributed
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.training.train import Training


def epoch(settings):
    """Train an epoch; return the loss, the gradients of the last step and the weights."""
    training = Training(settings, GraphDataset(settings))
    loss = training.run_epoch()
    named = [*training.network.named_parameters()]
    gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
    return {"loss": loss, "gradients": gradients, "weights": {n: p.detach().clone() for n, p in named}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    settings = TrainSettings(**json.loads(sys.argv[1]))
    with distributed.joined(settings):
        torch.save(epoch(settings), f"{sys.argv[2]}-{distributed.rank()}.pt")
