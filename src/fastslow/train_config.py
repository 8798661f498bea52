"""Settings of the network notebooks."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fastslow.artifacts import Artifact
from fastslow.collections import TRAIN_ON, get_collection, trained_together
from fastslow.config import Config, elsewhere, resolve
from fastslow.graphs import Features
from fastslow.scores import run_artifact

FORMAT = 5  # raise it with every change of code that changes what a training run gives


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
        dropout: Share of channels dropped in training.
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
    dropout: float = 0.3
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
    average_last: int = 5
    inference_configs: int = elsewhere(2000)

    def check(self) -> None:
        """Check ranges."""
        self.require(self.device in ("auto", "cpu", "cuda"), "device", "one of auto, cpu, cuda")
        for field in ("width", "graphs_per_step", "epochs", "evaluate_every"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("configs_per_step", "inference_configs", "valid_configs"):
            self.require(getattr(self, field) >= 2, field, "2 or more")
        for field in ("seed", "depth", "patience", "average_last"):
            self.require(getattr(self, field) >= 0, field, "0 or more")
        for field in ("learning_rate", "clip"):
            self.require(getattr(self, field) > 0, field, "above 0")
        for field in ("dropout", "warmup"):
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
        train_on: Whose train graphs are trained on: of the ``collection`` alone, of both searches of its
            ``source`` (xla or nlp), or of every ``layout`` collection. The others' features are looked for
            beside its own.
    """

    kind: ClassVar[str] = "layout"

    cross_config: bool = True
    pair_edges: bool = True
    train_on: str = "layout"
    depth: int = 1
    epochs: int = 20

    def check(self) -> None:
        """Check ranges."""
        super().check()
        self.require(self.train_on in TRAIN_ON, "train_on", f"one of {', '.join(TRAIN_ON)}")

    def also(self) -> list[Path]:
        """Features folders of the other collections to train on."""
        own = Features(resolve(self.features)).collection
        others = trained_together(own, self.train_on)
        return [resolve(self.features).parent / other.slug for other in others]

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

    features: str = elsewhere("features/sample/tile-xla")
    folder: str = elsewhere("runs/sample/gnn-tile-xla-s0")
    dropout: float = 0.1
    epochs: int = 30
    graphs_per_step: int = 4
