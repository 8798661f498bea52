"""One rule of what a runtime may be, asked wherever one is read."""

import json

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.runtimes import LONGEST, SHORTEST, are_runtimes
from fastslow.core.errors import DataError
from fastslow_programs.program.measured import _are_times
from fastslow_programs.ranking.known_runtimes import check_known, read_known
from fastslow_programs.tuning.evaluators import _number
from fastslow_programs.tuning.history import Evaluation
from helpers.cases import cases

NONE = [0.0, -1.0, 5e-324, 1e-320, 9.9e-31, 1.1e30, 1e308, np.inf, np.nan, 10**400]
RIGHT = [SHORTEST, 1e-9, 1.0, float(np.iinfo(np.int64).max), LONGEST]


def table_takes(value):
    check_known(pd.DataFrame({"config": [0], "runtime": [value]}), 1)


def evaluation_takes(value):
    evaluation = Evaluation(value).checked()
    if evaluation.failure:
        raise ValueError(evaluation.failure)
    assert evaluation.value == value


def command_takes(value):
    number, said = _number(f"{value!r}\n")
    if number is None:
        raise ValueError(said)


def kept_takes(value):
    if not _are_times(json.loads(json.dumps([value]))):
        raise ValueError("no runtime")


DOORS = [table_takes, evaluation_takes, command_takes, kept_takes]


def test_ratios_of_runtimes_and_their_squares_are_normal_numbers():
    ratios = np.divide.outer(RIGHT, RIGHT)
    assert (ratios**2 >= np.finfo(np.float64).tiny).all() and np.isfinite(ratios**2).all()
    assert are_runtimes(RIGHT).all() and not are_runtimes(NONE).any()


@cases("door", DOORS)
@cases("value", RIGHT)
def test_every_door_takes_a_runtime(door, value):
    door(value)


@cases("door", DOORS)
@cases("value", NONE)
def test_every_door_refuses_what_is_none(door, value):
    with pytest.raises(ValueError, match=r"from 1e-30 to 1e\+30|no runtime|no number"):
        door(value)


@cases("text", ["1e308", "1e-320", "0", "-3", "inf", "", "2,5"])
def test_a_table_of_known_runtimes_names_the_row_and_the_rule(tmp_path, text):
    path = tmp_path / "known.csv"
    path.write_text(f'config,runtime\n0,12.5\n1,"{text}"\n')
    with pytest.raises(DataError, match=r"row 2 has runtime .*, not a number from 1e-30 to 1e\+30"):
        read_known(path, 2)
