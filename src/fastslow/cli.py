"""The command line: every command, its settings, and one way to end on an error.

A setting is given as NAME=VALUE or --NAME VALUE; a dotted name is a setting of a step, such as
``gnn.layout.epochs=50``.
"""

import argparse
import importlib
import json
import locale
import os
import re
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from fastslow import __version__
from fastslow.core.errors import FastslowError, SettingsError, storage_error
from fastslow.core.memory import allowed_cores, machine_cores
from fastslow.core.setting_fields import Setting, nearest
from fastslow.core.settings import Settings
from fastslow.core.tables import wrapped

ALL, JSON, QUIET = "--all", "--json", "--quiet"
WITH_JSON = ("convert", "measure", "rank", "tune", "fleet", "place", "leaderboard", "compare")
WITH_ALL = ("compare",)  # its rows, not its help
FLAGS = ("plan", "wide")  # options that may be given without a value
FACTORY = "make_sample"
_CHECKOUT = Path(__file__).resolve().parents[2]
_WIDEST, _SIDE = 100, 2  # characters of a line of help; those that stay free at its end, as argparse has them
_LEAST_MEMORY = 10**9  # of addresses: half a gigabyte does not map torch
_EXTRA = ("papermill", "jupyter_client", "nbclient", "nbformat", "requests")  # a slim install lacks them
_RESUMES = "the same command resumes where it stopped"
_ANEW = "the same command begins anew"
_COMPILED = f"what the TPU compiler compiled is kept; {_ANEW}"
_MEASURED = "what was measured is kept for rank and tune; the same command measures anew"
INTERRUPTED, PIPE_CLOSED = 130, 141  # exit status after Ctrl-C, and without a reader, as a shell has them


class Command(NamedTuple):
    """One command.

    Args:
        summary: Its effect, in a sentence.
        settings: Class of its settings, as ``module:Class``.
        run: Function of the settings, as ``module:function``.
        fixed: Settings that the command sets to these values itself.
        first: Settings whose values may be given first, without their names, separated by spaces.
        defaults: Defaults of its own, which its help shows in place of the settings'.
        main: Settings that its help shows, separated by spaces, a step's with its dotted name; ``--all``
            shows the others too. Empty: all of them.
        examples: Command lines without ``fastslow COMMAND``.
        repository: Whether it needs the repository, whose notebooks it executes, or its data.
        left: Words after Ctrl-C, true at any moment: which results are kept, whether the command resumes.
    """

    summary: str
    settings: str
    run: str
    fixed: dict = {}
    first: str = ""
    defaults: dict = {}
    main: str = ""
    examples: tuple[str, ...] = ()
    repository: bool = False
    left: str = _ANEW


_RUN_MAIN = (
    "data preset name hours seeds jobs predict_with plan features.layout.hops gnn.layout.epochs "
    "gnn.layout.learning_rate ranker.layout.num_iterations"
)
_RUN_EXAMPLES = (
    "",
    "--plan",
    "data=kaggle hours=4",
    "name=mine seeds=3 gnn.layout.epochs=50",
)


_RUN = "fastslow.workflow.run:run"


_RUN_SETTINGS = "fastslow.workflow.settings.run_settings:RunSettings"


def _stage(target: str, summary: str, **fixed) -> Command:
    fixed = {"target": target, **fixed}
    return Command(
        summary,
        _RUN_SETTINGS,
        _RUN,
        fixed,
        main=_RUN_MAIN,
        examples=_RUN_EXAMPLES,
        repository=True,
        left=_RESUMES,
    )


COMMANDS = {
    "submit": _stage("submit", "Run every stage to a checked submission.csv; data=kaggle also uploads it"),
    "submission": _stage("submission", "Run every stage to a checked submission.csv, without uploading"),
    "features": _stage("features", "Build the features of every collection"),
    "train": _stage("train", "Build the features and train every model"),
    "ensemble": _stage("ensemble", "Train every model and choose the weights of the ensembles"),
    "smoke": _stage("submission", "Run every stage with next to no training", preset="smoke"),
    "kaggle": Command(
        "Run every stage on Kaggle's own two T4 (name=on-kaggle hours=8.5), fetch the run, upload its CSV",
        _RUN_SETTINGS,
        "fastslow.workflow.run:run_on_kaggle",
        fixed={"data": "kaggle", "cluster": "", "plan": False, "unproven_order": False, "predict_with": ""},
        defaults={"hours": 8.5, "name": "on-kaggle", "preset": "kaggle"},
        main=_RUN_MAIN.replace("data preset", "preset").replace("plan ", ""),
        examples=("", "name=second hours=4 gnn.layout.epochs=50"),
        repository=True,
        left=_RESUMES,
    ),
    "train-network": Command(
        "Train one network of a run; started by torchrun, in several processes, GPUs or machines",
        "fastslow.workflow.train_network:NetworkRunSettings",
        "fastslow.workflow.train_network:train_network",
        first="network",
        main="network data preset name seeds models init",
        left=_RESUMES,
    ),
    "convert": Command(
        "Convert a program (HLO file or JAX function) to a competition file",
        "fastslow_programs.program.program_settings:ConvertSettings",
        "fastslow_programs.commands.convert:convert_program",
        first="source",
        examples=("program.hlo", "model.py:make configs=200 generation=v4 name=mine"),
        left=_COMPILED,
    ),
    "measure": Command(
        "Measure configurations of a program on this machine, for rank's known=",
        "fastslow_programs.program.program_settings:MeasureSettings",
        "fastslow_programs.commands.measure:measure_program",
        fixed={"label": False, "generation": "v3", "collection": "layout:xla:random"},
        first="source",
        examples=("program.hlo configs=40", "model.py:make"),
        left=_MEASURED,
    ),
    "rank": Command(
        "Rank the configurations of a program (npz, HLO file or JAX function) with a trained run",
        "fastslow_programs.ranking.settings:RankSettings",
        "fastslow_programs.commands.rank:rank_program",
        first="source",
        main="source known run configs collection estimate default data_root name kernel generation seed",
        examples=("program.hlo", "model.py:make configs=5000", "program.npz known=measured.csv"),
        left=_COMPILED,
    ),
    "leaderboard": Command(
        "List every model under runs/: settings, hours, valid and test scores, what Kaggle said",
        "fastslow.evaluation.leaderboard:LeaderboardSettings",
        "fastslow.evaluation.leaderboard:print_leaderboard",
        first="sort",
        examples=("", "private", "layout:xla:random csv=scores.csv"),
    ),
    "compare": Command(
        "Compare two runs, two models (which is better) or two submissions (whether they rank alike)",
        "fastslow.evaluation.compare:CompareSettings",
        "fastslow.workflow.compare:compare",
        first="one other",
        examples=("sample mine", "sample mine --all", "submissions/sample.csv submissions/mine.csv"),
    ),
    "blend": Command(
        "Blend submissions by the mean of ranks into a CSV that is checked and listed on the leaderboard",
        "fastslow.evaluation.blend:BlendSettings",
        "fastslow.workflow.run:blend_csvs",
        first="csvs...",
        examples=("a.csv b.csv", "submissions/sample.csv theirs.csv weights=2,1 out=both.csv"),
    ),
    "tune": Command(
        "Search for a program's fastest configuration with few compiles or measurements",
        "fastslow_programs.tuning.settings:TuneSettings",
        "fastslow_programs.commands.tune:tune_program",
        first="source",
        main="source run evaluator options command evaluations budget_seconds strategy processes collection "
        "data_root name",
        examples=(
            "program.hlo evaluations=200",
            "model.py:make evaluator=command command=./measure.sh",
            "labelled.npz run=none strategy=random",
        ),
        left=_RESUMES,
    ),
    "fleet": Command(
        "Tune many programs with one budget, shared by weight x default",
        "fastslow_programs.tuning.settings:FleetSettings",
        "fastslow_programs.commands.tune:tune_programs",
        first="fleet",
        main="fleet run evaluator command evaluations budget_seconds strategy batch processes data_root name",
        examples=("list.csv evaluations=500",),
        left=_RESUMES,
    ),
    "place": Command(
        "Place, schedule or fuse a program on several devices with rules and a search, and compare them",
        "fastslow_placement.settings:PlaceSettings",
        "fastslow_placement.command:place_program",
        repository=True,
        first="source",
        main="source devices task device memory search seed out",
        examples=("model.py:make devices=4 device=h100", "program.hlo", "zoo:transformer_2 task=joint"),
    ),
    "sample": Command(
        "Make a sample competition again: from kept labels, or with the TPU compiler (size=large: days)",
        "make_sample.sample:SampleSettings",
        "make_sample.sample:make_sample",
        repository=True,
        left=_RESUMES,
    ),
    "data": Command(
        "Download, check and unpack the real competition's data; resumes where it stopped",
        "fastslow.kaggle.download:DownloadSettings",
        "fastslow.kaggle.download:download",
        left=_RESUMES,
    ),
    "data-quality": Command(
        "Measure the labels of a competition: repeats, noise, its ceiling on scores, drift and jumps",
        "fastslow.workflow.data_quality:QualitySettings",
        "fastslow.workflow.data_quality:report_quality",
        first="data",
        examples=("", "kaggle", "/my/tpugraphs splits=valid"),
        left=_RESUMES,
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; by default the arguments of the process.

    Returns:
        The exit status: 0, 1 after an error whose message names the remedy, 130 after Ctrl-C, 141 where the
        reader of the output has closed it.

    Raises:
        SystemExit: After a help (0), and after words that no command has (2).
    """
    words = sys.argv[1:] if arguments is None else arguments
    if [*words] == ["--version"]:
        print(f"fastslow {__version__}, commit {_load('fastslow.core.artifacts:commit')()}")
        return 0
    flags = {word for word in words if word in (ALL, JSON, QUIET)}
    if ALL in flags and words[0] in WITH_ALL:
        flags -= {ALL}
        words = ["all=True" if word == ALL else word for word in words]
    words = [*(word for word in words if word not in flags), *["--help"] * (ALL in flags)]
    _Parser.everything = ALL in flags
    try:
        _check_process()
        options = _parser().parse_args(_as_settings(words))
        command = COMMANDS[options.command]
        if command.repository and not (_CHECKOUT / "notebooks").is_dir():
            raise SettingsError(
                f"`fastslow {options.command}` needs the repository: clone it and type it there"
            )
        dashed = [text for text in options.words if text not in words]
        if command.run != _RUN:  # which shares the cores out among its steps
            _limit_threads()
        settings = _load(command.settings).from_texts(options.words, command.fixed, command.first, dashed)
        settings.check_typed()
        if JSON in flags and options.command not in WITH_JSON:
            raise SettingsError(f"{JSON}: only for {', '.join(WITH_JSON)}")
        with ExitStack() as outputs:
            silence = outputs.enter_context(open(os.devnull, "w")) if QUIET in flags else None
            outputs.enter_context(redirect_stderr(silence or sys.stderr))
            outputs.enter_context(redirect_stdout(silence or (sys.stderr if JSON in flags else sys.stdout)))
            result = _load(command.run)(settings)
        if JSON in flags:
            print(json.dumps(result, default=str))
        sys.stdout.flush()
    except FastslowError as error:
        print(f"error: {_load('fastslow.kaggle.credentials:scrub')(str(error))}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in _EXTRA:
            raise
        remedy = "type pip install 'fastslow[notebooks,kaggle]'"
        print(f"error: the package {error.name} is not installed: {remedy}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # of `| head`, which has read enough
        return PIPE_CLOSED
    except OSError as error:
        print(f"error: {describe_error(error)}", file=sys.stderr)
        return 1
    except MemoryError:
        remedy = "Allow more (ulimit -v, the container's limit) or run fewer steps at a time (JOBS=1)"
        print(f"error: the memory that this process may have is used up. {remedy}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        left = [f"; {COMMANDS[word].left}" for word in words[:1] if word in COMMANDS]
        print("\ninterrupted", *left, sep="", file=sys.stderr)
        return INTERRUPTED
    return 0


def _limit_threads() -> None:
    """Let libraries that are imported later start as many threads as there are usable cores.

    They count the machine's cores and know nothing of a container's share of time, in which more threads wait
    for one another. A number that the user has set stays, and nothing is set where there is no such share.
    """
    if machine_cores() < allowed_cores():
        os.environ.setdefault("OMP_NUM_THREADS", str(machine_cores()))


def _check_process() -> None:
    """Refuse a process in which nothing works: of another encoding, or without the memory to import torch."""
    if (encoding := locale.getpreferredencoding(False).lower()) not in ("utf-8", "utf8"):
        problem = f"this process takes text for {encoding}, UTF-8 wanted"
        raise SettingsError(f"{problem}. Type `export PYTHONUTF8=1`, or set LC_ALL to a UTF-8 locale")
    if 0 <= (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) < _LEAST_MEMORY:
        problem = (
            f"`ulimit -v` allows {limit / 1e9:.1f} GB of memory, at least {_LEAST_MEMORY / 1e9:.0f} wanted"
        )
        raise SettingsError(f"{problem}. Type `ulimit -v unlimited`")


def run_process() -> None:
    """Run the command of this process and end it; after Ctrl-C at once, whatever its threads do."""
    _complete_streams()
    status = main()
    try:
        sys.stdout.flush()
    except OSError:  # said before: the reader is gone, or the disk is full
        os._exit(status or PIPE_CLOSED)
    if status in (INTERRUPTED, PIPE_CLOSED):
        os._exit(status)
    sys.exit(status)


def _complete_streams() -> None:
    """Open streams that are closed, and let the others print every name of a file.

    Without them the next file that is opened would get the number 1, and with it what a library prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(null, True)  # processes that this one starts, such as kernels, need it too
            setattr(sys, name, os.fdopen(null, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _as_settings(words: Sequence[str]) -> list[str]:
    """Return the words with ``--name value``, ``--name=value`` and a lone flag as ``name=value``."""
    settings, pending = [], ""
    for word in words:
        if pending:
            word = f"{pending}={word}"
            pending = ""
        elif word.startswith("--") and word != "--help":
            name, equals, value = word[2:].partition("=")
            value = value if equals else "True"
            word, pending = (f"{name}={value}", "") if equals or name in FLAGS else ("", name)
        settings += [word] if word else []
    return [*settings, f"--{pending}"] if pending else settings


def _load(name: str):
    module, _, attribute = name.partition(":")
    if module.startswith(f"{FACTORY}.") and (folder := str(_CHECKOUT / "data")) not in sys.path:
        sys.path.append(folder)  # the factory stands beside the data that it makes
    return getattr(importlib.import_module(module), attribute)


class _Parser(argparse.ArgumentParser):
    """A parser whose help of a command lists its settings; their modules are imported only for that."""

    everything = False

    def error(self, message: str) -> NoReturn:
        """End with the usage; for a misspelt command name the nearest one."""
        if misspelt := re.fullmatch(r"argument COMMAND: invalid choice: '(.*?)' .*", message, re.S):
            near = nearest(misspelt[1], COMMANDS) or "; `fastslow --help` lists all"
            message = f"{misspelt[1]!r} is no command{near}"
        super().error(message)

    def format_help(self) -> str:
        """Return the usual help and, for a command, examples and settings: default, range, sentence."""
        name = self.prog.split()[-1]
        if name not in COMMANDS:
            return super().format_help()
        command = COMMANDS[name]
        text = super().format_help()
        if command.examples:
            lines = [f"  fastslow {name} {example}".rstrip() for example in command.examples]
            text += "\n".join(["\nexamples:", *lines, ""])
        classes = {"": _load(command.settings)}
        is_run = command.settings == _RUN_SETTINGS
        preset = command.fixed.get("preset") or command.defaults.get("preset", "sample")
        if is_run:
            classes |= _load("fastslow.workflow.settings.sections:SECTIONS")
        if command.main and not self.everything:
            main = [name for name in command.main.split() if name not in command.fixed]
            text += "\nmain settings, each as NAME=VALUE or --NAME VALUE:\n"
            for typed in main:
                section, _, field = typed.rpartition(".")
                step, _, scope = section.partition(".")
                defaults = _step_defaults(preset, step, scope) if step else command.defaults
                setting = next(setting for setting in classes[step].describe() if setting.name == field)
                setting = setting._replace(default=defaults.get(field, setting.default))
                text += "".join(f"{line}\n" for line in _lines(typed, setting))
            return f"{text}\n`fastslow {name} {ALL}` lists all settings.\n"
        text += "\nsettings, each as NAME=VALUE or --NAME VALUE:\n"
        text += setting_lines(classes.pop(""), hidden=command.fixed, defaults=command.defaults)
        if is_run:
            text += f"\nThe defaults of the steps below are the preset {preset}'s, for layout.\n"
            hidden = _load("fastslow.workflow.settings.sections:SET_BY_THE_WORKFLOW")
            for section, settings in classes.items():
                text += f"\nsettings of {section}, each as {section}.NAME=VALUE:\n"
                defaults = _step_defaults(preset, section, "layout")
                text += setting_lines(settings, hidden=hidden, defaults=defaults)
            text += "\npublished baselines, each as preset=NAME (docs/baselines.md):\n"
            for baseline, published in _load(
                "fastslow.workflow.settings.published_presets:PUBLISHED"
            ).items():
                lines = [f"  {baseline}  ({', '.join(published.kinds)})", *_wrapped(published.what, 6)]
                text += "\n".join(lines) + "\n"
        return text


def _step_defaults(preset: str, step: str, scope: str) -> dict[str, Any]:
    """Return the settings of a step that a preset sets, by name; others have the defaults of their class."""
    settings: dict[str, Any] = _load("fastslow.workflow.settings.sections:preset_settings")(
        preset, {}, step, scope
    )
    return settings


def setting_lines(
    settings: type[Settings], hidden: Sequence[str] = (), defaults: Mapping[str, Any] | None = None
) -> str:
    """Return the fields of a settings class as lines by group: name, default, range, sentence.

    Args:
        settings: The class.
        hidden: Names of fields that are left out.
        defaults: Default by name, where it is not the field's.
    """
    lines, group = [], ""
    for setting in settings.describe():
        if setting.name not in hidden:
            if setting.group != group:
                lines.append(f" {setting.group}:")
                group = setting.group
            default = (defaults or {}).get(setting.name, setting.default)
            lines += _lines(setting.name, setting._replace(default=default))
    return "\n".join(lines) + "\n"


def _lines(name: str, setting: Setting) -> list[str]:
    allowed = f"; {setting.allowed}" if setting.allowed else ""
    if setting.default is None:
        allowed += "; none if it is not given"
    default = "" if setting.default is None else setting.default
    head = f"{name}={default}  ({setting.kind}{allowed})"
    return [*_wrapped(head, 2), *_wrapped(setting.sentence, 6)]


def _wrapped(text: str, indent: int) -> list[str]:
    """Return a text as lines that fit into the terminal; lines after the first one are indented by six."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) - _SIDE
    return wrapped(text, width, " " * indent, " " * 6).splitlines()


def _parser() -> argparse.ArgumentParser:
    about = "Rank the compiler configurations of an XLA program from fastest to slowest."
    more = "fastslow COMMAND --help lists the main settings of a command, with default, range and meaning,"
    more += f" fastslow COMMAND {ALL} every one (but compare {ALL}: a row for each program);"
    more += " each is given as NAME=VALUE or --NAME VALUE."
    parser = _Parser(prog="fastslow", description=about, epilog=more)
    parser.add_argument("--version", action="store_true", help="print the version and the commit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.summary, description=command.summary + ".")
        first = f"{command.first.upper()}, then " if command.first else ""
        subparser.add_argument("words", nargs="*", metavar="NAME=VALUE", help=f"{first}settings")
        everything = (
            "print a row for each program too" if name in WITH_ALL else "show this help with every setting"
        )
        subparser.add_argument(ALL, action="help", help=everything)
        if name in WITH_JSON:
            subparser.add_argument(
                JSON, action="store_true", help="print the result as JSON, the rest to stderr"
            )
        subparser.add_argument(QUIET, action="store_true", help="print nothing but errors")
    return parser


def describe_error(error: OSError) -> str:
    """Return an operating system's error in one line: what, and the remedy where there is one."""
    if explained := storage_error(error, "output"):
        return str(explained)
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return f"{error.filename}: {reason}" if error.filename else reason or type(error).__name__
