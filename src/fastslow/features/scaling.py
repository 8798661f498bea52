"""Scaling of node and configuration features, fitted on the train split, and of a graph's labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastslow.competition import node_columns
from fastslow.features.configs.tpu_tiling import LANES
from fastslow.features.nodes.node_encodings import DEPTH_NAMES
from fastslow.hlo.graph_arrays import EXTRA_NAMES

_SIZES = np.r_[node_columns.SHAPE]
_WIDTHS = (node_columns.LAYOUT.start, 2 * len(_SIZES), len(DEPTH_NAMES), len(EXTRA_NAMES))
_ENDS = np.cumsum([0, *_WIDTHS]).tolist()
NUMERIC, TILES, DEPTHS, ATTRIBUTES = (slice(*ends) for ends in pairwise(_ENDS))
"""Columns of :func:`expand_node_features`: the 134 numbers, the six dimensions by 128, then the columns of
``node_encodings.EXTRA_COLUMNS``."""
NODE_BLOCKS = (slice(TILES.stop), slice(TILES.stop, None))
"""Blocks of expanded node features whose moments are computed apart, see :class:`ScalerFit`."""
EXPANDED_NODE_FEATURES = _ENDS[-1]
"""Columns of :func:`expand_node_features`."""
CLIP = 8.0  # in standard deviations: an unseen program must not saturate the network
_ROUNDING = 1e-24  # a variance below this share of the squared mean is rounding of a constant column


def signed_log1p(values: np.ndarray) -> np.ndarray:
    """Return sign(x) log(1 + |x|), a logarithm for features of either sign (node features: -2 to 2.6e7)."""
    return np.sign(values) * np.log1p(np.abs(values))


def standardise(values: np.ndarray, rounding: float = 1e-6) -> np.ndarray:
    """Scale columns ``(C, ...)`` of a graph's configurations to mean 0 and deviation 1; 0 where constant.

    A deviation below ``rounding`` counts as rounding error.
    """
    values = np.asarray(values, np.float64)
    return (values - values.mean(0)) / np.maximum(values.std(0), rounding)


def log_labels(runtime: np.ndarray) -> np.ndarray:
    """Return the standardised log runtimes ``(C,)`` of a graph; lower is faster."""
    return standardise(np.log(runtime), 1e-9)


def unit_ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank ``(C,)`` of each value of a graph, from 0 (lowest) to 1; ties share their mean rank."""
    from scipy.stats import rankdata  # half a second, which no settings need

    return (rankdata(values) - 1) / max(len(values) - 1, 1)


def expand_node_features(node_feat: np.ndarray, node_extra: np.ndarray) -> np.ndarray:
    """Return the numeric columns of a network's input, before standardisation.

    The layout columns 134-139 are left out: they are categories and get an embedding. Each dimension
    size is also given as its remainder and quotient by 128 (3rd place of the competition): the remainder
    determines how full the last tile is.

    The arguments are ``Graph.node_feat`` and ``Graph.node_extra``.

    Returns:
        ``(N, 146 + Y)`` float32: 134 columns as sign(x) log(1 + |x|), then for the six dimensions
        ``x mod 128 / 128`` and ``log(1 + x div 128)`` (padding stays -1 in both), then the
        extra ones as sign(x) log(1 + |x|).
    """
    numeric = signed_log1p(node_feat[:, : node_columns.LAYOUT.start])
    sizes = node_feat[:, _SIZES]
    padding = sizes < 0
    remainder = np.where(padding, -1, sizes % LANES / LANES)
    quotient = np.where(padding, -1, np.log1p(np.maximum(sizes, 0) // LANES))
    return np.concatenate([numeric, remainder, quotient, signed_log1p(node_extra)], 1).astype(np.float32)


@dataclass(frozen=True)
class Scaler:
    """Standardises columns with the moments of the train split and drops those that are constant there."""

    mean: np.ndarray  # (F,) float64
    std: np.ndarray  # (F,) float64; 0 marks a constant column

    @property
    def kept(self) -> np.ndarray:
        """``(kept,)`` positions of the columns that vary in train."""
        return np.flatnonzero(self.std > 0)

    @classmethod
    def _of_moments(cls, mean: np.ndarray, variance: np.ndarray) -> "Scaler":
        constant = variance <= _ROUNDING * np.maximum(1.0, mean**2)
        return cls(mean, np.where(constant, 0.0, np.sqrt(np.maximum(variance, 0))))

    def select(self, columns: Iterable[int]) -> "Scaler":
        """Return the scaler that drops every other column as well."""
        return Scaler(self.mean, np.where(np.isin(np.arange(len(self.std)), [*columns]), self.std, 0.0))

    @classmethod
    def pool(cls, scalers: Sequence["Scaler"]) -> "Scaler":
        """Return the scaler of several train splits together, each weighing the same."""
        if len(scalers) == 1:
            return scalers[0]
        means = np.stack([scaler.mean for scaler in scalers])
        variances = np.stack([scaler.std**2 for scaler in scalers])
        return cls._of_moments(means.mean(0), variances.mean(0) + means.var(0))

    def transform(self, matrix: np.ndarray) -> np.ndarray:
        """Standardise the columns of a matrix ``(rows, F)`` that vary in train: ``(rows, kept)`` float32.

        Train has mean 0 and standard deviation 1 before values are clipped at ``CLIP``.
        """
        kept = self.kept
        scaled = (np.asarray(matrix, np.float64)[:, kept] - self.mean[kept]) / self.std[kept]
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)


class ScalerFit:
    """Fits a scaler matrix by matrix, each weighing the same: no large program determines the scale.

    Args:
        *blocks: Columns whose moments are computed apart, :data:`NODE_BLOCKS` for expanded node features;
            by default all together. The rounding of a column's moments depends on how many are beside it.
    """

    def __init__(self, *blocks: slice):
        from sklearn.preprocessing import StandardScaler  # takes most of a second; needed for fitting alone

        self._blocks = [(block, StandardScaler()) for block in blocks or (slice(None),)]

    def add(self, matrix: np.ndarray) -> None:
        """Add a matrix ``(rows, F)``, 1 row or more."""
        values = np.asarray(matrix, np.float64)
        weight = np.full(len(matrix), 1 / len(matrix))
        with np.errstate(invalid="ignore"):  # rounding may leave a constant column a negative variance
            for block, moments in self._blocks:
                moments.partial_fit(np.array(values[:, block]), sample_weight=weight)

    def scaler(self) -> Scaler:
        """Return the scaler of what was added."""
        mean = np.concatenate([moments.mean_ for _, moments in self._blocks])
        variance = np.concatenate([moments.var_ for _, moments in self._blocks])
        return Scaler._of_moments(mean, variance)
