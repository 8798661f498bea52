"""Transfer to another generation scores the run's predictions by the labels of that generation."""

import numpy as np
import pytest

import transfer
from common.relabel import Relabelled, smallest_programs
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.reader import read_competition_file
from fastslow.core.settings import resolve
from fastslow.features.store import Features
from fastslow.ranking.inference import FinishedRun


def test_predictions_are_scored_by_the_labels_of_the_generation(home):
    """For v2 the order of v3's labels is reversed, so every score of v2 is that of v3 times -1."""
    found = []
    for program in smallest_programs(resolve("data/sample"), transfer.COLLECTION, ("train",), 9):
        cycles = read_competition_file(program.path, "layout").runtime[:12]
        labels = {"v3": cycles, "v2": cycles.max() + cycles.min() - cycles}
        found.append(Relabelled(program, program.name, np.arange(12), labels, {"v2": 0.1}))
    sizes = []
    for one in found:
        file, whole = one.file("v2"), read_competition_file(one.program.path, "layout")
        assert file.runtime.tolist() == one.cycles["v2"].tolist()
        np.testing.assert_array_equal(file.choices.layout_codes(), whole.choices.layout_codes()[:12])
        sizes.append(len(whole.node_opcode))
    assert sizes == sorted(sizes)
    run = FinishedRun(resolve("runs/smoke/ensemble-layout-xla-random"))
    features = Features(resolve("features/smoke/layout-xla-random"))
    v2, v3 = (transfer.zero_shot(run, features, found, generation) for generation in ("v2", "v3"))
    assert list(v2) == ["best single feature of v3", "v3's own labels", "ensemble", "gnn", "ranker"]
    assert v3["v3's own labels"] == [pytest.approx(1)]
    for name, taus in v2.items():
        assert taus == pytest.approx([-tau for tau in v3[name]]), name


def test_the_score_is_the_mean_tau_of_programs_with_a_signal(home):
    (one, *_) = smallest_programs(resolve("data/sample"), transfer.COLLECTION, ("train",), 1)
    labels = {"v3": np.arange(12), "v2": np.arange(12)[::-1]}
    varied = Relabelled(one, one.name, np.arange(12), labels, {})
    flat = Relabelled(one, one.name, np.arange(12), {**labels, "v2": np.ones(12)}, {})
    assert transfer.useful([flat, varied], "v2") == [varied]
    predictions = {one.name: np.array([1.0, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])}
    taus = [kendall_tau(labels[generation], predictions[one.name]) for generation in ("v2", "v3")]
    assert [transfer.mean_tau([varied], g, predictions) for g in ("v2", "v3")] == taus
