"""Checkpoints of the policy: reading, and what is checked before one is used."""

from pathlib import Path

import numpy as np
import torch

from fastslow.core.errors import DataError
from fastslow.core.input_files import check_regular
from fastslow.networks.machine.stored_weights import read_tensors
from fastslow_placement.base.problem import Problem
from fastslow_placement.go.policy import Policy, Shape

_MAX_BYTES = 1 << 28  # of a checkpoint
_LARGEST_WEIGHT = 1e4


def read_checkpoint(path: Path) -> dict:
    """Return what a checkpoint holds; :class:`DataError` if it is none."""
    check_regular(path, _MAX_BYTES)
    return read_tensors(path, "Delete it and train again")


def load_policy(path: Path) -> Policy:
    """Return the policy of a checkpoint.

    Raises:
        DataError: The file is missing or no checkpoint of this version.
    """
    state = read_checkpoint(path)
    try:
        policy = Policy(Shape(**state["shape"]).checked())
        policy.load_state_dict(state["policy"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise DataError(path, f"is of another version ({type(error).__name__})", "Train again") from None
    check_finite(path, policy)
    return policy


def check_finite(path: Path, policy: Policy) -> None:
    """Refuse weights that are not finite, or so large that their products are not."""
    for name, value in policy.named_parameters():
        if not (value.abs() <= _LARGEST_WEIGHT).all():
            problem = f"the weights {name} are not all within {_LARGEST_WEIGHT:g}"
            raise DataError(path, problem, "Delete it and train again")


def check_numbers(problems: list[Problem], state: dict) -> None:
    """Raise ValueError where a number of a checkpoint is out of its range."""
    if type(state["update"]) is not int or state["update"] < 0:
        raise ValueError(f"update is {state['update']!r}")
    for problem, kept in zip(problems, state["standings"], strict=True):
        choices = torch.from_numpy(problem.choices)
        for name in ("decision", "current"):
            own = kept[name]
            if own.dtype != torch.int64 or own.shape != choices.shape:
                raise ValueError(f"{name} is no decision of {kept['name']!r}")
            if not ((own >= 0) & (own < choices)).all():
                raise ValueError(f"{name} of {kept['name']!r} is out of range")
        numbers = [kept[name] for name in ("cost", "reward", "heat", "mean", "spread")]
        if kept["evaluations"] < 0 or np.isnan(np.array(numbers, float)).any():
            raise ValueError(f"the numbers of {kept['name']!r} are not numbers")
