"""How alike two programs are: by the shares of their opcodes."""

from collections.abc import Iterable

import numpy as np

_OPCODES = np.iinfo(np.uint8).max + 1


def opcode_shares(opcodes: Iterable[np.ndarray]) -> np.ndarray:
    """Return the share of each opcode among a graph's nodes, ``(graphs, 256)``, from its ``node_opcode``."""
    counts = [np.bincount(own, minlength=_OPCODES) / len(own) for own in opcodes]
    return np.array(counts).reshape(-1, _OPCODES)


def distance(shares: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the total variation ``(n, m)`` of opcode shares ``(n, 256)`` and ``(m, 256)``, 0 to 1.

    It is the share of nodes that would need another opcode.
    """
    return np.array([np.abs(others - own).sum(1) / 2 for own in shares]).reshape(len(shares), len(others))
