"""The command ``convert``: run the conversion notebook for a program and print what was found."""

from pathlib import Path

from fastslow.core.artifacts import read_manifest
from fastslow.core.settings import PROJECT, resolve
from fastslow.programs.convert import PICTURE, TABLE, ConvertConfig
from fastslow.programs.program_config import ProgramConfig
from fastslow.steps import Step
from fastslow.workflow import NOTEBOOK, run_step


def convert_program(config: ConvertConfig) -> Path:
    """Convert a program by executing ``notebooks/50_convert.ipynb``, and print the result.

    Args:
        config: Settings of the conversion. Relative paths in it start at the working folder; the default of
            ``data_root`` stays in the repository.

    Returns:
        The npz file that was written.

    Raises:
        ConfigError: A setting is wrong, or the source is neither an HLO file nor ``model.py:FUNCTION``.
        DataError: The source does not exist.
        StepError: The notebook failed; the message holds the cause and where the executed notebook is stored.
    """
    config = with_absolute_paths(config, "source", "data_root")
    npz = config.npz  # refuses a missing source before a notebook is started
    run_step(Step("convert", PROJECT / "notebooks" / "50_convert.ipynb", config))
    folder = resolve(config.folder)
    facts = read_manifest(folder)["summary"] | {"npz": npz}
    facts |= {"picture": folder / PICTURE, "table": folder / TABLE, "notebook": folder / NOTEBOOK}
    for name, value in facts.items():
        print(f"{name:24} {value}")
    return npz


def with_absolute_paths(config: ProgramConfig, *fields: str) -> ProgramConfig:
    """Return settings whose paths start at the working folder where a user typed them.

    Args:
        config: The settings.
        *fields: Names of fields that are paths; one that has its default stays.
    """
    defaults = {name: type(config).model_fields[name].default for name in fields}
    typed = {name: getattr(config, name) for name in fields if getattr(config, name) != defaults[name]}
    return config.replace(**{name: str(Path(path).expanduser().absolute()) for name, path in typed.items()})
