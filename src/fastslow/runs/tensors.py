"""Weights and checkpoints on disk: read without executing anything, and checked before they are used.

A checkpoint ends in the SHA-256 of all its bytes, since ``torch.load`` compares no checksums. A damaged
checkpoint is set aside, so that it never blocks a training. Damaged weights of a finished run raise an error
with the remedy.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastslow.core.errors import DataError, StorageError, explain_storage, printable
from fastslow.core.files import atomic_path
from fastslow.core.input_files import check_regular

SET_ASIDE = ".damaged"
_DIGEST_BYTES = hashlib.sha256().digest_size


def write_tensors(path: Path, value: Any, sealed: bool = False) -> None:
    """Write a file of ``torch.save`` atomically.

    Args:
        path: The file.
        value: Tensors in dicts and lists, with numbers and texts.
        sealed: Whether to add the SHA-256 of the file, 32 bytes, at its end. ``torch.load`` ignores them.

    Raises:
        StorageError: The operating system refuses the file, such as on a full disk.
    """
    buffer = io.BytesIO()  # given a path, torch would write its name into the file
    torch.save(value, buffer)
    content = buffer.getvalue()
    with atomic_path(path) as temporary:
        temporary.write_bytes(content + hashlib.sha256(content).digest() * sealed)


def _check_seal(path: Path) -> None:
    """Refuse a file that is not as :func:`write_tensors` wrote and sealed it."""
    check_regular(path)
    with explain_storage(path):
        content = path.read_bytes()
    if hashlib.sha256(content[:-_DIGEST_BYTES]).digest() != content[-_DIGEST_BYTES:]:
        raise DataError(path, "is damaged", "Delete it; the training starts again")


def read_tensors(path: Path, remedy: str) -> Any:
    """Read a file of ``torch.save`` to the CPU; nothing in it is executed.

    Args:
        path: The file.
        remedy: Advice for a broken file, for the message.

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

    Args:
        network: The network, whose weights are replaced.
        path: File that ``torch.save`` wrote, with the state of a network.
        remedy: Advice for the message.

    Raises:
        DataError: The file cannot be read, or its weights are another network's or not finite.
    """
    weights = read_tensors(path, remedy)
    wanted = network.state_dict()
    for name, tensor in weights.items() if isinstance(weights, dict) else ():
        given = getattr(tensor, "dtype", type(tensor).__name__)
        if (
            name in wanted and given != wanted[name].dtype
        ):  # torch would convert it, of complex numbers a part
            raise DataError(path, f"{printable(str(name))} is {given}, {wanted[name].dtype} wanted", remedy)
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError, KeyError):
        raise DataError(path, "the weights belong to another network", remedy) from None
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise DataError(path, "has a value that is not finite", remedy)


def read_checkpoint(path: Path, mark: str) -> dict | None:
    """Read the state of an interrupted training, if it can be resumed.

    A checkpoint that is not byte for byte as it was written is renamed to ``<name>.damaged`` with a message.
    There is one checkpoint, so the training restarts from its first epoch.

    Args:
        path: The checkpoint, written by :func:`write_tensors` with ``sealed``.
        mark: Digest of all that the training depends on; a checkpoint with another mark belongs to another
            training.

    Returns:
        The state; None where there is none that can be resumed.

    Raises:
        StorageError: The operating system refuses to read it: it may be sound.
    """
    if not path.exists():
        return None
    try:
        _check_seal(path)
        state = read_tensors(path, "")
        return state if state["mark"] == mark else None
    except StorageError:
        raise
    except DataError as error:
        problem = error.args[1]
    aside = path.with_name(path.name + SET_ASIDE)
    with explain_storage(aside):
        os.replace(path, aside)
    print(f"{path}: damaged, {problem}. It is kept as {aside.name}; the training restarts", flush=True)
    return None
