"""The command line: every command, its settings, and one way to end on an error.

A setting is given as NAME=VALUE or --NAME VALUE; a dotted name is a setting of a step, such as
``gnn.layout.epochs=50``.
"""

import argparse
import importlib
import logging
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from fastslow.core.errors import FastslowError
from fastslow.core.errors import describe as describe_storage
from fastslow.core.settings import Settings

SET_BY_THE_WORKFLOW = ("features", "runs", "folder", "collection", "data_root", "kind", "seed")
FLAGS = ("plan",)  # options that may be given without a value
INTERRUPTED = 130  # exit status after Ctrl-C, as a shell has it


class Command(NamedTuple):
    """One command.

    Args:
        summary: What it does, in a sentence.
        settings: Class of its settings, as ``module:Class``.
        run: Function of the settings, as ``module:function``.
        fixed: Settings that the command stands for.
        first: Settings whose values may be given first, without their names, separated by spaces.
    """

    summary: str
    settings: str
    run: str
    fixed: dict = {}
    first: str = ""


def _stage(target: str, summary: str, **fixed) -> Command:
    fixed = {"target": target, **fixed}
    return Command(summary, "fastslow.workflow.run_settings:RunSettings", "fastslow.workflow.run:run", fixed)


COMMANDS = {
    "submit": _stage("submit", "Run every stage to a checked submission.csv; data=kaggle also uploads it"),
    "submission": _stage("submission", "Run every stage to a checked submission.csv, without uploading"),
    "features": _stage("features", "Build the features of every collection"),
    "train": _stage("train", "Build the features and train every model"),
    "ensemble": _stage("ensemble", "Train every model and choose the weights of the ensembles"),
    "smoke": _stage("submission", "Run every stage with next to no training", preset="smoke"),
    "train-network": Command(
        "Train one network of a run; started by torchrun, in several processes, GPUs or machines",
        "fastslow.commands.network:NetworkRunSettings",
        "fastslow.commands.network:train_network",
        first="network",
    ),
    "kernel": Command(
        "Write a notebook for Kaggle's GPUs that trains and predicts there, and push it",
        "fastslow.kaggle.kernel:KernelSettings",
        "fastslow.commands.kernel:write_kernel",
    ),
    "report": Command(
        "Render the executed notebooks of a run to HTML with an index page",
        "fastslow.evaluation.report:ReportSettings",
        "fastslow.evaluation.report:render_report",
    ),
    "convert": Command(
        "Convert a program (HLO file or JAX function) to a competition file",
        "fastslow.programs.convert:ConvertSettings",
        "fastslow.commands.convert:convert_program",
        first="source",
    ),
    "rank": Command(
        "Rank the configurations of a program (npz, HLO file or JAX function) with a trained run",
        "fastslow.ranking.settings:RankSettings",
        "fastslow.commands.rank:rank_program",
        first="source",
    ),
    "compare": Command(
        "Compare two runs of a collection per graph, with the standard error of their difference",
        "fastslow.evaluation.compare:CompareSettings",
        "fastslow.evaluation.compare:compare_runs",
        first="one other",
    ),
    "compare-submissions": Command(
        "Compare two submissions row by row: do they rank alike, and are they of one release",
        "fastslow.kaggle.agreement:AgreementSettings",
        "fastslow.kaggle.agreement:compare_submissions",
        first="one other",
    ),
    "tune": Command(
        "Search for a program's fastest configuration with few compiles or measurements",
        "fastslow.tuning.settings:TuneSettings",
        "fastslow.commands.tune:tune_program",
        first="source",
    ),
    "fleet": Command(
        "Tune many programs with one budget, spent where it saves most",
        "fastslow.tuning.fleet_settings:FleetSettings",
        "fastslow.commands.tune:tune_fleet",
        first="fleet",
    ),
    "place": Command(
        "Place, schedule or fuse a program on several devices with GO and compare it with other methods",
        "fastslow_placement.settings:PlaceSettings",
        "fastslow_placement.command:place_program",
        first="source",
    ),
    "sample": Command(
        "Rebuild the sample competition with the TPU compiler (an hour or two; size=large: days)",
        "fastslow.programs.sample:SampleSettings",
        "fastslow.programs.sample:make_sample",
    ),
    "data": Command(
        "Download, check and unpack the real competition's data; resumes where it stopped",
        "fastslow.kaggle.download:DownloadSettings",
        "fastslow.kaggle.download:download",
    ),
    "data-quality": Command(
        "Measure the labels of a competition: repeats, noise, its ceiling on scores, drift and jumps",
        "fastslow.commands.data_quality:QualitySettings",
        "fastslow.commands.data_quality:report_quality",
    ),
    "figures": Command(
        "Draw the figures of the README from a finished run",
        "fastslow.commands.readme_figures:FiguresSettings",
        "fastslow.commands.readme_figures:make_figures",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; those of the process by default.

    Returns:
        The exit status: 0, 1 after an error whose message names the remedy, 130 after Ctrl-C.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(_as_settings(words))
    command = COMMANDS[options.command]
    dashed = [text for text in options.words if text not in words]
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        settings = _load(command.settings).from_texts(options.words, command.fixed, command.first, dashed)
        _load(command.run)(settings)
    except FastslowError as error:
        print(f"error: {_load('fastslow.kaggle.credentials:scrub')(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {describe_storage(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the same command resumes where it stopped", file=sys.stderr)
        return INTERRUPTED
    return 0


def run_process() -> None:
    """Run the command of this process and end it; after Ctrl-C at once, whatever its threads do."""
    status = main()
    if status == INTERRUPTED:
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _as_settings(words: Sequence[str]) -> list[str]:
    """Return the words with ``--name value``, ``--name=value`` and a lone flag as ``name=value``."""
    settings, pending = [], ""
    for word in words:
        if pending:
            word, pending = f"{pending}={word}", ""
        elif word.startswith("--") and word != "--help":
            name, equals, value = word[2:].partition("=")
            value = value if equals else "True"
            word, pending = (f"{name}={value}", "") if equals or name in FLAGS else ("", name)
        settings += [word] if word else []
    return [*settings, f"--{pending}"] if pending else settings


def _load(name: str):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _Parser(argparse.ArgumentParser):
    """A parser whose help of a command lists its settings; their modules are imported only for that."""

    def format_help(self) -> str:
        """Return the usual help and, for a command, every setting with default, range and sentence."""
        name = self.prog.split()[-1]
        if name not in COMMANDS:
            return super().format_help()
        command = COMMANDS[name]
        text = super().format_help() + "\nsettings, each as NAME=VALUE or --NAME VALUE:\n"
        text += describe(_load(command.settings), hidden=command.fixed)
        if command.settings == "fastslow.workflow.run_settings:RunSettings":
            for section, settings in _load("fastslow.workflow.steps:sections")().items():
                text += f"\nsettings of {section}, each as {section}.NAME=VALUE:\n"
                text += describe(settings, hidden=SET_BY_THE_WORKFLOW)
            text += "\npublished baselines, each as preset=NAME (docs/baselines.md):\n"
            for preset, published in _load("fastslow.workflow.published_presets:PUBLISHED").items():
                text += f"  {preset}  ({', '.join(published.kinds)})\n      {published.what}\n"
        return text


def describe(settings: type[Settings], hidden: Sequence[str] = ()) -> str:
    """Return the fields of a settings class as lines by group: name, default, range, sentence."""
    lines, group = [], ""
    for setting in settings.describe():
        if setting.name not in hidden:
            if setting.group != group:
                lines.append(f" {setting.group}:")
                group = setting.group
            allowed = f"; {setting.allowed}" if setting.allowed else ""
            lines.append(f"  {setting.name}={setting.default}  ({setting.kind}{allowed})")
            lines += textwrap.wrap(setting.sentence, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    about = "Rank the compiler configurations of an XLA program from fastest to slowest."
    more = "fastslow COMMAND --help lists the settings of a command, with default, range and meaning;"
    more += " each is given as NAME=VALUE or --NAME VALUE."
    parser = _Parser(prog="fastslow", description=about, epilog=more)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.summary, description=command.summary + ".")
        first = f"{command.first.upper()}, then " if command.first else ""
        own.add_argument("words", nargs="*", metavar="NAME=VALUE", help=f"{first}settings")
    return parser
