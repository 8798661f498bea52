"""Command-line options that benchmarks share."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from common.graph_files import REAL
from fastslow.workflow.settings.presets import PRESETS
from fastslow.workflow.settings.sections import NetworkSection, preset_settings
from fastslow.workflow.steps import parse_overrides


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the one option of every benchmark, ``--quick``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="only check that everything runs, on little data"
    )
    return parser


def at_least(least: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """Return the ``type`` of an option whose value is a number from ``least`` on; argparse refuses others.

    Args:
        least: The smallest value: 1 of a count, 0 of a seed.
        kind: ``int`` for whole numbers, ``float`` for finite ones.
    """
    words = "a whole number" if kind is int else "a number"

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not least <= number < math.inf:  # not a number is refused, too
            raise argparse.ArgumentTypeError(f"{text!r}: give {words} from {least:g} on")
        return number

    return read


def add_model_options(parser: argparse.ArgumentParser, threads: int = 2) -> None:
    """Add the options of benchmarks that run our models: ``--threads --device --preset --set``."""
    parser.add_argument(
        "--preset",
        choices=PRESETS,
        default="sample",
        metavar="NAME",
        help="preset of our models (default sample)",
    )
    parser.add_argument(
        "--threads",
        type=at_least(1),
        default=threads,
        help=f"threads of torch and LightGBM (default {threads})",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="device of the networks")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="settings of our models, as for make: gnn.layout.hidden_channels=64",
    )


def add_measured_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmarks that apply a finished run to measured files: ``--runs --real``."""
    parser.add_argument(
        "--runs", type=Path, help="folder of a run of make submit, runs/NAME (default: newest)"
    )
    parser.add_argument("--real", type=Path, default=REAL, help="folder of labelled files: npz_all/ is in it")


def add_timing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmarks that time single files."""
    parser.add_argument(
        "--files",
        nargs="+",
        type=Path,
        metavar="NPZ",
        help="layout files in folders as published, layout/xla/default/test/NAME.npz (default: the real test"
        " files in ../shared/real, or the sample's)",
    )
    parser.add_argument(
        "--most-nodes",
        type=at_least(1, float),
        default=float("inf"),
        help="leave out larger files, unless --files names them",
    )
    parser.add_argument(
        "--repeats", type=at_least(1), default=3, help="rounds of timing (default 3, quick 1)"
    )
    parser.add_argument(
        "--limit", type=at_least(0.1, float), default=8.0, help="memory of a dense run in GB (default 8)"
    )
    parser.add_argument(
        "--memory-of", metavar="CONTENDER", help="measure only the peak memory of one, on the first file"
    )


def our_settings(options: argparse.Namespace, step: str) -> dict:
    """Return our settings of a step for layouts, by ``--preset`` and ``--set``.

    Args:
        options: The command line.
        step: ``features``, ``gnn`` or ``ranker``.
    """
    overrides = parse_overrides(options.set)
    if step == "gnn":
        return network_settings(options.preset, overrides, "layout")[0]
    return preset_settings(options.preset, overrides, step, "layout")


def network_settings(preset: str, overrides: dict[str, dict], scope: str) -> tuple[dict, str]:
    """Return the settings of a preset's networks of a scope, and whose train graphs they learn from.

    Arguments as for :func:`fastslow.workflow.settings.sections.preset_settings`.
    """
    settings = preset_settings(preset, overrides, "gnn", scope)
    train_on = settings.pop("train_on", NetworkSection.model_fields["train_on"].default)
    return settings, train_on
