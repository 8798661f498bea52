"""Searches for configurations, with labels from a formula."""

import pytest

from fastslow.programs.layout_search import BATCH, SEARCHES, Search
from fastslow.xla.layout_space import ConfigurableNode, configurable_nodes
from helpers.dot_module import small_module

NODES = configurable_nodes(small_module(layers=3))
TINY = [ConfigurableNode(0, "dot", (((0, 1), (1, 0)), ((0, 1), (1, 0)), ()))]


def cycles(configuration):
    """Return a label: fastest where every node is row-major."""
    return 100 + sum(1 + sum(map(sum, [layout[:1] for layout in v])) for v in configuration.values())


def run(search, wanted, label=cycles, rounds=100):
    """Return the rounds of proposals until there are as many labels as wanted."""
    proposals = []
    while len(search.succeeded()) < wanted and not search.exhausted and len(proposals) < rounds:
        proposals.append(search.propose(wanted - len(search.succeeded())))
        search.labels += [(configuration, label(configuration)) for configuration in proposals[-1]]
    return proposals


def distinct(configurations):
    return len({str(sorted(configuration.items())) for configuration in configurations})


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_proposes_new_configurations_in_rounds(kind):
    search = Search(kind, NODES, "program")
    rounds = run(search, 3 * BATCH + 3)
    assert [len(r) for r in rounds] == [BATCH] * 3 + [3]
    configurations = [configuration for r in rounds for configuration in r]
    defaults = configurations.count({})
    assert defaults == (2 if kind == "default" else 0)
    assert distinct(configurations) == len(configurations) - max(0, defaults - 1)
    if kind == "default":
        assert rounds[0][0] == rounds[1][0] == {}


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_that_is_run_again_proposes_the_same(kind):
    first, again, other = (Search(kind, NODES, name) for name in ("0/a", "0/a", "1/a"))
    assert run(first, 30) == run(again, 30) != run(other, 30)
    again.labels = again.labels[: 2 * BATCH]
    assert run(again, 30) == run(Search(kind, NODES, "0/a"), 30)[2:], "also from the middle"


def test_searches_of_a_program_differ():
    random, default = (run(Search(kind, NODES, "0/a"), 16) for kind in SEARCHES)
    assert random != default


def test_the_random_search_does_not_look_at_labels():
    one, other = Search("random", NODES, "0/a"), Search("random", NODES, "0/a")
    assert run(one, 24) == run(other, 24, label=lambda configuration: 1)


def test_the_genetic_search_finds_faster_ones_than_the_random_search():
    best = {}
    for kind in SEARCHES:
        searches = [Search(kind, NODES, f"{seed}/a") for seed in range(5)]
        for search in searches:
            # the default is not a candidate here: the fastest is one with every node set
            run(search, 64, label=lambda configuration: 1000 - cycles(configuration))
        best[kind] = sum(min(c for _, c in search.succeeded()) for search in searches)
    assert best["default"] < best["random"]


def test_failures_are_neither_labels_nor_parents_nor_tried_again():
    search = Search("default", NODES, "0/a")
    failing = {}

    def label(configuration):
        failing[str(configuration)] = failing.get(str(configuration), 0) + 1
        return None if len(failing) % 3 == 0 else cycles(configuration)

    rounds = run(search, 20, label)
    assert len(search.succeeded()) == 20 < sum(map(len, rounds))
    assert max(count for key, count in failing.items() if key != "{}") == 1


def test_a_search_in_which_everything_fails_goes_on_from_the_default():
    search = Search("default", NODES, "0/a")
    rounds = run(search, 10, label=lambda configuration: None, rounds=4)
    assert all(len(r) == BATCH for r in rounds) and search.succeeded() == []


@pytest.mark.parametrize("kind, size", [("random", 4), ("default", 6)])
def test_a_small_space_is_exhausted(kind, size):
    search = Search(kind, TINY, "0/a")
    run(search, 50)
    # four ways to set the only node; by default also the compiler's own, twice unless exhausted before
    assert search.exhausted and len(search.labels) in (size - 1, size)
    assert distinct([c for c, _ in search.labels if c]) == 4
