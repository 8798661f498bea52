"""Settings of the network notebooks."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fastslow.artifacts import Artifact
from fastslow.collections import TRAIN_ON, get_collection, trained_together
from fastslow.config import Config, elsewhere, resolve
from fastslow.graphs import Features
from fastslow.heads import HEADS, POOLINGS, STANDARDISE
from fastslow.losses import LOSSES
from fastslow.scores import run_artifact

FORMAT = 4  # raise it with every change of code that changes what a training run gives


@dataclass(frozen=True)
class TrainConfig(Config):
    """Settings that both network notebooks share.

    Args:
        features: Features folder of the collection to train on.
        folder: Run folder to write.
        device: ``auto`` takes a GPU where there is one; or ``cpu``, ``cuda``.
        seed: Seed of weights, order of graphs and choice of configurations.
        width: Channels; 64 suits the sample, 128 and more the real data.
        depth: Message-passing blocks; no more than the ``hops`` of the features make sense.
        head: ``pooled`` scores a configuration's pooled nodes; ``additive`` scores each node and pools that.
        pooling: ``mean``, ``sum`` or ``attention`` over nodes.
        dropout: Share of channels dropped in training.
        rejoin: Join the layouts again after each block.
        standardise: Whether what the head sees is standardised over the configurations: ``none``,
            ``replace``, or ``join`` for both.
        loss: ``pairwise_hinge``, ``pairwise_logistic``, ``difference_matrix`` or ``list_mle``.
        configs_per_step: Configurations drawn from a graph for one step; more is steadier and slower.
        graphs_per_step: Graphs whose losses are averaged for one step.
        epochs: Passes over the train graphs.
        learning_rate: Top of the schedule (AdamW): linear warm-up, then cosine to 0.
        weight_decay: Decoupled weight decay.
        warmup: Share of the steps spent warming up.
        clip: Largest gradient norm.
        evaluate_every: Epochs between two evaluations on valid.
        valid_configs: Most configurations of a valid graph that are scored while training, the same at each
            evaluation; the final score is that of all.
        patience: Stop after so many evaluations without a better valid score; 0 never stops early.
        ema: Decay by step of an exponential moving average of the weights, which then stands for the network
            at every evaluation; 0.99 to 0.999, or 0 for none.
        average_last: Average the weights of this many last evaluations and keep them where they score
            better on valid; 0 turns averaging off.
        inference_configs: Most configurations of a batch at inference; a graph with more is scored in chunks,
            slower, with the same scores. Lower it where memory is short.
    """

    kind: ClassVar[str]

    features: str = elsewhere("features/sample/layout-xla-random")
    folder: str = elsewhere("runs/sample/gnn-layout-xla-random-s0")
    device: str = elsewhere("auto")
    seed: int = 0
    width: int = 64
    depth: int = 2
    head: str = "pooled"
    pooling: str = "sum"
    dropout: float = 0.3
    rejoin: bool = True
    standardise: str = "none"
    loss: str = "pairwise_hinge"
    configs_per_step: int = 128
    graphs_per_step: int = 1
    epochs: int = 40
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    warmup: float = 0.05
    clip: float = 1.0
    evaluate_every: int = 2
    valid_configs: int = 2000
    patience: int = 0
    ema: float = 0.0
    average_last: int = 5
    inference_configs: int = elsewhere(2000)

    def check(self) -> None:
        """Check ranges."""
        self.require(self.device in ("auto", "cpu", "cuda"), "device", "one of auto, cpu, cuda")
        self.require(self.head in HEADS, "head", f"one of {', '.join(HEADS)}")
        self.require(self.pooling in POOLINGS, "pooling", f"one of {', '.join(POOLINGS)}")
        wanted = f"one of {', '.join(STANDARDISE)}"
        self.require(self.standardise in STANDARDISE, "standardise", wanted)
        self.require(self.loss in LOSSES, "loss", f"one of {', '.join(LOSSES)}")
        for field in ("width", "graphs_per_step", "epochs", "evaluate_every"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("configs_per_step", "inference_configs", "valid_configs"):
            self.require(getattr(self, field) >= 2, field, "2 or more")
        for field in ("seed", "depth", "patience", "average_last"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        for field in ("learning_rate", "clip"):
            self.require(getattr(self, field) > 0, field, "above 0")
        for field in ("dropout", "warmup", "ema"):
            self.require(0 <= getattr(self, field) < 1, field, "from 0 to below 1")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")

    def artifact(self) -> Artifact:
        """The run folder; it depends on the features."""
        artifact = run_artifact("gnn", FORMAT, self)
        kind = get_collection(artifact.settings["collection"]).kind
        self.require(kind == self.kind, "features", f"a features folder of a {self.kind} collection")
        also = {folder.name: Features(folder).fingerprint for folder in self.also()}
        return replace(artifact, inputs={**artifact.inputs, **also})

    def also(self) -> list[Path]:
        """Features folders of other collections whose train graphs are trained on as well."""
        return []

    def attends_configs(self) -> bool:
        """Whether nodes compare the configurations of a step."""
        return False


@dataclass(frozen=True)
class LayoutTrainConfig(TrainConfig):
    """Settings of the layout network notebook; for those not described here see :class:`TrainConfig`.

    Args:
        cross_config: Let each node compare the configurations of a step.
        train_on: Whose train graphs are trained on: of the ``collection`` alone, of both searches of its
            ``source`` (xla or nlp), or of every ``layout`` collection. The others' features are looked for
            beside its own.
        fine_tune: Share of the epochs, the last ones, that train on the collection's own graphs alone.
    """

    kind: ClassVar[str] = "layout"

    cross_config: bool = True
    train_on: str = "layout"
    epochs: int = 20
    depth: int = 1
    fine_tune: float = 0.0

    def check(self) -> None:
        """Check ranges."""
        super().check()
        self.require(0 <= self.fine_tune < 1, "fine_tune", "from 0 to below 1")
        self.require(self.train_on in TRAIN_ON, "train_on", f"one of {', '.join(TRAIN_ON)}")

    def also(self) -> list[Path]:
        """Features folders of the other collections to train on."""
        own = Features(resolve(self.features)).collection
        others = trained_together(own, self.train_on)
        return [resolve(self.features).parent / other.slug for other in others]

    def attends_configs(self) -> bool:
        """Whether nodes compare the configurations of a step."""
        return self.cross_config


@dataclass(frozen=True)
class TileTrainConfig(TrainConfig):
    """Settings of the tile network notebook, see :class:`TrainConfig`; a kernel's graph is embedded once."""

    kind: ClassVar[str] = "tile"

    features: str = elsewhere("features/sample/tile-xla")
    folder: str = elsewhere("runs/sample/gnn-tile-xla-s0")
    epochs: int = 30
    graphs_per_step: int = 4
