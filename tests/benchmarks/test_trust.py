"""How often bands and probabilities hold, of programs that are in the bands or not as they are made."""

import numpy as np
import pytest

import trust
from fastslow.evaluation.score_tables import PARTS


def held(distance, inside, band=True):
    """A program whose score is in its bands, or not; of its two pairs one has the likelier order."""
    bands = [(0.6, 0.8)] * len(trust.LEVELS) if band else [None] * len(trust.LEVELS)
    pairs = np.array([[0.8, 0.8, 0.6], [1.0, 0.0, 0.0]])
    return trust.Held(
        "layout:xla:random", f"{distance}", distance, 0.7 if inside else 0.5, bands, bands, pairs, pairs
    )


def test_the_coverage_of_each_third_of_distance_is_told():
    programs = [held(distance, inside=distance >= 6) for distance in (8, 0, 7, 1, 6, 2, 5, 3, 4)]
    rows = trust.rows_of("x", programs)
    assert [row["part"] for row in rows] == ["all", *PARTS]
    assert [row["in 80%"] for row in rows] == pytest.approx([1 / 3, 0, 0, 1])
    assert [(row["smallest"], row["largest"]) for row in rows] == [(0, 8), (0, 2), (3, 5), (6, 8)]
    assert {row["programs"] for row in rows[1:]} == {row["rankings"] for row in rows[1:]} == {3}
    assert all(row["said 80%"] == row["default 80%"] == 0.5 and np.isnan(row["said 50%"]) for row in rows)


def test_programs_without_a_band_are_not_counted_as_covered():
    row = trust.row_of("x", "all", [held(0, True), held(0, True, band=False), held(0, False)])
    assert row["with a band"] == 2 and row["in 80%"] == row["nearest 90%"] == 0.5
    row = trust.row_of("x", "all", [held(0, True, band=False)])
    assert row["with a band"] == 0 and np.isnan(row["in 50%"]) and np.isnan(row["width"])


def test_an_architecture_is_told_from_the_name_of_a_file():
    zoo = trust.architectures()
    assert zoo["albert_forward_w96_d3_b8"] == "albert" and len(set(zoo.values())) > 90
