"""HDP, the prior art that GO is compared with: a grouper and a placer trained with REINFORCE.

Mirhoseini et al., "A hierarchical model for device placement" (ICLR 2018), as published with TensorFlow
(grappler's hierarchical_controller). The grouper gives every unit to one of G groups. The placer, a sequence
model over the groups, gives every group to a device.
"""

import torch
from torch import nn
from torch.nn import functional

from fastslow.competition.opcodes import OPCODES
from fastslow_placement.base.problem import NODE_FEATURES, Problem
from fastslow_placement.base.search import Found

_GROUPS_PER_DEVICE, _MOST_GROUPS = 20, 256
_KEEP = 0.9  # of the moving average of costs
_NOISE = 0.5  # standard deviation of the exploration, of the logits' root mean square


class Hierarchical(nn.Module):
    """Grouper and placer.

    Args:
        problem: A problem in which every unit chooses one of k devices.
        hidden: Width of the LSTMs; 512 as published.
    """

    def __init__(self, problem: Problem, hidden: int):
        super().__init__()
        self.devices = int(problem.choices[0])
        self.groups = min(_MOST_GROUPS, _GROUPS_PER_DEVICE * self.devices, len(problem.choices))
        self.kinds = functional.one_hot(torch.from_numpy(problem.kinds), max(OPCODES.values()) + 2).float()
        self.units = torch.cat([torch.from_numpy(problem.features), self.kinds], 1)
        self.edges = torch.from_numpy(problem.edges)
        self.grouper = nn.Sequential(nn.Linear(self.units.shape[1], 64), nn.Linear(64, self.groups))
        width = 2 * self.groups + self.kinds.shape[1] + NODE_FEATURES
        self.encoder = nn.LSTM(width, hidden // 2, bidirectional=True)
        self.decoder = nn.LSTMCell(2 * hidden, hidden)
        self.chosen = nn.Embedding(self.devices + 1, hidden)
        self.query, self.key, self.mix = (nn.Linear(hidden, hidden) for _ in range(3))
        self.score = nn.Linear(hidden, 1)
        self.out = nn.Linear(2 * hidden, self.devices)

    def forward(self, explore: bool, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a drawn decision (U,) and its log-probability."""
        grouping, log_grouping = _draw(self.grouper(self.units), explore, generator)
        encoded = self.encoder(self._embed(grouping))[0]
        keys = self.key(encoded)
        state = torch.zeros(1, encoded.shape[1]), torch.zeros(1, encoded.shape[1])
        last, devices, log_placement = torch.tensor([self.devices]), [], []
        for _ in range(self.groups):
            weights = self.score(torch.tanh(keys + self.query(state[0]))).softmax(0)
            context = (weights * encoded).sum(0, keepdim=True)
            state = self.decoder(torch.cat([self.chosen(last), context], 1), state)
            last, log = _draw(torch.tanh(self.out(torch.cat([state[0], context], 1))), explore, generator)
            devices.append(last)
            log_placement.append(log)
        placement = torch.cat(devices)[grouping]
        return placement, log_grouping.sum() + torch.cat(log_placement).sum()

    def _embed(self, grouping: torch.Tensor) -> torch.Tensor:
        """Return for each group its edges to and from each group, kinds and summed features, scaled per
        row.
        """
        member = functional.one_hot(grouping, self.groups).float()
        links = torch.zeros(self.groups, self.groups)
        ends = grouping[self.edges]
        links.index_put_((ends[:, 0], ends[:, 1]), torch.ones(len(ends)), accumulate=True)
        blocks = [links, links.T, member.T @ self.kinds, member.T @ self.units[:, :NODE_FEATURES]]
        return torch.cat([block / (block.amax(1, keepdim=True) + 1) for block in blocks], 1)


def _draw(
    logits: torch.Tensor, explore: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one choice per row and its log-probability; exploration adds noise to the logits."""
    noisy = logits.detach()
    if explore:
        size = _NOISE * noisy.square().mean().sqrt()
        noisy = noisy + size * torch.randn(noisy.shape, generator=generator)
    choice = torch.multinomial(noisy.softmax(1), 1, generator=generator)
    return choice[:, 0], logits.log_softmax(1).gather(1, choice)[:, 0]


def train_hierarchical(problem: Problem, episodes: int, seed: int = 0, hidden: int = 64) -> Found:
    """Train HDP from scratch on one problem, one episode a step; return the best decision.

    The signal is sqrt(cost / baseline), 10 for an invalid decision; Adam with learning rate 0.1 that decays
    by
    0.95 every 50 steps after 400; exploration in the first 750 steps; failed episodes are ignored after 1000.

    Args:
        problem: A problem in which every unit chooses one of k devices.
        episodes: Evaluations.
        seed: Seed.
        hidden: Width of the LSTMs; 512 as published.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Hierarchical(problem, hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    found = Found(problem.default.copy())
    average = None
    for episode in range(episodes):
        decision, log = model(episode < 750, generator)
        outcome = problem.evaluate(decision[None].numpy())
        found.see(decision[None].numpy(), outcome.order)
        signal = -float(problem.rewards(outcome)[0])
        average = signal if average is None else _KEEP * average + (1 - _KEEP) * signal
        if not outcome.valid[0] and episode >= 1000:
            continue
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.95 ** max(0, (episode - 400) // 50)
        optimizer.zero_grad()
        ((signal - average) * log).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return found
