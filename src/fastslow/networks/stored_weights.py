"""Weights and checkpoints on disk: read without executing anything, and checked before they are used.

A damaged checkpoint is set aside, so that it never blocks a training; damaged weights of a finished run are
refused with the remedy.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastslow.core.errors import DataError
from fastslow.core.input_files import check_regular
from fastslow.core.storage_errors import StorageError, explain_storage

SET_ASIDE = ".damaged"


def read_tensors(path: Path, remedy: str) -> Any:
    """Read a file of ``torch.save`` to the CPU; nothing in it is executed.

    Args:
        path: The file.
        remedy: What to do about a broken file, for the message.

    Raises:
        DataError: The file is missing, or is not one that ``torch.save`` wrote.
    """
    check_regular(path)
    try:
        with explain_storage(path):
            return torch.load(path, weights_only=True, map_location="cpu")
    except StorageError:
        raise
    except FileNotFoundError:
        raise DataError(path, "no such file", remedy) from None
    except Exception as error:  # torch's own advice, weights_only=False, would execute what is in the file
        raise DataError(path, f"cannot be read ({type(error).__name__})", remedy) from None


def load_weights(network: nn.Module, path: Path, remedy: str) -> None:
    """Load the weights of a finished run into a network of the same size.

    Raises:
        DataError: The file cannot be read, or holds the weights of another network or ones that are not
            finite.
    """
    weights = read_tensors(path, remedy)
    if problem := _mismatch(weights, network.state_dict()):
        raise DataError(path, problem, remedy)
    network.load_state_dict(weights)


def read_checkpoint(path: Path, mark: str, training: Any) -> dict | None:
    """Read the state of an interrupted training, if it can be resumed.

    A damaged checkpoint is renamed to ``<name>.damaged`` with a message, and the training restarts.

    Args:
        path: The checkpoint.
        mark: What the training depends on; a checkpoint with another mark is of another training.
        training: The new :class:`fastslow.networks.train.Training`; it is not changed.

    Returns:
        The state; None where there is none that can be resumed.

    Raises:
        StorageError: The operating system refuses to read it: it may be sound.
    """
    if not path.exists():
        return None
    try:
        state = read_tensors(path, "")
        problem = _wrong(state, mark, training)
    except StorageError:
        raise
    except DataError as error:
        problem = error.args[1]
    if not problem:
        return state if state["mark"] == mark else None
    aside = path.with_name(path.name + SET_ASIDE)
    with explain_storage(aside):
        os.replace(path, aside)
    print(f"{path}: damaged, {problem}. It is kept as {aside.name}; the training restarts", flush=True)
    return None


def _wrong(state: Any, mark: str, training: Any) -> str:
    """Return what is wrong with the state of a checkpoint; empty where it can be used."""
    if not isinstance(state, dict) or not isinstance(state.get("mark"), str):
        return "it is not a checkpoint"
    if state["mark"] != mark:
        return ""
    try:
        if type(state["epoch"]) is not int or not 0 < state["epoch"] <= training.config.epochs:
            return f"its epoch is {state['epoch']!r}"
        wanted, validation = training.network.state_dict(), state["validation"]
        best = {slug: validation["best"][slug] for slug in training.dataset.sources}
        weights = {"network": state["network"]}
        weights |= {f"best of {slug}": own["weights"] for slug, own in best.items()}
        weights |= {f"recent {place}": own for place, own in enumerate(validation["recent"])}
        for name, own in weights.items():
            if problem := _mismatch(own, wanted):
                return f"{name}: {problem}"
        numbers = [row[key] for row in validation["history"] for key in ("epoch", "valid")]
        numbers += [own[key] for own in best.values() for key in ("epoch", "score")]
        if not validation["history"] or not all(math.isfinite(number) for number in numbers):
            return "its history is empty or has a value that is not finite"
        first = state["watch"]["first"]
        if first is not None and not (isinstance(first, float) and math.isfinite(first)):
            return f"its first loss is {first!r}"
        if training.segments and (problem := training.segments.problem(state["segments"])):
            return problem
        return _wrong_optimizer(state["optimizer"], training.optimizer) or _wrong_scaler(state["scaler"])
    except (KeyError, TypeError, AttributeError) as error:
        return f"it lacks {error}" if isinstance(error, KeyError) else "an entry has another type"


def _mismatch(weights: Any, wanted: Mapping[str, Tensor]) -> str:
    """Return how weights differ from those of a network in names, shapes or finiteness."""
    if not isinstance(weights, dict) or weights.keys() != wanted.keys():
        return "the weights are those of another network"
    for name, tensor in wanted.items():
        own = weights[name]
        if not isinstance(own, Tensor) or own.shape != tensor.shape or own.dtype != tensor.dtype:
            return f"{name} is not {tensor.dtype} of shape {tuple(tensor.shape)}"
        if not torch.isfinite(own).all():
            return f"{name} has a value that is not finite"
    return ""


def _wrong_optimizer(state: dict, optimizer: torch.optim.Optimizer) -> str:
    """Return what is wrong with a stored state of the optimizer; torch itself checks no shapes."""
    own = optimizer.state_dict()
    if [group["params"] for group in state["param_groups"]] != [g["params"] for g in own["param_groups"]]:
        return "the optimizer's parameters are others"
    for group, wanted in zip(state["param_groups"], own["param_groups"], strict=True):
        if group.keys() != wanted.keys():
            return "the optimizer's settings are others"
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, moments in state["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            same = isinstance(moments[name], Tensor) and moments[name].shape == parameters[number].shape
            if not same or not torch.isfinite(moments[name]).all():
                return f"the optimizer's {name} of parameter {number} does not fit"
        if not 0 <= float(moments["step"]) < math.inf:
            return "the optimizer's step is out of range"
    return ""


def _wrong_scaler(state: Any) -> str:
    """Return what is wrong with the stored state of the loss scaler, which is empty on a CPU."""
    return "" if isinstance(state, dict) else "the loss scaler's state is no table"
