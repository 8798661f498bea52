"""Settings of a run, and the plan that they make."""

from pathlib import Path
from typing import Literal

from fastslow.core.errors import SettingsError
from fastslow.core.settings import Count, Settings, resolve
from fastslow.workflow.presets import PRESETS
from fastslow.workflow.published_presets import PUBLISHED
from fastslow.workflow.steps import DATA_ROOTS, STAGES, Plan, parse_overrides


class RunSettings(Settings):
    """Settings of a run from npz files to a submission."""

    target: Literal[*STAGES, "submit"] = "submit"
    """Last stage to run; ``submit`` also uploads."""
    data: str = "sample"
    """``sample``, ``kaggle`` (``data/raw``), or a folder that holds ``npz_all/``."""
    preset: Literal["", *PRESETS] = ""
    """Settings to start from; if empty, the data's preset (``kaggle`` for a folder). From ``tpugraphs-mlp``
    on they are published baselines (``docs/baselines.md``): only networks, most of them for one kind."""
    name: str = ""
    """Name of the run: its features, runs and submission are stored under it; if empty, the name of the data
    or of a published baseline. A finished run of other settings is replaced only where it is named."""
    seeds: Count = 0
    """Seeds of each model; 0 for 3, but 1 for tile in the preset ``sample`` and for all in ``smoke``, 5 in
    ``kaggle-full``."""
    models: str = ""
    """Models to train, of ``gnn,ranker``; the preset's if empty."""
    jobs: Count = 0
    """Maximum number of notebooks that run in parallel; 0 for as many as memory, cores and GPUs allow."""
    cluster: str = ""
    """Dask cluster whose workers run the notebooks: its scheduler (``tcp://host:8786``), or ``slurm`` for up
    to ``jobs`` SLURM jobs as dask-jobqueue is configured; empty for this machine."""
    metrics: Literal["competition", "all"] = "competition"
    """Scores printed at the end: the competition's, or ``all``: below them also tau, OPA and top-K errors."""
    unproven_order: bool = False
    """Upload although the layout test files are not known to have the row order that Kaggle scores
    (``data/README.md``)."""
    set: list[str] = []
    """Settings of steps, each ``SECTION.NAME=VALUE`` or ``SECTION.SCOPE.NAME=VALUE``, such as
    ``gnn.layout.epochs=20``; a scope is a kind, a source (``layout-xla``) or a collection."""
    plan: bool = False
    """Print what would run and why, and run nothing."""


def make_plan(settings: RunSettings) -> Plan:
    """Return the plan of a run: its data, preset, name and steps.

    Args:
        settings: An empty preset is the data's (``kaggle`` for a folder). An empty name is the data's, or a
            published baseline's.

    Raises:
        SettingsError: The name is no plain folder name.
    """
    known = settings.data in DATA_ROOTS
    preset = settings.preset or (settings.data if known else "kaggle")
    folder = settings.data if known else resolve(settings.data).resolve().name
    own = preset if folder == "sample" else f"{folder}-{preset}"
    name = settings.name or (preset if preset == "smoke" else own if preset in PUBLISHED else folder)
    if not name or Path(name).name != name or name.startswith(".") or len(name.encode()) > 100:
        raise SettingsError(f"name: {name[:60]!r} is not a plain folder name of at most 100 bytes")
    overrides = parse_overrides(settings.set)
    return Plan(settings.data, name, preset, settings.seeds, overrides, settings.jobs, settings.models)
