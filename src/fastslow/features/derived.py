"""Values that several models compute from the same graph, computed once while the graph is in memory."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from fastslow.features.graph import Graph

_Value = TypeVar("_Value")


def derived(graph: Graph, key: Hashable, make: Callable[[], _Value]) -> _Value:
    """Return a value that is computed from a graph, from the graph's cache where it was computed before.

    Models that read the same graph of a :class:`~fastslow.features.graph_set.GraphSet` share its values. They
    last as long as the graph; they are not in copies of it (``dataclasses.replace``).

    Args:
        graph: The graph.
        key: Names the value, with every setting that it depends on.
        make: Computes the value. Nobody may change it afterwards.
    """
    kept = vars(graph).setdefault("derived", {})
    if key not in kept:
        kept[key] = make()
    return kept[key]
