"""A tuning as a user starts it: every evaluator, resumed, shared, and every bad input by name."""

import contextlib
import json
import re
import shlex
import sys

import numpy as np
import pytest

import fastslow
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.settings import resolve
from fastslow.hlo.messages import HloProto, Module, TuningData
from fastslow.hlo.reader import read_hlo
from fastslow_programs.program.user_program import Source
from fastslow_programs.tuning import evaluators
from fastslow_programs.tuning import target as target_module
from fastslow_programs.tuning.confirmation import against
from fastslow_programs.tuning.evaluators import EVALUATORS
from fastslow_programs.tuning.history import Evaluation
from fastslow_programs.tuning.result import (
    _ratio,
    list_evaluations,
    plot_curve,
    summarise_study,
    value_text,
    write_result,
)
from fastslow_programs.tuning.settings import STRATEGIES, TuneSettings
from fastslow_programs.tuning.target import read_local, read_target
from fastslow_programs.tuning.tune import complete_study
from helpers.browser import check_page
from helpers.cases import cases
from helpers.competition_files import layout_arrays, tile_arrays, write_npz
from helpers.dot_module import add, measured_module, varied_module
from helpers.stub_labeller import ConstraintsCost, StubLabeller

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

PYTHON = f"{shlex.quote(sys.executable)} -IS"
SUM = "import json, sys; print(1 + sum(json.load(open(sys.argv[1]))['options']))"


@pytest.fixture
def npz(tmp_path):
    return write_npz(tmp_path / "labelled.npz", layout_arrays(3, dots=4, configs=40))


@pytest.fixture
def dots(tmp_path):
    path = tmp_path / "dots.pb"
    path.write_bytes(varied_module(3).SerializeToString())
    return path


def settings_of(source, tmp_path, **more):
    common = {"run": "none", "evaluations": 12, "data_root": str(tmp_path / "out")}
    return TuneSettings(source=str(source), **{**common, **more})


def measuring(dots, tmp_path, code=SUM, **more):
    command = f"{PYTHON} -c {shlex.quote(code)}"
    return settings_of(dots, tmp_path, evaluator="command", command=command, attempts=1, **more)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_replay_of_a_file_finds_its_best(npz, tmp_path, strategy):
    settings = settings_of(npz, tmp_path, strategy=strategy, evaluations=100, batch=5)
    study = complete_study(settings)
    labels = study.target.labels
    assert study.exhausted and len(study.history) == len(labels) == study.target.space.size
    assert study.history.best[1] == labels.min()
    facts = summarise_study(study)
    assert facts["value"] == "the labels of labelled.npz"
    assert facts["strategy"] == {"guided": "guided, from a random order", "random": "random"}[strategy]
    assert "no configuration is left" in facts["evaluations"]
    gained = bool(labels.min() < study.default)
    assert facts["result"].startswith("gained: " if gained else "nothing gained")


def test_a_function_in_memory_is_measured_here(tmp_path, monkeypatch, undrawn):
    """A process of JAX's own compiles and measures, which takes seconds to start."""
    monkeypatch.setattr(evaluators, "ROUNDS", 2)
    jax = pytest.importorskip("jax")

    def product(a, b):
        return (a @ b).reshape(4, 2, 8).sum(1)

    def zeros(*shape):
        return jax.numpy.zeros(shape, jax.numpy.float32)

    common = {"evaluator": "device", "models": "none", "evaluations": 8, "batch": 4}
    tuned = fastslow.tune(product, zeros(8, 8), zeros(8, 8), **common)
    assert len(tuned.table) == 8 and tuned.best["program"] == "product-device"
    assert (tuned.table["by"] == "paired round").sum() == 5 == tuned.best["candidate"]["paired_rounds"]
    assert tuned.words()[0].startswith("result: gained" if tuned.best["confirmed"] else "result: nothing")
    with pytest.raises(SettingsError, match="evaluator: .*possible for a function"):
        fastslow.tune(product, zeros(8, 8), zeros(8, 8), **common | {"evaluator": "replay"})


def missing():
    raise SettingsError("libtpu is not installed")


def test_a_command_measures_without_a_compiler_and_the_result_is_written(dots, tmp_path, monkeypatch):
    monkeypatch.setattr("fastslow_programs.compiler.libtpu.Compiler.version", missing)
    study = complete_study(measuring(dots, tmp_path, evaluations=16))
    folder = write_result(study)
    best = json.loads((folder / "best.json").read_text())
    assert best["value"] == 1 and set(best["options"]) == {0} and best["program"] == "dots-command"
    candidate = best["candidate"]
    assert not best["confirmed"] and candidate["value"] > 1, "the default is fastest"
    assert candidate["interval"]["low"] == candidate["interval"]["high"] == candidate["over_default"]
    assert candidate["over_default"] == pytest.approx(candidate["value"]) and best["over_default"] == 1
    default, best_bytes = ((folder / f"{name}.hlo.pb").read_bytes() for name in ("default", "best"))
    assert HloProto.FromString(best_bytes).hlo_module == study.target.module_of(study.history.best[0].codes)
    unconstrained = HloProto.FromString(default).hlo_module
    assert unconstrained.name == "varied" and b"LayoutConstraint" not in default
    assert all(
        b"LayoutConstraint" in study.target.module_of(proposal.codes).SerializeToString()
        for proposal, _ in study.history.done
        if any(proposal.codes)
    )
    assert best["default_is"] == "the program as compiled"
    table = list_evaluations(study)
    assert len(table) == len(study.history) and table["best"].iloc[-1] == 1
    assert (folder / "curve.png").is_file()
    bound = summarise_study(study)["bound"]
    assert re.fullmatch(r"\d+ of \d+ choices; the compiler chooses the others itself", bound)
    figure = plot_curve(study)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        assert len(shown) >= 3, axis.axis_name


@cases(("evaluator", "setting"), [(name, other) for name in EVALUATORS for other in EVALUATORS[name].unread])
def test_a_setting_that_the_evaluator_does_not_read_is_refused(evaluator, setting):
    values = {
        "cache": False,
        "confirm": 0.3,
        "generation": "v4",
        "processes": 3,
        "repeats": 5,
        "seconds": 5.0,
        "attempts": 7,
        "options": "auto",
        "space": "both",
    }
    with pytest.raises(SettingsError, match=rf"{setting}: .* has no effect with evaluator={evaluator}"):
        TuneSettings(evaluator=evaluator, **{setting: values[setting]})


def test_exact_values_of_a_command_end_with_the_better_one(tmp_path, capsys, undrawn):
    """2.26 and 1.00, as in the cases: the verdict, the file and the bar agree."""
    path = tmp_path / "space.json"
    path.write_text('{"choices": {"tile": [16, 32, 64], "mode": ["scan", "einsum"]}}')
    code = "import json, sys; v = json.load(open(sys.argv[1]))['values']; print(1 + 1.26 * (v['tile'] < 64))"
    settings = measuring(path, tmp_path, code, evaluations=16)
    study = complete_study(settings)
    best = json.loads((write_result(study) / "best.json").read_text())
    assert best["confirmed"] and best["value"] == best["candidate"]["value"] == pytest.approx(1.0)
    interval = best["candidate"]["interval"]
    assert interval["low"] == interval["high"] == pytest.approx(1 / 2.26)
    exact = "the same in each of 5 paired rounds; confirm=0 saves them"
    assert summarise_study(study)["result"] == f"gained: 56 % below the default, {exact}"
    believed = complete_study(settings.replace(confirm=0.0, evaluations=6, name="believed"))
    assert believed.exhausted or believed.history.spent == 6 == believed.target.space.size
    assert believed.best[1] == pytest.approx(1.0)
    shown = capsys.readouterr().err
    assert re.search(r"16/16 .*best 1, 0.4425 of the default\]", shown)


def test_a_budget_of_seconds_ends_it(npz, tmp_path, undrawn):
    with pytest.raises(SettingsError, match="budget_seconds: 1e-09 is not enough for one evaluation"):
        complete_study(settings_of(npz, tmp_path, budget_seconds=1e-9))
    complete_study(settings_of(npz, tmp_path, evaluations=3))
    study = complete_study(settings_of(npz, tmp_path, evaluations=10**6, budget_seconds=1e-9))
    assert len(study.history) == 3, "what was evaluated before is reported"
    write_result(study)


def test_failures_are_counted_and_not_fatal(dots, tmp_path, undrawn):
    code = SUM.replace("print(", "o = json.load(open(sys.argv[1]))['options']; print('oh' if o[0] else ")
    study = complete_study(measuring(dots, tmp_path, code, evaluations=12))
    failures = study.history.failures
    assert 0 < len(failures) < 12 and all("printed no number" in f for f in failures)
    assert "failed" in summarise_study(study)["evaluations"]
    write_result(study)


@cases("value", [0.0, np.inf, np.nan])
def test_a_value_that_is_no_runtime_counts_as_a_failure(npz, tmp_path, monkeypatch, value):
    def evaluate(proposals):
        return ((place, Evaluation(value if place else 5.0)) for place in range(len(proposals)))

    monkeypatch.setattr(evaluators.Replay, "running", lambda self: contextlib.nullcontext(evaluate))
    history = complete_study(settings_of(npz, tmp_path, name=str(value), evaluations=4)).history
    assert list(history.values) == [5.0]
    assert all(f"its value is {value}, a number from 1e-30" in failure for failure in history.failures)
    again = complete_study(settings_of(npz, tmp_path, name=str(value), evaluations=4))
    assert again.history.failures == history.failures


@pytest.mark.parametrize(("wanted", "done"), [(50, 8), (2, 2)])
def test_where_all_fail_it_says_why_and_keeps_the_study(dots, tmp_path, wanted, done):
    settings = measuring(dots, tmp_path, "print('no TPU here')", evaluations=wanted, confirm=0.0)
    said = f"not one of {done} evaluations has a value \\({done} .*no TPU here.*kept"
    with pytest.raises(DataError, match=said):
        complete_study(settings)
    assert settings.journal.is_file()
    with pytest.raises(
        DataError,
        match=f"^{settings.program}: not one of .*no TPU here.*evaluator=device or another program may work$",
    ):
        complete_study(settings, is_kept=False)


def tile_file(path, over_default, default=1000):
    """Tiles whose runtimes are these shares of the default's."""
    arrays = tile_arrays(1, configs=len(over_default))
    arrays["config_feat"][:, :8] = np.outer(1 + np.arange(len(over_default)), [1] + 5 * [0] + [1, 1])
    arrays["config_runtime"] = (default * np.array(over_default)).round().astype(np.int64)
    arrays["config_runtime_normalizers"] = np.full(len(over_default), default)
    return write_npz(path, arrays)


@cases(
    "over_default, said",
    [
        ((1.0, 4.0, 0.9, 5.0), "0.9000"),
        ((4.0, 5.0, 3.0), "3.0000"),  # the default itself is not in the file
    ],
)
def test_a_tile_is_compared_with_the_runtime_of_the_default(tmp_path, over_default, said):
    settings = settings_of(tile_file(tmp_path / "tile.npz", over_default), tmp_path, strategy="random")
    facts = summarise_study(complete_study(settings))
    assert facts["best over default"] == said and "the file's normaliser" in facts["default"]
    assert facts["best"].startswith(f"{float(said):g} of the default's time"), "and no ns"
    assert " ns" not in facts["default"]


def test_a_row_equal_to_the_default_is_no_gain(tmp_path):
    """As in a genuine file: two equal rows of runtimes 8911, which is the normaliser, and 8521."""
    path = tile_file(tmp_path / "tile.npz", (1.0, 0.956, 2.0))
    arrays = dict(np.load(path))
    arrays["config_feat"][1] = arrays["config_feat"][0]
    study = complete_study(settings_of(write_npz(path, arrays), tmp_path, strategy="random"))
    assert study.default == study.best[1] == pytest.approx(0.978)
    assert summarise_study(study)["best"] == "the default, 0.978 of the file's normaliser"
    assert summarise_study(study)["result"].startswith("nothing gained")


def test_the_curve_shows_a_gain_that_is_small_beside_the_slowest(tmp_path):
    """As in a genuine file: the best is 0.004 % below the default, and others are 1 % above it."""
    values = (1.0, 0.99996, 1.016, 1.0001, 0.99999)
    study = complete_study(settings_of(tile_file(tmp_path / "tile.npz", values, 10**8), tmp_path))
    axes = plot_curve(study).axes[0]
    low, high = (axes.transLimits.transform(axes.transScale.transform((1, y)))[1] for y in (-0.004, 0))
    assert high - low > 0.15, "of the height"
    figure = axes.figure
    figure.canvas.draw()
    assert "−0.001" in [tick.get_text() for tick in axes.get_yticklabels()]


def test_single_noisy_values_are_folded_below_the_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluators.Replay, "noisy", True)
    path = tile_file(tmp_path / "tile.npz", (1.0, 0.9, 2.0, 1.5))
    study = complete_study(settings_of(path, tmp_path, strategy="random", evaluations=14))
    page = check_page(write_result(study) / "tune.html").text
    assert "The lowest single values, which the paired rounds may not confirm" in page
    assert "The best configurations" not in page
    assert page.index("How did the search go?") < page.index("evaluation")


def test_a_layout_is_compared_with_the_compilers_own_where_it_is_known(tmp_path):
    arrays = layout_arrays(3, dots=4, configs=40)
    chosen = 7
    arrays["node_config_default"] = arrays["node_config_feat"][chosen]
    study = complete_study(settings_of(write_npz(tmp_path / "known.npz", arrays), tmp_path, evaluations=1))
    same = (arrays["node_config_feat"] == arrays["node_config_feat"][chosen]).all((1, 2))
    assert "equal to the compiler's own layouts" in summarise_study(study)["default"]
    assert study.default == arrays["config_runtime"][same].mean()
    del arrays["node_config_default"]
    study = complete_study(settings_of(write_npz(tmp_path / "unknown.npz", arrays), tmp_path, evaluations=1))
    unknown = "commonest option of each choice: the compiler's own is not known"
    assert unknown in summarise_study(study)["default"]


def measured_pb(path, kind):
    """A TpuGraphs file of measured runs of 10, 20, 30 and 40 ns, the second of the compiler's default."""
    tuned = measured_module(
        10 * np.arange(1, 5),
        default=1,
        bounds=[[number + 1, 2] for number in range(4)] if kind == "tile" else (),
        layouts=[[number % 2, 1 - number % 2] for number in range(4)] if kind == "layout" else (),
    )
    path.write_bytes((TuningData(modules=[tuned]) if kind == "tile" else tuned).SerializeToString())
    return path


@cases("kind, more, best", [("tile", {}, "0.5000"), ("layout", {"evaluator": "replay"}, "1.0000")])
def test_a_measured_protobuf_is_replayed(tmp_path, kind, more, best):
    study = complete_study(
        settings_of(measured_pb(tmp_path / "measured.pb", kind), tmp_path, strategy="random", **more)
    )
    assert summarise_study(study)["best over default"] == best and study.exhausted


def two_kernels(path):
    """A TpuGraphs file of two kernels; the default of the second takes 100 ns."""
    first, second = (TuningData.FromString(measured_pb(path, "tile").read_bytes()).modules[0] for _ in "ab")
    first.module.name, second.module.name = "first", "fusion.7"
    second.runs[1].profile.compute_time_ns = 100
    path.write_bytes(TuningData(modules=[first, second]).SerializeToString())
    return path


@cases("kernel", ["fusion.7", "1"])
def test_one_kernel_of_several_is_tuned(tmp_path, kernel):
    path = two_kernels(tmp_path / "tiles.pb")
    settings = settings_of(path, tmp_path, strategy="random", kernel=kernel)
    study = complete_study(settings)
    assert summarise_study(study)["best over default"] == "0.1000" and study.exhausted
    assert settings.program == f"tiles-{kernel}" and settings.ranking().find_collection().name == "tile:xla"


def test_the_compiler_evaluates_its_own_default_first(dots, tmp_path, monkeypatch):
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", StubLabeller)
    monkeypatch.setattr(target_module, "require_compiler", lambda: None)
    monkeypatch.setattr(Source, "read", lambda self, labeller, ask_compiler: read_hlo(dots))
    study = complete_study(settings_of(dots, tmp_path, evaluations=6))
    (first, outcome), *_ = study.history.done
    assert first.by == "default" and outcome.value == 100 and len(study.history.failures) == 2
    assert summarise_study(study)["value"] == "the v3 compiler's estimated cycles"


@cases(
    "record, said, confirmed, value, constrained",
    [
        ({"cycles": 50}, "nothing gained: .* the program as compiled; .* is 90 % above it", False, 50, False),
        ({"cycles": 95}, "nothing gained: .* the program as compiled; .* equal to it", False, 95, False),
        ({"cycles": 98}, "gained: the best is 3.1 % below the program as compiled", True, 95, True),
        ({"cycles": 100}, "gained: the best is 5 % below the default", True, 95, True),
        ({"cycles": 101}, "gained: the best is 5 % below the default", True, 95, True),
        ({"failure": "refused", "message": "no"}, "gained: .* the default", True, 95, None),
    ],
)
def test_a_gain_is_one_over_the_program_as_the_user_compiles_it(
    dots, tmp_path, monkeypatch, undrawn, record, said, confirmed, value, constrained
):
    """Constraints that bind the default cost cycles: "3.8 % below the default" was 35 % above the program."""
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", ConstraintsCost)
    monkeypatch.setattr(target_module, "require_compiler", lambda: None)
    monkeypatch.setattr(Source, "read", lambda self, labeller, ask_compiler: read_hlo(dots))
    monkeypatch.setattr(ConstraintsCost, "as_compiled", record)
    study = complete_study(settings_of(dots, tmp_path, evaluations=6))
    folder = write_result(study)
    facts, best = summarise_study(study), json.loads((folder / "best.json").read_text())
    assert re.fullmatch(said, facts["result"]) and best["default"] == 100
    assert (best["value"], best["confirmed"], best.get("constrained")) == (value, confirmed, constrained)
    assert best["candidate"]["value"] == 95 and best.get("as_compiled") == record.get("cycles")
    assert facts["as compiled"] == (
        f"{record['cycles']} cycles, without constraints" if "cycles" in record else "not known: refused: no"
    )
    tuned = HloProto.FromString((folder / "best.hlo.pb").read_bytes()).hlo_module
    is_plain = b"LayoutConstraint" not in tuned.SerializeToString()
    assert is_plain == (constrained is False), "what is to be compiled is never worse than the user's program"
    page = check_page(folder / "tune.html").text
    assert page[3] == f"{facts['result'][0].upper()}{facts['result'][1:]}."
    (axes,) = plot_curve(study).axes
    against_program = study.baseline_is == "the program as compiled"
    assert axes.get_ylabel() == f"value against {study.baseline_is}, %"
    assert against_program == ("best over the program as compiled" in facts) != ("best over default" in facts)
    assert against_program == any(text.startswith("best against the program as compiled") for text in page)


@pytest.mark.parametrize("callback", ["pure_callback", "io_callback"])
def test_a_file_that_calls_python_is_refused_before_it_runs(tmp_path, callback):
    """It holds an address of the process that wrote it, and ended this one with SIGSEGV."""
    jax = pytest.importorskip("jax")
    from jax.experimental import io_callback

    call = {"pure_callback": jax.pure_callback, "io_callback": io_callback}[callback]
    array = jax.ShapeDtypeStruct((4, 4), "float32")
    lowered = jax.jit(lambda a: call(np.asarray, array, a @ a)).lower(array)
    path = tmp_path / "calls.hlo.pb"
    path.write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    said = r"calls\.hlo\.pb: .*callback\S* calls Python, by an address .*\. Leave jax\.debug\.print and "
    with pytest.raises(DataError, match=said):
        read_local(Source.of(str(path)), seed=0)


@cases("evaluator", ["command", "device"])
def test_only_what_a_constraint_binds_is_a_choice(tmp_path, evaluator):
    if evaluator == "device":
        pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    path = tmp_path / "dots.pb"
    path.write_bytes(varied_module(2).SerializeToString())
    more = {"command": "sh -c 'echo 1'"} if evaluator == "command" else {}
    target = read_target(settings_of(path, tmp_path, evaluator=evaluator, **more))
    assert all("output" in choice.where for choice in target.space.choices)
    codes = {
        target.module_of(tuple(row)).SerializeToString(deterministic=True) for row in target.space.listed
    }
    assert len(codes) == target.space.size, "two configurations of the space are never the same program"


def test_a_run_guides_a_file_and_a_program(home, dots, tmp_path):
    npz = next((home / "data/sample/npz_all/npz/layout/xla/random/train").glob("*.npz"))
    for source, more in ((npz, {}), (dots, {"evaluator": "command", "command": "sh -c 'echo 1'"})):
        target = read_target(settings_of(source, tmp_path, run="runs/smoke", **more))
        codes = target.space.draw(20, np.random.default_rng(0))
        prior, again = target.pretrained(codes), target.pretrained(codes[::-1])
        assert prior.shape == (20,) and np.isfinite(prior).all()
        np.testing.assert_allclose(again[::-1], prior, atol=1e-4)
        assert prior.std() > 0
    with pytest.raises(DataError, match="is a run of layout:xla:default, not of layout:xla:random"):
        complete_study(settings_of(npz, tmp_path, run=str(resolve("runs/smoke/ensemble-layout-xla-default"))))


def test_what_cannot_be_tuned_is_refused(home, dots, npz, tmp_path):
    measure = {"evaluator": "command", "command": "sh -c 'echo 1'"}
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
        with pytest.raises((DataError, SettingsError), match=said):
            complete_study(settings_of(source, tmp_path, **more))
    mine = settings_of(npz, tmp_path, name="mine")
    complete_study(mine)
    mine.journal.parent.with_name("mine-2").mkdir()
    other = write_npz(tmp_path / "other.npz", layout_arrays(4, configs=20))
    said = r"study of something else .program: \w+, here \w+; options of each.*such as name=mine-3, or delete"
    with pytest.raises(DataError, match=said):
        complete_study(settings_of(other, tmp_path, name="mine"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"strategy": "guess"}, "strategy: 'guess' is not one of"),
        ({"evaluator": "command"}, "command: '' is not given"),
        ({"command": "ls"}, "command: 'ls' is not read"),
        ({"name": "a/b"}, "name: 'a/b' is not made of"),
        ({"evaluator": "compiler"}, "evaluator: 'compiler' is not possible for an npz"),
        ({"strategy": "random", "run": "runs/x"}, "run: 'runs/x' is not read by strategy=random"),
    ],
)
def test_a_setting_is_refused_by_name(npz, tmp_path, more, said):
    with pytest.raises(SettingsError, match=said):
        complete_study(settings_of(npz, tmp_path, **more))


def test_models_that_were_read_guide_as_their_path_does(home):
    """``fastslow.tune(models=load_models())``: the same proposals."""
    (program,) = (home / "data/sample/npz_all/npz/layout/xla/default/valid").glob("*.npz")
    read = fastslow.load_models(home / "runs" / "smoke")
    tables = [
        fastslow.tune(program, models=models, evaluations=6).table
        for models in (read, home / "runs" / "smoke")
    ]
    assert tables[0]["configuration"].tolist() == tables[1]["configuration"].tolist()


def test_a_study_has_a_page_with_units_and_enough_digits(npz, tmp_path):
    study = complete_study(settings_of(npz, tmp_path, evaluations=6))
    page = check_page(write_result(study) / "tune.html")
    facts = summarise_study(study)
    assert page.text[3] == f"{facts['result'][:1].upper()}{facts['result'][1:]}."
    assert " ns (cycles for the sample)" in facts["best"]
    assert "e+" not in " ".join(map(str, facts.drop("configuration")))
    head = page.text[page.text.index("best against the default") :][:3]
    assert head[2] == value_text(study.best[1], study), "a percentage does not say what was measured"


def test_equal_runtimes_are_said_and_nothing_is_drawn_of_them(tmp_path):
    arrays = layout_arrays(3, dots=4, configs=40)
    arrays["config_runtime"][:] = 912_345
    path = write_npz(tmp_path / "equal.npz", arrays)
    study = complete_study(settings_of(path, tmp_path, evaluations=6))
    page = check_page(write_result(study) / "tune.html")
    assert page.text[3].startswith("Nothing to gain: the 6 evaluated of ")
    assert page.text[3].endswith(" configurations have the same value; keep the default.")
    assert "912,345" in page.text and all(tag != "img" for tag, _ in page.elements)
    low, high = plot_curve(study).axes[0].get_ylim()
    assert low < 0 < high, "percent against the default"


@cases("ratio, words", [(1.0, "1.0000"), (0.5, "0.5000"), (0.99999, "0.9999900"), (1.00001, "1.0000100")])
def test_a_ratio_that_is_not_1_does_not_read_as_1(ratio, words):
    assert _ratio(ratio) == words
    assert (against(ratio) == "equal to the default") == (ratio == 1)
