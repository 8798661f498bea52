"""Regrets and taus of orders, by known labels; a program is compiled, measured and ranked."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed (pip install -e '.[test]')")

import does_it_help  # noqa: E402
from fastslow.competition.catalog import TEST, get_collection, list_programs  # noqa: E402
from fastslow.competition.reader import read_npz  # noqa: E402
from fastslow.core.files import read_json  # noqa: E402
from fastslow.core.settings import PROJECT  # noqa: E402
from fastslow.runs.packaged import packaged_models  # noqa: E402
from fastslow.steps.finished_run import best_rule  # noqa: E402
from fastslow.steps.unseen import build_unseen  # noqa: E402
from fastslow_programs.ranking.models import Models  # noqa: E402
from fastslow_programs.ranking.trust import FIGURES  # noqa: E402
from helpers.competition_files import layout_arrays, npz_program, write_npz  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")


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
    same_labels = does_it_help.evaluate((program, np.stack([chooses] * 2)), models, 2)
    for row in (row for row in same_labels["rows"] if row["order"] == does_it_help.RULE):
        assert row["tau"] > 0.8 and row["top 1"] == 0, "only ties are left to chance"
    (default,) = [row for row in same_labels["rows"] if row["order"] == does_it_help.DEFAULT]
    assert default["top 1"] == same_labels["default"] >= 0 and default["known"] == 0
    for row in (row for row in same_labels["rows"] if row is not default):
        assert 0 == row["top 100"] <= row["top 10"] <= row["top 5"] <= row["top 1"] and 0 <= row["opa"] <= 1
        assert (row["expected"] is None) == (row["known"] == 0 or row["order"] != does_it_help.MODEL)
    assert same_labels["halves agree"] == pytest.approx(1) and found["halves agree"] < 0.9


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
    orders = {row["order"]: row for row in program["rows"]}
    assert set(orders) == {"fastslow rank", "rule", "random", "default"}
    assert orders.pop("default")["top 1"] == program["default"]
    assert all(-1 <= row["tau"] <= 1 for row in orders.values()) and "| products " in page


def cells(table):
    """Return the rows of a table in Markdown, each as a dictionary."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_what_is_compared_has_the_same_programs():
    """One of three programs has too few configurations to know eight."""

    def program(rank, rule, learnt=None):
        taus = {(0, "fastslow rank"): rank, (0, "rule"): rule, (8, "fastslow rank"): learnt}
        rows = [{"known": n, "order": order, "tau": tau, "top 1": tau} for (n, order), tau in taus.items()]
        return {"rows": [row | {"expected": None} for row in rows if row["tau"] is not None]}

    programs = {"a": program(0.5, 0.4, 0.8), "b": program(0.7, 0.4, 0.6), "c": program(0.1, 0.9)}
    means = does_it_help.mean_rows(programs).set_index(["number", "known", "order"])
    taus = {(3, 0): (1.3 / 3, 1.7 / 3), (2, 0): (0.6, 0.4)}
    for rows, expected in taus.items():
        assert [means.loc[(*rows, order), "tau"] for order in ("fastslow rank", "rule")] == pytest.approx(
            expected
        )
    assert means.loc[(2, 8, "fastslow rank"), "tau"] == pytest.approx(0.7) and len(means) == 5
    assert means.loc[(2, 0, "rule"), "tau - rank"] == "-0.200 ± 0.100"
    assert means.loc[(2, 8, "fastslow rank"), "tau - rank"] == ""


def test_what_rank_says_of_a_device_is_in_the_table():
    """The package's file of figures is made with the table's section of the device."""
    said = read_json(FIGURES)
    page = (Path(does_it_help.__file__).parent / "tables" / "does_it_help.md").read_text()
    section = page.partition("## Labels: device")[2].partition("```")[0]
    _, means, _ = (cells(table) for table in re.split(r"\n\n(?=\|)", section)[1:])
    rows = {(row["known"], row["order"]): row for row in means if row["number"] == str(said["programs"])}
    places = {
        "default": ("0", "default"),
        "first": ("0", "fastslow rank"),
        "rule": ("0", "rule"),
        "first_learnt": ("8", "fastslow rank"),
        "first_at_random": ("8", "random"),
    }
    found = {name: float(rows[place]["top 1"]) for name, place in places.items()}
    assert {name: said[name] for name in found} == found, "rounded twice, README and rank would differ"
    assert said["measured"] == 8
    over_default, over_random = (
        rows[places[name]]["top 1 - rank"] for name in ("default", "first_at_random")
    )
    assert over_default == f"{-said['first_over_default']:+.3f} ± {said['first_over_default_error']:.3f}"
    assert over_random == f"{said['gain_over_random']:+.3f} ± {said['gain_over_random_error']:.3f}"
    assert said["gain_over_default"] == pytest.approx(said["default"] - said["first_learnt"], abs=0.002)
