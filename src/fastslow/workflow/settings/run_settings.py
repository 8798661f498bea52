"""Settings of a run from npz files to a submission."""

import difflib
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from fastslow.core.cluster.dask_cluster import check_address
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import Count, Names, Settings, Unread
from fastslow.steps.loggers import require_logger
from fastslow.workflow.settings.presets import PRESETS, RULES, STAGES

OF_TRAINING = {"seeds": 0, "folds": 0}
"""Settings that only a training reads, each with its default."""
OF_NETWORKS = {"init": "", "logger": ""}
"""Likewise of networks."""


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
    (with ``predict_with`` and of these models) or of a published baseline. A run that is named resumes with
    the settings that it was begun with."""
    seeds: Count = 0
    """Seeds of each model; 0 for 3, but 1 for tile in the preset ``sample`` and for all in ``smoke``, 5 in
    ``kaggle-full``."""
    models: str = ""
    """Models to train, of ``gnn,ranker``; the preset's if empty. ``rules`` trains none and submits ridge
    regression."""
    folds: Annotated[int, Ge(0), Le(100)] = 0
    """Train so many members of each model in place of ``seeds``; each leaves out another part of the train
    programs, and predicts it. Their predictions of test are averaged. The ensemble's weights are then chosen
    on the parts left out, and valid chooses only epochs. 0 for seeds that learn from all train programs."""
    hours: Annotated[float, Gt(0), Le(10_000)] = 0.0
    """Hours that the run may take. Steps are measured; then seeds and epochs are chosen, at most the
    preset's, and networks learn from segments of large graphs where whole ones take too long. Features and a
    CSV of ridge regression come first, whatever they take. The chosen settings are recorded. Without hours a
    run on this machine has no limit."""
    collections: Names = []
    """Collections to train and predict, such as ``xla:random,nlp:random``; if empty, all that the preset has.
    A submission needs every collection, see ``fill``."""
    fill: bool = False
    """Submit although some collections have no model: ridge regression on their configurations' features
    fills their rows. A warning names them, also on the page of the submission and on the leaderboard."""
    predict_with: str = ""
    """Trained models that predict, so that nothing is trained: ``package`` for the models in the package, or
    a folder of runs (``runs/sample``), also of other data. Features are built as these models read them, of
    test programs and of 1,000 configurations of each valid program. If empty, models are trained."""
    init: str = ""
    """Trained models whose networks the networks start from: ``package``, or a folder of runs. Architecture
    and features must be theirs. With a few epochs networks are better than from nothing. If empty, weights
    are drawn."""
    logger: str = ""
    """What takes every row of metrics of a network's training, beside ``metrics.jsonl``: ``wandb``,
    ``trackio`` (``pip install`` them), or a function of yours as ``module:function``. Empty for none."""
    jobs: Count = 0
    """Maximum number of notebooks that run in parallel; 0 for as many as memory, cores and GPUs allow."""
    cluster: str = ""
    """Dask cluster whose workers run the notebooks: its scheduler (``tcp://host:8786``), or ``slurm`` for up
    to ``jobs`` SLURM jobs as dask-jobqueue is configured; empty for this machine."""
    unproven_order: bool = False
    """Upload although the layout test files are not known to have the row order that Kaggle scores
    (``data/README.md``)."""
    set: list[str] = []
    """Settings of steps, each ``SECTION.NAME=VALUE`` or ``SECTION.SCOPE.NAME=VALUE``, such as
    ``gnn.layout.epochs=20``; a scope is a kind, a source (``layout-xla``) or a collection."""
    overwrite: bool = False
    """Go on with these settings where a run of this name was begun with others, instead of an error. Where
    the run is named, settings that are not given stay those that it was begun with; else they return to their
    defaults."""
    plan: bool = False
    """Print what would run and why, and run nothing."""

    def check(self) -> None:
        """Refuse a logger that is not there and a cluster that can be none, before anything is computed."""
        self.require(bool(self.data.strip()), "data", "sample, kaggle or a folder")
        require_logger(self.logger)
        check_address(self.cluster)
        self.require(self.folds != 1, "folds", "0, or 2 and more")

    def unread(self) -> Unread:
        """Return the fields that this run does not read, each with the reason and the remedy.

        Only a training reads them, and models that are trained already are given, or rules alone are chosen.
        With ``folds`` the number of members is given, so seeds and hours are not read. Only an upload reads
        ``unproven_order``.
        """
        unread: dict[str, tuple[str, str]] = {}
        if self.target != "submit":
            unread["unproven_order"] = "without an upload", "type fastslow submit"
        if self.predict_with:
            names = ("models", "seeds", "folds", "hours", "init", "logger")
            reason = ("with predict_with, which trains nothing", "do without predict_with")
            return unread | dict.fromkeys(names, reason)
        names = [name.strip() for name in self.models.split(",")]
        if self.models and "gnn" not in names:
            unread |= dict.fromkeys(OF_NETWORKS, ("without networks", "add gnn to models"))
        if self.models == RULES:
            trains_nothing = "with models=rules, which trains nothing", "choose models to train"
            unread |= dict.fromkeys(OF_TRAINING, trains_nothing)
        elif self.folds:
            unread["seeds"] = ("with folds: a member for each", "do without folds")
            unread["hours"] = ("with folds, all of which are trained in full", "do without folds")
        return unread

    @classmethod
    def _hint(cls, name: str) -> str:
        """Return which setting may have been meant, of the run or, with its section, of a step."""
        from fastslow.workflow.settings.sections import (  # all steps: only for this
            SECTIONS,
            SET_BY_THE_WORKFLOW,
        )

        fields = {field for settings in SECTIONS.values() for field in settings.model_fields}
        fields -= {*SET_BY_THE_WORKFLOW}
        if name not in fields and nearest(name, cls.model_fields):
            return super()._hint(name)
        near = difflib.get_close_matches(name, fields, 1)
        sections = [section for section, settings in SECTIONS.items() if {*near} & {*settings.model_fields}]
        if not sections:
            return super()._hint(name)
        named = " or ".join(repr(f"{section}.layout.{near[0]}") for section in sections)
        return f"a setting of a step is typed with its step; did you mean {named}?"
