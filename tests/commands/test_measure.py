"""The command ``measure``: its table is one that ``rank known=`` reads."""

import contextlib
import fcntl
import shlex

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("jax", reason="jax is not installed (pip install -e '.[test]')")

import fastslow  # noqa: E402
from fastslow.core.errors import DataError, SettingsError  # noqa: E402
from fastslow_programs.commands import measure as command  # noqa: E402
from fastslow_programs.commands.measure import measure_program  # noqa: E402
from fastslow_programs.compiler.bench import Times  # noqa: E402
from fastslow_programs.program.configurations import identify  # noqa: E402
from fastslow_programs.program.convert import make_program  # noqa: E402
from fastslow_programs.program.program_settings import MeasureSettings  # noqa: E402
from fastslow_programs.ranking.known_runtimes import read_known  # noqa: E402
from fastslow_programs.ranking.settings import RankSettings  # noqa: E402
from fastslow_programs.tuning import measurement  # noqa: E402
from fastslow_programs.tuning.evaluators import ROUNDS  # noqa: E402
from helpers.cases import cases  # noqa: E402
from helpers.dot_module import SMALL_TEXT  # noqa: E402
from helpers.read_settings import ignored, settings_read  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")
MODEL = """
import jax, jax.numpy as jnp
def make():
    def step(weights, x):
        return jnp.tanh(x @ weights["first"]).reshape(4, 4, -1)
    shape = jax.ShapeDtypeStruct
    return step, ({"first": shape((8, 16), jnp.float32)}, shape((16, 8), jnp.float32))
"""
X, W = np.ones((16, 8), np.float32), np.ones((8, 16), np.float32)


def test_runtimes_are_known_to_a_ranking_of_a_larger_draw(tmp_path):
    source = tmp_path / "small.hlo"
    source.write_text(SMALL_TEXT)
    settings = MeasureSettings(source=str(source), configs=5, data_root=str(tmp_path))
    with settings_read() as read:
        facts = measure_program(settings)
    assert ignored(settings, read, measure_program) == []
    table = pd.read_csv(facts["table"])
    assert table.groupby("id").size().tolist() == [ROUNDS] * 5 and facts["configurations"] == 5
    assert facts["result"] in facts["page"].read_text()
    larger = make_program(settings.replace(configs=12))
    known = read_known(facts["table"], len(larger.runtime), identify(larger), of_file=False)
    assert np.array_equal(known["config"], np.repeat(np.arange(5), ROUNDS))
    assert (known["runtime"] == table["runtime"]).all()
    kept = make_program(settings.replace(cache=True)).known
    assert sum(map(len, kept.values())) == 5 and str(facts["kept for rank and tune"]).endswith(".json")
    number, unit = facts["time of the default"].split()
    default_ns = float(number.replace(",", "")) * {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}[unit]
    assert 0.2 * default_ns < table["runtime"].median() < 5 * default_ns


def test_an_interruption_keeps_what_was_measured(tmp_path, monkeypatch):
    class Bench:
        def __init__(self, *_):
            self.calls = 0

        def running(self):
            return contextlib.nullcontext(self.times)

        def times(self, modules):
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            ran = [""] * (len(modules) - 1)
            return Times(np.ones((ROUNDS, 2 + len(modules))), [*ran, "crashed"])

    monkeypatch.setattr(measurement, "Bench", Bench)
    monkeypatch.setattr(measurement, "_BATCH", 4)
    (tmp_path / "small.hlo").write_text(SMALL_TEXT)
    settings = MeasureSettings(source=str(tmp_path / "small.hlo"), configs=8, data_root=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        measure_program(settings)
    assert [*make_program(settings.replace(cache=True)).known.values()] == [[1.0]] * 3


def test_a_second_program_of_the_name_waits_until_the_table_is_written(tmp_path, monkeypatch):
    """Both found no table, both wrote the note, and the table had the times of the last one."""
    held = []

    def measured(settings):
        path = measurement.table_path(settings).with_suffix("") / ".lock"
        with open(path) as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(settings.program)

    for module in (command, measurement):
        monkeypatch.setattr(module, "measure_source", measured)
        monkeypatch.setattr(module, "write_measurement", lambda *_: {measurement.TO_RANK: "rank"})
    (tmp_path / "small.hlo").write_text(SMALL_TEXT)
    measure_program(MeasureSettings(source=str(tmp_path / "small.hlo"), data_root=str(tmp_path)))
    fastslow.measure(tmp_path / "small.hlo", out=tmp_path)
    assert held == ["small", "small"]


def test_the_table_of_another_program_is_not_replaced(tmp_path):
    sources = [tmp_path / folder / "small.hlo" for folder in "ab"]
    for source, text in zip(sources, (SMALL_TEXT, SMALL_TEXT.replace("f32", "bf16")), strict=True):
        source.parent.mkdir()
        source.write_text(text)
    first, second = (
        MeasureSettings(source=str(source), configs=1, data_root=str(tmp_path)) for source in sources
    )
    table = measure_program(first)["table"]
    before = table.read_bytes()
    with pytest.raises(DataError, match=r"small.csv: has the times of another program.*\(name=small-2\)"):
        measure_program(second)
    assert table.read_bytes() == before
    assert measure_program(second.replace(name="small-2"))["table"] == table.with_name("small-2.csv")
    assert measure_program(first)["table"] == table, "the same program is measured again"


@cases("setting", [{"label": True}, {"generation": "v4"}, {"collection": "layout:nlp:random"}])
def test_what_a_measurement_does_not_read_is_refused(tmp_path, setting):
    (tmp_path / "small.hlo").write_text(SMALL_TEXT)
    with pytest.raises(SettingsError, match=f"{next(iter(setting))}: .* has no effect on what this machine"):
        measure_program(
            MeasureSettings(source=str(tmp_path / "small.hlo"), data_root=str(tmp_path), **setting)
        )


def test_a_function_is_measured_and_ranked_as_the_hlo_that_ran_here(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    settings = MeasureSettings(source=f"{tmp_path}/model.py:make", configs=3, data_root=str(tmp_path))
    with settings_read() as read:
        facts = measure_program(settings)
    assert ignored(settings, read, measure_program) == []
    ranked = printed(facts["to rank with it"])
    program = make_program(ranked.conversion())
    found = read_known(ranked.known, len(program.runtime), identify(program), of_file=False)
    assert {*found["config"]} == {0, 1, 2}


def printed(command):
    """The settings of a command of a shell that ranks."""
    *name, source, known = (words := shlex.split(command))[:4]
    assert name == ["fastslow", "rank"] and known.startswith("known=")
    return RankSettings.from_texts([source, known, *words[4:]], first="source")


@cases(
    "setting",
    [
        {},
        {"seed": 3},
        {"data_root": "it's mine"},
        {"kernel": "0"},
        {"name": "other"},
        {"configs": 0},
        {"configs": 5000},
    ],
)
def test_the_command_that_ranks_draws_what_was_measured_into_the_same_folder(tmp_path, setting):
    """A ranking without the seed refused the measured runtimes: they were of no configuration of its own."""
    source = tmp_path / "my program.hlo"
    source.write_text(SMALL_TEXT)
    settings = MeasureSettings(source=str(source), **setting)
    ranked = printed(measurement.rank_command(str(source), settings))
    assert ranked.source == str(source) and ranked.known == str(measurement.table_path(settings))
    assert ranked.program == settings.program and {name: getattr(ranked, name) for name in setting} == setting
    assert ranked.configs == setting.get("configs", RankSettings().configs), "few are among a thousand"


def test_a_function_in_memory_is_measured_and_nothing_is_written(tmp_path, monkeypatch):
    import jax

    monkeypatch.chdir(tmp_path)
    found = fastslow.measure(lambda x, *, w: (x @ w).reshape(4, 4, 16), X, keywords={"w": W}, configs=2)
    assert found.table.groupby("id").size().tolist() == [ROUNDS] * 2
    assert "configurations: 2" in found.words() and not [*tmp_path.iterdir()]
    with pytest.raises(SettingsError, match="cannot be traced"):
        fastslow.measure(jax.jit(lambda x: x @ x), X)


def test_what_a_function_has_not_to_choose_is_said_by_the_name_that_was_typed(tmp_path):
    with pytest.raises(DataError, match="^nothing: it has no convolution, dot or reshape"):
        fastslow.measure(nothing, X)
    (tmp_path / "model.py").write_text("def make():\n    return (lambda x: x + 1), (1.0,)\n")
    source = f"{tmp_path}/model.py:make"
    with pytest.raises(DataError, match="model.py: it has no convolution, dot or reshape"):
        measure_program(MeasureSettings(source=source, data_root=str(tmp_path)))


def nothing(x):
    return x + 1
