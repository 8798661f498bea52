"""Scalers on disk: fitted on the train split, and kept beside the features and beside each network."""

from pathlib import Path

import numpy as np

from fastslow.core.errors import DataError, counted
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.features.scaling import Scaler

SCALERS = "scalers.npz"
_AGAIN = "Delete the features folder and run the feature notebook again"


def write_scalers(path: Path, **scalers: Scaler) -> None:
    """Write scalers to one npz file, such as ``write_scalers(path, node=one, config=another)``.

    The file has two float64 arrays ``(F,)`` for each: ``node_mean`` and ``node_std``.
    """
    arrays = {f"{name}_{part}": getattr(s, part) for name, s in scalers.items() for part in ("mean", "std")}
    write_arrays(path, arrays)


def read_scaler(path: Path, name: str, length: int | None = None, remedy: str = _AGAIN) -> Scaler:
    """Read one scaler of :func:`write_scalers`.

    Args:
        path: The npz file, checked by its checksum.
        name: Name that the scaler was written by.
        length: Number of columns that it must have; any by default.
        remedy: Advice for the message.

    Raises:
        DataError: The file is missing or broken, or holds no scaler of that name and length: two lists of
            finite float64, the second from 0.
    """
    arrays = read_arrays(path, [f"{name}_mean", f"{name}_std"], remedy)
    mean, std = arrays.values()
    for array, values in arrays.items():
        if values.dtype != np.float64 or values.shape != (mean.size,):
            problem = f"{array} is {values.dtype} of shape {values.shape}, float64 ({mean.size},) wanted"
            raise DataError(path, problem, remedy)
        if not np.isfinite(values).all() or (values is std and (std < 0).any()):
            wanted = "finite numbers from 0" if values is std else "finite numbers"
            raise DataError(path, f"{array} holds what no scaler has, {wanted} wanted", remedy)
    if length not in (None, len(mean)):
        raise DataError(path, f"{name} has {counted(len(mean), 'column')}, {length} wanted", remedy)
    return Scaler(mean, std)
