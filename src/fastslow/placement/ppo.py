"""Training of the policy with PPO (arXiv:1707.06347) against the cost of its decisions, with exact resume.

The reward is that of GO, -sqrt(cost / baseline) or -10; the advantage is the reward minus the running mean of
earlier rewards of the same problem, over their spread. The ratio is clipped per unit: that of a whole graph,
a
product over all units, would always be out of bounds.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow.placement.local_search import Found
from fastslow.placement.policy import Inputs, Policy, Shape
from fastslow.placement.problem import Problem

_MEMORY = 0.9  # of the running mean of rewards


@dataclass(frozen=True)
class Schedule:
    """How the policy learns.

    Args:
        samples: Decisions evaluated per update, over all passes.
        epochs: Gradient steps per update.
        lr: Learning rate of Adam.
        clip: Bound of the probability ratio.
        entropy: Weight of the entropy at the start; falls linearly to 0 over ``updates``.
        updates: Number of updates that the entropy's schedule spans.
        whole: Draw all units in every sample, with the mean of earlier rewards as baseline, as in the paper.
        imitation: Weight of the log-probability of the best decision so far (self-imitation,
        arXiv:1806.05635).
    """

    samples: int = 24
    epochs: int = 3
    lr: float = 1e-2
    clip: float = 0.2
    entropy: float = 0.01
    updates: int = 100
    whole: bool = False
    imitation: float = 1.0


@dataclass
class _Standing:
    """What the trainer knows of one problem."""

    inputs: Inputs
    found: Found
    mean: float = 0.0
    spread: float = 0.0
    seen: int = 0


@dataclass
class Trainer:
    """The policy in training on some problems, in turn one update each.

    Args:
        policy: The policy; changed in place.
        problems: What it learns on.
        schedule: How.
        seed: Seed of the samples.
    """

    policy: Policy
    problems: list[Problem]
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0

    def __post_init__(self):
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.schedule.lr)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.update = 0
        self.standings = [
            _Standing(Inputs(problem), Found(problem.default.copy(), np.inf, 0, []))
            for problem in self.problems
        ]

    def run(self, updates: int, report: Callable[["Trainer"], None] | None = None) -> list[Found]:
        """Learn until this many updates were made in all; return the best decision of each problem.

        Args:
            updates: Total number, those before a resume included.
            report: Called after every update.
        """
        while self.update < updates:
            self._learn(self.standings[self.update % len(self.standings)])
            self.update += 1
            if report:
                report(self)
        return [standing.found for standing in self.standings]

    def _learn(self, standing: _Standing) -> None:
        inputs, plan = standing.inputs, self.schedule
        with torch.no_grad():
            before = self.policy.passes(inputs)
        share = max(plan.samples // len(before), 2)
        drawn = [self._draw(logs, share) for logs in before]
        decisions = torch.cat([choice for choice, _ in drawn]).numpy()
        outcome = inputs.problem.evaluate(decisions)
        standing.found.see(decisions, outcome.order)
        rewards = torch.from_numpy(inputs.problem.rewards(outcome)).float().split(share)
        gains = [self._advantages(standing, own) for own in rewards]
        old = [_log_probability(logs, choice) for logs, (choice, _) in zip(before, drawn, strict=True)]
        entropy = plan.entropy * max(0.0, 1 - self.update / max(plan.updates * len(self.standings), 1))
        for _ in range(plan.epochs):
            now = self.policy.passes(inputs)
            loss = torch.zeros(())
            for logs, (choice, free), was, gain in zip(now, drawn, old, gains, strict=True):
                ratio = (_log_probability(logs, choice) - was).exp()
                bounded = ratio.clamp(1 - plan.clip, 1 + plan.clip)
                better = torch.minimum(ratio * gain[:, None], bounded * gain[:, None])
                loss = loss - (better * free).sum() / free.sum().clamp(min=1)
                loss = loss - entropy * sum(_entropy(one) for one in logs)
                if np.isfinite(standing.found.cost):
                    best = torch.from_numpy(standing.found.decision)[None]
                    loss = loss - plan.imitation * _log_probability(logs, best).mean()
            self.optimizer.zero_grad()
            (loss / len(now)).backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()

    def _draw(self, logs: list[torch.Tensor], count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return decisions (count, U) and which units were drawn; the others have their most probable option.

        The first decision is the most probable one. Of the others each draws a share of the units, from two
        of
        them to all, uniformly in the logarithm.
        """
        likely = torch.cat([one.argmax(1) for one in logs])
        choice = torch.cat(sample(logs, count, self.generator), 1)
        least = min(2 / len(likely), 1.0)
        share = least ** torch.rand(count, 1, generator=self.generator)
        if self.schedule.whole:
            share = torch.ones(count, 1)
        free = torch.rand(choice.shape, generator=self.generator) < share
        free[0] = False
        return torch.where(free, choice, likely), free

    def _advantages(self, standing: _Standing, rewards: torch.Tensor) -> torch.Tensor:
        """Return rewards over that of the most probable decision, which is first, by their usual size."""
        if self.schedule.whole:
            base = standing.mean if standing.seen else float(rewards.mean())
        else:
            base = float(rewards[0])
        over = rewards - base
        size = float(over.square().mean().sqrt())
        keep = _MEMORY if standing.seen else 0.0
        standing.mean = keep * standing.mean + (1 - keep) * float(rewards.mean())
        standing.spread = keep * standing.spread + (1 - keep) * size
        standing.seen += len(rewards)
        return (over / max(standing.spread, 1e-6)).clamp(-1, 3)

    def save(self, path: Path) -> None:
        """Write everything that the next update depends on, atomically."""
        state = {
            "shape": asdict(self.policy.shape),
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "update": self.update,
            "schedule": asdict(self.schedule),
            "standings": [
                {
                    "name": s.inputs.problem.name,
                    "decision": torch.from_numpy(s.found.decision),
                    "cost": s.found.cost,
                    "evaluations": s.found.evaluations,
                    "history": s.found.history,
                    "mean": float(s.mean),
                    "spread": float(s.spread),
                    "seen": s.seen,
                }
                for s in self.standings
            ],
        }
        with atomic_path(path) as temporary:
            torch.save(state, temporary)

    def resume(self, path: Path) -> None:
        """Continue where :meth:`save` was called.

        Raises:
            DataError: The file is missing or broken, or is of another policy, schedule or other problems.
        """
        state = _load(path)
        names = [standing.inputs.problem.name for standing in self.standings]
        same = state["shape"] == asdict(self.policy.shape) and state["schedule"] == asdict(self.schedule)
        if not same or [s["name"] for s in state["standings"]] != names:
            raise DataError(path, "is of another training", "Delete it, or choose another folder")
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.update = state["update"]
        for standing, kept in zip(self.standings, state["standings"], strict=True):
            history = [(int(count), float(cost)) for count, cost in kept["history"]]
            standing.found = Found(kept["decision"].numpy(), kept["cost"], kept["evaluations"], history)
            standing.mean, standing.spread, standing.seen = kept["mean"], kept["spread"], kept["seen"]


def _load(path: Path) -> dict:
    try:
        return torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise DataError(path, "no such file", "Train a policy first") from None
    except Exception as error:  # torch raises many kinds for a broken file
        raise DataError(
            path, f"is no checkpoint ({type(error).__name__})", "Delete it and train again"
        ) from None


def load_policy(path: Path) -> Policy:
    """Return the policy of a checkpoint.

    Raises:
        DataError: The file is missing or no checkpoint of this version.
    """
    state = _load(path)
    try:
        policy = Policy(Shape(**state["shape"]))
        policy.load_state_dict(state["policy"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise DataError(path, f"is of another version ({type(error).__name__})", "Train again") from None
    return policy


def sample(logs: list[torch.Tensor], count: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Return decisions drawn from log-probabilities (U, C) of each part: (count, U) int64 each."""
    return [torch.multinomial(one.exp(), count, replacement=True, generator=generator).T for one in logs]


def _log_probability(logs: list[torch.Tensor], choice: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each unit's choice, (count, units of all parts), for choices alike."""
    drawn = choice.split([len(one) for one in logs], 1)
    return torch.cat([one.gather(1, own.T).T for one, own in zip(logs, drawn, strict=True)], 1)


def _entropy(logs: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy of a unit's options."""
    finite = torch.where(torch.isfinite(logs), logs, 0.0)
    return -(finite.exp() * torch.isfinite(logs) * finite).sum(1).mean()


@torch.no_grad()
def zero_shot(policy: Policy, problem: Problem, samples: int = 16, seed: int = 0) -> Found:
    """Return the best of the policy's most probable decision and of samples, without learning."""
    inputs = Inputs(problem)
    last = policy.passes(inputs)[-1]
    likely = torch.cat([one.argmax(1) for one in last])[None]
    drawn = torch.cat(sample(last, samples, torch.Generator().manual_seed(seed)), 1)
    decisions = torch.cat([likely, drawn]).numpy()
    found = Found(problem.default.copy(), np.inf, 0, [])
    found.see(decisions, problem.evaluate(decisions).order)
    return found
