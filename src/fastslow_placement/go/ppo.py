"""Training of the policy with PPO (arXiv:1707.06347) against the cost of its decisions.

The reward is GO's, -sqrt(cost / baseline) or -10. First come the problem's starts and the decisions of the
policy as it is (:func:`zero_shot`), so training ends with nothing worse. From the best of them on, every
sample changes a few units of the current decision, which the policy sees as the previous one. The sample
takes the place of the decision if it is not worse. The policy learns
which units to change and to what. Most changes make the decision worse, so the probability of any change at
all could vanish. The probability of a unit among all units cannot vanish for all of them. The ratio is exact:
it scores each draw with the mixture that made it (:func:`log_chance`). The advantage is the gain over the
changed decision, less its running mean, relative to its usual size. The ratio is clipped per unit: the ratio
of a whole graph, a product over all units, would always be out of bounds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from fastslow.networks.hardware.memory import AdamW
from fastslow_placement.base.problem import INVALID_REWARD, Outcome, Problem
from fastslow_placement.base.search import Found, best_of
from fastslow_placement.go.policy import Inputs, Policy
from fastslow_placement.go.proposals import Change, Changes, log_chance, log_probability
from fastslow_placement.go.schedule import Schedule

_RATE = 3e-3  # of Adam
_CLIP = 0.2  # bound on the probability ratio of each unit
_MEMORY = 0.9  # of the running mean of gains
_WORST = -2.0  # gains below, of invalid decisions, count as this


@torch.no_grad()
def zero_shot(policy: Policy, problem: Problem, samples: int = 10) -> Found:
    """Return the best decision after some steps of the policy, without search.

    In each step the policy sees the best decision so far, and the units change of which it is surest. At
    first these are all units that it would change. After a step without gain half as many change, after a
    step with gain twice as many. Each step counts as an evaluation, and so does each start.

    Args:
        policy: The policy.
        problem: The problem.
        samples: Number of steps.
    """
    inputs = Inputs(problem)
    share = 1.0
    found = best_of(problem, problem.starts)
    for _ in range(samples):
        likely, order = _surest(policy(inputs, found.decision), found.decision)
        decision = found.decision.copy()
        before = found.cost
        changed = order[: max(round(len(order) * share), 1)]
        decision[changed] = likely[changed]
        found.see(decision[None], problem.evaluate(decision[None]).order)
        share = min(share * 2, 1.0) if found.cost < before else share / 2
    return found


def _surest(logs: list[torch.Tensor], decision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable decision (U,), and the units that differ from it, the surest first.

    Where none differs, the order of all units by the odds of their second option, which replaces the first.
    """
    current = torch.from_numpy(decision)[None]
    likely = torch.cat([one.argmax(1) for one in logs])[None]
    if torch.equal(likely, current):
        parts = current.split([len(one) for one in logs], 1)
        rest = [one.scatter(1, part.T, -torch.inf) for one, part in zip(logs, parts, strict=True)]
        likely = torch.cat([one.argmax(1) for one in rest])[None]
    sure = log_probability(logs, likely) - log_probability(logs, current)
    sure = sure.masked_fill(likely == current, -torch.inf)[0]
    return likely[0].numpy(), sure.argsort(descending=True)[: int((sure > -torch.inf).sum())].numpy()


@dataclass
class Trainer:
    """The policy in training on a problem.

    Args:
        policy: The policy; changed in place.
        problem: The problem that it learns on.
        schedule: How.
        seed: Seed of the samples.

    Attributes:
        found: Best decision so far.
        update: Number of updates so far.
    """

    policy: Policy
    problem: Problem
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0

    def __post_init__(self):
        self.optimizer = AdamW(self.policy.parameters(), lr=_RATE, weight_decay=0.0)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.update = 0
        self.found = Found(self.problem.default.copy())
        self._inputs = Inputs(self.problem)
        self._changes = Changes(self.problem)
        self._current = self.problem.default.copy()  # what is changed next
        self._reward = INVALID_REWARD
        self._mean = self._spread = 0.0  # of gains, and of advantages

    def run(self, updates: int, report: Callable[["Trainer"], None] | None = None) -> Found:
        """Learn until this many updates were made in all; return the best decision.

        Args:
            updates: Total number, those before included.
            report: Called after every update.
        """
        while self.update < updates and self._learn():
            self.update += 1
            if report:
                report(self)
        return self.found

    def _learn(self) -> bool:
        """Make an update; return False, without one, where no unit has a choice."""
        inputs, plan, movable = self._inputs, self.schedule, self._changes.movable
        fresh = not self.found.evaluations
        if fresh:
            self._begin()
            if not movable.any():
                return False
        start = self._current.copy()
        with torch.no_grad():
            before = self.policy(inputs, start)
        tried = [self._try(before) for _ in range(plan.samples)]
        changes, over = zip(*tried, strict=True)
        draws = torch.tensor([len(change.units) for change in changes])
        gain = self._advantages(torch.tensor(over), fresh).repeat_interleave(draws)

        def chance(logs: list[torch.Tensor]) -> torch.Tensor:
            """Return the log-probability of each draw of all changes, one after the other."""
            return torch.cat([log_chance(logs, change, movable) for change in changes])

        was = chance(before)
        for _ in range(plan.epochs):
            now = self.policy(inputs, start)
            ratio = (chance(now) - was).exp()
            loss = -torch.minimum(ratio * gain, ratio.clamp(1 - _CLIP, 1 + _CLIP) * gain).mean()
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()
        return True

    def _begin(self) -> None:
        """Go on from the best of the starts and of the policy's decisions without learning."""
        self.found = found = zero_shot(self.policy, self.problem, self.schedule.samples)
        self._reward = float(self.problem.rewards(Outcome(np.array([found.cost]), np.zeros(1)))[0])
        self._current = found.decision.copy()

    def _try(self, logs: list[torch.Tensor]) -> tuple[Change, float]:
        """Draw and evaluate a change; return it and the gain."""
        change = self._changes.draw(logs, self._current, self.generator)
        decisions = change.decision[None]
        outcome = self.problem.evaluate(decisions)
        self.found.see(decisions, outcome.order)
        reward = float(self.problem.rewards(outcome)[0])
        gain = reward - self._reward
        if reward > INVALID_REWARD and gain >= 0:
            self._current, self._reward = change.decision, reward
        return change, gain

    def _advantages(self, over: torch.Tensor, fresh: bool) -> torch.Tensor:
        """Return advantages by their usual size."""
        keep = 0.0 if fresh else _MEMORY
        over = over.clamp(min=_WORST)
        self._mean = keep * self._mean + (1 - keep) * float(over.mean())
        over = over - self._mean
        self._spread = keep * self._spread + (1 - keep) * float(over.square().mean().sqrt())
        return (over / max(self._spread, 1e-6)).clamp(-1, 3)
