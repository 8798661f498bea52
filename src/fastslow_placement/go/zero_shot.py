"""What a policy decides without learning."""

from collections.abc import Callable

import numpy as np
import torch

from fastslow_placement.base.budget import unlimited
from fastslow_placement.base.local_search import Found
from fastslow_placement.base.problem import Problem
from fastslow_placement.go.policy import Inputs, Policy
from fastslow_placement.go.proposals import draw


@torch.no_grad()
def zero_shot(
    policy: Policy,
    problem: Problem,
    samples: int = 8,
    seed: int = 0,
    more: Callable[[], bool] = unlimited,
) -> Found:
    """Return the best of the problem's starts and of what the policy makes of the best of them.

    That is its most probable decision, and samples; all are counted as evaluations.

    Args:
        policy: The policy.
        problem: The problem.
        samples: Number of samples.
        seed: Seed of the samples.
        more: Whether there is time for another decision; the starts are evaluated in any case.
    """
    found = Found(problem.default.copy(), np.inf, problem.tried - 1, [])
    found.see(problem.starts, problem.evaluate(problem.starts).order)
    last = policy.passes(Inputs(problem), start=found.decision)[-1]
    likely = torch.cat([one.argmax(1) for one in last])[None]
    drawn = draw(last, samples, torch.Generator().manual_seed(seed))
    decisions = torch.cat([likely, drawn]).numpy()
    if more is unlimited:
        found.see(decisions, problem.evaluate(decisions).order)
        return found
    for decision in decisions[:, None]:
        if not more():
            break
        found.see(decision, problem.evaluate(decision).order)
    return found
