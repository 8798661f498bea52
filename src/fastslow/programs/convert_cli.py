"""Converts a program by running the notebook for it, and says what was found: ``make convert``."""

import argparse
import logging
import sys
from pathlib import Path

from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import ConfigError, DataError
from fastslow.core.settings import PROJECT, parse_settings, resolve
from fastslow.programs.convert import PICTURE, TABLE, ConvertConfig
from fastslow.steps import Step
from fastslow.workflow import NOTEBOOK, StepError, run_step


def make_config(source: str, data_root: str | None, settings: list[str]) -> ConvertConfig:
    """The settings of a command line; paths in it start at the working folder.

    Raises:
        ConfigError: A setting is not of the form NAME=VALUE, unknown, mistyped or out of range.
        DataError: There is no such source.
    """
    paths = {"source": source} | ({"data_root": data_root} if data_root else {})
    chosen = {name: str(Path(path).expanduser().absolute()) for name, path in paths.items()}
    config = ConvertConfig(**parse_settings(settings) | chosen)
    config.npz  # noqa: B018 (is there such a source? Sooner said than after a notebook's start)
    return config


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m fastslow.convert_cli", description=__doc__.splitlines()[0]
    )
    parser.add_argument("source", help="an HLO file, or model.py:FUNCTION with a function of JAX")
    parser.add_argument("--data-root", help="a competition folder of your own (default: data/converted)")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="such as configs=200")
    options = parser.parse_args(arguments)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        config = make_config(options.source, options.data_root, options.set)
        run_step(Step("convert", PROJECT / "notebooks" / "50_convert.ipynb", config))
    except (ConfigError, DataError, StepError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    folder = resolve(config.folder)
    for name, value in read_manifest(folder)["summary"].items():
        print(f"{name:24} {value}")
    print(f"{'npz':24} {config.npz}")
    for name, path in (("picture", PICTURE), ("table", TABLE), ("notebook", NOTEBOOK)):
        print(f"{name:24} {folder / path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
