"""Ranking losses over the configurations of one graph; scores and runtimes: lower is faster."""

import torch
from torch import Tensor
from torch.nn import functional


def pairwise_hinge(score: Tensor, runtime: Tensor, margin: float = 1.0) -> Tensor:
    r"""Mean hinge over ordered pairs of different runtime (TpuGraphs' baseline, 1st place).

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \max(0, m - (s_i - s_j)), \quad P = \{(i,j): y_i > y_j\}

    Args:
        score: ``(C,)`` scores s.
        runtime: ``(C,)`` runtimes y; pairs of equal runtime count nothing.
        margin: m, the gap in score that a pair needs to cost nothing.

    Returns:
        A scalar; 0 where no two runtimes differ.
    """
    slower = (runtime[:, None] > runtime[None, :]).to(score.dtype)
    hinge = functional.relu(margin - (score[:, None] - score[None, :]))
    return (hinge * slower).sum() / slower.sum().clamp(min=1)


def pairwise_logistic(score: Tensor, runtime: Tensor) -> Tensor:
    r"""Mean logistic loss over ordered pairs of different runtime (RankNet, Burges et al. 2005).

    .. math:: \frac{1}{|P|} \sum_{(i,j) \in P} \log(1 + e^{-(s_i - s_j)}), \quad P = \{(i,j): y_i > y_j\}

    Args:
        score: ``(C,)`` scores s.
        runtime: ``(C,)`` runtimes y; pairs of equal runtime count nothing.

    Returns:
        A scalar, 0 or more; 0 where no two runtimes differ.
    """
    slower = (runtime[:, None] > runtime[None, :]).to(score.dtype)
    logistic = functional.softplus(score[None, :] - score[:, None])
    return (logistic * slower).sum() / slower.sum().clamp(min=1)


def difference_matrix(score: Tensor, runtime: Tensor) -> Tensor:
    r"""Mean squared error of all differences between two configurations (2nd place of the competition).

    .. math:: \frac{1}{C^2} \sum_{i,j} \big( (s_i - s_j) - (z_i - z_j) \big)^2 = 2 \operatorname{Var}(s - z)

    with z the logarithm of the runtime, standardised over the configurations.

    Args:
        score: ``(C,)`` scores s.
        runtime: ``(C,)`` runtimes above 0.

    Returns:
        A scalar, 0 or more.
    """
    log = runtime.log()
    wanted = (log - log.mean()) / log.std(correction=0).clamp(min=1e-12)
    return 2 * (score - wanted.to(score.dtype)).var(correction=0)


def list_mle(score: Tensor, runtime: Tensor) -> Tensor:
    r"""ListMLE (Xia et al. 2008): negative log-likelihood of the true order under Plackett-Luce, over C.

    .. math:: \frac{1}{C} \sum_i \left( \log \sum_{j \ge i} e^{-s_{\pi(j)}} + s_{\pi(i)} \right)

    with :math:`\pi` the configurations from fastest to slowest; equal runtimes stay in the order given.

    Args:
        score: ``(C,)`` scores s.
        runtime: ``(C,)`` runtimes.

    Returns:
        A scalar, 0 or more.
    """
    preference = -score[torch.argsort(runtime, stable=True)]
    remaining = torch.logcumsumexp(preference.flip(0), 0).flip(0)
    return (remaining - preference).mean()


LOSSES = {
    "pairwise_hinge": pairwise_hinge,
    "pairwise_logistic": pairwise_logistic,
    "difference_matrix": difference_matrix,
    "list_mle": list_mle,
}
