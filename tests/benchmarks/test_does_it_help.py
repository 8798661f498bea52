"""Regrets and taus of orders, by known labels; a program is compiled, measured and ranked."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed (pip install -e '.[test]')")

import does_it_help  # noqa: E402
from fastslow.competition.catalog import TEST, get_collection, list_programs  # noqa: E402
from fastslow.competition.reader import read_npz  # noqa: E402
from fastslow.core.settings import PROJECT  # noqa: E402
from fastslow.features.unseen import build_unseen  # noqa: E402
from fastslow_programs.ranking.models import Models  # noqa: E402
from fastslow_programs.ranking.packaged import packaged_models  # noqa: E402
from fastslow_programs.ranking.rules import best_rule  # noqa: E402
from helpers.competition_files import layout_arrays, npz_program, write_npz  # noqa: E402


@pytest.fixture(scope="module")
def models():
    return Models(packaged_models())


def test_an_order_is_scored_by_its_tau_and_by_what_its_first_ones_lose(models, tmp_path):
    """The labels that choose are the rule's own order, once the same that score and once not."""
    program = npz_program(write_npz(tmp_path / "made.npz", layout_arrays(1, dots=4, configs=40)), "layout")
    run = models.of(get_collection(program.collection.name))
    graphs = build_unseen(run.folder, [program])
    rule = best_rule(run, graphs, program.name).prediction
    chooses = 100.0 + np.unique(rule, return_inverse=True)[1]
    found = does_it_help.evaluate((program, np.stack([chooses, chooses[::-1]])), models, 2)
    assert {row["known"] for row in found["rows"]} == {0, 8}
    assert found["configurations"] == graphs.graph(TEST, "made").num_configs
    own = does_it_help.evaluate((program, np.stack([chooses] * 2)), models, 2)
    for row in (row for row in own["rows"] if row["order"] == does_it_help.RULE):
        assert row["tau"] > 0.8 and row["top 1"] == 0, "only ties are left to chance"
    for row in own["rows"]:
        assert 0 <= row["top 10"] <= row["top 5"] <= row["top 1"]
        assert (row["expected"] is None) == (row["known"] == 0 or row["order"] != does_it_help.MODEL)
    assert own["ceiling"] == pytest.approx(1) and found["ceiling"] < 0.9


def test_a_program_that_made_the_bands_is_not_counted_as_covered(models, monkeypatch):
    """A test program of the sample has a band, in which its own score is; another one's does count."""
    collection = get_collection("layout:xla:random")
    program = read_npz(next(iter(list_programs(PROJECT / "data/sample", collection, TEST))))
    rng = np.random.default_rng(0)
    labels = rng.random((2, len(program.runtime)))
    found = does_it_help.evaluate((program, labels), models, 1)
    assert found["low"] is found["high"] is None
    seen = models.seen("layout")
    monkeypatch.setitem(models._seen, "layout", replace(seen, scored=seen.scored[:, ::-1]))
    found = does_it_help.evaluate((program, labels), models, 1)
    assert found["low"] < found["high"]


def test_a_function_is_measured_here_and_ranked(capsys):
    assert does_it_help.main(["--quick", "--labels", "device"]) == 0
    page, last = capsys.readouterr().out.rsplit("\n", 2)[:2]
    (program,) = json.loads(last)["programs"].values()
    assert program["configurations"] == 8 and program["trained on"] == "False"
    assert {row["order"] for row in program["rows"]} == {"fastslow rank", "rule", "random"}
    assert all(-1 <= row["tau"] <= 1 for row in program["rows"]) and "| products " in page
