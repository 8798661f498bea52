"""Boosted trees of LightGBM, see :mod:`fastslow.rankers.libraries`."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastslow.core.errors import DataError
from fastslow.rankers.options import RankerOptions
from fastslow.rankers.samples import Sample

if TYPE_CHECKING:
    import lightgbm

_AGAIN = "Train this model again"
_DRAWS = 1000  # of rows and columns for one tree: one that holds no split of its leaves is drawn again


class LightGBMTrees:
    """Trees of LightGBM: the methods that :class:`fastslow.rankers.libraries.Trees` documents.

    Args:
        booster: LightGBM's trees.
    """

    def __init__(self, booster: "lightgbm.Booster"):
        self._booster = booster
        self._grown = 0

    @classmethod
    def begin(
        cls, train: Sample, bins: Sample, options: RankerOptions, num_threads: int = 0
    ) -> "LightGBMTrees":
        """See :class:`fastslow.rankers.libraries.Trees`; ``bins`` make the bins of the columns."""
        import lightgbm  # with scikit-learn a second, which no settings need

        parameters = {
            "objective": "binary" if train.binary else "regression",
            "metric": "None",
            "learning_rate": options.learning_rate,
            "num_leaves": options.num_leaves,
            "min_data_in_leaf": options.min_data_in_leaf,
            "min_sum_hessian_in_leaf": 1e-12,  # the weights of a graph's configurations sum to 1
            "feature_fraction": options.feature_fraction,
            "bagging_fraction": 0.8,  # of the rows, drawn for each tree
            "bagging_freq": 1,
            "seed": options.seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": num_threads,
            "verbosity": -1,
        }
        reference = _dataset(bins).construct()
        return cls(lightgbm.Booster(parameters, _dataset(train, reference)))

    @classmethod
    def read(cls, path: Path) -> "LightGBMTrees":
        """See :class:`fastslow.rankers.libraries.Trees`."""
        import lightgbm  # with scikit-learn a second

        try:
            return cls(lightgbm.Booster(model_file=path))
        except lightgbm.basic.LightGBMError as error:
            problem = f"cannot be read ({' '.join(str(error).split())[:200]})"
            raise DataError(path, problem, _AGAIN) from None

    @property
    def columns(self) -> list[str]:
        """See :class:`fastslow.rankers.libraries.Trees`."""
        return self._booster.feature_name()

    def grow(self) -> bool:
        """See :class:`fastslow.rankers.libraries.Trees`."""
        # LightGBM keeps a tree of one leaf of a first draw that holds no split, and counts the next one too
        ahead = self._booster.num_trees() > self._grown
        stuck = not ahead and all(self._booster.update() for _ in range(_DRAWS))
        self._grown += not stuck
        return stuck

    def predict(self, rows: np.ndarray, start: int, count: int) -> np.ndarray:
        """See :class:`fastslow.rankers.libraries.Trees`."""
        margins: np.ndarray = self._booster.predict(
            rows, raw_score=True, start_iteration=start, num_iteration=count
        )
        return margins

    def contributions(self, rows: np.ndarray, count: int) -> np.ndarray:
        """See :class:`fastslow.rankers.libraries.Trees`; they are TreeSHAP's (arXiv 1802.03888)."""
        values: np.ndarray = self._booster.predict(rows, pred_contrib=True, num_iteration=count)
        return values[:, :-1]

    def gain(self, count: int) -> np.ndarray:
        """See :class:`fastslow.rankers.libraries.Trees`."""
        return self._booster.feature_importance("gain", iteration=count)

    def save(self, path: Path, count: int) -> None:
        """See :class:`fastslow.rankers.libraries.Trees`."""
        path.write_text(self._booster.model_to_string(num_iteration=count))


def _dataset(sample: Sample, reference: "lightgbm.Dataset | None" = None) -> "lightgbm.Dataset":
    import lightgbm  # with scikit-learn a second, which no settings need

    return lightgbm.Dataset(
        [part for part in sample.rows if len(part)],
        sample.labels,
        weight=sample.weights,
        feature_name=sample.columns,
        reference=reference,
        params={"feature_pre_filter": False, "verbosity": -1},
    )
