"""The ranking loss over the configurations of one graph; scores and runtimes: lower is faster."""

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
