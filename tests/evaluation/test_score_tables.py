"""Tables of scores: seeds pooled, in words, and as an overview with a row per model."""

import math

import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.tables import table_markdown
from fastslow.evaluation.score_tables import (
    format_distances,
    format_scores,
    overview,
    pool_seeds,
    preview_csv,
    readable_table,
)


def cells_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def row(collection, run, valid, low=-0.25, high=1.0, weight=0.25):
    return {
        "collection": collection,
        "model": run.partition(" s")[0],
        "run": run,
        "weight": weight,
        "valid": valid,
        "valid_min": low,
        "valid_max": high,
    }


def test_seeds_are_pooled():
    rows = [row("tile:xla", f"gnn s{seed}", seed / 10, low=-seed, high=seed) for seed in (2, 1, 11)]
    rows += [row("tile:xla", "ensemble", 0.9, weight=1.0), row("layout:xla:random", "gnn s0", 0.5)]
    rows += [row("layout:xla:random", "ridge on config features", 0.1, weight=math.nan)]
    pooled = pool_seeds(pd.DataFrame(rows)).to_dict("records")
    assert [(r["collection"], r["model"], r["seeds"]) for r in pooled] == [
        ("tile:xla", "gnn", 3),
        ("tile:xla", "ensemble", 1),
        ("layout:xla:random", "gnn", 1),
        ("layout:xla:random", "ridge on config features", 1),
    ]
    assert math.isnan(pooled[-1]["weight"]), "a rule has none"
    first = pooled[0]
    assert (first["valid"], first["valid_spread"], first["weight"]) == pytest.approx((1.4 / 3, 1.0, 0.75))
    assert (first["valid_min"], first["valid_max"]) == (-11, 11)
    assert first["valid_by_seed"] == (0.2, 0.1, 1.1)
    assert pooled[1]["valid_spread"] == 0


def test_the_table_in_words():
    rows = [row(c.name, f"gnn s{seed}", 0.4 + seed / 5) for c in COLLECTIONS for seed in (0, 1)]
    rows += [row(c.name, "additive s0", 0.3) for c in COLLECTIONS if c.kind == "layout"]
    rows += [row("tile:xla", "gnn s2", 0.5), row("tile:xla", "extra", 0.125)]
    shown = readable_table(pd.DataFrame(rows))
    assert [*shown] == ["collection", "model", "seeds", "weight", "valid"]
    cells = shown.to_numpy().tolist()
    assert cells[0] == ["tile:xla", "network", "3", "0.75", "0.500 ± 0.100 [-0.25, 1.00]"]
    assert ["tile:xla", "extra", "1", "0.25", "0.125 [-0.25, 1.00]"] in cells
    assert cells[-3:] == [
        ["mean of layouts", "network", "2", "", "0.500"],
        ["mean of layouts", "additive", "1", "", "0.300"],
        ["mean of five", "network", "2 to 3", "", "0.500"],
    ], "only of models of all that are meant"


def test_a_csv_is_shown_by_its_first_configurations(tmp_path):
    """A row of the real competition has thousands of numbers."""
    path = tmp_path / "some.csv"
    path.write_text("ID,TopConfigs\ntile:xla:a,3;1;2\n" + 9 * "layout:xla:random:b,7;6;5;4;3;2;1;0\n")
    row = ["layout:xla:random:b", "7; 6; 5; 4; 3", 8]
    assert preview_csv(str(path)).to_numpy().tolist() == [["tile:xla:a", "3; 1; 2", 3], *4 * [row]]


def test_the_overview_has_a_row_per_model_and_the_ensemble_last():
    rows = [row(c.name, "ensemble", 0.7, weight=1.0) for c in COLLECTIONS]
    rows += [row(c.name, f"gnn s{seed}", 0.4 + seed / 5) for c in COLLECTIONS for seed in (0, 1)]
    rows += [{**row("tile:xla", "product of bounds", 0.9, weight=None), "valid_top1": 0.5}]
    head, _, *found = cells_of(table_markdown(overview(pd.DataFrame(rows))))
    layouts = [c.name.removeprefix("layout:") for c in COLLECTIONS if c.kind == "layout"]
    assert head[0] == "valid" and head[-2:] == ["mean of layouts", "mean of five"]
    assert set(head[1:-2]) == {"tile:xla", *layouts}
    assert [model for model, *_ in found] == ["network", "product of bounds", "ensemble"]
    assert found[0][1:] == 5 * ["0.500 ± 0.100 [-0.25, 1.00]"] + 2 * ["0.500"]
    tile = head.index("tile:xla")
    assert [cell for n, cell in enumerate(found[1]) if n != tile] == ["product of bounds", *6 * [""]]
    assert found[1][tile] == "0.900 [-0.25, 1.00]"


def test_the_means_fit_a_terminal_with_the_ensemble_first(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    models = ("best single feature", "ridge on config features", "product of bounds", "gnn s0", "ranker s0")
    rows = [row(c.name, name, 0.5) for c in COLLECTIONS for name in (*models, "ensemble")]
    rows = [{**facts, "test": 0.25, "test_min": 0, "test_max": 1} for facts in rows]
    text = format_scores(pd.DataFrame(rows))
    assert max(map(len, text.splitlines())) <= 80 and "not shown" not in text
    valid, test = (cells_of(part) for part in text.split("\n\n"))
    assert valid[0][:3] == ["valid", "ensemble", "trees"] and test[0][:2] == ["test", "ensemble"]
    assert [line for line in test if line[0] == "nlp:random"] == [["nlp:random", *6 * ["0.250"]]]
    assert [line for line in valid if line[0] == "nlp:random"] == [["nlp:random", *6 * ["0.500"]]]
    assert text.count("0.250") == text.count("0.500") == 7 * 6, "five collections and two means"


def test_scores_by_distance_are_a_row_per_collection(monkeypatch):
    def row(collection, part, low, high, score):
        facts = {"split": "test", "collection": collection, "part": part, "graphs": 7}
        return facts | {"smallest": low, "largest": high, "score": score}

    rows = [
        row("tile:xla", "nearest third", 0, 0.0123, 0.9),
        row("tile:xla", "farthest third", 0.2, 0.5, 0.25),
        row("layout:xla:random", "nearest third", 0.1, 0.2, 1),
    ]
    monkeypatch.setenv("COLUMNS", "100")
    said, head = format_distances(rows).split("\n\n")
    head, _, *found = head.splitlines()
    assert "distance to the nearest train graph" in said
    assert cells_of("\n".join([head, *found])) == [
        ["test", "nearest third", "farthest third"],
        ["tile:xla", "0.900 (7; 0.000 to 0.012)", "0.250 (7; 0.200 to 0.500)"],
        ["layout:xla:random", "1.000 (7; 0.100 to 0.200)", ""],
    ]
