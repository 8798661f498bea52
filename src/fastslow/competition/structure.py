"""How alike two programs are: by the shares of their opcodes."""

from collections.abc import Iterable

import numpy as np

_OPCODES = np.iinfo(np.uint8).max + 1


def opcode_shares(opcodes: Iterable[np.ndarray]) -> np.ndarray:
    """Return the share of each opcode among a graph's nodes, ``(graphs, 256)``; rows sum to 1.

    Args:
        opcodes: ``node_opcode`` of each graph, ``(N,)`` uint8 with N of 1 or more.
    """
    counts = [np.bincount(own, minlength=_OPCODES) / len(own) for own in opcodes]
    return np.array(counts).reshape(-1, _OPCODES)


def distance(shares: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the distance of every graph to every other, 0 (equal shares) to 1 (no opcode in common).

    The distance is the total variation: the share of nodes that would need another opcode.

    Args:
        shares: ``(n, 256)``, from :func:`opcode_shares`.
        others: ``(m, 256)``.

    Returns:
        ``(n, m)`` float64.
    """
    return np.array([np.abs(others - own).sum(1) / 2 for own in shares]).reshape(len(shares), len(others))
