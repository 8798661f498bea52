import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastslow.networks.hardware.memory import BoundedCache


@given(st.integers(0, 20), st.lists(st.integers(1, 9), max_size=40))
def test_it_gives_every_value_and_never_holds_more_than_the_bound(bound, keys):
    cache, made = BoundedCache(bound), []
    for key in keys:
        value = cache.get(key, lambda key=key: made.append(key) or np.full(key, key, np.uint8))
        assert value.tolist() == [key] * key
        kept = [cache.get(key, dict) for key in list(cache._values)]
        assert cache.held_bytes == sum(map(len, kept)) <= bound


def test_what_was_used_last_stays():
    cache, made = BoundedCache(2), []

    def value(key):
        return cache.get(key, lambda: made.append(key) or np.frombuffer(key.encode(), np.uint8))

    assert [bytes(value(key)).decode() for key in "abacab"] == list("abacab")
    assert made == ["a", "b", "c", "b"] and cache.held_bytes == 2
