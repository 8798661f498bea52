"""The result of a measurement: its verdict, its page, and that noise is not taken for a gain."""

from dataclasses import replace

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.bench import Times
from fastslow_programs.program.configurations import find_default, identify
from fastslow_programs.program.convert import make_program
from fastslow_programs.program.program_settings import ConvertSettings, clean_name
from fastslow_programs.ranking.settings import RankSettings
from fastslow_programs.tuning.confirmation import FEWEST
from fastslow_programs.tuning.measurement import _compare
from fastslow_programs.tuning.measurement_result import Measurement, fastest_config
from fastslow_programs.tuning.settings import TuneSettings
from helpers.browser import check_page, open_page
from helpers.cases import cases
from helpers.dot_module import SMALL_TEXT

IMAGE = "<img src=x onerror=alert(1)>"
ROUNDS = 15


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    (folder / "small.hlo").write_text(SMALL_TEXT)
    return make_program(ConvertSettings(source=f"{folder}/small.hlo", configs=6, data_root=str(folder)))


@pytest.fixture
def measured(program, rng):
    """A measurement of six configurations; the fourth needs a tenth less time, the last failed."""
    rounds = np.array([1.0, 1.2, 1.1, 0.9, 1.5, 1.3]) * np.exp(0.01 * rng.normal(size=(ROUNDS, 6)))
    rounds[:, 5] = np.nan
    failures = ["", "", "", "", "", "refused: no"]
    paired = (np.log(0.9) + 0.001 * rng.normal(size=FEWEST)).tolist()
    return Measurement(program, "small.hlo", "cpu", 52_000.0, 0.013, rounds, failures, paired)


def checked(shown, tmp_path, title="mine", browser=False):
    path = tmp_path / "measure.html"
    path.write_text(shown.page(title))
    page = check_page(path)
    if browser:
        open_page(path)
    return page.text


def test_a_gain_is_told_with_its_size_the_noise_and_what_to_change(measured, tmp_path):
    text = checked(measured, tmp_path)
    assert text[3] == "Take configuration 3: it needs 10 % less time than the default."
    numbers = [(number.name, number.value) for number in measured.numbers()]
    assert numbers == [
        ("fastest against the default", "10 % less time"),
        ("two runs of the default differ by", "1.3 %"),
        ("time of the default", "52.0 µs"),
    ]
    assert "cpu; 5 configurations ran, 1 failed" in text and identify(measured.program)[3] in text
    first = measured.first_rows()
    assert first["config"].tolist() == [3, 0, 2, 1, 4]
    assert first["differences from the default"].iloc[1] == "none" and "instead of" in first.iloc[0, -1]
    assert "The fastest of 5 configurations needs 10 % less time than the default" in measured.title()


@cases("paired", [[-0.4, 0.3, -0.2, 0.3, -0.3], [0.01] * FEWEST, [-0.4] * (FEWEST - 1)])
def test_a_time_that_was_the_lowest_by_luck_is_no_gain(measured, tmp_path, paired):
    shown = replace(measured, paired=paired)
    said = shown.verdict()
    assert said.startswith("Keep the default: configuration 3, the fastest of 5, ")
    reason = "is not faster beyond noise" if len(paired) == FEWEST else "failed in one of 5 further runs"
    assert reason in said and checked(shown, tmp_path)[3] == said
    (number, *_) = shown.numbers()
    assert number.value == ("not confirmed" if np.mean(paired) < 0 else "not faster"), (
        "no gain in large letters"
    )


def test_nothing_below_the_default_or_nothing_but_the_default_keeps_it(measured, tmp_path):
    slower = replace(measured, rounds=measured.rounds + 0.2, paired=[])
    text = checked(slower, tmp_path)
    assert text[3] == "Keep the default: none of 5 configurations needs less time." and "not faster" in text
    default = find_default(measured.program).config
    assert fastest_config(measured.program, {default: 0.8, 2: 1.0}) is None
    assert fastest_config(measured.program, {default: 0.8, 2: 0.99, 3: 0.98}) == 3


@cases("count", [1, 2])
def test_one_configuration_or_equal_times_have_a_page(measured, tmp_path, count):
    equal = replace(measured, rounds=np.ones((ROUNDS, count)), failures=[""] * count, paired=[])
    text = checked(equal, tmp_path)
    assert (text[3] == "There is one configuration: nothing is left to choose.") == (count == 1)


@cases("name", [IMAGE, "x" * 300, "a$b^{c}$ & 'd'"])
def test_names_do_not_break_the_page(measured, tmp_path, name):
    module = type(measured.program.module)()
    module.CopyFrom(measured.program.module)
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.name = name
    shown = replace(measured, program=replace(measured.program, module=module))
    text = checked(shown, tmp_path, name, browser=name == IMAGE)
    assert text[2] == name and any(name in part for part in text[4:])


def test_a_name_that_no_file_can_have_is_refused_before_anything_is_measured(tmp_path):
    source = tmp_path / "small.hlo"
    source.write_text(SMALL_TEXT)
    for kind in (ConvertSettings, RankSettings, TuneSettings):
        with pytest.raises(SettingsError, match="name: .* is not at most 200 bytes long"):
            kind(source=str(source), name="n" * 201)
    assert ConvertSettings(source=str(source), name="n" * 200).program == "n" * 200
    assert clean_name("é" * 300) == "é" * 100 and clean_name("<a b>") == "_a_b_"


def test_the_table_has_the_time_of_every_round_that_ran(measured):
    rows = [
        (identify(measured.program)[config], number, measured.rounds[number, config] * 52_000.0)
        for config in range(5)
        for number in range(ROUNDS)
    ]
    assert [*measured.table.itertuples(index=False, name=None)] == rows
    assert "runtime" in measured.table and measured.facts["configurations"] == 5


def test_the_fastest_is_loaded_again_until_it_fails():
    seconds = np.array([[1.0, 3.0, 1.0], [1.0, 1.0, 2.0], [2.0, 2.0, 3.0]])
    answers = [Times(seconds, [""])] * 2 + [Times(seconds * np.nan, ["ended"])]
    assert _compare(None, lambda modules: answers.pop(0)) == [np.log(1.5)] * 2
    assert len(_compare(None, lambda modules: Times(seconds, [""]))) == FEWEST
