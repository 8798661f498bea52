"""Losses over the configurations of one graph; lower is faster.

A loss takes predictions s and runtimes y of the C configurations of a graph. Every graph is a list of its own
length, so there is no padding. Configurations of equal runtime carry no order: no ranking loss compares them.
:class:`Loss` adds up losses by name, in the form of the setting ``loss``.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fastslow.networks.settings.inputs import Term, parse_terms


def pairwise_hinge(prediction: Tensor, runtime: Tensor, margin: float = 1.0) -> Tensor:
    r"""Compute the mean hinge over ordered pairs of different runtime (TpuGraphs, arXiv 2308.13490).

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \max(0, m - (s_i - s_j)), \quad P = \{(i,j): y_i > y_j\}

    Args:
        prediction: ``(C,)`` predictions s, of any real value.
        runtime: ``(C,)`` runtimes y in any unit; a pair of equal runtime is left out.
        margin: m, the difference in prediction from which a pair costs nothing.

    Returns:
        A scalar; 0 where no two runtimes differ.
    """
    ordered = runtime[:, None] > runtime[None, :]
    costs = functional.relu(margin - (prediction[:, None] - prediction[None, :]))
    return (costs * ordered.to(prediction.dtype)).sum() / ordered.sum().clamp(min=1)


def list_mle(prediction: Tensor, runtime: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Compute ListMLE, the slowest first (Xia et al., ICML 2008; as TpuGraphs' baselines use it).

    .. math:: \sum_i \left( \log \Big( e^{s_i / T} + \sum_{k: y_k < y_i} e^{s_k / T} \Big) - s_i / T \right)

    This is the negative log likelihood of the true order under the Plackett-Luce model, which draws the
    slowest first, summed over the list as in TensorFlow Ranking. Each configuration is drawn from itself and
    the strictly faster ones (our own rule), so that equal runtimes do not compete.

    Args:
        prediction: ``(C,)`` predictions s.
        runtime: ``(C,)`` runtimes y in any unit.
        temperature: T; the baselines take 10 for tile, 1 for layout.
    """
    order = torch.argsort(runtime, descending=True, stable=True)
    score = prediction[order] / temperature
    ordered = runtime[order]
    rest = torch.logcumsumexp(score.flip(0), 0).flip(0)
    rest = torch.cat([rest, rest.new_full((1,), -torch.inf)])  # nothing is faster than the fastest
    _, tie, count = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    faster = rest[torch.cumsum(count, 0)[tie]]  # log of the sum over strictly faster configurations
    return functional.softplus(faster - score).sum()


def mse_log(prediction: Tensor, runtime: Tensor) -> Tensor:
    r"""Compute the mean squared error on log runtime: absolute predictions (slides "ML for ML Compilers").

    .. math:: \frac{1}{C} \sum_i (s_i - \log y_i)^2

    The unit of the runtimes y shifts the logarithm.

    Args:
        prediction: ``(C,)`` predictions s.
        runtime: ``(C,)`` runtimes y, above 0.

    Returns:
        ``()``, 0 or more.
    """
    return (prediction - runtime.log().to(prediction.dtype)).square().mean()


LOSSES = {loss.__name__: loss for loss in (pairwise_hinge, list_mle, mse_log)}
"""The registry: losses by name. The setting gives a third argument, margin or temperature, after ``@``."""


def loss_terms(text: str) -> list[Term]:
    """Read the setting ``loss`` as :func:`fastslow.networks.settings.inputs.parse_terms` does."""
    known = {name: (loss.__defaults__ or (None,))[0] for name, loss in LOSSES.items()}
    return parse_terms(text, known)


class Loss:
    """A weighted sum of losses, the mean over the graphs of a step.

    Args:
        text: Such as ``pairwise_hinge`` or ``list_mle@10:1+mse_log:0.02``.

    Raises:
        SettingsError: The text does not name a sum of terms that exist.
    """

    def __init__(self, text: str):
        self.terms = loss_terms(text)

    def __call__(self, prediction: Tensor, runtime: Tensor) -> Tensor:
        """Return the loss of a graph from ``(C,)`` predictions and runtimes."""
        total: Tensor = 0.0
        for name, parameter, weight in self.terms:
            more = () if parameter is None else (parameter,)
            total = total + weight * LOSSES[name](prediction, runtime, *more)
        return total
