"""Folds of the train programs: none is lost, copies stay together, the same at every call."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.competition.catalog import TRAIN, get_collection
from fastslow.core.errors import DataError
from fastslow.features.folds import leave_fold_out, split_folds
from fastslow.features.graph import GraphSet
from helpers.runs import NAMES, make_features

COLLECTIONS = ("layout:xla:default", "layout:xla:random")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph of a made-up program."""
    return make_features(tmp_path_factory.mktemp("graph"), COLLECTIONS[0], NAMES).graph(TRAIN, "a")


def sources_of(graph, programs):
    """Collections whose programs have the names and contents (numbers) that are given for each."""
    sources = {}
    for name, contents in zip(COLLECTIONS, programs, strict=True):
        graphs = []
        for stem, content in contents.items():
            node_feat = graph.node_feat.copy()
            node_feat[0, 0] = content
            graphs.append(replace(graph, name=stem, node_feat=node_feat))
        collection = get_collection(name)
        sources[collection.slug] = GraphSet(collection, {TRAIN: graphs}, ["x"])
    return sources


def groups_by_hand(programs):
    """Sets of (collection, name) that equal names or contents join, merged until nothing changes."""
    group = {(place, name): number for number, (place, name) in enumerate(members_of(programs))}
    changed = True
    while changed:
        changed = False
        for one in group:
            for other in group:
                same_content = programs[one[0]][one[1]] == programs[other[0]][other[1]]
                if (one[1] == other[1] or same_content) and group[one] < group[other]:
                    group[other] = group[one]
                    changed = True
    return [{member for member in group if group[member] == number} for number in {*group.values()}]


def members_of(programs):
    return [(place, name) for place, contents in enumerate(programs) for name in contents]


contents = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 5), min_size=1)


@given(programs=st.tuples(contents, contents), folds=st.integers(2, 4))
def test_copies_stay_together_and_every_graph_is_in_one_fold(graph, programs, folds):
    sources = sources_of(graph, programs)
    slugs = [*sources]
    names = [f"{slugs[place]}/{stem}" for place, stem in members_of(programs)]
    groups = groups_by_hand(programs)
    if len(groups) < folds:
        with pytest.raises(DataError, match="different train programs cannot be split"):
            split_folds(sources, names, folds)
        return
    parts = split_folds(sources, names, folds)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(parts), "no fold is empty"
    for group in groups:
        members = {f"{slugs[place]}/{stem}" for place, stem in group}
        assert sum(bool(members & {*part}) for part in parts) == 1
    assert split_folds(sources, names, folds) == parts
    for seed in range(2 * folds):
        kept, held_out = leave_fold_out(sources, names, folds, seed)
        assert held_out == parts[seed % folds] and sorted([*kept, *held_out]) == sorted(names)
