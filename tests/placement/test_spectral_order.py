"""Spectral bisection keeps together what exchanges much."""

import numpy as np

from fastslow_placement.programs.spectral_order import spectral_order
from helpers.cases import cases


@cases("count", [60, 400])
def test_spectral_bisection_keeps_together_what_exchanges_much(count):
    """Units numbered in turn over four rings: each ring is contiguous in the order, halved or not."""
    ring = np.arange(count) % 4
    edges = np.stack([np.arange(count), (np.arange(count) + 4) % count], 1)
    bridges = np.array([[0, 1], [1, 2], [2, 3]])
    weight = np.concatenate([np.ones(count), np.full(3, 1e-3)])
    for halvings in (0, 2):
        order = spectral_order(np.ones(count), np.concatenate([edges, bridges]), weight, 1.0, halvings)
        assert sorted(order) == [*range(count)]
        assert (np.diff(ring[order]) != 0).sum() == 3


def test_spectral_order_of_graphs_without_edges_or_work():
    nothing = np.zeros((0, 2), np.int64)
    for count in (1, 2, 5):
        order = spectral_order(np.zeros(count), nothing, np.zeros(0), 1.0, 3)
        assert sorted(order) == [*range(count)]
