import threading

import pytest

from fastslow.networks.hardware.step_examples import prefetch


def test_items_come_in_order_each_made_once():
    made = []
    assert list(prefetch(map(lambda item: made.append(item) or item * 2, range(5)))) == [0, 2, 4, 6, 8]
    assert made == [0, 1, 2, 3, 4]
    assert list(prefetch([])) == []


def test_one_item_is_made_ahead_in_another_thread_and_no_more():
    threads, started, go_on = set(), [], threading.Event()

    def make(item):
        threads.add(threading.current_thread())
        started.append(item)
        if item == 1:
            go_on.set()
        return item

    coming = prefetch(map(make, range(9)))
    assert next(coming) == 0
    assert go_on.wait(10)  # the second is made although nobody asked for it
    assert started == [0, 1]
    assert threading.current_thread() not in threads
    coming.close()
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_comes_at_its_turn():
    coming = prefetch(map(lambda item: 1 // item, [1, 0, 1]))
    assert next(coming) == 1
    with pytest.raises(ZeroDivisionError):
        next(coming)
