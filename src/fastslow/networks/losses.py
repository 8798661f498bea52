"""Ranking losses over the configurations of one graph; in predictions and runtimes lower is faster."""

from torch import Tensor
from torch.nn import functional


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
    slower = (runtime[:, None] > runtime[None, :]).to(prediction.dtype)
    hinge = functional.relu(margin - (prediction[:, None] - prediction[None, :]))
    return (hinge * slower).sum() / slower.sum().clamp(min=1)
