"""The published ablations: their rows are settings that exist, and stand beside the published figures."""

import numpy as np
import pytest

import ablations
from common.held_out import BASE, Run
from fastslow.core.settings import PROJECT
from fastslow.networks.settings import TrainSettings
from fastslow.workflow.presets import network_settings
from fastslow.workflow.steps import parse_overrides

ROWS = [(table, row) for table, own in ablations.TABLES.items() for row in own.variants()]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_every_row_changes_the_base_to_settings_that_exist(table, row):
    own = ablations.TABLES[table]
    cut = [f"gnn.layout.{setting}" for setting in own.cut]

    def settings(given):
        return TrainSettings(**network_settings(own.preset, parse_overrides([*cut, *given]), "layout")[0])

    variants = own.variants()
    if "segment_partition=metis" in str(variants[row] + variants[BASE]):
        pytest.importorskip("pymetis", reason="pip install -e '.[segments]'")
    assert (settings(variants[row]) == settings(variants[BASE])) == (row == BASE)


def test_rows_keep_the_published_figures_and_gains_are_paired(monkeypatch):
    table = ablations.Table(
        "A report",
        "sample",
        (),
        ("opa",),
        "OPA",
        {"all": ablations.Row((), ".7"), "less": ablations.Row(("a=1",), ".6")},
    )
    runs = [Run(variant, seed, 0, (), [], {}) for variant in (BASE, "less") for seed in (0, 1)]
    value = {BASE: 0.7, "less": 0.6}
    results = [
        {
            "variant": run.variant,
            "seed": run.seed,
            "per_graph": {
                "x": {
                    f"{f}_1": {"opa": value[run.variant] + 0.1 * run.seed + 0.02 * i}
                    for i, f in enumerate("ab")
                }
            },
        }
        for run in runs
    ]
    rule = {"variant": "rule", "seed": 0, "per_graph": results[0]["per_graph"]}
    monkeypatch.setattr(ablations, "random_results", lambda runs: [rule])
    monkeypatch.setattr(ablations.rules, "rule_results", lambda runs: [rule])
    rows = ablations.measure(table, runs, results)
    assert rows[BASE]["opa"]["seeds"] == pytest.approx([0.71, 0.81])
    assert rows["less"]["opa"] == {
        "seeds": pytest.approx([0.61, 0.71]),
        "standard error": pytest.approx(0, abs=1e-9),
    }
    first, second, *others = ablations.cells(table, rows)
    assert first == {"row": "all", "published": ".7", "opa": "0.760", "seeds": 2}
    assert second == {"row": "less", "published": ".6", "opa": "0.660 (-0.100 ± 0.000)", "seeds": 2}
    assert [row["row"] for row in others] == [ablations.RANDOM, "rule"]


def test_random_scores_have_no_order(tmp_path, monkeypatch):
    class Held:
        def __init__(self, *_):
            self.collection = type("Collection", (), {"name": "x"})

        def labels(self, split):
            return {"g": np.arange(1.0, 40)}

    monkeypatch.setattr(ablations, "HeldOut", Held)
    results = ablations.random_results([Run(BASE, 0, 0, (), [PROJECT], {})])
    taus = [result["per_graph"]["x"]["g"]["tau"] for result in results]
    assert len(taus) == ablations.DRAWS and len(set(taus)) > 10 and abs(np.mean(taus)) < 0.1
