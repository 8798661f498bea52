"""Losses over the configurations of one graph; lower is faster.

A loss takes predictions s and runtimes y of the C configurations of a graph. Every graph is a list of its own
length, so there is no padding. Configurations of equal runtime carry no order: no ranking loss compares them.
:class:`Loss` adds up losses by name, in the form of the setting ``loss``.
"""

import inspect

import torch
from torch import Tensor
from torch.nn import functional

from fastslow.networks.settings.terms import Term, parse_terms


def _ordered_pairs(
    prediction: Tensor, runtime: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``(C, C)`` differences s_i - s_j, the weight of the pair where y_i > y_j, else 0, and |P|."""
    ordered = runtime[:, None] > runtime[None, :]
    weight = ordered if noise is None else ordered * certainty(runtime, noise)
    return prediction[:, None] - prediction[None, :], weight.to(prediction.dtype), ordered.sum()


def certainty(runtime: Tensor, noise: Tensor) -> Tensor:
    r"""Compute how certain the order of each pair of labels is: 2 p - 1, p the probability that it is right.

    .. math:: 2 \Phi\Big( \frac{|\log y_i - \log y_j|}{\sqrt{\sigma_i^2 + \sigma_j^2}} \Big) - 1

    for normal noise of log runtime, and no knowledge of the runtimes before they were measured. This is the
    expected Kendall's tau of the pair, 0 for equal labels.

    Args:
        runtime: ``(C,)`` labels y above 0.
        noise: ``(C,)`` their standard deviations :math:`\sigma` as logarithms, above 0.

    Returns:
        ``(C, C)``, 0 to 1.
    """
    values = runtime.log()
    distance = (values[:, None] - values[None, :]).abs()
    return torch.erf(distance / (2 * (noise[:, None].square() + noise[None, :].square())).sqrt())


def pairwise_hinge(
    prediction: Tensor, runtime: Tensor, margin: float = 1.0, *, noise: Tensor | None = None
) -> Tensor:
    r"""Compute the mean hinge over ordered pairs of different runtime (TpuGraphs, arXiv 2308.13490).

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \max(0, m - (s_i - s_j)), \quad P = \{(i,j): y_i > y_j\}

    Args:
        prediction: ``(C,)`` predictions s, of any real value.
        runtime: ``(C,)`` runtimes y in any unit; a pair of equal runtime is left out.
        margin: m, the difference in prediction from which a pair costs nothing.
        noise: ``(C,)`` noise of the labels; where given, a pair counts by its :func:`certainty`.

    Returns:
        A scalar; 0 where no two runtimes differ.
    """
    difference, weight, pairs = _ordered_pairs(prediction, runtime, noise)
    hinge = functional.relu(margin - difference)
    return (hinge * weight).sum() / pairs.clamp(min=1)


def pairwise_logistic(
    prediction: Tensor, runtime: Tensor, temperature: float = 1.0, *, noise: Tensor | None = None
) -> Tensor:
    r"""Compute the mean logistic loss over ordered pairs of different runtime (RankNet, Burges et al. 2005).

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \log(1 + e^{-(s_i - s_j) / T}), \quad P = \{(i,j): y_i > y_j\}

    Args:
        prediction: ``(C,)`` predictions s.
        runtime: ``(C,)`` runtimes y in any unit; a pair of equal runtime is left out.
        temperature: T.
        noise: As for :func:`pairwise_hinge`.

    Returns:
        A scalar; 0 where no two runtimes differ.
    """
    difference, weight, pairs = _ordered_pairs(prediction, runtime, noise)
    return (functional.softplus(-difference / temperature) * weight).sum() / pairs.clamp(min=1)


def difference_matrix(
    prediction: Tensor, runtime: Tensor, margin: float = 0.01, *, noise: Tensor | None = None
) -> Tensor:
    r"""Compute the margin ranking loss on the matrix of differences (2nd place, Obs01ete/kaggle_latenciaga).

    .. math:: \frac{2}{C (C - 1)} \sum_{i < j, y_i \ne y_j}
              \max(0, m - (s_i - s_j) \operatorname{sign}(y_i - y_j))

    The hinge with a small margin, as a mean over all pairs: a pair of equal runtime adds 0. So small a
    margin makes equal predictions nearly free. On the sample a network with the readout ``sum`` ended there;
    it learns with the readout ``mean`` or ``difference_matrix@0.1`` (``benchmarks/models.py``).

    Args:
        prediction: ``(C,)`` predictions s.
        runtime: ``(C,)`` runtimes y in any unit.
        margin: m.
        noise: As for :func:`pairwise_hinge`.

    Returns:
        A scalar; 0 where no two runtimes differ.
    """
    difference, weight, _ = _ordered_pairs(prediction, runtime, noise)
    count = len(prediction)
    return (functional.relu(margin - difference) * weight).sum() * 2 / max(1, count * (count - 1))


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

    Returns:
        A scalar, 0 or more; 0 where no two runtimes differ.
    """
    order = torch.argsort(runtime, descending=True, stable=True)
    score, ordered = prediction[order] / temperature, runtime[order]
    rest = torch.logcumsumexp(score.flip(0), 0).flip(0)
    rest = torch.cat([rest, rest.new_full((1,), -torch.inf)])  # nothing is faster than the fastest
    _, tie, count = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    faster = rest[torch.cumsum(count, 0)[tie]]  # log of the sum over strictly faster configurations
    return functional.softplus(faster - score).sum()


def mse_log(prediction: Tensor, runtime: Tensor) -> Tensor:
    r"""Compute the mean squared error on log runtime: absolute predictions (slides "ML for ML Compilers").

    .. math:: \frac{1}{C} \sum_i (s_i - \log y_i)^2

    Args:
        prediction: ``(C,)`` predictions s.
        runtime: ``(C,)`` runtimes y above 0; their unit shifts the logarithm.

    Returns:
        A scalar, 0 or more.
    """
    return (prediction - runtime.log().to(prediction.dtype)).square().mean()


LOSSES = {
    loss.__name__: loss for loss in (pairwise_hinge, pairwise_logistic, difference_matrix, list_mle, mse_log)
}
"""The registry: losses by name. The setting gives a third argument, margin or temperature, after ``@``."""


def reads_noise(name: str) -> bool:
    """Return whether a loss weighs pairs by the noise of the labels."""
    return "noise" in inspect.signature(LOSSES[name]).parameters


def loss_terms(text: str) -> list[Term]:
    """Read the setting ``loss``, see :func:`fastslow.networks.settings.terms.parse_terms`.

    Raises:
        SettingsError: The text is refused.
    """
    arguments = {name: list(inspect.signature(loss).parameters.values()) for name, loss in LOSSES.items()}
    known = {
        name: next((own.default for own in every[2:] if own.kind is not own.KEYWORD_ONLY), None)
        for name, every in arguments.items()
    }
    return parse_terms("loss", text, known)


class Loss:
    """A weighted sum of losses, the mean over the graphs of a step.

    Args:
        text: Such as ``pairwise_hinge`` or ``list_mle@10:1+mse_log:0.02``.

    Raises:
        SettingsError: The text is refused.
    """

    def __init__(self, text: str):
        self.terms = loss_terms(text)

    def __call__(self, prediction: Tensor, runtime: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the loss of a graph.

        Args:
            prediction: ``(C,)`` predictions.
            runtime: ``(C,)`` runtimes.
            noise: ``(C,)`` noise of the runtimes, for the losses over pairs; None: they are exact.
        """
        total: Tensor = 0.0
        for name, parameter, weight in self.terms:
            more = () if parameter is None else (parameter,)
            options = {"noise": noise} if noise is not None and reads_noise(name) else {}
            total = total + weight * LOSSES[name](prediction, runtime, *more, **options)
        return total
