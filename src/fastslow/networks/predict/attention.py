"""The cross-config attention of a network, as an array to look at or to save."""

import numpy as np
import torch

from fastslow.networks.model.layers import CrossConfigAttention
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset


@torch.no_grad()
def config_attention(
    network: RankingNetwork, dataset: GraphDataset, split: str, name: str, configs: np.ndarray
) -> np.ndarray:
    """Return how much each node attends to each of some configurations of a program.

    Args:
        network: A network with cross-config attention; it is left in evaluation mode.
        dataset: Its graphs.
        split: ``train``, ``valid`` or ``test``.
        name: The program, ``<collection's slug>/<name>``, such as ``layout-xla-random/bert``.
        configs: ``(C,)`` positions of the configurations that are compared, one or more, among the program's
            distinct ones; all in one batch.

    Returns:
        ``(L, N, C)`` float32, for each of the L attentions the softmax over the configurations, the mean over
        the channels: not below 0, and the C values of a node sum to 1. L is 0 where the network has none.

    Raises:
        ValueError: The dataset has no such program, the program no such configuration, or ``configs`` are no
            positions.
    """
    names = [f"{slug}/{stem}" for slug, graphs in dataset.sources.items() for stem in graphs.names(split)]
    if name not in names:
        such_as = f", such as {names[0]!r}" if names else ""
        raise ValueError(f"name: {name!r} is no {split} program of the dataset{such_as}")
    count = len(dataset.graph(split, name).graph.config_feat)
    configs = np.asarray(configs)
    is_list = configs.ndim == 1 and configs.size > 0 and configs.dtype.kind in "iu"
    if not is_list or not np.isin(configs, np.arange(count)).all():
        given = f"{configs.dtype} of shape {configs.shape}"
        rule = f"whole numbers from 0 to {count - 1}, 1-D and at least one"
        raise ValueError(f"configs: positions of {name} are {rule}; these are {given}")
    network.eval()
    batch = dataset.batch(split, name, configs)
    states = dataset.graph(split, name).states(configs, dataset.num_levels)
    nodes = np.arange(states[0].set_index.size)[:, None]
    maps: list[np.ndarray] = []

    def keep(layer: CrossConfigAttention, inputs: tuple, output: torch.Tensor) -> None:
        x, level = inputs[:2]
        depth = next(number for number, each in enumerate(batch.levels) if each is level)
        pairs = torch.from_numpy(states[depth].state(nodes, np.arange(len(configs)))).to(x.device)
        weights = torch.softmax(x.float()[pairs] / layer.temperature, 1)  # (N, C, D)
        maps.append(weights.mean(2).cpu().numpy())

    attentions = [module for module in network.modules() if isinstance(module, CrossConfigAttention)]
    hooks = [module.register_forward_hook(keep) for module in attentions]
    try:
        network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return np.stack(maps) if maps else np.zeros((0, len(nodes), len(configs)), np.float32)
