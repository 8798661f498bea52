"""Decisions that the trainer tries next, drawn with the policy's probabilities.

A few units of a given decision change: single units anywhere, or a connected region of units that have one
option and take another one together. :func:`log_chance` scores what :meth:`Changes.draw` draws. (In the paper
every unit is drawn.)
"""

from bisect import bisect
from typing import NamedTuple

import numpy as np
import torch

from fastslow_placement.base.problem import Problem

_SHARE = 0.03  # of the units that change at most by themselves
_LARGEST = 32  # units of a region
_REGIONS = 0.5  # share of the changes that are of a region
_FOLLOW = 0.5  # how often the new option is that of a neighbour
_CLIP = 2.0  # bound of the logits of the units to change
_NEVER = -1e4  # in place of the logarithm of 0, for units of one option


def log_probability(logs: list[torch.Tensor], choice: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each unit's choice, (count, units of all parts), for choices alike."""
    drawn = choice.split([len(one) for one in logs], 1)
    return torch.cat([one.gather(1, chosen.T).T for one, chosen in zip(logs, drawn, strict=True)], 1)


class Change(NamedTuple):
    """One changed decision, and what of it was drawn with the policy's probabilities.

    Args:
        origin: (U,) the decision that was changed.
        decision: (U,) the decision after the change.
        units: (K,) int64 drawn units, in the order of drawing. A region has one: its first unit.
        shares: (K,) float32 share of a drawn unit's neighbours that have its new option, among the neighbours
            whose option the unit could take.
        follow: (K,) float32 chance that the new option was a neighbour's; 0 where no neighbour had another.
    """

    origin: np.ndarray
    decision: np.ndarray
    units: torch.Tensor
    shares: torch.Tensor
    follow: torch.Tensor


def log_chance(logs: list[torch.Tensor], change: Change, movable: torch.Tensor) -> torch.Tensor:
    """Return the exact log-probability of each draw of a change, given the draws before it: (K,).

    A draw is a unit, without replacement, and its new option: a neighbour's or the policy's. The number of
    changed units, and the growth of a region from its first unit, do not depend on the policy.

    Args:
        logs: Log-probabilities of each part, (units, largest choice).
        change: The change.
        movable: (U,) whether a unit has more than one option.
    """
    origin, choice = (torch.from_numpy(each)[None] for each in (change.origin, change.decision))
    keys = _eagerness(logs, origin, movable)[0]
    drawn = keys[change.units]
    rest = torch.logsumexp(keys.index_fill(0, change.units, _NEVER), 0)
    left = torch.logaddexp(drawn.flip(0).logcumsumexp(0).flip(0), rest)  # of the units not drawn before
    moved = (log_probability(logs, choice) - _log_change(logs, origin))[0, change.units]
    target = torch.log(change.follow * change.shares + (1 - change.follow) * moved.exp())
    return drawn - left + torch.where(change.follow > 0, target, moved)


def _eagerness(logs: list[torch.Tensor], origin: torch.Tensor, movable: torch.Tensor) -> torch.Tensor:
    """Return the logits with which units are drawn to change in each of the origins: (count, U).

    They are the log-odds of another option over the mean of the movable units, so that even a policy that is
    sure to keep everything gives units to begin with. A hyperbolic tangent (arXiv:1611.09940) bounds them, so
    that no movable unit is left out.
    """
    odds = _log_change(logs, origin) - log_probability(logs, origin)
    mean = odds[:, movable].mean(1, keepdim=True)
    return (_CLIP * torch.tanh((odds - mean) / _CLIP)).masked_fill(~movable, _NEVER)


def _log_change(logs: list[torch.Tensor], origin: torch.Tensor) -> torch.Tensor:
    """Return the log-probability that each unit takes another option than in the origins: (count, U)."""
    parts = []
    for one, before in zip(logs, origin.split([len(one) for one in logs], 1), strict=True):
        others = one.expand(len(before), *one.shape).scatter(2, before[..., None], -torch.inf)
        parts.append(torch.logsumexp(others.clamp(min=_NEVER), 2))
    return torch.cat(parts, 1)


class Changes:
    """Changes of a decision of one problem.

    Args:
        problem: The problem; its edges are between the units of each part.
    """

    def __init__(self, problem: Problem):
        self.choices = problem.choices.tolist()
        self.movable = torch.from_numpy(problem.choices > 1)
        self.most = max(len(self.choices) * _SHARE, 3.0)
        self.begins = [units.start for _, units in problem.parts]
        self._near: list[list[int]] = [[] for _ in self.choices]
        both = np.concatenate([problem.edges, problem.edges[:, ::-1]]).tolist()
        for begin in self.begins:
            for one, other in both:
                self._near[begin + one].append(begin + other)

    def draw(self, logs: list[torch.Tensor], start: np.ndarray, generator: torch.Generator) -> Change:
        """Return a decision that changes some units of a start.

        The logarithm of their number is uniform. Units that the policy would rather change are drawn first,
        and new options follow the policy, or a neighbour. Of a region only the first unit is drawn.

        Args:
            logs: Log-probabilities of each part, (units, largest choice).
            start: (U,) the decision, an option number for each unit.
            generator: Source of the random numbers.

        Returns:
            The changed decision, with all that :func:`log_chance` needs to score the draw.
        """
        before = torch.from_numpy(start)
        noise = -torch.log(-torch.log(torch.rand(len(before), generator=generator).clamp(1e-9, 1 - 1e-7)))
        keys = noise + _eagerness(logs, before[None], self.movable)[0]
        kind, extent = torch.rand(2, generator=generator).tolist()
        region = kind < _REGIONS
        count = 1 if region else min(int(self.most**extent), int(self.movable.sum()))
        units = keys.topk(count).indices
        drawn = [self._target(logs, start, unit, generator) for unit in units.tolist()]
        targets, shares, follow = zip(*drawn, strict=True)
        decision = start.copy()
        changed = units.numpy()
        if region:
            changed = self._region(start, int(units[0]), targets[0], int(_LARGEST**extent), generator)
        decision[changed] = targets
        return Change(start, decision, units, torch.tensor(shares), torch.tensor(follow))

    def _others(self, start: np.ndarray, unit: int) -> list[int]:
        """Return the options of the neighbours that a unit could take and has not."""
        there = (int(start[other]) for other in self._near[unit])
        return [option for option in there if option != start[unit] and option < self.choices[unit]]

    def _target(self, logs, start: np.ndarray, unit: int, generator) -> tuple[int, float, float]:
        """Draw another option for a unit: a neighbour's or the policy's.

        Returns:
            The option, the share of the neighbours that have it, and the chance of following a neighbour.
        """
        part = bisect(self.begins, unit) - 1
        device = int(start[unit])
        there = self._others(start, unit)
        follow = _FOLLOW if there else 0.0
        if float(torch.rand(1, generator=generator)) < follow:
            option = there[int(torch.randint(len(there), (1,), generator=generator))]
        else:
            row = logs[part][unit - self.begins[part]].clone()
            row[device] = -torch.inf
            option = int(torch.multinomial(row.softmax(0), 1, generator=generator))
        return option, there.count(option) / max(len(there), 1), follow

    def _region(self, start: np.ndarray, seed: int, target: int, size: int, generator) -> list[int]:
        """Return a connected set of at most this many units with the seed's option that may take another."""
        device = start[seed]
        inside = {seed}
        rim = []
        picks = iter(torch.rand(size, generator=generator).tolist())
        newest = seed
        while len(inside) < size:
            rim += [
                other
                for other in self._near[newest]
                if other not in inside and start[other] == device and target < self.choices[other]
            ]
            rim = [unit for unit in rim if unit != newest]
            if not rim:
                break
            newest = rim[int(next(picks) * len(rim))]
            inside.add(newest)
        return [*inside]
