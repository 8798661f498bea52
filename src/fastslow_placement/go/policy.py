"""The policy of GO (Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020).

All units of a problem decide at once. GraphSAGE with max pooling embeds the graph (arXiv:1706.02216). A task
sees the actions of the tasks before it, and the previous decision, which it changes.

Options have features of their own (such as the share of a unit's neighbours that the previous decision put
there), so one set of weights serves any number of devices. The outcome of the previous decision is seen, too
(:meth:`Problem.feedback`). The package README lists all departures from the paper.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fastslow.competition.opcodes import OPCODES
from fastslow_placement.base.problem import FEEDBACK_FEATURES, NODE_FEATURES, OPTION_FEATURES, Problem

TASKS = ("fusion", "placement", "scheduling")
_WIDTH = 16  # learning does not pay at any size that was tried: see the README of the package
_PRIOR = {  # features of options and the weights at which they start, so that the first decision is a rule
    "placement": {1: -1.0, 2: 4.0, 8: 10.0},  # the slot, where the neighbours are, what fits the schedule
}
_SLOT = {1: -1.0}  # elsewhere: the squared distance from the slot of a contiguous split


class Inputs:
    """Tensors of one problem.

    Args:
        problem: The problem.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.features = torch.from_numpy(problem.features)
        self.kinds = torch.from_numpy(problem.kinds)
        both = torch.from_numpy(problem.edges)
        self.edges = torch.cat([both, both.flip(1)])
        self.parts = problem.parts
        self.choices = [torch.from_numpy(problem.choices[units]) for _, units in self.parts]
        self.owners = [torch.repeat_interleave(torch.arange(len(c)), c) for c in self.choices]
        self.masks = [torch.arange(int(c.max()))[None] < c[:, None] for c in self.choices]
        self._last: tuple[np.ndarray, torch.Tensor] | None = None

    def options(self, probabilities: torch.Tensor, feedback: torch.Tensor) -> list[torch.Tensor]:
        """Return the option features of each part.

        Args:
            probabilities: (sum of choices,) previous ones.
            feedback: (sum of choices, 4) of the decision that is changed.

        Returns:
            Of each part ``(its sum of choices, 12)`` float32: 8 of the option, then its feedback.
        """
        features = torch.from_numpy(self.problem.options(probabilities.numpy().astype("float64")))
        return list(torch.cat([features, feedback], 1).split([len(owners) for owners in self.owners]))

    def feedback(self, decision: np.ndarray) -> torch.Tensor:
        """Return the feedback on a decision (U,); the last one is kept."""
        if self._last is None or not np.array_equal(self._last[0], decision):
            self._last = np.array(decision), torch.from_numpy(self.problem.feedback(decision))
        return self._last[1]


class Sage(nn.Module):
    """GraphSAGE: the maximum over neighbours of relu(W h + b), joined with the own state."""

    def __init__(self, width: int):
        super().__init__()
        self.pool = nn.Linear(width, width)
        self.join = nn.Linear(2 * width, width)

    def forward(self, states: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return new states (N, H), for edges (M, 2) from a node to the one that pools it."""
        sent = functional.relu(self.pool(states))[edges[:, 0]]
        where = edges[:, 1:].expand(-1, states.shape[1])
        pooled = torch.zeros_like(states).scatter_reduce(0, where, sent, "amax", include_self=True)
        return functional.relu(self.join(torch.cat([states, pooled], 1)))


class Policy(nn.Module):
    """Network of GO (arXiv 2010.12438): the probability of every option of every unit of a problem.

    It has no sizes of a problem: the same weights read problems of any number of units and options.
    """

    def __init__(self):
        super().__init__()
        self.kind = nn.Embedding(max(OPCODES.values()) + 2, _WIDTH)
        self.node = nn.Linear(NODE_FEATURES, _WIDTH)
        self.sage = Sage(_WIDTH)
        seen = OPTION_FEATURES + FEEDBACK_FEATURES
        self.option = _of_tasks(lambda: nn.Linear(seen, _WIDTH))
        self.state = _of_tasks(lambda: nn.Linear(_WIDTH, _WIDTH))
        self.score = _of_tasks(lambda: nn.Linear(_WIDTH, 1))
        self.direct = _of_tasks(lambda: nn.Linear(seen, 1, bias=False))
        for task in TASKS:
            nn.init.zeros_(self.direct[task].weight)
            for feature, weight in _PRIOR.get(task, _SLOT).items():
                self.direct[task].weight.data[0, feature] = weight
            nn.init.normal_(self.score[task].weight, std=0.01)

    def forward(self, inputs: Inputs, start: np.ndarray | None = None) -> list[torch.Tensor]:
        """Return the log-probabilities of each part, (U, largest choice), -inf where there is no option.

        Args:
            inputs: The problem.
            start: (U,) the previous decision; the problem's default if none.
        """
        start = inputs.problem.default if start is None else start
        previous = torch.from_numpy(inputs.problem.chances(start)).float()
        options = inputs.options(previous, inputs.feedback(start))
        first = self.node(inputs.features) + self.kind(inputs.kinds)
        states = first + self.sage(first, inputs.edges)
        embedded = [self.option[task](o) for (task, _), o in zip(inputs.parts, options, strict=True)]
        chances = previous.split([len(owners) for owners in inputs.owners])
        for embedding, owners, chance in zip(embedded, inputs.owners, chances, strict=True):
            states = states + _expected(embedding, owners, chance, len(states))
        parts = []
        for (task, _), embedding, raw, owners, mask in zip(
            inputs.parts, embedded, options, inputs.owners, inputs.masks, strict=True
        ):
            mixed = functional.relu(self.state[task](states)[owners] + embedding)
            flat = (self.score[task](mixed) + self.direct[task](raw)).squeeze(1)
            logits = torch.full(mask.shape, -torch.inf).masked_scatter(mask, flat)
            parts.append(functional.log_softmax(logits, 1))
            chance = parts[-1].exp()[mask]
            states = states + _expected(embedding, owners, chance, len(states))  # for the next task
        return parts


def _of_tasks(make: Callable[[], nn.Module]) -> nn.ModuleDict:
    """Return a layer for each task."""
    return nn.ModuleDict({task: make() for task in TASKS})


def _expected(options: torch.Tensor, owners: torch.Tensor, chances: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of each unit's option embeddings under probabilities: (count, H)."""
    return torch.zeros(count, options.shape[1]).index_add(0, owners, options * chances[:, None])


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads of torch inside the block; 0 changes nothing.

    The tensors of a small program are small: two threads gain nothing on an idle machine, and take 2.2 times
    as long beside another process, for they wait for each other after each operation.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
