"""A budget of hours: what fits is chosen, recorded, and made again as it was."""

import contextlib
import io
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastslow import cli
from fastslow.core import progress
from fastslow.core.errors import SettingsError
from fastslow.core.files import read_json
from fastslow.evaluation.run_record import record_run
from fastslow.runs.features_folder import Features
from fastslow.steps import ranker
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow import budget, execution, run, speed
from fastslow.workflow.begun_run import add_chosen, make_plan, resume
from fastslow.workflow.budget import Choice, Model, choose, plan_hours
from fastslow.workflow.job_plan import PlannedPool, Resources
from fastslow.workflow.settings.run_settings import RunSettings
from fastslow.workflow.speed import Speed, measure
from helpers.workspace import environment

NETWORK, RANKER = "gnn.layout-xla-default", "ranker.layout-xla-default"
SPEEDS = st.builds(Speed, st.floats(0, 50), st.floats(0.01, 10))
MODELS = st.lists(
    st.tuples(st.integers(1, 200), st.dictionaries(st.booleans(), SPEEDS, min_size=1)),
    min_size=1,
    max_size=4,
).map(lambda model_fields: [Model(str(n), *each) for n, each in enumerate(model_fields)])


@given(MODELS, st.integers(1, 3), st.floats(0, 5000), st.integers(1, 4))
def test_the_choice_is_the_first_that_fits(models, seeds, seconds, together):
    def takes(choice):
        each = []
        for model in models:
            whole, cut = (model.speeds.get(part) for part in (False, True))
            model_speed = (cut or whole) if choice.cut else (whole or cut)
            each.append(model_speed.once + model_speed.each * max(1, int(choice.share * model.rounds)))
        return max(sum(each) * choice.seeds / together, max(each))

    wanted = [Choice(n, 1.0, cut) for n in range(seeds, 0, -1) for cut in (False, True)]
    wanted += [Choice(1, n / 100, True) for n in range(99, 4, -1)]
    found = choose(models, dict.fromkeys("0123", seeds), seconds, together)
    # where a choice takes the seconds to the last digit, a sum in another order may be above them
    most, least = seconds * (1 + 1e-9), seconds * (1 - 1e-9)
    fitting = [next((choice for choice in wanted if takes(choice) <= limit), None) for limit in (most, least)]
    assert found in fitting or takes(found) == pytest.approx(seconds)


def chosen(monkeypatch, speeds, seconds, *settings):
    """What a budget of seconds chooses, where every network and ranker has such speeds."""
    plan = make_plan(RunSettings.from_texts(["data=kaggle", "collections=xla:default", *settings]))
    monkeypatch.setattr(
        budget, "measure", lambda steps, *_: {s.section: speeds[s.section[:3]] for s in steps}
    )
    monkeypatch.setattr(budget, "machine_resources", lambda: Resources(2, 1 << 34))
    return plan_hours(plan, seconds / 0.8 + 1)


def test_fewer_seeds_then_segments_then_epochs_then_rankers_then_rules(monkeypatch):
    network = {False: Speed(10, 10), True: Speed(5, 1)}  # 1010 or 105 seconds
    speeds = {"gnn": network, "ran": {False: Speed(10, 0.1)}}  # 70
    part = {f"{NETWORK}.segment_training": "gst+e", f"{NETWORK}.segment_nodes": 1000}
    most = {f"{RANKER}.hours": 0.0214}
    assert chosen(monkeypatch, speeds, 1625)[0] == {f"{NETWORK}.hours": 0.309, **most}
    found, said = chosen(monkeypatch, speeds, 1100, "gnn.layout.epochs=100")
    assert found == {**part, f"{NETWORK}.hours": 0.0321, **most} and "| segments |" in said
    assert chosen(monkeypatch, speeds, 190)[0] == {"seeds": 2, **part, f"{NETWORK}.hours": 0.0321, **most}
    found, said = chosen(monkeypatch, speeds, 60)
    assert found.pop(f"{NETWORK}.hours") * 3600 / 1.1 == pytest.approx(
        5 + 1 * found[f"{NETWORK}.epochs"], 0.01
    )
    assert found.pop(f"{RANKER}.hours") < 0.0214
    epochs, trees = found[f"{NETWORK}.epochs"], found[f"{RANKER}.num_iterations"]
    assert found == {"seeds": 1, **part, f"{NETWORK}.epochs": epochs, f"{RANKER}.num_iterations": trees}
    assert 50 < epochs <= 60 and trees == int(epochs / 100 * 600) and f"{epochs}/100" in said
    speeds["gnn"] = {True: Speed(5, 1)}  # whole graphs did not fit
    found, said = chosen(monkeypatch, speeds, 1625)
    assert found == {**part, f"{NETWORK}.hours": 0.0321, **most}
    assert "| whole " in said.rpartition("ranker")[2]
    speeds["gnn"] = {False: Speed(1e4, 10)}
    only, _ = chosen(monkeypatch, speeds, 45, "gnn.layout.epochs=100")
    assert only["models"] == "ranker" and 300 < only[f"{RANKER}.num_iterations"] < 400
    rules, said = chosen(monkeypatch, speeds, 5)
    assert rules == {"models": "rules"} and "h are left for training: too little for any model" in said
    plan = make_plan(add_chosen(RunSettings(data="kaggle", set=["gnn.layout.epochs=9"]), rules))
    assert {step.stage for step in plan.steps()} == {"features", "ensemble", "submission"}


@pytest.mark.parametrize(
    "resources, jobs, together",
    [
        (Resources(16, 1 << 36, ("0", "1")), 1, 1),
        (Resources(4, 1 << 36, tuple("01234567")), 0, 4),
        (Resources(4, 1 << 36, ("0", "1")), 0, 2),
        (Resources(2, 1 << 36), 8, 2),
    ],
)
def test_as_many_are_planned_at_a_time_as_run(monkeypatch, resources, jobs, together):
    measure_nothing = Mock(return_value={})
    monkeypatch.setattr(budget, "measure", measure_nothing)
    monkeypatch.setattr(budget, "machine_resources", lambda: resources)
    plan_hours(make_plan(RunSettings.from_texts(["data=kaggle", f"jobs={jobs}"])), 100)
    assert measure_nothing.call_args.args[1] == together <= PlannedPool(resources, jobs)._most


@pytest.mark.parametrize(
    "epochs, settings, said",
    [
        (8, [], {"init": "package"}),
        (9, [], {}),
        (None, [], {}),
        (2, ["init=runs/smoke"], {}),
        (2, ["gnn.layout.hidden_channels=32"], {}),
    ],
)
def test_networks_with_few_epochs_start_from_the_packages(home, monkeypatch, capsys, epochs, settings, said):
    plan = make_plan(RunSettings.from_texts(settings))
    cut = {} if epochs is None else {"gnn.layout.epochs": epochs, "ranker.tile.num_iterations": 1}
    monkeypatch.setattr(budget, "plan_hours", lambda *_: (dict(cut), "measured"))
    monkeypatch.setattr(execution, "run_steps", lambda *_: None)
    assert run._fit_hours(plan, "submission", 3600, time.monotonic()) == cut | said
    printed = capsys.readouterr().out
    assert ("start from the package's networks" in printed) == bool(said)
    assert ("hidden_channels=64 there, 32 here" in printed) == ("gnn.layout.hidden_channels=32" in settings)


def test_a_plan_tells_what_networks_with_few_epochs_start_from(home, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for settings, said in {
        (): "start from the package's networks",
        ("preset=kaggle",): "start from nothing; init=package:",
        ("models=ranker",): "",
    }.items():
        assert cli.main(["submit", *settings, "name=new", "hours=2", "--plan"]) == 0
        printed = capsys.readouterr().out
        assert said in printed and ("networks with 8 epochs or fewer" in printed) == bool(said)
        assert "\n\n" not in printed and "do without init" not in " ".join(printed.split())
        assert all(len(line) <= 80 or line.startswith("/") for line in printed.splitlines())


def test_what_an_interrupted_budget_used_is_used(home, monkeypatch):
    began = []

    def interrupt(*arguments):
        began.append(time.monotonic() - arguments[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_fit_hours", interrupt)
    command = ["submit", "preset=smoke", "name=mine", "hours=2"]
    for _ in range(2):
        assert cli.main(command) == cli.INTERRUPTED
        command = ["submit", "name=mine"]
    record = read_json(home / "runs" / "mine" / "run.json")
    assert began[0] < began[1] < record["used"] and "chosen" not in record
    assert resume(RunSettings.from_texts(["name=mine", "overwrite=True"])).used == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_budget_survives_a_kill(number, home):
    """A process that ends without a word has written down its settings, its budget and what is used."""
    code = """
import time
from fastslow import cli
from fastslow.workflow import run
run.COUNT_SECONDS = 0.05
run._fit_hours = lambda *_: time.sleep(600)
cli.main(["submit", "preset=smoke", "name=mine", "hours=2"])
"""
    path = home / "runs" / "mine" / "run.json"
    process = subprocess.Popen([sys.executable, "-c", code], env=environment(home))
    while not (path.is_file() and "used" in path.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait() == -number
    record = read_json(path)
    assert record["settings"]["hours"] == 2 and record["used"] > 0 and "chosen" not in record
    resumed = resume(RunSettings.from_texts(["name=mine"]))
    assert resumed.used == record["used"] and resumed.recorded["hours"] == 2
    assert "with hours=2.0, now hours=3.0" in resume(RunSettings.from_texts(["name=mine", "hours=3"])).refused


def test_an_interrupted_ranker_has_the_rest_of_its_time(tmp_path, monkeypatch):
    """What trees took before an interruption counts; another model, and a finished one, begin anew."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    settings = RankerSettings(hours=1, folder="runs/mine/ranker", num_iterations=5, early_stopping_rounds=5)
    now = [0.0]
    monkeypatch.setattr(ranker.time, "monotonic", lambda: now[0])

    def grow(training, options, num_threads, seconds=np.inf, report=None):
        """Grow trees, each of which takes 25 minutes, as the science does."""
        ends = now[0] + seconds
        for _ in range(options.num_iterations):
            if len(trees) == limit[0]:
                raise KeyboardInterrupt
            trees.append(1)
            now[0] += 1500
            report(len(trees), 0.5)
            if now[0] > ends:
                break

    monkeypatch.setattr(ranker, "fit", grow)
    limit = [99]
    for changes, interrupt_after, number in (
        ({}, 99, 3),
        (None, 0, 0),
        ({}, 2, 2),
        ({}, 99, 1),  # 50 minutes are used
        ({"num_leaves": 4}, 99, 3),
        ({"hours": 0.0}, 99, 5),
    ):
        trees, limit[0] = [], interrupt_after
        if changes is None:
            ranker.forget_used(settings)
            continue
        with contextlib.suppress(KeyboardInterrupt):
            ranker.fit_within_hours(settings.replace(**changes), None, lambda *_: None)
        assert len(trees) == number
    assert {path.name for path in (tmp_path / "runs/mine/ranker").iterdir()} == {ranker.USED}


@pytest.mark.parametrize("model", ["gnn", "ranker"])
def test_the_speed_of_first_steps_is_scaled_to_all_programs(home, model):
    plan = make_plan(RunSettings(preset="smoke", name="smoke"))
    steps = [step for step in plan.steps("train") if step.section.startswith(f"{model}.layout")]
    assert len(steps) == (1 if model == "gnn" else 2)
    for step in steps:
        found = speed._speed(step.settings)
        assert found.once > 0 and found.each > 0
        cut = [variant.segment_training for part, variant in speed._variants(step.settings) if part]
        large = model == "gnn" and max(f.index["nodes"].max() for f in step.settings.sources()) > 2000
        assert cut == ["gst+e"] * int(large)


def test_a_measurement_that_fails_or_takes_too_long_is_missing(monkeypatch, home):
    plan = make_plan(RunSettings(preset="smoke", name="smoke", models="ranker"))
    steps = [step for step in plan.steps("train") if step.stage == "train"][:1]
    assert measure(steps, 1, {}, 1e-3) == {}


def test_a_network_that_needs_too_much_memory_is_missing(monkeypatch):
    """Torch's error is a RuntimeError, which would end the run."""
    monkeypatch.setattr(
        speed, "_network_speed", Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    )
    with pytest.raises(MemoryError):
        speed._speed(TrainSettings())
    monkeypatch.setattr(speed, "_network_speed", Mock(side_effect=RuntimeError("shapes")))
    with pytest.raises(RuntimeError, match="shapes"):
        speed._speed(TrainSettings())


def test_a_measurement_is_seen_to_go_on(monkeypatch):
    """A first step of large programs takes minutes."""

    class Slow(contextlib.nullcontext):
        def each(self, function, trials, seconds):
            time.sleep(0.3)
            yield from ((key, Speed(1, 1)) for key in trials)

        def __enter__(self):
            return self

    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(speed, "Workers", lambda **_: Slow())
    step = SimpleNamespace(section="ranker.tile", settings=None)
    assert speed.measure([step], 1, {}, 9) == {"ranker.tile": {False: Speed(1, 1)}}
    assert terminal.getvalue().count("measuring the speed") >= 5


def test_a_sample_of_features_has_the_spread_of_sizes(home):
    whole = Features(home / "features" / "smoke" / "tile-xla")
    sizes = np.random.default_rng(0).permutation(1000)
    split = np.repeat(["train", "valid", "test"], [960, 30, 10])
    whole.index = pd.DataFrame({"split": split, "name": sizes.astype(str), "nodes": sizes})
    part = whole.sample(one_in=20, least=6)
    for name, count in (("train", 48), ("valid", 6), ("test", 6)):
        sampled, every = (f.index.loc[f.index["split"] == name, "nodes"] for f in (part, whole))
        assert len({*sampled}) == count and {*sampled} <= {*every}
        assert sampled.mean() == pytest.approx(every.mean(), rel=0.1)
    assert len(whole.sample(1, 1).index) == len(whole.index) == 1000 and whole.sample(2000, 1).names("test")


@pytest.mark.parametrize(
    "hours, said",
    [
        ("inf", "inf is not a finite number above 0"),
        ("nan", "nan is not a finite"),
        ("0", "0 is not above 0"),
        ("1e9", "1000000000.0 is not"),
        ("two", "'two' is a text, a number wanted (above"),
    ],
)
def test_hours_that_are_none_are_refused(hours, said, capsys):
    assert cli.main(["submit", f"hours={hours}"]) == 1
    assert f"hours: {said}" in capsys.readouterr().err
    with pytest.raises(SettingsError, match=r"hours: -0\.1"):
        TrainSettings(hours=-0.1)


def test_hours_are_of_this_machine(home, capsys):
    assert cli.main(["submit", "hours=1", "cluster=tcp://nowhere:1", "name=there"]) == 1
    assert "hours: are planned for this machine" in capsys.readouterr().err


def test_a_budget_that_cuts_nothing_is_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    first = resume(RunSettings.from_texts(["name=mine", "data=/far", "models=ranker", "hours=9"]))
    assert first.chosen is None
    record_run(tmp_path / "runs" / "mine", "/far", first.plan.preset, first.recorded, {})
    again = resume(RunSettings.from_texts(["name=mine"]))
    assert again.chosen == {} and again.plan == first.plan and again.recorded["hours"] == 9


@pytest.mark.parametrize(
    "chosen, seeds, logger",
    [({}, 2, "math:sqrt"), ({"models": "ranker", "seeds": 1}, 1, ""), ({"models": "rules"}, 0, "")],
)
def test_what_a_budget_leaves_out_takes_its_settings_along(chosen, seeds, logger):
    given = ["hours=1", "seeds=2", "logger=math:sqrt", "init=package"]
    settings = add_chosen(RunSettings.from_texts(given), chosen)
    assert (settings.seeds, settings.logger) == (seeds, logger)
    assert settings.init == ("package" if logger else "")


@pytest.mark.parametrize(
    "given, said",
    [
        (["models=ranker", "logger=math:sqrt"], "logger: 'math:sqrt' has no effect without networks"),
        (["models=ranker", "init=package"], "init: 'package' has no effect without networks"),
        (["models=rules", "folds=3"], "folds: 3 has no effect with models=rules"),
        (["models=rules", "seeds=2"], "seeds: 2 has no effect with models=rules"),
    ],
)
def test_a_setting_of_models_that_are_not_trained_is_refused(given, said):
    with pytest.raises(SettingsError, match=said):
        RunSettings.from_texts(given)
    assert make_plan(RunSettings.from_texts([text.replace("rules", "gnn,ranker") for text in given[:1]]))
