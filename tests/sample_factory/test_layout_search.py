"""Searches for configurations, with labels from a formula."""

from collections import Counter
from random import Random

from fastslow_programs.compiler.layout_choices import TiedChoice, default_configuration, tie
from fastslow_programs.compiler.layout_space import OUTPUT, configurable_nodes
from helpers.cases import cases
from helpers.dot_module import rich_module
from make_sample.layout_search import BATCH, ELITE, SEARCHES, Search

CHOICES = tie(configurable_nodes(rich_module()))
DEFAULT = default_configuration(CHOICES)
TINY = [TiedChoice((OUTPUT,), (((1, 0),), ((0, 1),)), (n,), default=n % 2) for n in range(2)]


def cycles(configuration):
    """Return a label: fastest where every choice takes its first option."""
    return 100 + sum(configuration)


def run(search, wanted, label=cycles, rounds=100):
    """Return the rounds of proposals until there are as many labels as wanted."""
    proposals = []
    while len(search.succeeded()) < wanted and not search.exhausted and len(proposals) < rounds:
        proposals.append(search.propose(wanted - len(search.succeeded())))
        search.labels += [(configuration, label(configuration)) for configuration in proposals[-1]]
    return proposals


@cases("kind", SEARCHES)
def test_a_search_proposes_new_configurations_in_rounds(kind):
    search = Search(kind, CHOICES, "program")
    rounds = run(search, 3 * BATCH + 3)
    assert [len(r) for r in rounds] == [BATCH] * 3 + [3]
    repeated = {c: n for c, n in Counter(c for r in rounds for c in r).items() if n > 1}
    assert repeated == ({DEFAULT: 2} if kind == "default" else {})
    if kind == "default":
        assert rounds[0][0] == rounds[1][0] == DEFAULT


def test_the_genetic_search_finds_faster_ones_than_the_random_search():
    best = {}
    for kind in SEARCHES:
        searches = [Search(kind, CHOICES, f"{seed}/a") for seed in range(5)]
        for search in searches:
            # the default is slowest here: the fastest takes the last option everywhere
            run(search, 64, label=lambda configuration: 1000 - cycles(configuration))
        best[kind] = sum(min(c for _, c in search.succeeded()) for search in searches)
    assert best["default"] < best["random"]


def test_parents_are_the_fastest_and_equally_fast_ones_have_equal_chances():
    search = Search("default", CHOICES, "0/a")
    slow, fast = [(DEFAULT[:-1] + (n,), 200) for n in range(9)], [(DEFAULT[1:] + (n,), 100) for n in range(3)]
    search.labels = [*slow, *fast, (DEFAULT, None)]
    chosen = [search._parents(Random(seed)) for seed in range(50)]
    assert all(len(parents) == ELITE for parents in chosen)
    assert all(set(parents[:3]) == {c for c, _ in fast} for parents in chosen)
    assert {c for parents in chosen for c in parents[3:]} == {c for c, _ in slow}
    assert search.labels[: len(slow)] == slow, "labels stay in their order"


def test_failures_are_neither_labels_nor_parents_nor_tried_again():
    search = Search("default", CHOICES, "0/a")
    asked = Counter()

    def label(configuration):
        asked[configuration] += 1
        return None if len(asked) % 3 == 0 else cycles(configuration)

    rounds = run(search, 20, label)
    assert len(search.succeeded()) == 20 < sum(map(len, rounds))
    assert max(count for configuration, count in asked.items() if configuration != DEFAULT) == 1


@cases("kind", SEARCHES)
def test_a_small_space_is_exhausted(kind):
    search = Search(kind, TINY, "0/a")
    run(search, 50)
    found = [configuration for configuration, _ in search.labels]
    assert search.exhausted and len(set(found)) == len(found) <= 4
    if kind == "random":
        assert len(found) == 4
    else:  # which stays near the fastest
        assert found[0] == (0, 1) and (0, 0) in found, "the compiler's own comes first"
