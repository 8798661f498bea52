"""Transfer to another generation: fine-tuning follows the given labels, and so do the scores."""

import numpy as np
import pytest

import transfer
from common.relabel import Relabelled, smallest_programs
from fastslow.competition.catalog import TEST
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.reader import read_competition_file
from fastslow.core.settings import resolve
from fastslow.features.unseen import build_unseen
from fastslow.rankers.table import read_table
from fastslow.rankers.train import read_ranker


@pytest.fixture
def relabelled(home):
    """The train programs of the sample; for v2 the order of v3's labels is reversed."""
    found = []
    for program in smallest_programs(resolve("data/sample"), transfer.COLLECTION, ("train",), 9):
        cycles = read_competition_file(program.path, "layout").runtime[:12]
        labels = {"v3": cycles, "v2": cycles.max() + cycles.min() - cycles}
        found.append(Relabelled(program, program.name, np.arange(12), labels, {"v2": 0.1}))
    return found


def test_files_have_the_rows_and_labels_of_a_generation_the_smallest_first(relabelled):
    sizes = []
    for one in relabelled:
        file, whole = one.file("v2"), read_competition_file(one.program.path, "layout")
        assert file.runtime.tolist() == one.cycles["v2"].tolist()
        np.testing.assert_array_equal(file.choices.layout_codes(), whole.choices.layout_codes()[:12])
        sizes.append(len(whole.node_opcode))
    assert sizes == sorted(sizes)


def test_fine_tuning_turns_the_order_round(relabelled):
    runs = resolve("runs/smoke")
    ranker = runs / "ranker-layout-xla-random-s0"
    graphs = build_unseen(ranker, [one.file("v2") for one in relabelled])
    table = read_table(graphs, TEST)

    def mean_tau(predictions):
        return transfer.taus(relabelled, "v2", predictions)

    before = read_ranker(ranker)
    tuned = transfer.tune_ranker(before, table, seed=0, scratch=False)
    assert mean_tau(tuned.predict(table)) > mean_tau(before.predict(table)) + 0.2
    network = runs / "gnn-layout-xla-random-s0"
    tuned = [transfer.tune_network(network, graphs, epochs, seed=0)(graphs, TEST) for epochs in (0, 10)]
    assert mean_tau(tuned[1]) > mean_tau(tuned[0])


def test_the_score_is_the_mean_tau_of_programs_with_a_signal(relabelled):
    predictions = {one.program.name: np.arange(12.0) for one in relabelled}
    wanted = np.mean([kendall_tau(one.cycles["v2"], np.arange(12.0)) for one in relabelled])
    assert transfer.taus(relabelled, "v2", predictions) == pytest.approx(wanted)
    flat = Relabelled(**{**vars(relabelled[0]), "cycles": {"v3": np.arange(12), "v2": np.ones(12)}})
    assert transfer.useful([flat, relabelled[1]], "v2") == [relabelled[1]]
