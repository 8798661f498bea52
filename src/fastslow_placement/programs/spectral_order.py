"""Orders of a graph's units in which what exchanges much stands close together, by spectral bisection.

The Fiedler vector (Fiedler 1973; Hall 1970) is the placement of the units on a line with the smallest sum of
weighted squared distances. Bisection cuts its order into halves of equal work and orders each half by a
vector of its own (Pothen, Simon, Liou 1990). Direction counts for nothing, so that the forward and backward
pass of a layer stand together, and what is used in two far layers may stand by itself.

A graph of many units is contracted first (Barnard and Simon 1994): each unit joins the neighbour with which
it exchanges most, until few groups are left, and units stand in the order of their groups. Without this the
factors of the matrix of a large random graph are nearly full: 30,000 units took more than ten minutes.
"""

from itertools import product

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import coo_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from fastslow_placement.base.problem import unit_pairs

_EXPONENTS = (1.0, 0.5)
_FLOORS = (0.01, 1.0)
_HALVINGS = (0, 2, 3)
_DENSE = 300  # units up to which the dense solver is faster
_LARGE = 2000  # units from which on a graph is contracted
_CONTRACTED = 1000  # groups that are left at most, as far as there are edges
_WEAK = 1e-6  # weight between neighbours of the given order, of the mean, so that the graph is connected


def spectral_orders(work: np.ndarray, edges: np.ndarray, weight: np.ndarray) -> list[np.ndarray]:
    """Return twelve orders of the units, (U,) int64 each.

    They combine two weights (the exchange and its root), two floors of the work, and none, two or three
    halvings.

    Args:
        work: (U,) work of each unit, which the halves share.
        edges: (M, 2) pairs of units.
        weight: (M,) exchange of each pair.
    """
    settings = product(_EXPONENTS, _FLOORS, _HALVINGS)
    return [spectral_order(work, edges, weight**exponent, *rest) for exponent, *rest in settings]


def spectral_order(
    work: np.ndarray, edges: np.ndarray, weight: np.ndarray, floor: float, halvings: int
) -> np.ndarray:
    """Return the units in the order of recursive spectral bisection: (U,) int64.

    Args:
        work: (U,) work of each unit, which the halves share.
        edges: (M, 2) pairs of units.
        weight: (M,) exchange of each pair.
        floor: Addition to the work of each unit, as a share of the mean work; larger keeps small units in the
            middle.
        halvings: Number of times that the parts are halved; 0 sorts by one vector.
    """
    mass = work + floor * max(float(work.mean()), 1e-300)
    mean = float(weight.mean()) if len(weight) else 1.0
    parts_in_order: list[np.ndarray] = []
    parts = [(np.arange(len(work)), halvings)]
    while parts:
        units, left = parts.pop()
        inside = np.full(len(work), -1)
        inside[units] = np.arange(len(units))
        ends = inside[edges]
        held = (ends >= 0).all(1)
        order = units[_fiedler_order(mass[units], ends[held], weight[held], mean * _WEAK)]
        done = np.cumsum(work[order])
        half = int(np.clip(np.searchsorted(done, done[-1] / 2), 1, len(order) - 1)) if len(order) > 1 else 0
        if left and half:
            parts += [(order[half:], left - 1), (order[:half], left - 1)]
        else:
            parts_in_order.append(order)
    return np.concatenate(parts_in_order)


def _fiedler_order(mass: np.ndarray, edges: np.ndarray, weight: np.ndarray, weak: float) -> np.ndarray:
    """Return units sorted by the Fiedler vector, turned so that the order rises with the given one: (U,)."""
    count = len(mass)
    if count < 3:
        return np.arange(count)
    if count > _LARGE:
        return _order_of_groups(mass, edges, weight, weak)
    chain = np.stack([np.arange(count - 1), np.arange(1, count)], 1)
    rows, columns = np.concatenate([edges, chain]).T
    values = np.concatenate([weight, np.full(count - 1, max(weak, 1e-300))])
    pairs = coo_array((values, (rows, columns)), shape=(count, count))
    pairs = (pairs + pairs.T).tocsr()
    scale = 1 / np.sqrt(mass / mass.mean())
    degree = np.asarray(pairs.sum(0)).ravel()
    laplacian = diags_array(scale) @ (diags_array(degree) - pairs) @ diags_array(scale)
    if count <= _DENSE:
        vectors = eigh(laplacian.toarray(), subset_by_index=[0, 1])[1]
    else:  # the two smallest of a singular matrix: inverted at a little below 0
        below = -1e-6 * float(laplacian.diagonal().mean())
        start = np.random.default_rng(0).standard_normal(count)
        vectors = eigsh(laplacian.tocsc(), k=2, sigma=below, v0=start)[1]
    line = vectors[:, 1] * scale
    order = np.argsort(line, kind="stable")
    return order if order @ np.arange(count) >= order[::-1] @ np.arange(count) else order[::-1]


def _order_of_groups(mass: np.ndarray, edges: np.ndarray, weight: np.ndarray, weak: float) -> np.ndarray:
    """Return units in the order of groups of them, which the Fiedler vector of the groups gives: (U,).

    Within a group they stand as they were given. For the arguments see :func:`_fiedler_order`.
    """
    chain = np.arange(len(mass) - 1)
    pairs = np.concatenate([edges, np.stack([chain, chain + 1], 1)])
    exchange = np.concatenate([weight, np.full(len(chain), max(weak, 1e-300))])
    group = np.arange(len(mass))
    count = len(mass)
    while count > _CONTRACTED:  # the chain gives each a neighbour, so that at most half are left
        joined = _join(pairs, exchange, count)
        group = joined[group]
        pairs, exchange = unit_pairs(joined[pairs], exchange)
        count = int(joined.max()) + 1
    order = _fiedler_order(np.bincount(group, mass), pairs, exchange, weak)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return np.argsort(place[group], kind="stable")


def _join(pairs: np.ndarray, exchange: np.ndarray, count: int) -> np.ndarray:
    """Return the group of each unit after each has joined one neighbour: (count,), numbered from 0.

    It is the neighbour for which their exchange is the largest share of all that the neighbour exchanges, so
    that not all units join the one whose output all of them read.

    Args:
        pairs: (M, 2) units with an exchange; each unit is in one of them.
        exchange: (M,) exchange of each pair.
        count: Number of units.
    """
    one, other = np.concatenate([pairs, pairs[:, ::-1]]).T
    both = np.tile(exchange, 2)
    total = np.bincount(one, both, count)
    order = np.lexsort((both / total[other], one))
    last = np.append(np.flatnonzero(np.diff(one[order])), len(one) - 1)
    chosen = order[last]
    links = coo_array((np.ones(len(chosen)), (one[chosen], other[chosen])), shape=(count, count))
    return connected_components(links, directed=False)[1]
