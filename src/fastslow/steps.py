"""The steps from npz files to a submission: which notebook, with which settings, after which others."""

from dataclasses import dataclass
from pathlib import Path

from fastslow.competition.catalog import COLLECTIONS, Collection, training_groups
from fastslow.core.errors import ConfigError
from fastslow.core.settings import PROJECT, Config, parse_value
from fastslow.evaluation.ensemble import EnsembleConfig
from fastslow.evaluation.results import SubmissionConfig
from fastslow.features.build import LayoutFeatureConfig, TileFeatureConfig
from fastslow.networks.config import LayoutTrainConfig, TileTrainConfig
from fastslow.presets import network_settings, preset_settings
from fastslow.rankers.additive_train import AdditiveRankerConfig
from fastslow.rankers.train import RankerConfig

STAGES = ("features", "train", "ensemble", "submission")
DATA_ROOTS = {"sample": "data/sample", "kaggle": "data/raw"}
MODELS = {"layout": ("gnn", "ranker", "additive"), "tile": ("gnn", "ranker")}
_SECTIONS = ("features", *MODELS["layout"], "ensemble")  # layout has every model
_CONFIGS = {
    ("features", "layout"): (LayoutFeatureConfig, "10_features_layout"),
    ("features", "tile"): (TileFeatureConfig, "11_features_tile"),
    ("gnn", "layout"): (LayoutTrainConfig, "20_train_layout_gnn"),
    ("gnn", "tile"): (TileTrainConfig, "21_train_tile_gnn"),
    ("ranker", "layout"): (RankerConfig, "22_train_ranker"),
    ("ranker", "tile"): (RankerConfig, "22_train_ranker"),
    ("additive", "layout"): (AdditiveRankerConfig, "23_train_additive_ranker"),
    ("ensemble", "layout"): (EnsembleConfig, "30_ensemble"),
    ("ensemble", "tile"): (EnsembleConfig, "30_ensemble"),
}


@dataclass(frozen=True)
class Step:
    """One execution of one notebook.

    Args:
        stage: One of ``STAGES``; a stage needs all steps of those before it.
        notebook: Its source.
        config: Its settings.
    """

    stage: str
    notebook: Path
    config: Config

    @property
    def name(self) -> str:
        """Name of the folder it writes, with the stage where that does not tell."""
        folder = Path(self.config.folder).name
        return f"features {folder}" if self.stage == "features" else folder


@dataclass(frozen=True)
class Plan:
    """What to run.

    Args:
        data: ``sample``, ``kaggle``, or a folder that holds ``npz_all/``.
        name: Name of the run: its features, runs and submission lie under it.
        preset: Which preset.
        seeds: How many seeds of each model.
        overrides: Settings by section, which go before the preset's.
        jobs: Notebooks that run side by side.
    """

    data: str
    name: str
    preset: str
    seeds: int
    overrides: dict[str, dict]
    jobs: int

    @property
    def data_root(self) -> str:
        """Folder that holds ``npz_all/``."""
        return DATA_ROOTS.get(self.data, self.data)

    @property
    def csv(self) -> str:
        """The submission."""
        return f"submissions/{self.name}.csv"

    def _step(self, stage: str, section: str, kind: str, **fixed) -> Step:
        config, notebook = _CONFIGS[section, kind]
        if section == "gnn":
            settings, _ = network_settings(self.preset, self.overrides, kind)
        else:
            settings = preset_settings(self.preset, self.overrides, section, kind)
        for name in settings:
            if name in fixed:
                raise ConfigError(
                    f"{section}.{name}: is set by the workflow; run the notebook alone to choose it"
                )
        return Step(stage, PROJECT / "notebooks" / f"{notebook}.ipynb", config(**{**settings, **fixed}))

    def steps(self) -> list[Step]:
        """Every step, stage by stage."""
        steps = [
            self._step(
                "features",
                "features",
                c.kind,
                collection=c.name,
                data_root=self.data_root,
                folder=self._features(c),
            )
            for c in COLLECTIONS
        ]
        # the networks, which take longest, begin first
        steps += [*self._networks("layout"), *self._networks("tile")]
        steps += [
            self._step(
                "train",
                model,
                c.kind,
                features=self._features(c),
                folder=self._run(model, c, seed),
                seed=seed,
            )
            for model in MODELS["layout"]
            for c in COLLECTIONS
            if model != "gnn" and model in MODELS[c.kind]
            for seed in range(self.seeds)
        ]
        steps += [
            self._step(
                "ensemble",
                "ensemble",
                c.kind,
                features=self._features(c),
                runs=[self._run(model, c, seed) for model in MODELS[c.kind] for seed in range(self.seeds)],
                folder=self._ensemble(c),
            )
            for c in COLLECTIONS
        ]
        submission = SubmissionConfig(
            data_root=self.data_root,
            features=[self._features(c) for c in COLLECTIONS],
            ensembles=[self._ensemble(c) for c in COLLECTIONS],
            csv=self.csv,
            folder=f"runs/{self.name}/submission",
        )
        return [*steps, Step("submission", PROJECT / "notebooks" / "40_submission.ipynb", submission)]

    def _networks(self, kind: str) -> list[Step]:
        """The trainings of networks: each learns from a group of collections and scores them all."""
        _, train_on = network_settings(self.preset, self.overrides, kind)
        return [
            self._step(
                "train",
                "gnn",
                kind,
                features=[self._features(c) for c in group],
                runs=[self._run("gnn", c, seed) for c in group],
                folder=f"runs/{self.name}/training-{name}-s{seed}",
                seed=seed,
            )
            for name, group in training_groups(kind, train_on).items()
            for seed in range(self.seeds)
        ]

    def _features(self, collection: Collection) -> str:
        return f"features/{self.name}/{collection.slug}"

    def _run(self, model: str, collection: Collection, seed: int) -> str:
        return f"runs/{self.name}/{model}-{collection.slug}-s{seed}"

    def _ensemble(self, collection: Collection) -> str:
        return f"runs/{self.name}/ensemble-{collection.slug}"


def sections() -> dict[str, type[Config]]:
    """Return the settings class of every section that the command line takes settings for."""
    return {
        section if config is _CONFIGS.get((section, "tile"), (config,))[0] else f"{section}.{kind}": config
        for (section, kind), (config, _) in _CONFIGS.items()
    }


def parse_overrides(texts: list[str]) -> dict[str, dict]:
    """Settings by section from ``section.setting=value`` or ``section.kind.setting=value``.

    Raises:
        ConfigError: The text is not of that form, or no step has the section.
    """
    overrides: dict[str, dict] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        section, dot, name = path.rpartition(".")
        step, _, kind = section.partition(".")
        if not (equals and dot and name) or step not in _SECTIONS or (kind and kind not in MODELS):
            known = ", ".join(_SECTIONS)
            raise ConfigError(
                f"{text!r}: a setting is given as SECTION.NAME=VALUE or SECTION.KIND.NAME=VALUE, with"
                f" a section of {known} and a kind of layout, tile (for example gnn.layout.epochs=20)"
            )
        if kind and (step, kind) not in _CONFIGS:
            raise ConfigError(f"{text!r}: {kind} has no step {step}")
        overrides.setdefault(section, {})[name] = parse_value(value)
    return overrides
