"""Training of the policy with PPO (arXiv:1707.06347) against the cost of its decisions, with exact resume.

The reward is that of GO, -sqrt(cost / baseline) or -10. First come the problem's starts and the decisions
of the policy as it is, so that training ends with nothing worse. From the best of them on, every sample
changes a few units of the current decision, which the first pass of the update saw as the previous one, and
takes its place if it is better, or by the rule of simulated annealing. What is learned is which units are
drawn to change, and to what: their probability among all units, which cannot vanish for all of them, unlike
the probability of any change at all, since most changes are for the worse. The ratio is exact: it scores each
draw with the mixture that made it, half the policy's options and half the neighbours', and of a region the
first unit and the option (``proposals.log_chance``); the region grows at random. The
advantage is the gain over what was changed, less its running mean, relative to its usual size. ``whole`` is
the paper's rule instead: all units are drawn, and the gain is the reward. The ratio is clipped per unit: the
ratio of a whole graph, a product over all units, would always be out of bounds.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path
from fastslow_placement.base.budget import unlimited
from fastslow_placement.base.local_search import Found
from fastslow_placement.base.problem import INVALID_REWARD, Outcome, Problem
from fastslow_placement.go.policy import Inputs, Policy
from fastslow_placement.go.policy_file import check_finite, check_numbers, read_checkpoint
from fastslow_placement.go.proposals import Change, Changes, draw, log_chance, log_probability
from fastslow_placement.go.zero_shot import zero_shot

_FORMAT = 5  # of checkpoints
_MEMORY = 0.9  # of the running mean of gains
_WORST = -2.0  # gains below, of invalid decisions, count as this
_HOT, _COOLING = 0.05, 1e-3  # first temperature over the mean loss of the first changes; last over first


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
    """What the trainer knows of one problem.

    Args:
        inputs: The problem.
        changes: What draws changes of its decisions.
        found: Best decision so far.
        current: (U,) decision that is changed next.
        reward: Its reward.
        heat: First temperature.
        mean: Running mean of gains.
        spread: Running size of advantages.
    """

    inputs: Inputs
    changes: Changes
    found: Found
    current: np.ndarray
    reward: float = INVALID_REWARD
    heat: float = 0.0
    mean: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(cls, problem: Problem) -> "_Standing":
        nothing = Found(problem.default.copy(), np.inf, 0, [])
        return cls(Inputs(problem), Changes(problem), nothing, problem.default.copy())


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
        self.standings = [_Standing.of(problem) for problem in self.problems]

    def run(
        self,
        updates: int,
        report: Callable[["Trainer"], None] | None = None,
        more: Callable[[], bool] = unlimited,
    ) -> list[Found]:
        """Learn until this many updates were made in all; return the best decision of each problem.

        Args:
            updates: Total number, those before a resume included.
            report: Called after every update.
            more: Whether there is time for another decision; by default there is. An update that began ends
                with the decisions that were evaluated until then, at least one for each pass.
        """
        while self.update < updates and more():
            if not self._learn(self.standings[self.update % len(self.standings)], more):
                break
            self.update += 1
            if report:
                report(self)
        return [standing.found for standing in self.standings]

    def _learn(self, standing: _Standing, more: Callable[[], bool]) -> bool:
        """Make an update; return False, without one, where the first decisions took all the time."""
        inputs, plan = standing.inputs, self.schedule
        fresh = not standing.found.evaluations
        if fresh:
            self._begin(standing, more)
            if not more() or not standing.changes.movable.any():  # no time, or nothing to learn
                return False
        start = inputs.problem.default if plan.whole else standing.current.copy()
        with torch.no_grad():
            before = self.policy.passes(inputs, start=start)
        share = max(plan.samples // len(before), 2)
        tried = [
            [self._try(standing, logs) for number in range(share) if not number or more()] for logs in before
        ]
        over = torch.tensor([gain for part in tried for _, gain in part])
        gains = self._advantages(standing, over, fresh).split([*map(len, tried)])
        drawn = [[change for change, _ in part] for part in tried]
        gains = [
            torch.cat([gain.expand(len(change.units)) for gain, change in zip(*pair, strict=True)])
            for pair in zip(gains, drawn, strict=True)
        ]
        old = [self._chance(standing, *pair) for pair in zip(before, drawn, strict=True)]
        entropy = plan.entropy * self._left()
        for _ in range(plan.epochs):
            now = self.policy.passes(inputs, start=start)
            loss = torch.zeros(())
            for logs, changes, was, gain in zip(now, drawn, old, gains, strict=True):
                ratio = (self._chance(standing, logs, changes) - was).exp()
                bounded = ratio.clamp(1 - plan.clip, 1 + plan.clip)
                loss = loss - torch.minimum(ratio * gain, bounded * gain).mean()
                loss = loss - entropy * sum(_entropy(one) for one in logs)
                if np.isfinite(standing.found.cost) and plan.imitation:
                    best = torch.from_numpy(standing.found.decision)[None]
                    loss = loss - plan.imitation * log_probability(logs, best).mean()
            self.optimizer.zero_grad()
            (loss / len(now)).backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()
        return True

    def _left(self) -> float:
        """Return the share of the planned updates that is left, 1 to 0."""
        return max(0.0, 1 - self.update / max(self.schedule.updates * len(self.standings), 1))

    def _begin(self, standing: _Standing, more: Callable[[], bool]) -> None:
        """Go on from the best of the starts and of what the policy decides without learning."""
        problem = standing.inputs.problem
        standing.found = found = zero_shot(self.policy, problem, self.schedule.samples, self.seed, more)
        standing.reward = float(problem.rewards(Outcome(np.array([found.cost]), np.zeros(1)))[0])
        standing.current = found.decision.copy()

    def _reward(self, standing: _Standing, decisions: np.ndarray) -> float:
        """Evaluate decisions (B, U) and return the best reward."""
        outcome = standing.inputs.problem.evaluate(decisions)
        standing.found.see(decisions, outcome.order)
        return float(standing.inputs.problem.rewards(outcome).max())

    def _chance(self, standing: _Standing, logs: list[torch.Tensor], changes: list[Change]) -> torch.Tensor:
        """Return the log-probability of each draw of all changes, one after the other."""
        if self.schedule.whole:
            return log_probability(
                logs, torch.from_numpy(np.stack([one.decision for one in changes]))
            ).flatten()
        return torch.cat([log_chance(logs, change, standing.changes.movable) for change in changes])

    def _try(self, standing: _Standing, logs: list[torch.Tensor]) -> tuple[Change, float]:
        """Draw and evaluate a change; return it and the gain."""
        origin = standing.current
        if self.schedule.whole:
            decision = draw(logs, 1, self.generator)[0].numpy()
            nothing = torch.zeros(len(decision))
            whole = Change(origin, decision, torch.arange(len(decision)), nothing, nothing)
            return whole, self._reward(standing, decision[None])
        change = standing.changes.draw(logs, origin, self.generator)
        decision = change.decision
        reward = self._reward(standing, decision[None])
        gain = reward - standing.reward
        heat = standing.heat * _COOLING ** (1 - self._left())
        chance = float(torch.rand(1, generator=self.generator))
        if reward > INVALID_REWARD and (gain >= 0 or chance < np.exp(gain / max(heat, 1e-300))):
            standing.current, standing.reward = decision, reward
        return change, gain

    def _advantages(self, standing: _Standing, over: torch.Tensor, fresh: bool) -> torch.Tensor:
        """Return advantages by their usual size; the first gains give the first temperature."""
        if fresh:
            losses = -over[(over < 0) & (over > INVALID_REWARD / 2)]
            standing.heat = _HOT * float(losses.mean()) if len(losses) else 0.0
        keep, over = 0.0 if fresh else _MEMORY, over.clamp(min=_WORST)
        standing.mean = keep * standing.mean + (1 - keep) * float(over.mean())
        over = over - standing.mean
        standing.spread = keep * standing.spread + (1 - keep) * float(over.square().mean().sqrt())
        return (over / max(standing.spread, 1e-6)).clamp(-1, 3)

    def save(self, path: Path) -> None:
        """Write everything that the next update depends on, atomically."""
        state = {
            "format": _FORMAT,
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
                    "heat": float(s.heat),
                    "mean": float(s.mean),
                    "spread": float(s.spread),
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
        state = read_checkpoint(path)
        try:
            self._restore(path, state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            remedy = "Delete it and train again"
            raise DataError(path, f"is no checkpoint ({type(error).__name__}: {error})", remedy) from None

    def _restore(self, path: Path, state: dict) -> None:
        names = [standing.inputs.problem.name for standing in self.standings]
        settings = {"format": _FORMAT, "shape": asdict(self.policy.shape), "schedule": asdict(self.schedule)}
        same = settings.items() <= state.items()
        if not same or [s["name"] for s in state["standings"]] != names:
            raise DataError(path, "is of another training", "Delete it, or choose another folder")
        check_numbers([standing.inputs.problem for standing in self.standings], state)
        self.policy.load_state_dict(state["policy"])
        check_finite(path, self.policy)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.update = state["update"]
        for standing, kept in zip(self.standings, state["standings"], strict=True):
            history = [(int(count), float(cost)) for count, cost in kept["history"]]
            standing.found = Found(kept["decision"].numpy(), kept["cost"], kept["evaluations"], history)
            standing.current, standing.reward = kept["current"].numpy(), kept["reward"]
            standing.heat, standing.mean, standing.spread = kept["heat"], kept["mean"], kept["spread"]


def _entropy(logs: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy of a unit's options."""
    finite = torch.where(torch.isfinite(logs), logs, 0.0)
    return -(finite.exp() * torch.isfinite(logs) * finite).sum(1).mean()
