"""A gymnasium environment over any problem: all decisions at once, one step an episode."""

import gymnasium
import numpy as np
from gymnasium import spaces

from fastslow.placement.problem import NODE_FEATURES, Problem


class DecisionEnvironment(gymnasium.Env):
    """Choose one option for every unit of a problem; the reward is -sqrt(cost / baseline), or -10.

    The observation holds ``features`` (U, 16), ``kinds`` (U,) and the default decision ``previous`` (U,); the
    edges are in ``problem.edges``. ``info`` after a step has ``cost``, ``excess`` and ``valid``.

    Args:
        problem: The problem.
    """

    metadata = {"render_modes": []}

    def __init__(self, problem: Problem):
        self.problem = problem
        units = len(problem.choices)
        self.action_space = spaces.MultiDiscrete(problem.choices)
        self.observation_space = spaces.Dict(
            features=spaces.Box(-np.inf, np.inf, (units, NODE_FEATURES), np.float32),
            kinds=spaces.Box(0, 255, (units,), np.int64),
            previous=spaces.MultiDiscrete(problem.choices),
        )

    def _observation(self, previous: np.ndarray) -> dict:
        problem = self.problem
        previous = np.asarray(previous, np.int64).copy()
        return {"features": problem.features.copy(), "kinds": problem.kinds.copy(), "previous": previous}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start an episode; nothing in the problem is random."""
        super().reset(seed=seed)
        return self._observation(self.problem.default), {}

    def step(self, action):
        """Evaluate one decision (U,) and end the episode."""
        outcome = self.problem.evaluate(np.asarray(action)[None])
        reward = float(self.problem.rewards(outcome)[0])
        info = {
            "cost": float(outcome.cost[0]),
            "excess": float(outcome.excess[0]),
            "valid": bool(outcome.valid[0]),
        }
        return self._observation(action), reward, True, False, info
