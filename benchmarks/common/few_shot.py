"""Predictors of a program from some of its own measured configurations, with and without a trained model."""

import warnings
from dataclasses import dataclass

import lightgbm
import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

from fastslow.ensemble.baselines import GraphRows, choose_column, fit_ridge
from fastslow.features.scaling import standardise

ROUNDS = 200
PREDICTORS = (
    "single feature",
    "ridge",
    "trees",
    "ridge + pre-trained",
    "trees + pre-trained",
    "Gaussian process",
)


@dataclass(frozen=True)
class Measured:
    """The distinct configurations of one measured program.

    Args:
        config_feat: ``(C, V)``, features of a configuration as a whole.
        table: ``(C, F)``, the ranker's table: ``config_feat``, sums over states, and more.
        pretrained: ``(C, P)``, predictions of models that never saw the program, lower = faster.
        runtime: ``(C,)``, measured.
    """

    config_feat: np.ndarray
    table: np.ndarray
    pretrained: np.ndarray
    runtime: np.ndarray

    def predict(self, drawn: np.ndarray, threads: int) -> dict[str, np.ndarray]:
        """Predict all configurations ``(C,)`` after the runtimes of some of them, by predictor.

        Args:
            drawn: ``(n,)`` positions of the configurations whose runtime is known.
            threads: Threads of LightGBM.
        """
        features, table = standardise(self.config_feat), standardise(self.table)
        pretrained = standardise(self.pretrained)
        # as much prior variance for the few predictions together as for the many columns together
        joined = np.concatenate([x / x.shape[1] ** 0.5 for x in (table, pretrained)], 1)
        known = self.runtime[drawn]
        single = choose_column([GraphRows(features[drawn], known)])
        ridges = [fit_ridge([GraphRows(x[drawn], known)], rank_labels).coefficients for x in (table, joined)]
        return {
            "single feature": single.predict(features),
            "ridge": table @ ridges[0],
            "trees": boosted_trees(self.table, drawn, known, threads),
            "ridge + pre-trained": joined @ ridges[1],
            "trees + pre-trained": boosted_trees(
                np.concatenate([self.table, pretrained], 1), drawn, known, threads
            ),
            "Gaussian process": gaussian_process(joined, drawn, known),
        }


def rank_labels(runtime: np.ndarray) -> np.ndarray:
    """Return the standardised ranks ``(n,)`` of runtimes.

    On measured programs a few configurations are many times slower than all others: fitted to log runtimes,
    the models below have half the tau.
    """
    return standardise(rankdata(runtime))


def boosted_trees(table: np.ndarray, drawn: np.ndarray, known: np.ndarray, threads: int) -> np.ndarray:
    """Fit LightGBM to the ranks of some rows of a table and predict all of them.

    Args:
        table: ``(C, F)``.
        drawn: ``(n,)`` positions of the rows to fit.
        known: ``(n,)`` their runtimes.
        threads: Threads of LightGBM.
    """
    parameters = {
        "objective": "regression",
        "learning_rate": 0.05,
        "num_leaves": 15,
        "min_data_in_leaf": max(2, min(20, len(drawn) // 8)),
        "min_data_in_bin": 1,
        "feature_fraction": 0.3,
        "feature_pre_filter": False,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(table[drawn], rank_labels(known), params=parameters)
    return lightgbm.train(parameters, data, ROUNDS).predict(table, num_threads=threads)


def gaussian_process(values: np.ndarray, drawn: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Fit scikit-learn's Gaussian process to the ranks of some rows and predict all of them.

    A linear and a radial kernel and noise, whose scales maximise the marginal likelihood.

    Args:
        values: ``(C, F)`` columns, and pre-trained predictions.
        drawn: ``(n,)`` positions of the rows to fit.
        known: ``(n,)`` their runtimes.
    """
    kernel = ConstantKernel() * DotProduct() + ConstantKernel() * RBF(1.0) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is none that matters
        fitted = GaussianProcessRegressor(kernel).fit(values[drawn], rank_labels(known))
    return fitted.predict(values)
