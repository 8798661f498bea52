"""A tuning as a user starts it: every evaluator, resumed, shared, and every bad input by name."""

import importlib.util
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from fastslow.core.errors import ConfigError, DataError
from fastslow.core.settings import resolve
from fastslow.tuning import target as target_module
from fastslow.tuning.config import STRATEGIES, TuneConfig
from fastslow.tuning.history import Outcome
from fastslow.tuning.result import list_evaluations, plot_curve, proposers, summarise, top_k, write_result
from fastslow.tuning.strategies import Random
from fastslow.tuning.target import read_target
from fastslow.tuning.tune import open_ledger, start, tune
from fastslow.xla.messages import HloProto, Module
from helpers.competition_files import layout_arrays, write_npz
from helpers.dot_module import add, small_module
from helpers.stub_labeller import StubLabeller

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

PYTHON = shlex.quote(sys.executable)
SUM = "import json, sys; print(1 + sum(json.load(open(sys.argv[1]))['options']))"

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="a program's default layouts need libtpu"
)


@pytest.fixture
def npz(tmp_path):
    return write_npz(tmp_path / "labelled.npz", layout_arrays(3, dots=4, configs=40))


@pytest.fixture
def dots(tmp_path):
    path = tmp_path / "dots.pb"
    path.write_bytes(small_module(3).SerializeToString())
    return path


def settings(source, tmp_path, **more):
    common = {"run": "none", "evaluations": 12, "data_root": str(tmp_path / "out")}
    return TuneConfig(source=str(source), **{**common, **more})


def measuring(dots, tmp_path, code=SUM, **more):
    command = f"{PYTHON} -c {shlex.quote(code)}"
    return settings(dots, tmp_path, evaluator="command", command=command, attempts=1, **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_replay_of_a_file_finds_its_best(npz, tmp_path, strategy):
    config = settings(npz, tmp_path, strategy=strategy, evaluations=100, batch=5)
    study = tune(config)
    labels = study.target.labels
    assert study.exhausted and len(study.history) == len(labels) == study.target.space.size
    assert study.history.best[1] == labels.min()
    facts = summarise(study)
    assert (
        facts["value"] == "the labels of labelled.npz" and "no configuration is left" in facts["evaluations"]
    )
    if strategy.startswith("guided"):
        table = top_k(study)
        assert list(table.index) == [k for k in (1, 5, 10, 100) if k <= len(labels)]
        assert table["learnt"].iloc[-1] <= table["learnt"].iloc[0]
    else:
        assert top_k(study).empty


def test_the_curve_has_ticks_to_read_it_by(npz, tmp_path):
    figure = plot_curve(tune(settings(npz, tmp_path, evaluations=12, strategy="random")))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        assert len(shown) >= 3, axis.axis_name


@needs_compiler
def test_a_command_measures_and_the_result_is_written(dots, tmp_path):
    study = tune(measuring(dots, tmp_path, evaluations=16))
    folder = write_result(study)
    best = json.loads((folder / "best.json").read_text())
    assert best["value"] == 1 and set(best["options"]) == {0} and best["program"] == "dots"
    default, own = ((folder / f"{name}.hlo.pb").read_bytes() for name in ("default", "best"))
    assert HloProto.FromString(own).hlo_module == study.target.module_of(study.history.best[0].codes)
    assert HloProto.FromString(default).hlo_module.name == "small"
    table = list_evaluations(study)
    assert len(table) == len(study.history) and table["best"].iloc[-1] == 1
    assert proposers(study)["evaluations"].sum() == len(study.history)
    assert (folder / "curve.png").is_file()


def test_it_resumes_and_several_processes_share_a_study(npz, tmp_path):
    first = tune(settings(npz, tmp_path, evaluations=5))
    again = tune(settings(npz, tmp_path, evaluations=11, strategy="random"))
    assert len(first.history) == 5 and len(again.history) == 11
    assert again.history.done[:5] == first.history.done
    assert {p.by for p, _ in again.history.done} > {"default", "random"}
    given = [f"{k}={v}" for k, v in settings(npz, tmp_path, evaluations=17).asdict().items() if v != ""]
    code = f"""
from fastslow.tuning.config import TuneConfig
from fastslow.tuning.tune import tune
tune(TuneConfig.from_texts({given!r}))
"""
    workers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    study = tune(settings(npz, tmp_path, evaluations=17))
    codes = [proposal.codes for proposal, _ in study.history.done]
    assert len(codes) == len(set(codes)) == 17, "no process repeats another's, nor exceeds the budget"


def test_an_evaluation_that_ends_while_another_process_counts_is_counted(npz, tmp_path, monkeypatch):
    config = settings(npz, tmp_path, evaluations=1)
    first, second = (open_ledger(config, read_target(config)) for _ in range(2))
    _, [(number, _)] = start(first, Random(), config)
    read = second.read

    def read_just_before_it_ends():
        history = read()
        first.finish(number, Outcome(1.0))
        return history

    monkeypatch.setattr(second, "read", read_just_before_it_ends)
    assert start(second, Random(), config)[1] == [], "the budget of one evaluation was under way"


def test_a_budget_of_seconds_ends_it(npz, tmp_path):
    study = tune(settings(npz, tmp_path, evaluations=10**6, budget_seconds=1e-9))
    assert len(study.history) == 0 and summarise(study)["evaluations"].startswith("0,")
    write_result(study)


@needs_compiler
def test_failures_are_counted_and_not_fatal(dots, tmp_path):
    code = SUM.replace("print(", "o = json.load(open(sys.argv[1]))['options']; print('oh' if o[0] else ")
    study = tune(measuring(dots, tmp_path, code.replace("1 + sum(json", "1 + sum(json"), evaluations=12))
    failures = study.history.failures
    assert 0 < len(failures) < 12 and all("printed no number" in f for f in failures)
    assert "failed" in summarise(study)["evaluations"]
    write_result(study)


@needs_compiler
def test_where_all_fail_it_says_why_and_keeps_the_study(dots, tmp_path):
    config = measuring(dots, tmp_path, "print('no TPU here')", evaluations=50)
    with pytest.raises(DataError, match="first 8 evaluations failed.*no TPU here.*The study is kept"):
        tune(config)
    assert config.ledger.is_file()


def test_the_compiler_evaluates_its_own_default_first(dots, tmp_path, monkeypatch):
    class Labeller(StubLabeller):
        class compiler:
            version = staticmethod(lambda: "1")

        def __init__(self, cache, generation, seconds, attempts, processes):
            super().__init__(cache, generation, seconds, processes=processes)

    monkeypatch.setattr(target_module, "Labeller", Labeller)
    monkeypatch.setattr(target_module, "require_compiler", lambda: None)
    monkeypatch.setattr(target_module.Source, "read", lambda self, labeller, ask_compiler: read(dots))
    study = tune(settings(dots, tmp_path, evaluations=6))
    (first, outcome), *_ = study.history.done
    assert first.by == "default" and outcome.value == 100 and len(study.history.failures) == 2
    assert summarise(study)["value"] == "the v3 compiler's estimated cycles"


def read(path):
    from fastslow.xla.reader import read_program

    return read_program(path)


@needs_compiler
def test_only_what_a_constraint_binds_is_a_choice(dots, tmp_path):
    target = read_target(measuring(dots, tmp_path))
    assert all("output" in choice.where for choice in target.space.choices)
    codes = {
        target.module_of(tuple(row)).SerializeToString(deterministic=True) for row in target.space.listed
    }
    assert len(codes) == target.space.size, "two configurations of the space are never the same program"


@needs_compiler
def test_a_run_guides_a_file_and_a_program(home, dots, tmp_path):
    npz = next((home / "data/sample/npz_all/npz/layout/xla/random/train").glob("*.npz"))
    for source, more in ((npz, {}), (dots, {"evaluator": "command", "command": f"{PYTHON} -c 'print(1)'"})):
        target = read_target(settings(source, tmp_path, run="runs/smoke", **more))
        codes = target.space.draw(20, np.random.default_rng(0))
        prior, features = target.pretrained(codes)
        again, _ = target.pretrained(codes[::-1])
        assert prior.shape == (20,) and features.shape[0] == 20 and np.isfinite(features).all()
        np.testing.assert_allclose(again[::-1], prior, atol=1e-4)
        assert prior.std() > 0
    with pytest.raises(DataError, match="a run of layout:xla:default, layout:xla:random wanted"):
        tune(settings(npz, tmp_path, run=str(resolve("runs/smoke/ensemble-layout-xla-default"))))


def test_what_cannot_be_tuned_is_refused(home, dots, npz, tmp_path, monkeypatch):
    measure = {"evaluator": "command", "command": f"{PYTHON} -c 'print(1)'"}
    (tmp_path / "text.hlo").write_text("this is no HLO")
    unlabelled = write_npz(tmp_path / "test.npz", layout_arrays(3, labelled=False))
    flat = Module(name="flat", entry_computation_id=1)
    main = flat.computations.add(name="main", id=1)
    main.root_id = add(main, "parameter", (8, 4))
    (tmp_path / "flat.pb").write_bytes(flat.SerializeToString())
    for source, more, said in [
        (tmp_path / "text.hlo", measure, "text.hlo: "),
        (tmp_path / "flat.pb", measure, "has no convolution, dot or reshape"),
        (unlabelled, {}, "configurations without a runtime"),
        (tmp_path / "none.pb", measure, "no such file"),
    ]:
        with pytest.raises((DataError, ConfigError), match=said):
            tune(settings(source, tmp_path, **more))
    tune(settings(npz, tmp_path, name="mine"))
    other = write_npz(tmp_path / "other.npz", layout_arrays(4, configs=20))
    with pytest.raises(DataError, match="study of something else .program: "):
        tune(settings(other, tmp_path, name="mine"))
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "empty"))
    with pytest.raises(DataError, match="holds no trained ensemble"):
        tune(settings(npz, tmp_path, run=""))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"evaluations": 0}, "evaluations: 0 is not 1 or more"),
        ({"strategy": "guess"}, "strategy: 'guess' is not one of"),
        ({"evaluator": "command"}, "command: '' is not given"),
        ({"command": "ls"}, "command: 'ls' is not read"),
        ({"name": "a/b"}, "name: 'a/b' is not made of"),
        ({"evaluator": "compiler"}, "evaluator: 'compiler' is not possible for an npz"),
        ({"default": 99}, "default: 99 is not a position below 40"),
    ],
)
def test_a_setting_is_refused_by_name(npz, tmp_path, more, said):
    with pytest.raises(ConfigError, match=said):
        tune(settings(npz, tmp_path, **more))
