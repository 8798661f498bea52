"""Settings of the network notebooks."""

from dataclasses import dataclass
from typing import ClassVar

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import ConfigError
from fastslow.core.settings import Config, elsewhere, resolve
from fastslow.evaluation.predictions import run_artifact
from fastslow.features.store import Features

FORMAT = 7  # raise it with every change of code that changes what a training run gives


def _folders(path: str, kind: str) -> list[str]:
    return [path.format(c.slug) for c in COLLECTIONS if c.kind == kind]


@dataclass(frozen=True)
class TrainConfig(Config):
    """Settings that both network notebooks share.

    One network learns from the train graphs of several collections and scores each of them, with the weights
    that are best on that collection's valid.

    Args:
        features: Features folders of the collections to train on.
        runs: Run folders to write, one for each of ``features``: weights and scores of that collection, a
            member for its ensemble.
        folder: Folder of the training: its course, and a checkpoint while it runs.
        device: ``auto`` takes a GPU where there is one; or ``cpu``, ``cuda``.
        seed: Seed of weights, order of graphs and choice of configurations.
        hidden_channels: Channels; 64 suits the sample, 128 and more the real data.
        num_layers: Message-passing blocks; no more than the ``hops`` of the features make sense.
        dropout: Share of channels dropped in training.
        configs_per_step: Configurations drawn from a graph for one step; more is steadier and slower.
        graphs_per_step: Graphs whose losses are averaged for one step.
        epochs: Passes over the train graphs.
        learning_rate: Top of the schedule (AdamW): linear warm-up, then cosine to 0.
        weight_decay: Decoupled weight decay.
        warmup: Share of the steps spent warming up.
        max_grad_norm: Largest gradient norm.
        evaluate_every: Epochs between two evaluations on valid.
        valid_configs: Most configurations of a valid graph that are scored while training, the same at each
            evaluation; the final score is that of all.
        patience: Stop after so many evaluations without a better valid score of any collection; 0 never
            stops early.
        average_last: Average the weights of this many last evaluations and keep them where they score
            better on valid; 0 turns averaging off.
        inference_configs: Most configurations of a batch at inference; a graph with more is scored in chunks,
            slower, with the same scores. Lower it where memory is short.
    """

    kind: ClassVar[str]

    features: list = elsewhere(_folders("features/sample/{}", "layout"))
    runs: list = elsewhere(_folders("runs/sample/gnn-{}-s0", "layout"))
    folder: str = elsewhere("runs/sample/training-layout-s0")
    device: str = elsewhere("auto")
    seed: int = 0
    hidden_channels: int = 64
    num_layers: int = 2
    dropout: float = 0.3
    configs_per_step: int = 128
    graphs_per_step: int = 1
    epochs: int = 40
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    warmup: float = 0.05
    max_grad_norm: float = 1.0
    evaluate_every: int = 2
    valid_configs: int = 2000
    patience: int = 0
    average_last: int = 5
    inference_configs: int = elsewhere(2000)

    def check(self) -> None:
        """Check ranges."""
        for field in ("features", "runs"):
            paths = getattr(self, field)
            plain = all(isinstance(path, str) for path in paths) and len({*paths}) == len(paths) > 0
            self.require(plain, field, "a list of different paths")
        if len(self.runs) != len(self.features):
            raise ConfigError(f"runs: {len(self.runs)} folders for {len(self.features)} features")
        self.require(self.device in ("auto", "cpu", "cuda"), "device", "one of auto, cpu, cuda")
        for field in ("hidden_channels", "graphs_per_step", "epochs", "evaluate_every"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("configs_per_step", "inference_configs", "valid_configs"):
            self.require(getattr(self, field) >= 2, field, "2 or more")
        for field in ("seed", "num_layers", "patience", "average_last"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        for field in ("learning_rate", "max_grad_norm"):
            self.require(getattr(self, field) > 0, field, "above 0")
        for field in ("dropout", "warmup"):
            self.require(0 <= getattr(self, field) < 1, field, "from 0 to below 1")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")

    def artifact(self) -> Artifact:
        """The training and, as its parts, the runs; they depend on the features of every collection."""
        sources = self.sources()
        parts = tuple(
            run_artifact("gnn", FORMAT, self, run, own, [other for other in sources if other is not own])
            for run, own in zip(self.runs, sources, strict=True)
        )
        settings = {"model": "gnn", "format": FORMAT, **self.identity()}
        inputs = {own.collection.slug: own.fingerprint for own in sources}
        return Artifact(resolve(self.folder), settings, inputs, parts=parts)

    def sources(self) -> list[Features]:
        """The features to train on.

        Raises:
            ConfigError: One is of another kind, or two are of the same collection.
            DataError: One is not there.
        """
        sources = [Features(resolve(folder)) for folder in self.features]
        for source in sources:
            if source.collection.kind != self.kind:
                wanted = f"features of a {self.kind} collection"
                raise ConfigError(f"features: {source.folder} is not {wanted}")
        if len({source.collection for source in sources}) < len(sources):
            raise ConfigError(f"features: two of {self.features} are of the same collection")
        return sources

    def attends_configs(self) -> bool:
        """Whether nodes compare the configurations of a step."""
        return False

    def joins_pairs(self) -> bool:
        """Whether configurable nodes that share a tensor are joined by an edge."""
        return False


@dataclass(frozen=True)
class LayoutTrainConfig(TrainConfig):
    """Settings of the layout network notebook; for those not described here see :class:`TrainConfig`.

    Args:
        cross_config: Let each node compare the configurations of a step.
        pair_edges: Join configurable nodes that share a tensor by an edge, however many element-wise nodes
            lie between. Ranks a little better; a large graph has many more states with it and is slower.
    """

    kind: ClassVar[str] = "layout"

    cross_config: bool = True
    pair_edges: bool = True
    num_layers: int = 1
    epochs: int = 20

    def attends_configs(self) -> bool:
        """Whether nodes compare the configurations of a step."""
        return self.cross_config

    def joins_pairs(self) -> bool:
        """Whether configurable nodes that share a tensor are joined by an edge."""
        return self.pair_edges


@dataclass(frozen=True)
class TileTrainConfig(TrainConfig):
    """Settings of the tile network notebook, see :class:`TrainConfig`; a kernel's graph is embedded once."""

    kind: ClassVar[str] = "tile"

    features: list = elsewhere(_folders("features/sample/{}", "tile"))
    runs: list = elsewhere(_folders("runs/sample/gnn-{}-s0", "tile"))
    folder: str = elsewhere("runs/sample/training-tile-s0")
    dropout: float = 0.1
    epochs: int = 30
    graphs_per_step: int = 4
