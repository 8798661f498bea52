"""Scalers of matrices that are in memory."""

from fastslow.features.scaling import ScalerFit


def fit_scaler(matrices, *blocks):
    """The scaler of matrices ``(rows, F)``, each weighing the same, see ``ScalerFit``."""
    moments = ScalerFit(*blocks)
    for matrix in matrices:
        moments.add(matrix)
    return moments.scaler()
