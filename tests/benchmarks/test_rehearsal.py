"""A rehearsal of the real run: noise, repeats, damage and another row order, down to the CSV and report."""

import numpy as np
import pytest

from common.real_size import Size, write_real_size
from common.rehearsal import REORDERED, spoil
from common.whole_run import FUNCTIONS
from fastslow.competition import row_order
from fastslow.competition.catalog import get_collection
from fastslow.competition.submission_csv import check_submission
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.ledger import read_record
from fastslow.features.store import Features
from fastslow.kaggle.agreement import agreement, in_two_orders, summary
from fastslow.kaggle.provenance import LAUNCH_RELEASE, check_release, warn_of_release
from fastslow.workflow import run as workflow
from fastslow.workflow.run_settings import RunSettings, make_plan

QUICK = ["features.workers=1", "gnn.epochs=1", "gnn.evaluate_every=1", "gnn.hidden_channels=8"]
QUICK += ["gnn.layout.num_layers=1", "gnn.valid_configs=50", "ranker.num_iterations=3", "ranker.num_leaves=4"]
QUICK += ["ranker.tile.evaluate_every=1", "features.layout.skip_valid=layout:nlp:random:valid-0001"]


def test_a_spoiled_competition_ends_with_a_csv_and_a_report_of_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    root = write_real_size(tmp_path / "data", Size(kernels=1e-9, programs=0.075, sizes=0.055))
    spoiled = spoil(root)
    settings = RunSettings(target="submission", data=str(root), preset="kaggle", seeds=1, name="r", set=QUICK)
    plan = make_plan(settings)
    for step in plan.steps():
        FUNCTIONS[type(step.settings)](step.settings)
    capsys.readouterr()
    workflow.report(plan)
    said = capsys.readouterr().out
    csv = resolve(plan.csv)
    rows = check_submission(csv, root)["rows"]
    assert (
        rows["tile:xla"] == 1 and min(rows.values()) == 1 and f"{sum(rows.values())} rows, read back" in said
    )
    assert "left out of model selection (features.skip_valid): layout:nlp:random:valid-0001" in said
    named = said.partition("doubtful labels")[2].splitlines()
    for name in spoiled.damaged:
        assert any(f"{name}: " in line and "blocks of rows differ" in line for line in named), name
    name, _, split = spoiled.repeated.partition(" ")
    collection, _, stem = name.rpartition(":")
    graph = Features(resolve("features/r") / get_collection(collection).slug).graph(split[1:-1], stem)
    assert graph.num_configs <= 0.02 * len(graph.config_row)
    monkeypatch.setattr(row_order, "LAUNCH", spoiled.launch)
    assert LAUNCH_RELEASE in warn_of_release(root)
    with pytest.raises(DataError, match="launch release"):
        check_release(csv, read_record(csv), root, unproven_order=True)


def test_a_csv_of_the_other_order_is_told_from_one_of_this(tmp_path, rng):
    """Two submissions that rank alike but for one collection, whose rows lie in another order."""
    keys = ["tile:xla:k", "layout:nlp:random:a", f"{REORDERED}:a"]
    order = rng.permutation(500)
    moved = rng.permutation(500)
    lines = {key: order[:5] if key.startswith("tile") else order for key in keys}
    for name, own in (("one", lines), ("two", {**lines, keys[2]: moved[order]})):
        text = [f"{key},{';'.join(map(str, values))}" for key, values in own.items()]
        (tmp_path / name).write_text("\n".join(["ID,TopConfigs", *text, ""]))
    assert in_two_orders(summary(agreement(tmp_path / "one", tmp_path / "two"))) == [REORDERED]


def test_what_is_spoiled_is_what_is_said(tmp_path):
    root = write_real_size(tmp_path / "data", Size(kernels=1e-9, programs=1e-9, sizes=0.055))
    before = {path: dict(np.load(path)) for path in root.rglob("*.npz")}
    spoiled = spoil(root)
    changed = set()
    for path, old in before.items():
        new = dict(np.load(path))
        name = ":".join(path.relative_to(root / "npz_all" / "npz").parts[:-2]) + f":{path.stem}"
        same = {key: np.array_equal(old[key], new[key]) for key in old}
        changed |= {f"{name} ({path.parent.name})"} if not all(same.values()) else set()
        if name in spoiled.launch:
            rows = [np.sort(arrays["node_config_feat"], 0) for arrays in (old, new)]
            np.testing.assert_array_equal(*rows)
    assert changed == {*spoiled.damaged, spoiled.repeated, *(f"{key} (test)" for key in spoiled.launch)}
