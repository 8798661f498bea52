"""Training of the policy with PPO (arXiv:1707.06347) against the cost of its decisions, with exact resume.

The reward is that of GO, -sqrt(cost / baseline) or -10. Every update starts from the best decision of the
update before, or one a little worse at first: the first pass sees it as the previous decision, every sample
changes a few units of it, and the advantage is the reward over that of the start, relative to its usual size.
``whole`` is the paper's rule instead: all units are drawn, and the baseline is the running mean of earlier
rewards. The ratio is clipped per unit: that of a whole graph, a product over all units, would always be out
of bounds.
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
from fastslow.placement.problem import INVALID_REWARD, Problem

_MEMORY = 0.9  # of the running mean of rewards
_SHARE = 0.03  # of the units that a sample changes at most
_BOLD = 0.3  # how much the policy's probabilities decide which units are changed
_MARGIN = 0.02  # of the reward that a worse decision may lose at first


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

    samples: int = 8
    epochs: int = 2
    lr: float = 3e-3
    clip: float = 0.2
    entropy: float = 0.01
    updates: int = 180
    whole: bool = False
    imitation: float = 0.0


@dataclass
class _Standing:
    """What the trainer knows of one problem."""

    inputs: Inputs
    found: Found
    current: np.ndarray
    reward: float = -np.inf
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
            _Standing(Inputs(p), Found(p.default.copy(), np.inf, 0, []), np.asarray(p.default).copy(), -1.0)
            for p in self.problems
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
        start = inputs.problem.default if plan.whole else standing.current.copy()
        with torch.no_grad():
            before = self.policy.passes(inputs, start=start)
        share = max(plan.samples // len(before), 2)
        draw = self._draw_all if plan.whole else self._draw_changes
        drawn = [draw(logs, torch.from_numpy(start), share) for logs in before]
        decisions = torch.cat([choice for choice, _ in drawn]).numpy()
        outcome = inputs.problem.evaluate(decisions)
        standing.found.see(decisions, outcome.order)
        rewards = torch.from_numpy(inputs.problem.rewards(outcome)).float()
        gains = self._advantages(standing, rewards).split(share)
        self._accept(standing, decisions, rewards)
        old = [_log_probability(logs, choice) for logs, (choice, _) in zip(before, drawn, strict=True)]
        entropy = plan.entropy * self._left()
        for _ in range(plan.epochs):
            now = self.policy.passes(inputs, start=start)
            loss = torch.zeros(())
            for logs, (choice, free), was, gain in zip(now, drawn, old, gains, strict=True):
                ratio = (_log_probability(logs, choice) - was).exp()
                bounded = ratio.clamp(1 - plan.clip, 1 + plan.clip)
                better = torch.minimum(ratio * gain[:, None], bounded * gain[:, None])
                loss = loss - (better * free).sum() / free.sum().clamp(min=1)
                loss = loss - entropy * sum(_entropy(one) for one in logs)
                if np.isfinite(standing.found.cost) and plan.imitation:
                    best = torch.from_numpy(standing.found.decision)[None]
                    loss = loss - plan.imitation * _log_probability(logs, best).mean()
            self.optimizer.zero_grad()
            (loss / len(now)).backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()

    def _left(self) -> float:
        """Return the share of the planned updates that is left, 1 to 0."""
        return max(0.0, 1 - self.update / max(self.schedule.updates * len(self.standings), 1))

    def _draw_all(self, logs: list[torch.Tensor], start: torch.Tensor, count: int):
        """Return decisions (count, U) with every unit drawn, as in the paper, and a mask of ones."""
        choice = torch.cat(sample(logs, count, self.generator), 1)
        return choice, torch.ones_like(choice, dtype=torch.bool)

    def _draw_changes(self, logs: list[torch.Tensor], start: torch.Tensor, count: int):
        """Return decisions (count, U) that change some units of a start, and which.

        How many is uniform in the logarithm, from one to a few. Units that the policy would rather change
        are drawn first; their new options follow the policy.
        """
        stay = _log_probability(logs, start[None])[0]
        noise = -torch.log(-torch.log(torch.rand(count, len(stay), generator=self.generator).clamp(1e-9)))
        ranked = (noise + _BOLD * torch.log1p(-stay.exp().clamp(max=1 - 1e-6))).argsort(1, descending=True)
        most = max(len(stay) * _SHARE, 3.0)
        size = most ** torch.rand(count, 1, generator=self.generator)
        free = torch.zeros(count, len(stay), dtype=torch.bool)
        free.scatter_(1, ranked, torch.arange(len(stay))[None] < size)
        free &= torch.cat([torch.isfinite(one).sum(1) > 1 for one in logs])
        drawn = []
        for one, own in zip(logs, start.split([len(one) for one in logs]), strict=True):
            left = one.exp().scatter(1, own[:, None], 0.0) + 1e-12 * torch.isfinite(one)
            drawn.append(torch.multinomial(left, count, replacement=True, generator=self.generator).T)
        return torch.where(free, torch.cat(drawn, 1), start), free

    def _advantages(self, standing: _Standing, rewards: torch.Tensor) -> torch.Tensor:
        """Return rewards over that of the decision that was changed, by their usual size.

        As in the paper over the mean of earlier ones where all units are drawn.
        """
        base = standing.reward
        if self.schedule.whole:
            base = standing.mean if standing.seen else float(rewards.mean())
        elif not np.isfinite(base):
            base = float(rewards.max())
        over = rewards - base
        size = float(over.clamp(-1, 1).square().mean().sqrt())
        keep = _MEMORY if standing.seen else 0.0
        standing.mean = keep * standing.mean + (1 - keep) * float(rewards.mean())
        standing.spread = keep * standing.spread + (1 - keep) * size
        standing.seen += len(rewards)
        return (over / max(standing.spread, 1e-6)).clamp(-1, 3)

    def _accept(self, standing: _Standing, decisions: np.ndarray, rewards: torch.Tensor) -> None:
        """Go on from the best of the drawn decisions if it is not much worse than the one before; the margin
        falls to nothing.
        """
        best = int(rewards.argmax())
        margin = _MARGIN * self._left() * float(torch.rand(1, generator=self.generator))
        if float(rewards[best]) >= standing.reward - margin and bool(rewards[best] > INVALID_REWARD):
            standing.current, standing.reward = decisions[best].copy(), float(rewards[best])

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
                    "current": torch.from_numpy(s.current),
                    "reward": float(s.reward),
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
            standing.current, standing.reward = kept["current"].numpy(), kept["reward"]
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
