"""The command line: what its help shows, how settings are given, and how it ends on an error."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from unittest.mock import Mock

import pytest

from fastslow import cli
from fastslow.core.errors import SettingsError
from fastslow.core.settings import Settings
from fastslow.evaluation.compare import CompareSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.run import KAGGLE_HOURS, ON_KAGGLE
from fastslow.workflow.settings.published_presets import PUBLISHED
from fastslow.workflow.settings.sections import SECTIONS, SET_BY_THE_WORKFLOW, NetworkSection, preset_settings
from helpers.cases import cases
from helpers.dot_module import varied_module


def load(entry):
    """What an entry of the table of commands names, such as ``fastslow.workflow.run:run``."""
    module, name = entry.split(":")
    return getattr(import_module(module), name)


SETTINGS = {name: load(command.settings) for name, command in cli.COMMANDS.items()}


def helped(capsys, *words):
    """What a call for help prints."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_help_lists_every_command_with_its_summary(capsys):
    text = " ".join(helped(capsys).split())
    for name, command in cli.COMMANDS.items():
        assert f"{name} {command.summary}" in text


def test_a_command_has_a_function_and_its_help_shows_every_setting_on_lines_of_80_characters(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in cli.COMMANDS.items():
        assert callable(load(command.run)) and issubclass(SETTINGS[name], Settings)
        text = helped(capsys, name, "--all")
        settings = text.split("settings, each as")[1].splitlines()
        assert all(len(line) <= 80 or len(line.split()) == 1 for line in settings), name
        words = " ".join(text.split())
        for setting in SETTINGS[name].describe():
            default = cli.COMMANDS[name].defaults.get(setting.name, setting.default)
            default = "" if default is None else default
            shown = " ".join(f"{setting.name}={default} ({setting.kind}".split())
            assert (f" {shown}" in words) == (setting.name not in command.fixed), f"{name}: {setting.name}"
            if setting.name not in command.fixed:
                assert setting.sentence and setting.sentence[:60] in words, setting.name


def test_the_help_of_a_run_shows_the_settings_of_every_step(capsys):
    text = helped(capsys, "submit", "--all")
    for section, settings in SECTIONS.items():
        part = text.split(f"settings of {section}, each as {section}.NAME=VALUE:")[1]
        for setting in settings.describe():
            if setting.name not in SET_BY_THE_WORKFLOW:
                assert f"  {setting.name}={setting.default}  ({setting.kind}" in part
    for name, published in PUBLISHED.items():
        assert f"  {name}  ({', '.join(published.kinds)})\n      {published.what}\n" in text


@cases("command, preset", [("submit", "sample"), ("smoke", "smoke"), ("kaggle", "kaggle")])
def test_the_help_of_a_run_has_the_defaults_that_it_runs_with(capsys, command, preset):
    main, every = (" ".join(helped(capsys, command, *words).split()) for words in ([], ["--all"]))
    assert f"The defaults of the steps below are the preset {preset}'s, for layout." in every
    network = preset_settings(preset, {}, "gnn", "layout")
    trees = preset_settings(preset, {}, "ranker", "layout")
    epochs = network.get("epochs", NetworkSection().epochs)
    rounds = trees.get("num_iterations", RankerSettings().num_iterations)
    assert f" gnn.layout.epochs={epochs} (int" in main and f" epochs={epochs} (int" in every
    assert (
        f" ranker.layout.num_iterations={rounds} (int" in main and f" num_iterations={rounds} (int" in every
    )
    assert f" hidden_channels={network.get('hidden_channels', 64)} (int" in every


def test_help_shows_examples_and_at_most_twelve_main_settings_first(capsys):
    for name, command in cli.COMMANDS.items():
        text = helped(capsys, name)
        for example in command.examples:
            assert len(f"  fastslow {name} {example}") <= 80, f"{name}: a terminal cuts this example"
            assert f"\n  fastslow {name} {example}".rstrip() + "\n" in text
        shown = re.findall(r"^  ([\w.]+)=.*  \(\w", text, re.M)
        main = [setting for setting in command.main.split() if setting not in command.fixed]
        assert not main or shown == main and len(main) <= 12
        assert (f"`fastslow {name} --all` lists all settings." in text) == bool(main)
        assert len(shown) <= 16, f"{name}: choose its main settings"


@cases(
    "command",
    ["rank", "tune", "measure", "convert", "place", "fleet", "compare", "leaderboard", "data-quality"],
)
def test_a_first_word_that_names_an_unknown_setting_is_no_file(command, capsys):
    assert cli.main([command, "out_csv=x"]) == 1
    assert "error: out_csv: no such setting; " in capsys.readouterr().err


def test_an_error_is_one_line_with_the_remedy(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    for words, message in (
        (["smoke", "preset=kaggle"], "preset: this command sets it to 'smoke' itself; leave it out"),
        (["kaggle", "--plan"], "plan: this command sets it to False itself; leave it out"),
        (["submit", "target=train"], "target: this command sets it to 'submit' itself"),
        (["features", "unproven_order=True"], "has no effect without an upload; leave it at False, or type"),
        (["submission", "unproven_order=True", "predict_with=package"], "has no effect without an upload"),
        (["train-network", "unproven_order=True"], "has no effect for one network"),
        (["train", "seed=5"], "seed: no such setting; did you mean 'seeds'"),
        (["submit", "epochs=5"], "did you mean 'gnn.layout.epochs'?"),
        (["submit", "hops=3"], "did you mean 'features.layout.hops'?"),  # not hours, which is nearest
        (["submit", "num_leavs=5"], "did you mean 'ranker.layout.num_leaves'?"),
        (["train", "--learning_rate", "0.1"], "'gnn.layout.learning_rate' or 'ranker.layout.learning_rate'?"),
        (["train", "fast"], "'fast': a setting is given as NAME=VALUE"),
        (["rank", "--confgs", "3"], "--confgs: no such setting; did you mean 'configs'"),
        (["compare", "runs/a", "--splt=test"], "--splt: no such setting; did you mean 'split'"),
        (["submit", "set=x", "gnn.epochs=3"], "set: is given twice, as 'x' and gnn.epochs=3"),
        (["submit", "preset=samle"], "tpugraphs; did you mean 'sample'"),
        (["submit", "collections=xla:rando"], "collections: 'xla:rando' is none of tile:xla, "),
        (["data-quality", "collections=xla:rando"], "layout:nlp:random; did you mean 'xla:random'?"),
        (["convert", "no/such.hlo"], "no/such.hlo"),
        (["submit", "data=/"], "name: '' is not a plain folder name"),
        (["submit", "data=no/such"], "is neither sample nor kaggle nor a folder; name one"),
        (["submit", "data=docs"], "no npz files. Run `make data`"),
        (["submit", "gnn.layout.epochs=0"], "gnn.layout.epochs: 0 is not 1 or more"),
        (["submit", "--seeds", "two"], "seeds: 'two' is a text, a whole number wanted"),
        (["submit", "\udcff=1"], "\\udcff: no such setting; known are"),
        (["leaderboard", f"csv={'a/' * 300}b"], "csv: names 300 folders one in another, at most 255 wanted"),
        (["submit", f"data={tmp_path}/loop"], f"{tmp_path}/loop"),
        (["submit", "ensemble.extra=no/*", "--plan"], "['no/*'] is not a pattern of run folders"),
    ):
        assert cli.main(words) == 1, words
        said = capsys.readouterr().err
        assert re.fullmatch(r"error: .+\n", said) and message in said, words


@cases("command", ["rank", "convert", "measure", "tune", "place"])
@cases("name", ["loop", "loop.npz", "loop.json", "loop.py:make"])
def test_a_source_that_is_a_link_to_itself_is_named_where_it_is(capsys, monkeypatch, tmp_path, command, name):
    monkeypatch.chdir(tmp_path)
    file = name.partition(":")[0]
    (tmp_path / file).symlink_to(file)
    assert cli.main([command, name]) == 1
    assert f"error: {tmp_path / file}: is a link that leads to itself" in capsys.readouterr().err


def test_an_unknown_command_or_option_is_a_usage_error(capsys):
    for words in ([], ["nothing"], ["train", "--fast"], ["submit", "--preset"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2 and "usage: fastslow" in capsys.readouterr().err, words


def test_a_misspelt_command_is_told_the_nearest(capsys):
    for word, said in (
        ("submitt", "'submitt' is no command; did you mean 'submit'?"),
        ("leaderbord", "'leaderbord' is no command; did you mean 'leaderboard'?"),
        ("xyzzy", "'xyzzy' is no command; `fastslow --help` lists all"),
    ):
        with pytest.raises(SystemExit):
            cli.main([word])
        assert said in capsys.readouterr().err


SOURCE = __file__.replace("test_cli", "test_api") + ":make"


@cases(
    "words, run, said",
    [
        (["train"], "fastslow.workflow.run.run", "the same command resumes where it stopped"),
        (
            ["measure", SOURCE],
            "fastslow_programs.commands.measure.measure_program",
            "what was measured is kept for rank and tune; the same command measures anew",
        ),
        (
            ["rank", SOURCE],
            "fastslow_programs.commands.rank.rank_program",
            "what the TPU compiler compiled is kept; the same command begins anew",
        ),
        (
            ["place", "zoo:transformer_2"],
            "fastslow_placement.command.place_program",
            "the same command begins anew",
        ),
        (
            ["leaderboard"],
            "fastslow.evaluation.leaderboard.print_leaderboard",
            "the same command begins anew",
        ),
    ],
)
def test_ctrl_c_says_what_the_same_command_does(capsys, monkeypatch, words, run, said):
    """A ranking said that it resumes, and a placement that nothing was written, when its table was."""
    monkeypatch.setattr(run, Mock(side_effect=KeyboardInterrupt))
    assert cli.main(words) == cli.INTERRUPTED == 130
    assert capsys.readouterr().err == f"\ninterrupted; {said}\n"


def test_ctrl_c_before_a_command_begins_says_nothing_of_it(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_check_process", Mock(side_effect=KeyboardInterrupt))
    assert cli.main([]) == cli.INTERRUPTED and capsys.readouterr().err == "\ninterrupted\n"


def test_the_first_two_words_may_be_the_runs_and_dashes_are_allowed():
    runs = CompareSettings.from_texts(["runs/a", "runs/b", "split=test"], first="one other")
    assert (runs.one, runs.other, runs.split) == ("runs/a", "runs/b", "test")
    named = CompareSettings.from_texts(["runs/a", "other=runs/b"], first="one other")
    assert (named.one, named.other) == ("runs/a", "runs/b")
    with pytest.raises(SettingsError, match="other: .. is not a run or submission: fastslow compare ONE"):
        CompareSettings.from_texts(["runs/a"], first="one other")


def test_a_command_of_the_repository_says_so_in_an_installed_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_CHECKOUT", tmp_path)
    commands = [name for name, command in cli.COMMANDS.items() if command.repository]
    assert {"submit", "train", "place", "sample"} <= {*commands}
    for name in commands:
        assert cli.main([name]) == 1
        assert f"`fastslow {name}` needs the repository" in capsys.readouterr().err


def test_a_closed_pipe_ends_a_command_without_a_word():
    command = f"set -o pipefail; {shlex.quote(sys.executable)} -m fastslow submit --all | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("usage:") and not done.stderr and done.returncode in (0, 141)


@cases("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_traceback(closed, tmp_path):
    """And no file gets its number, with what a library prints in it."""
    run = tmp_path / "runs" / os.fsdecode(b"a\xff")
    run.mkdir(parents=True, exist_ok=True)
    for words in ("leaderboard csv=x.csv", "--version"):
        command = f"{shlex.quote(sys.executable)} -m fastslow {words} {closed}"
        environment = {**os.environ, "FASTSLOW_HOME": str(tmp_path), "PYTHONIOENCODING": "utf-8:strict"}
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and not done.stderr
    assert (tmp_path / "x.csv").read_text().startswith("run,model")


def test_a_process_that_a_command_starts_has_the_stream_that_was_closed():
    child = "import sys; sys.exit(sys.stdout is None)"
    code = f"""
import subprocess, sys
from fastslow.cli import _complete_streams
_complete_streams()
sys.exit(subprocess.run([sys.executable, "-c", {child!r}]).returncode)
"""
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} >&-"
    assert subprocess.run(["bash", "-c", command]).returncode == 0


@cases("value", ["{[]:1}", "{[1]}", "[1", "1e999", "(" * 300])
def test_a_value_that_is_no_literal_is_refused_plainly(value, capsys):
    assert cli.main(["leaderboard", f"wide={value}"]) == 1
    assert capsys.readouterr().err.startswith("error: wide: ")


def test_json_alone_and_nothing_at_all(tmp_path, capsys):
    (tmp_path / "a.pb").write_bytes(varied_module().SerializeToString())
    words = ["convert", str(tmp_path / "a.pb"), "--json", "configs=3", f"data_root={tmp_path}"]
    assert cli.main(words) == 0
    said, aside = capsys.readouterr()
    assert json.loads(said)["configurations written"] == 3 and "configurations written" in aside
    assert cli.main([*words, "--quiet"]) == 0
    assert capsys.readouterr() == (said, "")
    assert cli.main(["--version"]) == 0 and capsys.readouterr().out.startswith("fastslow ")
    assert (
        cli.main(["data-quality", "--json"]) == 1
        and "--json: only for convert, measure, rank" in capsys.readouterr().err
    )


def test_the_help_of_kaggle_has_the_hours_that_a_run_there_takes():
    """The command line does not import the workflow for one number."""
    assert cli.COMMANDS["kaggle"].defaults == {"hours": KAGGLE_HOURS, "name": ON_KAGGLE, "preset": "kaggle"}
