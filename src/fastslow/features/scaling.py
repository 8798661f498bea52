"""Scaling of node and configuration features, fitted on the train split alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fastslow.competition import node_columns
from fastslow.core.npz_io import read_arrays, write_arrays
from fastslow.features.tpu_tiling import LANES

CLIP = 8.0  # in standard deviations: an unseen program must not saturate the network


def signed_log1p(values: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|): a logarithm for features from -2 to 2.6e7, where plain log1p breaks."""
    return np.sign(values) * np.log1p(np.abs(values))


def expand_node_features(node_feat: np.ndarray) -> np.ndarray:
    """The numeric columns of a network's input, before standardisation.

    The layout columns 134-139 are left out: they are categories and get an embedding. Each dimension
    size is also given as its remainder and quotient by 128 (3rd place): the remainder says how full
    the last tile is.

    Args:
        node_feat: ``(N, 140)`` float32, padded with 0 or -1.

    Returns:
        ``(N, 146)`` float32: 134 columns as sign(x) log1p(|x|), then for the six dimensions
        ``x mod 128 / 128`` and ``log1p(x div 128)`` (padding stays -1 in both).
    """
    numeric = signed_log1p(node_feat[:, : node_columns.LAYOUT.start])
    sizes = node_feat[:, node_columns.SHAPE]
    padding = sizes < 0
    remainder = np.where(padding, -1, sizes % LANES / LANES)
    quotient = np.where(padding, -1, np.log1p(np.maximum(sizes, 0) // LANES))
    return np.concatenate([numeric, remainder, quotient], 1).astype(np.float32)


@dataclass(frozen=True)
class Scaler:
    """Standardises columns with the moments of the train split and drops those constant there.

    Args:
        mean: ``(F,)`` float64.
        std: ``(F,)`` float64; 0 marks a constant column.
    """

    mean: np.ndarray
    std: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """Positions of the columns that vary in train."""
        return np.flatnonzero(self.std > 0)

    @classmethod
    def fit(cls, matrices: Iterable[np.ndarray]) -> "Scaler":
        """Moments of matrices (rows, F), each matrix weighing the same.

        One program with many nodes or configurations must not set the scale alone.
        """
        means, squares = [], []
        for matrix in matrices:
            wide = np.asarray(matrix, np.float64)
            means.append(wide.mean(0))
            squares.append(np.square(wide).mean(0))
        return cls._of_moments(np.mean(means, 0), np.mean(squares, 0))

    @classmethod
    def _of_moments(cls, mean: np.ndarray, square: np.ndarray) -> "Scaler":
        variance = square - mean**2
        # below the rounding of the subtraction a variance is noise of a constant column
        constant = variance <= 1e-9 * np.maximum(1.0, mean**2)
        return cls(mean, np.where(constant, 0.0, np.sqrt(np.maximum(variance, 0))))

    @classmethod
    def pool(cls, scalers: Sequence["Scaler"]) -> "Scaler":
        """The scaler of several train splits together, each weighing the same."""
        if len(scalers) == 1:
            return scalers[0]
        mean = np.mean([scaler.mean for scaler in scalers], 0)
        square = np.mean([scaler.std**2 + scaler.mean**2 for scaler in scalers], 0)
        return cls._of_moments(mean, square)

    def transform(self, matrix: np.ndarray) -> np.ndarray:
        """``(rows, F)`` to ``(rows, kept)`` float32, mean 0 and standard deviation 1 on train."""
        kept = self.kept
        scaled = (np.asarray(matrix, np.float64)[:, kept] - self.mean[kept]) / self.std[kept]
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)


def write_scalers(path, **scalers: Scaler) -> None:
    """Write named scalers to one npz file."""
    arrays = {f"{name}_{part}": getattr(s, part) for name, s in scalers.items() for part in ("mean", "std")}
    write_arrays(path, arrays)


def read_scaler(path, name: str) -> Scaler:
    """Read one scaler of :func:`write_scalers`.

    Raises:
        DataError: The file is missing or broken, or holds no scaler of that name.
    """
    remedy = "Delete the features folder and run the feature notebook again"
    arrays = read_arrays(path, [f"{name}_mean", f"{name}_std"], remedy)
    return Scaler(arrays[f"{name}_mean"], arrays[f"{name}_std"])
