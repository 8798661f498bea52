from hypothesis import given
from hypothesis import strategies as st

from fastslow.networks.hardware.memory import BoundedCache


@given(st.integers(0, 20), st.lists(st.integers(1, 9), max_size=40))
def test_it_gives_every_value_and_never_holds_more_than_the_bound(bound, keys):
    cache, made = BoundedCache(bound, size_of=len), []
    for key in keys:
        assert cache.get(key, lambda key=key: made.append(key) or "x" * key) == "x" * key
        assert cache.held_bytes == sum(len(cache.get(k, lambda: "")) for k in list(cache._values)) <= bound


def test_what_was_used_last_stays():
    cache, made = BoundedCache(2, size_of=lambda _: 1), []

    def value(key):
        return cache.get(key, lambda: made.append(key) or key)

    assert [value(key) for key in "abacab"] == list("abacab")
    assert made == ["a", "b", "c", "b"] and len(cache) == 2
