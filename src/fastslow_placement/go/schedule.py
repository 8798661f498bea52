"""Settings of the policy's learning, apart from it: a command's help waits for no torch."""

from typing import Annotated

from annotated_types import Ge, Le

from fastslow.core.settings import Settings


class Schedule(Settings):
    """Settings of the policy's learning."""

    group_title = "learning"

    updates: Annotated[int, Ge(0), Le(1_000_000)] = 180
    """Updates of PPO per program; 0 only applies the policy, trained or not."""
    samples: Annotated[int, Ge(1), Le(10_000)] = 8
    """Decisions evaluated per update."""
    epochs: Annotated[int, Ge(0), Le(1000)] = 2
    """Gradient steps per update; 0 learns nothing (*untrained* in the tables)."""
