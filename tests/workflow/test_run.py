"""The workflow from npz files to a submission: what it makes, redoes, refuses, and survives."""

import json
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import nbformat
import numpy as np
import pytest

from fastslow import cli
from fastslow.competition.catalog import COLLECTIONS
from fastslow.competition.submission_checks import check_submission
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import atomic_path, read_json
from fastslow.core.settings import resolve
from fastslow.evaluation.run_record import record_run
from fastslow.evaluation.score_tables import format_distances
from fastslow.evaluation.scores import competition_score, read_solution, score_submission
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.evaluation.training_files import notebook_seconds
from fastslow.workflow import execution
from fastslow.workflow import run as workflow
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.settings.presets import MODELS, STAGES
from fastslow.workflow.settings.sections import SECTIONS
from helpers.cases import cases
from helpers.workspace import SERIAL, command, environment, stopped

pytestmark = pytest.mark.usefixtures("undrawn")
LAYOUTS = [c.slug for c in COLLECTIONS if c.kind == "layout"]


def run(*arguments):
    """The workflow in this process; its exit status."""
    return cli.main([*arguments, "preset=smoke", "jobs=2"])


def manifests(home, name="smoke"):
    """When each folder of a run was finished, by folder."""
    return {
        str(path.parent.relative_to(home)): path.stat().st_mtime_ns
        for stem in ("features", "runs")
        for path in (home / stem / name).glob("*/manifest.json")
    }


def all_files(home):
    return {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("data", ["sample", "kaggle"])
def test_the_hours_of_a_preset_are_told_with_its_own_data(data, tmp_path, monkeypatch, capsys):
    """The hours of ``kaggle`` were told of a run on the sample, too."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    for preset in ("sample", "kaggle"):
        assert cli.main(["submit", f"data={data}", f"preset={preset}", "name=new", "--plan"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert (f"the whole preset {preset} takes about" in said) == (preset == data), preset
        assert "not known of" in said


def test_every_stage_is_made_and_reported(finished):
    home, done = finished
    runs = [f"{model}-{c.slug}-s0" for c in COLLECTIONS for model in MODELS[c.kind]]
    runs += [f"ensemble-{c.slug}" for c in COLLECTIONS] + ["submission"]
    runs += ["training-layout-s0", "training-tile-s0"]
    folders = {f"features/smoke/{c.slug}" for c in COLLECTIONS} | {f"runs/smoke/{run}" for run in runs}
    assert set(manifests(home)) == folders
    for folder in folders:
        # the networks' runs are written by their trainings, and a source's second ranker by that of the first
        by_another = folder.startswith("runs/smoke/gnn-") or ("/ranker-" in folder and "random" in folder)
        assert (home / folder / "notebook.ipynb").is_file() == (not by_another)
        assert not (home / folder / "failed.ipynb").exists()
    csv, root = home / "submissions" / "smoke.csv", home / "data" / "sample"
    rows = check_submission(csv, root)["rows"]
    assert rows == {c.name: 2 if c.kind == "tile" else 1 for c in COLLECTIONS}
    scores = score_submission(csv, read_solution(root / "solution.csv"))
    test_mean = competition_score({name: score["mean"] for name, score in scores.items()})
    record = read_submission_record(csv)
    assert record["test_mean"] == pytest.approx(test_mean)
    assert f"valid {record['valid_mean']:.3f}, test {test_mean:.3f}\n" in done.stdout
    assert "submissions/smoke.csv: 6 rows, read back and checked" in done.stdout
    assert record["distances"] and format_distances(record["distances"]) in done.stdout
    for c in COLLECTIONS:
        assert f"| {c.name.removeprefix('layout:')} " in done.stdout
        assert (f"  ranker-{c.slug}-s0: " in done.stderr) == (not c.name.endswith("random"))
    assert re.search(r"  training-layout-s0: \d+ s, valid [\d.]+, mean of 4 layouts\n", done.stderr)
    assert re.search(r"  training-tile-s0: \d+ s, valid [\d.]+, tile-xla\n", done.stderr)
    assert "Debugger warning" not in done.stderr, "what a kernel's libraries say of themselves"
    assert "not uploaded: data/sample is not the Kaggle competition" in done.stdout
    # no traceback of ours: Jupyter's sockets may log one on a busy machine
    assert "src/fastslow/" not in done.stderr


def test_a_second_run_redoes_nothing(home, capsys):
    before = all_files(home)
    assert run("submission") == 0
    assert all_files(home) == before
    said = capsys.readouterr()
    for line in ("features: 5 of 5", "train: 5 of 5", "ensemble: 5 of 5", "submission: 1 of 1"):
        assert f"{line} up to date" in said.err
    assert "| nlp:random " in said.out and "not shown" not in said.out


def test_a_running_training_says_what_its_score_is_of(tmp_path):
    settings = SimpleNamespace(folder=str(tmp_path), epochs=20)
    step = SimpleNamespace(name="training-layout-s0", settings=settings)
    said = execution._newest(step)
    assert said == step.name
    line = {"epoch": 14, "valid": 0.8333, "layout-xla-random": 0.8, "layout-nlp-random": 0.9}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    said = execution._newest(step)
    assert said == "training-layout-s0 (epoch 14 of 20, valid 0.833 on 2 layouts)"
    assert len(f"12/22 [1:01:51], {said}") <= 80
    (tmp_path / "metrics.jsonl").write_text(
        json.dumps({"epoch": 14, "valid": 0.8, "layout-xla-default": 0.8})
    )
    assert execution._newest(step) == "training-layout-s0 (epoch 14 of 20, valid 0.800 on layout-xla-default)"
    step.name = "training-layout-xla-default-s0"
    said = execution._newest(step)
    assert said == "training-layout-xla-default-s0 (epoch 14 of 20, valid 0.800)"
    assert len(f"12/22 [1:01:51], {said}") <= 80


def test_what_takes_long_counts_its_seconds_in_a_terminal_only(monkeypatch, capsys):
    with execution.counting("page"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with execution.counting("page"):
        assert "page [00:00]" in capsys.readouterr().err


def test_a_stage_without_steps_has_no_heading(capsys):
    """`make train` prints none of ensemble and submission, a run with MODELS= none of train."""
    execution.run_steps([], jobs=1)
    assert not any(stage in capsys.readouterr().err for stage in STAGES)


def test_no_command_imports_what_takes_seconds_at_its_start():
    """A grammar of web addresses (lark), statistics, plots and networks are for steps."""
    slow = {"papermill", "jsonschema", "lark", "zmq", "scipy.stats", "matplotlib", "lightgbm", "torch"}
    code = f"import sys, fastslow.workflow.run; print(*({slow} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()
    code = f"import sys, fastslow.workflow.execution; print(*({slow} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["jsonschema", "papermill", "zmq"]


def test_a_broken_file_is_named_and_mended(home, capsys):
    """Two commands that each start a kernel take its seconds."""
    (path,) = (home / "data/sample/npz_all/npz/layout/nlp/random/valid").glob("*.npz")
    content = path.read_bytes()
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["node_feat"][3, 7] = np.nan
    np.savez(path, **arrays)
    folder = home / "features/smoke/layout-nlp-random"
    assert run("submission") == 1
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert str(path) in line and "node_feat" in line and "Traceback" not in said
    assert f"the notebook up to there: {folder / 'failed.ipynb'}" in said
    assert not (folder / "manifest.json").exists()
    assert nbformat.read(folder / "failed.ipynb", 4).cells
    path.write_bytes(content)
    assert run("features") == 0
    assert (folder / "manifest.json").exists() and not (folder / "failed.ipynb").exists()


LONG = ("gnn.tile.epochs=80", "gnn.tile.evaluate_every=10")


def test_a_killed_run_goes_on(home):
    """Two commands that each start kernels take its seconds; Ctrl-C is tried in ``tests/front``."""
    complete, folder = set(manifests(home)), home / "runs/smoke/training-tile-s0"
    written = []

    def has_another_checkpoint(_):
        path = folder / "checkpoint.pt"
        now = path.stat().st_mtime_ns if path.exists() else 0
        written.append(now)
        return now != written[0]

    command_line = ("train", *LONG)
    assert stopped(home, command_line, has_another_checkpoint, signal.SIGKILL) == (-signal.SIGKILL, [])
    assert complete - set(manifests(home)) == {"runs/smoke/training-tile-s0", "runs/smoke/gnn-tile-xla-s0"}
    assert not list(home.rglob("failed.ipynb"))
    assert run("train", *LONG) == 0
    assert set(manifests(home)) == complete
    assert re.search(r"resumed after epoch \d\d", (folder / "notebook.ipynb").read_text())
    assert not (folder / "checkpoint.pt").exists()


def test_two_at_once_with_spaces_in_names_give_the_same_bytes(home):
    """Two commands and two kernels start, each of which imports its libraries."""
    root = shutil.copytree(home / "data" / "sample", home / "my data" / "of today")
    missing = shutil.ignore_patterns("submission", "run.json")
    for stem in ("features", "runs"):
        shutil.copytree(home / stem / "smoke", home / stem / "my run", ignore=missing)
    lost = home / "features" / "my run" / "layout-xla-random"
    shutil.rmtree(lost)
    named = (f"data={root}", "name=my run", SERIAL)
    both = [subprocess.Popen(command("features", *named), env=environment(home)) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0] and (lost / "manifest.json").is_file()
    before = manifests(home, "my run")
    assert run("submission", *named) == 0
    after = manifests(home, "my run")
    assert {folder for folder in after if after[folder] != before.get(folder)} == {"runs/my run/submission"}
    csv = home / "submissions" / "smoke.csv"
    assert csv.with_name("my run.csv").read_bytes() == csv.read_bytes()


def test_a_broken_model_of_ones_own_is_found_before_the_training(home, capsys):
    user_run = home / "runs" / "own" / "trees"
    shutil.copytree(home / "runs" / "smoke" / "ranker-tile-xla-s0", user_run)
    (user_run / "predictions.npz").write_bytes(b"x")
    before = all_files(home)
    typed = ("submission", "ensemble.extra=runs/own/*", "gnn.epochs=3", "overwrite=True")
    refusal = f"{user_run / 'predictions.npz'}: changed after it was written"
    for name in ((), ("name=smoke",)):
        assert run(*typed, *name) == 1
        assert f"error: {refusal}" in capsys.readouterr().err
        assert all_files(home) == before, "what a command is refused for is not recorded"
    assert run(*typed, "--plan") == 0
    assert f"end with an error: {refusal}" in " ".join(capsys.readouterr().out.split())
    steps = plan_of("preset=smoke", *typed[1:]).steps("ensemble")
    with pytest.raises(DataError, match=re.escape(refusal)):  # where features are built by this command
        execution.run_steps(steps, jobs=1)
    assert all_files(home) == before


@cases(
    "setting, lost, said",
    [
        ("", "layout/xla/random/valid", "layout/xla/random/valid: no npz files"),
        ("features.skip_valid=*none*", "tile/xla/train", "tile/xla/train: no npz files"),
        ("predict_with=package", "layout/nlp/default/valid", "layout/nlp/default/valid: no npz files"),
        ("features.layout.hlo_folder=/nope", "", "/nope: contains no .pb file"),
        ("gnn.layout.node_inputs=tiles+attributes", "", "gnn.layout.node_inputs: attributes come from"),
    ],
)
def test_missing_files_are_an_error_of_the_plan_and_of_the_run(home, capsys, setting, lost, said):
    """The command is refused before it writes anything, and its plan says why."""
    words = ("submission", *filter(None, [setting]), "name=other")
    folder = home / "data" / "sample" / "npz_all" / "npz" / lost
    away = folder.with_name("away")
    if lost:
        folder.rename(away)
    assert run(*words, "--plan") == 0
    assert re.search(f"with an error: .*{said}", " ".join(capsys.readouterr().out.split()))
    assert run(*words) == 1
    assert said in capsys.readouterr().err and not (home / "runs" / "other").exists()
    if lost:
        away.rename(folder)


def test_a_device_that_is_not_there_is_found_before_the_features(home, capsys):
    assert run("submission", "gnn.layout.device=cuda:99", "name=far") == 1
    said = capsys.readouterr().err
    assert "error: gnn.layout.device: 'cuda:99' is not there" in said and "features" not in said
    assert not (home / "runs" / "far").exists()


@cases(
    "arguments, said",
    [
        ("ensemble.extra=/nope/*", "ensemble.extra: .* matches none"),
        ("ensemble.tile.extra=/nope/*", "ensemble.tile.extra: .* matches none"),
        ("features.layout.skip_valid=*", "features.layout.skip_valid: .* leaves no valid program"),
        ("hours=2 cluster=tcp://x:1", "hours: are planned for this machine"),
        ("data=/nope", "data: '/nope' is neither sample nor kaggle nor a folder"),
        ("data=kagle", "data: 'kagle' is neither .*did you mean 'kaggle'"),
        ("data=", "data: '' is not sample, kaggle or a folder"),
    ],
)
def test_a_plan_and_the_run_refuse_the_same(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    for plan in (["--plan"], []):
        assert cli.main(["submit", *plan, "name=x", *arguments.split()]) == 1
        assert re.search(said, capsys.readouterr().err)
    assert not any(tmp_path.iterdir())


def test_a_run_of_the_competition_is_planned_before_its_data_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    assert cli.main(["submit", "data=kaggle", "--plan"]) == 0
    assert "this is the plan" in capsys.readouterr().out


def test_a_run_records_its_preset_and_removes_what_an_interrupted_one_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(execution, "run_steps", lambda steps, jobs, cluster: None)
    monkeypatch.setattr(workflow, "check_ids", lambda *_: None)
    abandoned = ".notebook.ipynb.0123456789ab.tmp.ipynb"
    left = [tmp_path / stem / "other" / "step" / abandoned for stem in ("features", "runs")]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    with atomic_path(tmp_path / "runs" / "other" / "step" / "notebook.ipynb") as of_another:
        assert cli.main(["train", "preset=smoke", "name=mine"]) == 0
        assert of_another.is_file(), "its process lives"
    assert not any(path.exists() for path in left)
    asked = {"data": "sample", "preset": "smoke", "seeds": 0, "models": "", "collections": []}
    record = {"data": "data/sample", "preset": "smoke", "settings": asked}
    assert read_json(tmp_path / "runs" / "mine" / "run.json") == record


@cases(
    "first, second, said",
    [
        ("seeds=2", "seeds=3", r"name: runs/mine was begun with seeds=3, now seeds=2\."),
        ("jobs=1", "seeds=3", "name: runs/mine was begun by another command just now; type this one again"),
        ("seeds=2", "seeds=2", ""),
    ],
)
def test_of_two_commands_at_once_the_later_is_refused(first, second, said, tmp_path, monkeypatch, capsys):
    """The second command runs while the first one checks its inputs."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(execution, "run_steps", lambda *_: None)
    pending = [["train", "preset=smoke", "name=mine", second]]

    def check_ids(*_):
        if pending:
            assert cli.main(pending.pop()) == 0

    monkeypatch.setattr(workflow, "check_ids", check_ids)
    assert cli.main(["train", "preset=smoke", "name=mine", first]) == bool(said)
    assert re.search(said, capsys.readouterr().err)
    assert read_json(tmp_path / "runs/mine/run.json")["settings"]["seeds"] == int(second[-1])


@cases("name", ["all", "README.md", "comparisons", "placement", "play", " mine", "mine "])
def test_a_name_of_something_else_is_refused(name):
    with pytest.raises(SettingsError, match=f"^name: '{name}' is .*(another NAME|blanks at its ends)"):
        plan_of(f"name={name}")


def plan_of(*arguments):
    return make_plan(workflow.RunSettings.from_texts(arguments))


@cases(
    "arguments, name, preset, root",
    [
        ([], "sample", "sample", "data/sample"),
        (["data=kaggle"], "kaggle", "kaggle", "data/raw"),
        (["data=kaggle", "preset=smoke"], "smoke", "smoke", "data/raw"),
        (["data=/some/where/mine"], "mine", "kaggle", "/some/where/mine"),
        (["data=smoke/"], "smoke", "kaggle", "smoke/"),
        (["preset=smoke", "name=x"], "x", "smoke", "data/sample"),
        (["preset=tpugraphs-mlp"], "tpugraphs-mlp", "tpugraphs-mlp", "data/sample"),
        (["preset=harvard", "data=kaggle"], "kaggle-harvard", "harvard", "data/raw"),
    ],
)
def test_names_and_presets_follow_from_the_data(arguments, name, preset, root):
    plan = plan_of(*arguments)
    assert (plan.name, plan.preset, plan.data_root) == (name, preset, root)
    assert plan.csv == f"submissions/{name}.csv"
    assert plan.seeds == 0 and plan_of(*arguments, "seeds=2").seeds == 2


def begun(*arguments):
    """The plan of a run and why it is refused, once its command is recorded where it is not."""
    plan, recorded, chosen, _, refused, _ = workflow.resume(workflow.RunSettings.from_texts(arguments))
    if not refused:
        record_run(resolve(f"runs/{plan.name}"), plan.data_root, plan.preset, recorded, chosen)
    return plan, refused


FIRST = ("name=mine", "data=/far/away", "seeds=2", "collections=nlp:random,tile:xla", "gnn.layout.epochs=7")


def test_a_named_run_resumes_with_the_settings_that_it_was_begun_with(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    plan, _ = begun(*FIRST)
    assert plan.overrides == {"gnn.layout": {"epochs": 7}}
    assert (plan.data_root, plan.preset, plan.seeds) == ("/far/away", "kaggle", 2)
    for again in ((), ("seeds=2",), FIRST[1:]):
        assert begun("name=mine", *again) == (plan, "")
    faster, refused = begun("name=mine", "features.workers=3")
    assert not refused and faster.overrides == {**plan.overrides, "features": {"workers": 3}}
    for other, said in (
        ("seeds=0", "with seeds=2, now seeds=0"),
        ("data=sample", "with data='/far/away', now data='sample'"),
        ("gnn.layout.epochs=8", "with gnn.layout.epochs=7, now gnn.layout.epochs=8"),
        ("ranker.num_leaves=8", "without ranker.num_leaves, now ranker.num_leaves=8"),
        ("collections=xla:random", r"with collections=\['layout:nlp:random', 'tile:xla'\], now collections="),
    ):
        _, refused = begun("name=mine", other)
        assert re.match(rf"name: runs/mine was begun {said}.*\. Give a", refused)
    plan, refused = begun("name=mine", "gnn.layout.epochs=8", "overwrite=True")
    assert not refused and plan.overrides == {"gnn.layout": {"epochs": 8}}
    assert (plan.data_root, plan.preset, plan.seeds) == ("/far/away", "kaggle", 2)
    assert begun("name=mine") == (plan, ""), "the settings that were given stay with the run, too"
    for overwrite in ((), ("overwrite=True",)):
        _, refused = begun("name=mine", "models=ranker", *overwrite)
        said = r"now models='ranker'\. Give another NAME .*, or change what does not fit .*\(gnn\.layout: "
        assert re.search(said, refused) and "or overwrite" not in refused
    (tmp_path / "runs" / "mine" / "run.json").write_text("{")
    assert begun("name=mine", "seeds=1")[1] == "", "a broken record is written anew"


def test_a_plan_names_data_and_preset_and_each_setting_that_is_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    far = str(tmp_path / "far")
    (tmp_path / "far").mkdir()
    begun("name=mine", f"data={far}", "preset=smoke")
    begun("seeds=2", "models=ranker", "ranker.num_leaves=8", "ranker.tile.num_iterations=9", "fill=True")
    names = ("seeds", "models", "fill", "ranker.num_leaves", "ranker.tile.num_iterations")
    for typed, where, said in (
        ("name=mine seeds=2", f"mine: data {far}, preset smoke,", ["seeds=0, now seeds=2"]),
        ("", "sample: data data/sample, preset sample,", [f"with {name}=" for name in names]),
    ):
        for overwrite in ([], ["overwrite=True"]):
            assert cli.main(["train", "--plan", *typed.split(), *overwrite]) == 0
            printed = capsys.readouterr().out
            assert f"runs/{where}" in printed and all(words in printed for words in said)
            assert ("end with an error" in printed) == (not overwrite)


def test_an_interrupted_budget_goes_on_with_the_settings_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    made = []
    monkeypatch.setattr(execution, "run_steps", lambda steps, *_: made.append([s.settings for s in steps]))
    monkeypatch.setattr(workflow, "_fit_hours", Mock(side_effect=[KeyboardInterrupt, {}]))
    begin = ["train", "preset=smoke", "collections=tile:xla", "name=mine", "hours=2"]
    assert [cli.main(begin), cli.main(["train", "name=mine"])] == [cli.INTERRUPTED, 0]
    assert made == [[s.settings for s in plan_of(*begin[1:]).steps("train")]]


@cases(
    "setting, value",
    [
        ("features.layout.skip_valid", "layout:xla:*:*unet*,layout:nlp:*:bert"),
        ("features.hlo_folder", "/my/pb"),
        ("features.valid_configs", 100),
        ("gnn.layout.init", "runs/other/gnn-layout-xla-random-s0"),
        ("gnn.tile.hours", 0.5),
    ],
)
def test_a_run_resumes_with_settings_that_only_its_inputs_show(setting, value, tmp_path, monkeypatch):
    """Without them the named run was made anew, from other programs or weights, and no message said so."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    plan, _ = begun("name=mine", "data=/far/away", f"{setting}={value}")
    section, _, name = setting.rpartition(".")
    assert begun("name=mine") == (plan, "") and plan.overrides == {section: {name: value}}
    begun("name=usual", "data=/far/away")
    _, refused = begun("name=usual", f"{setting}={value}")
    assert re.match(f"name: runs/usual was begun without {setting}, now {setting}=", refused)


def test_every_setting_of_a_step_is_recorded_or_is_of_the_machine():
    """A new unkeyed setting that decides what is made must be declared as decisive."""
    left_out = {n for s in SECTIONS.values() for n in s.model_fields.keys() - {*s.decisive()}}
    of_workflow = {"data_root", "features", "folder", "runs", "train", "trained"}
    of_machine = {"configs_together", "device", "logger", "num_threads", "processes", "workers"}
    assert left_out == of_workflow | of_machine


@cases(
    "first, again",
    [
        ([], ["gnn.layout.epochs=100", "models=gnn,ranker"]),
        (["seeds=3"], ["seeds=0"]),
        (["gnn.layout.epochs=7"], ["gnn.layout.epochs=7", "gnn.layout-xla.epochs=7"]),
        (["ranker.layout.num_leaves=9"], ["ranker.num_leaves=9", "ranker.tile.num_leaves=63"]),
        (["models=ranker,gnn"], ["models=gnn, ranker"]),
    ],
)
def test_settings_that_come_to_the_same_are_the_same(first, again, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    usual = ("name=mine", "data=/far/away")
    begun(*usual, *first)
    record = (tmp_path / "runs" / "mine" / "run.json").read_bytes()
    _, refused = begun(*usual, *again)
    assert not refused and (tmp_path / "runs" / "mine" / "run.json").read_bytes() == record


def test_a_pattern_of_no_valid_program_is_named(capsys):
    """A misspelt one would let models be selected on programs that were to be left out."""
    skipped = "features.layout.skip_valid=layout:xla:random:*,layout:xla:*:*nothing*"
    execution.print_skipped(begun("name=mine", "data=sample", skipped)[0].steps("features"))
    left_out, unmatched = capsys.readouterr().out.splitlines()
    assert "nothing" not in left_out
    assert unmatched == "no valid program matches (features.skip_valid): layout:xla:*:*nothing*"


def test_a_pattern_that_matches_nothing_is_refused_before_anything_is_written(home, capsys):
    before = all_files(home)
    assert run("submission", "ensemble.extra=runs/none/*", "name=other") == 1
    assert "extra: ['runs/none/*'] is not a pattern of run folders" in capsys.readouterr().err
    assert all_files(home) == before


def test_a_csv_that_cannot_be_written_is_refused_before_anything_is_trained(home, capsys):
    shutil.rmtree(home / "submissions")
    (home / "submissions").write_text("no folder")
    before = all_files(home)
    assert run("submission", "name=other") == 1
    assert "submissions is no folder. Name another folder" in capsys.readouterr().err
    assert all_files(home) == before


def test_the_run_of_the_default_name_takes_no_other_settings(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    monkeypatch.setattr(execution, "run_steps", lambda *_: None)
    assert cli.main(["train", "gnn.layout.epochs=3"]) == 0
    before = all_files(tmp_path)
    for settings, said in (
        (["gnn.layout.epochs=4"], "with gnn.layout.epochs=3, now gnn.layout.epochs=4"),
        ([], "with gnn.layout.epochs=3, now without gnn.layout.epochs"),
        (["--seeds", "3"], "with seeds=0, now seeds=3; with gnn.layout.epochs=3, now without gnn"),
    ):
        assert cli.main(["train", *settings]) == 1
        assert f"name: runs/sample was begun {said}" in capsys.readouterr().err
        assert all_files(tmp_path) == before
    assert cli.main(["train", "--plan"]) == 0
    assert "nothing was run. The command would end with an error: runs/sample was begun with " in " ".join(
        capsys.readouterr().out.split()
    )
    assert cli.main(["train", "preset=smoke"]) == cli.main(["train", "preset=smoke", "seeds=2"]) == 0


def test_a_plan_says_what_the_command_refuses(home, capsys):
    words = ["train", "init=runs/smoke", "preset=smoke", "name=other", "gnn.layout.hidden_channels=16"]
    before = all_files(home)
    assert cli.main([*words, "--plan"]) == 0
    planned = " ".join(capsys.readouterr().out.split())
    planned = planned.partition("nothing was run. The command would end with an error: ")[2]
    (refusal,) = re.findall(r"^init: .* is another network: hidden.*", planned)
    assert cli.main(words) == 1
    assert capsys.readouterr().err == f"error: {refusal}\n"
    assert all_files(home) == before


def test_a_plan_says_what_would_run_and_why_and_runs_nothing(home, capsys):
    before = all_files(home)
    assert run("submission", "--plan") == 0
    said = capsys.readouterr().out
    for line in ("features: 5 of 5", "train: 5 of 5", "ensemble: 5 of 5", "submission: 1 of 1"):
        assert f"{line} up to date" in said
    assert run("submission", "--plan", "features.tile.padding=0", "ranker.layout.num_iterations=7") == 0
    lines = capsys.readouterr().out
    assert max(map(len, lines.splitlines())) <= 80
    said = lines.replace("\n      ", " ").splitlines()
    assert said[-1] == "this is the plan; nothing was run"
    expected = (
        r"time: \d+ min for \d+ of \d+ steps, one after the other, as last time, in proportion to epochs"
    )
    assert re.search(expected, " ".join(lines.split()))
    assert {
        "features: 4 of 5 up to date",
        "  features tile-xla: padding: -1 -> 0",
        "  training-tile-s0, ranker-tile-xla-s0: after features tile-xla",
        "  ranker-layout-nlp-default-s0, ranker-layout-xla-default-s0: num_iterations: 30 -> 7",
        "  submission: after 6 steps above",
    } <= {*said}
    assert not any("training-layout" in line for line in said)
    assert run("submission", "--plan", "gnn.layout.epochs=1") == 0
    said = capsys.readouterr().out.replace("\n      ", " ").splitlines()
    assert "  training-layout-s0: epochs: 2 -> 1" in said
    named = [line.split(":")[0].strip().split(", ") for line in said if line.startswith("  ")]
    planned = {name for names in named for name in names}
    assert planned == {"training-layout-s0", *(f"ensemble-{slug}" for slug in LAYOUTS), "submission"}
    assert run("train", "--plan", "gnn.layout.epochs=2000") == 0
    minutes = re.search(r"time: (\d+) min for 1 of 1 step", capsys.readouterr().out)
    took = notebook_seconds(home / "runs" / "smoke" / "training-layout-s0")
    assert float(minutes[1]) == pytest.approx(1000 * took / 60, abs=1), "2 epochs took this time"
    assert run("train", "--plan", "name=other") == 0
    said = capsys.readouterr().out
    assert "features: 0 of 5 up to date\n  all: not made yet\n" in said, "a reason is given once"
    assert "  training-tile-s0, ranker-tile-xla-s0: after features tile-xla\n" in said
    assert all_files(home) == before
