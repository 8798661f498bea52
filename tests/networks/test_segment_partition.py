import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastslow.networks.segments.graph import partition


@given(st.integers(1, 40), st.integers(1, 41))
def test_every_node_has_a_segment_and_none_is_empty_or_too_large(num_nodes, max_nodes):
    part = partition(num_nodes, max_nodes)
    size = np.bincount(part)
    assert part.shape == (num_nodes,) and size.min() > 0 and size.max() <= max_nodes
    assert (np.diff(part) >= 0).all() and size.max() - size.min() <= 1
    assert len(size) == -(-num_nodes // max_nodes)
