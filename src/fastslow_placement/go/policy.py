"""The policy of GO (Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020).

All units of a problem decide at once. GraphSAGE with max pooling embeds the graph (arXiv:1706.02216).
Segments of the topologically ordered units attend to themselves and to the cached states of the segment
before (Transformer-XL, arXiv:1901.02860, without positional encoding). The input features modulate the
states. The decision is made in several passes, each of which sees the one before. Each task has a recurrent
attention layer of its own with a residual connection and sees the actions of the tasks before it.

Options have features of their own (such as the share of a unit's neighbours that the previous pass put
there), so one set of weights serves any number of devices. Probabilities of the previous pass
are fed back instead of samples, so one forward pass serves all samples, beside the outcome of the decision
that is changed (:meth:`Problem.feedback`). The package README lists all departures from the paper.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fastslow.competition.opcodes import OPCODES
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import Settings
from fastslow.networks.hardware.stored_weights import read_tensors
from fastslow_placement.base.problem import FEEDBACK_FEATURES, NODE_FEATURES, OPTION_FEATURES, Problem

TASKS = ("fusion", "placement", "scheduling")
_DRAWN = 5  # layers that are drawn for the tasks, so that a seed gives the weights that benchmarks/tables has
_SAGE_LAYERS, _ATTENTION_LAYERS = 2, 1  # the latter before the one of the task
_HEADS = 4
_SEGMENT = 128  # units that attend to each other at once; memory grows with its square
_PRIOR = {  # features of options and the weights at which they start, so that the first decision is a rule
    "placement": {1: -1.0, 2: 4.0, 8: 10.0},  # the slot, where the neighbours are, what fits the schedule
}
_SLOT = {1: -1.0}  # elsewhere: the squared distance from the slot of a contiguous split
_KEPT = 16  # segments whose intermediate states are kept for the gradient; those of more are computed again


class Shape(Settings):
    """Sizes of the policy, and which parts of it are in use."""

    group_title = "policy"

    hidden: Annotated[int, Ge(1), Le(4096)] = 32
    """Width of the policy; a multiple of 4, the number of attention heads."""
    passes: Annotated[int, Ge(1), Le(64)] = 2
    """Number of passes: each sees the decision of the one before."""
    attention: bool = True
    """Whether there is attention over segments."""
    modulation: bool = True
    """Whether the input features modulate the states."""
    pooling: bool = True
    """Whether neighbours are pooled by maximum; by mean if not."""
    feedback: bool = True
    """Whether the policy sees how the outcome of the decision that is changed rates the options."""

    def check(self) -> None:
        """Validate constraints between fields."""
        self.require(self.hidden % _HEADS == 0, "hidden", f"a multiple of {_HEADS}")


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
        """
        features = torch.from_numpy(self.problem.options(probabilities.numpy().astype("float64")))
        return list(torch.cat([features, feedback], 1).split([len(owners) for owners in self.owners]))

    def feedback(self, decision: np.ndarray) -> torch.Tensor:
        """Return the feedback on a decision (U,); the last one is kept."""
        if self._last is None or not np.array_equal(self._last[0], decision):
            self._last = np.array(decision), torch.from_numpy(self.problem.feedback(decision))
        return self._last[1]


class RecurrentAttention(nn.Module):
    """Attention of each segment to itself and to the states of the segment before, which get no gradient.

    Shapes: (N, H) to (N, H). Memory grows with N * H and segment ** 2, not with N ** 2.
    """

    def __init__(self, hidden: int, heads: int, segment: int):
        super().__init__()
        self.heads, self.segment = heads, segment
        self.norm, self.norm_out = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.both = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.feed = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the states after attention and a feed-forward layer, each with a residual connection."""
        segments = states.split(self.segment)
        cached = [states[:0], *(segment.detach() for segment in segments[:-1])]
        if len(segments) <= _KEPT or not torch.is_grad_enabled():
            return torch.cat([self._one(*pair) for pair in zip(segments, cached, strict=True)])
        return torch.cat(
            [checkpoint(self._one, *pair, use_reentrant=False) for pair in zip(segments, cached, strict=True)]
        )

    def _one(self, segment: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
        seen = self.norm(torch.cat([cached, segment]))
        keys, values = self.both(seen).chunk(2, -1)
        query, keys, values = (self._split(x) for x in (self.query(self.norm(segment)), keys, values))
        mixed = functional.scaled_dot_product_attention(query, keys, values)
        states = segment + self.out(mixed.transpose(0, 1).flatten(1))
        return states + self.feed(self.norm_out(states))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), self.heads, -1).transpose(0, 1)


class Sage(nn.Module):
    """GraphSAGE: the maximum (or mean) over neighbours of relu(W h + b), joined with the own state."""

    def __init__(self, hidden: int, pooling: bool):
        super().__init__()
        self.pool, self.join = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.reduce = "amax" if pooling else "mean"

    def forward(self, states: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return new states (N, H), for edges (M, 2) from a node to the one that pools it."""
        sent = functional.relu(self.pool(states))[edges[:, 0]]
        where = edges[:, 1:].expand(-1, states.shape[1])
        pooled = torch.zeros_like(states).scatter_reduce(0, where, sent, self.reduce, include_self=True)
        return functional.relu(self.join(torch.cat([states, pooled], 1)))


class Policy(nn.Module):
    """Logits of every option of every unit.

    Args:
        shape: Sizes and parts.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, hidden = shape, shape.hidden
        self.kind = nn.Embedding(max(OPCODES.values()) + 2, hidden)
        self.node = nn.Linear(NODE_FEATURES, hidden)
        self.sage = nn.ModuleList(Sage(hidden, shape.pooling) for _ in range(_SAGE_LAYERS))
        self.condition = nn.Linear(hidden, hidden)
        attention = (hidden, _HEADS, _SEGMENT)
        self.shared = nn.ModuleList(RecurrentAttention(*attention) for _ in range(_ATTENTION_LAYERS))
        self.recurrent = _of_tasks(lambda: RecurrentAttention(*attention))
        seen = OPTION_FEATURES + FEEDBACK_FEATURES
        self.option = _of_tasks(lambda: nn.Linear(seen, hidden))
        self.state = _of_tasks(lambda: nn.Linear(hidden, hidden))
        self.score = _of_tasks(lambda: nn.Linear(hidden, 1))
        self.direct = _of_tasks(lambda: nn.Linear(seen, 1, bias=False))
        for task in TASKS:
            nn.init.zeros_(self.direct[task].weight)
            for feature, weight in _PRIOR.get(task, _SLOT).items():
                self.direct[task].weight.data[0, feature] = weight
            nn.init.normal_(self.score[task].weight, std=0.01)

    def passes(
        self, inputs: Inputs, count: int | None = None, start: np.ndarray | None = None
    ) -> list[list[torch.Tensor]]:
        """Return the log-probabilities of every pass and part, (U, largest choice) each, -inf where no
        option.

        Args:
            inputs: The problem.
            count: Number of passes; by default the shape's.
            start: (U,) decision that the first pass sees as the previous one; the problem's default if none.
        """
        base = self._embed(inputs)
        problem, found = inputs.problem, []
        start = problem.default if start is None else start
        previous = torch.from_numpy(problem.chances(start)).float()
        feedback = inputs.feedback(start)
        if not self.shape.feedback:
            feedback = torch.zeros_like(feedback)
        for _ in range(count or self.shape.passes):
            found.append(self._decide(inputs, base, inputs.options(previous, feedback), previous))
            chances = [logs.exp()[mask] for logs, mask in zip(found[-1], inputs.masks, strict=True)]
            previous = torch.cat(chances).detach()
        return found

    def _embed(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        first = self.node(inputs.features) + self.kind(inputs.kinds)
        states = first
        for layer in self.sage:
            states = states + layer(states, inputs.edges)
        return first, states

    def _decide(
        self, inputs: Inputs, base, options: list[torch.Tensor], previous: torch.Tensor
    ) -> list[torch.Tensor]:
        first, states = base
        sizes = [len(owners) for owners in inputs.owners]
        embedded = [self.option[task](o) for (task, _), o in zip(inputs.parts, options, strict=True)]
        for own, owners, chance in zip(embedded, inputs.owners, previous.split(sizes), strict=True):
            states = states + _expected(own, owners, chance, len(states))
        if self.shape.modulation:
            states = states * (2 * torch.sigmoid(self.condition(first)))
        if self.shape.attention:
            for layer in self.shared:
                states = layer(states)
        found = []
        for (task, _), own, raw, owners, mask in zip(
            inputs.parts, embedded, options, inputs.owners, inputs.masks, strict=True
        ):
            if self.shape.attention:
                states = self.recurrent[task](states)
            mixed = functional.relu(self.state[task](states)[owners] + own)
            flat = (self.score[task](mixed) + self.direct[task](raw)).squeeze(1)
            logits = torch.full(mask.shape, -torch.inf).masked_scatter(mask, flat)
            found.append(functional.log_softmax(logits, 1))
            states = states + _expected(own, owners, found[-1].exp()[mask], len(states))  # for the next task
        return found


def _of_tasks(make: Callable[[], nn.Module]) -> nn.ModuleDict:
    """Return a layer for each task, the first of ``_DRAWN``."""
    return nn.ModuleDict(zip(TASKS, [make() for _ in range(_DRAWN)], strict=False))


def _expected(options: torch.Tensor, owners: torch.Tensor, chances: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of each unit's option embeddings under probabilities: (count, H)."""
    return torch.zeros(count, options.shape[1]).index_add(0, owners, options * chances[:, None])


def load_policy(path: Path) -> Policy:
    """Return the policy of a checkpoint.

    Raises:
        DataError: The file is missing, is no checkpoint of this version, or has weights that are not finite.
    """
    state = read_tensors(path, "Delete it and train again")
    try:
        policy = Policy(Shape(**state["shape"]))
        policy.load_state_dict(state["policy"])
    except (KeyError, TypeError, SettingsError, RuntimeError, AttributeError) as error:
        raise DataError(path, f"is of another version ({type(error).__name__})", "Train again") from None
    if not all(value.isfinite().all() for value in policy.parameters()):
        raise DataError(path, "has weights that are not finite", "Delete it and train again")
    return policy


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
