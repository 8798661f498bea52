"""The command ``convert``: run the conversion notebook for a program and print what was found."""

from pathlib import Path

from fastslow.core.artifacts import read_manifest
from fastslow.core.settings import PROJECT, resolve
from fastslow.programs.convert import PICTURE, TABLE, ConvertConfig
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
    config = _with_absolute_paths(config)
    npz = config.npz  # refuses a missing source before a notebook is started
    run_step(Step("convert", PROJECT / "notebooks" / "50_convert.ipynb", config))
    folder = resolve(config.folder)
    facts = read_manifest(folder)["summary"] | {"npz": npz}
    facts |= {"picture": folder / PICTURE, "table": folder / TABLE, "notebook": folder / NOTEBOOK}
    for name, value in facts.items():
        print(f"{name:24} {value}")
    return npz


def _with_absolute_paths(config: ConvertConfig) -> ConvertConfig:
    default = ConvertConfig.model_fields["data_root"].default
    paths = {"source": config.source, "data_root": config.data_root}
    chosen = {name: path for name, path in paths.items() if path and path != default}
    return config.replace(**{name: str(Path(p).expanduser().absolute()) for name, p in chosen.items()})
