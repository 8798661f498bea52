"""Training of the layout and the tile network: one path, one loop, exact resume."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from fastslow.artifacts import Artifact, atomic_path, read_manifest
from fastslow.collections import get_collection
from fastslow.config import Config, elsewhere, resolve
from fastslow.graphs import Features
from fastslow.losses import LOSSES
from fastslow.metrics import collection_score
from fastslow.networks import POOLINGS, GraphInputs, RankingNetwork
from fastslow.progress import progress
from fastslow.scores import SCORED_SPLITS, run_artifact, write_scores

FORMAT = 1  # raise it with every change of code that changes what a training run gives
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.pt"
WEIGHTS = "model.pt"


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
        pooling: ``mean`` or ``sum`` over nodes.
        dropout: Share of channels dropped in training.
        loss: ``pairwise_hinge`` or ``list_mle``.
        configs_per_step: Configurations drawn from a graph for one step; more is steadier and slower.
        graphs_per_step: Graphs whose losses are averaged for one step.
        epochs: Passes over the train graphs.
        learning_rate: Top of the schedule (AdamW): linear warm-up, then cosine to 0.
        weight_decay: Decoupled weight decay.
        warmup: Share of the steps spent warming up.
        clip: Largest gradient norm.
        evaluate_every: Epochs between two evaluations on valid.
        patience: Stop after so many evaluations without a better valid score; 0 never stops early.
        average_last: Average the weights of this many last evaluations and keep them where they score
            better on valid; 0 turns averaging off.
        inference_configs: Configurations scored together; a graph with more is scored in random parts.
    """

    kind: ClassVar[str]

    features: str = elsewhere("features/sample/layout-xla-random")
    folder: str = elsewhere("runs/sample/gnn-layout-xla-random-s0")
    device: str = elsewhere("auto")
    seed: int = 0
    width: int = 64
    depth: int = 2
    pooling: str = "sum"
    dropout: float = 0.1
    loss: str = "pairwise_hinge"
    configs_per_step: int = 128
    graphs_per_step: int = 1
    epochs: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    warmup: float = 0.05
    clip: float = 1.0
    evaluate_every: int = 2
    patience: int = 0
    average_last: int = 5
    inference_configs: int = 1100

    def check(self) -> None:
        """Check ranges."""
        self.require(self.device in ("auto", "cpu", "cuda"), "device", "one of auto, cpu, cuda")
        self.require(self.pooling in POOLINGS, "pooling", f"one of {', '.join(POOLINGS)}")
        self.require(self.loss in LOSSES, "loss", f"one of {', '.join(LOSSES)}")
        for field in ("width", "graphs_per_step", "epochs", "evaluate_every"):
            self.require(getattr(self, field) >= 1, field, "1 or more")
        for field in ("configs_per_step", "inference_configs"):
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
        return artifact

    def attends_configs(self) -> bool:
        """Whether nodes compare the configurations of a step."""
        return False


@dataclass(frozen=True)
class LayoutTrainConfig(TrainConfig):
    """Settings of the layout network notebook; for those not described here see :class:`TrainConfig`.

    Args:
        cross_config: Let each node compare the configurations of a step.
    """

    kind: ClassVar[str] = "layout"

    cross_config: bool = True

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


class Inputs:
    """The graphs of a features folder, each scaled once and kept.

    Args:
        features: A finished features folder.
        depth: Message-passing layers of the network.
        device: Where batches go.
    """

    def __init__(self, features: Features, depth: int, device: torch.device):
        self.features = features
        self.depth = depth
        self.device = device
        self.node_scaler = features.scaler("node")
        self.config_scaler = features.scaler("config")
        self._cache: dict[tuple[str, str], GraphInputs] = {}

    def graph(self, split: str, name: str) -> GraphInputs:
        """The scaled graph."""
        if (split, name) not in self._cache:
            graph = self.features.graph(split, name)
            self._cache[split, name] = GraphInputs(graph, self.node_scaler, self.config_scaler)
        return self._cache[split, name]

    def batch(self, split: str, name: str, configs: np.ndarray):
        """A batch of some configurations of a graph on the device."""
        return self.graph(split, name).batch(configs, self.depth).to(self.device)

    def trainable(self) -> list[str]:
        """Train graphs with at least two different runtimes; the others teach no order."""
        runtimes = self.features.labels("train")
        return [name for name, runtime in runtimes.items() if runtime.min() < runtime.max()]


def pick_device(name: str) -> torch.device:
    """The device of a setting: ``auto`` is a GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@torch.no_grad()
def predict(
    network: RankingNetwork, inputs: Inputs, split: str, configs_together: int
) -> dict[str, np.ndarray]:
    """Scores of every configuration of a split.

    Args:
        network: A network.
        inputs: Its graphs.
        split: ``train``, ``valid`` or ``test``.
        configs_together: Configurations scored together; more are dealt at random, with a fixed seed, into
            parts of equal size, so that the order in the file tells nothing.

    Returns:
        ``(C,)`` float64 by graph.
    """
    network.eval()
    scores = {}
    for name in inputs.features.names(split):
        num_configs = inputs.graph(split, name).graph.num_configs
        order = np.random.default_rng(0).permutation(num_configs)
        parts = math.ceil(num_configs / configs_together)
        score = np.empty(num_configs)
        for configs in np.array_split(order if parts > 1 else np.arange(num_configs), parts):
            with autocast(inputs.device):
                score[configs] = network(inputs.batch(split, name, configs)).cpu().numpy()
        scores[name] = score
    return scores


def make_network(config: TrainConfig, inputs: Inputs) -> RankingNetwork:
    """A network of the configured size, with weights drawn from the seed."""
    torch.manual_seed(config.seed)
    return RankingNetwork(
        numeric_width=len(inputs.node_scaler.kept),
        config_width=len(inputs.config_scaler.kept),
        width=config.width,
        depth=config.depth,
        pooling=config.pooling,
        cross_config=config.attends_configs(),
        dropout=config.dropout,
    ).to(inputs.device)


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Learning rate of a step: linear warm-up, then cosine to 0."""
    warm = config.warmup * steps
    if step < warm:
        return config.learning_rate * (step + 1) / (warm + 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Training:
    """State of a run that a checkpoint holds: weights, optimizer, history and the best weights so far.

    Every random choice of an epoch comes from (seed, epoch), so a checkpoint between epochs needs no
    generator state and a resumed run equals an uninterrupted one.

    Args:
        config: Settings.
        inputs: Graphs to train on.
    """

    def __init__(self, config: TrainConfig, inputs: Inputs):
        self.config, self.inputs = config, inputs
        self.network = make_network(config, inputs)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.names = inputs.trainable()
        self.labels = inputs.features.labels("valid")
        self.epoch = 0
        self.history: list[dict] = []
        self.best: dict = {"score": -math.inf, "epoch": 0, "weights": {}}
        self.recent: list[dict] = []

    def run_epoch(self) -> float:
        """Train on every graph once; the mean loss."""
        config = self.config
        rng = np.random.default_rng([config.seed, self.epoch])
        torch.manual_seed(int(rng.integers(2**63)))
        self.network.train()
        names = rng.permutation(self.names)
        steps = math.ceil(len(names) / config.graphs_per_step)
        losses = []
        for position, group in enumerate(np.array_split(names, steps)):
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = learning_rate(config, self.epoch * steps + position, config.epochs * steps)
            self.optimizer.zero_grad(set_to_none=True)
            for name in group:
                loss = self._loss(name, rng) / len(group)
                loss.backward()
                losses.append(loss.detach() * len(group))
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
            self.optimizer.step()
        self.epoch += 1
        return float(torch.stack(losses).mean()) if losses else math.nan

    def _loss(self, name: str, rng: np.random.Generator) -> torch.Tensor:
        graph = self.inputs.graph("train", name).graph
        size = min(self.config.configs_per_step, graph.num_configs)
        configs = rng.choice(graph.num_configs, size, replace=False)
        runtime = torch.from_numpy(graph.runtime[configs]).to(self.inputs.device)
        with autocast(self.inputs.device):
            score = self.network(self.inputs.batch("train", name, configs))
        return LOSSES[self.config.loss](score, runtime)

    def valid_score(self) -> dict:
        """The collection's metric on valid, mean and per graph."""
        scores = predict(self.network, self.inputs, "valid", self.config.inference_configs)
        return collection_score(self.inputs.features.collection.kind, self.labels, scores)

    def evaluate(self, loss: float) -> None:
        """Score valid, note it, and keep the weights."""
        score = self.valid_score()["mean"]
        self.history.append({"epoch": self.epoch, "loss": loss, "valid": score})
        weights = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        if score > self.best["score"]:
            self.best = {"score": score, "epoch": self.epoch, "weights": weights}
        self.recent = [*self.recent, weights][-self.config.average_last :] if self.config.average_last else []

    def run(self, folder: Path, mark: str) -> None:
        """Train to the end, from the folder's checkpoint where it carries the same mark."""
        config = self.config
        if self.load(folder / CHECKPOINT, mark):
            print(f"{folder.name}: resumed after epoch {self.epoch}")
        with progress(total=config.epochs, initial=self.epoch, desc=folder.name, unit="epoch") as bar:
            while not self.finished():
                loss = self.run_epoch()
                bar.update()
                if self.epoch % config.evaluate_every == 0 or self.epoch == config.epochs:
                    self.evaluate(loss)
                    self.save(folder, mark)
                    bar.set_postfix(loss=f"{loss:.3f}", valid=f"{self.history[-1]['valid']:.3f}")

    def finished(self) -> bool:
        """Whether all epochs ran, or patience ran out."""
        config = self.config
        stale = (self.epoch - self.best["epoch"]) // config.evaluate_every
        return self.epoch >= config.epochs or bool(
            config.patience and self.history and stale >= config.patience
        )

    def choose_weights(self) -> dict:
        """Load the better on valid of the best and the averaged weights; the score it has."""
        if self.recent:
            average = {
                name: torch.stack([w[name].float() for w in self.recent]).mean(0) for name in self.recent[0]
            }
            self.network.load_state_dict(average)
            score = self.valid_score()
            if score["mean"] >= self.best["score"]:
                return {**score, "weights": f"average of the last {len(self.recent)} evaluations"}
        self.network.load_state_dict(self.best["weights"])
        return {**self.valid_score(), "weights": f"epoch {self.best['epoch']}"}

    def save(self, folder: Path, mark: str) -> None:
        """Write the history and a checkpoint, each atomically."""
        with atomic_path(folder / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in self.history))
        state = {name: getattr(self, name) for name in ("epoch", "history", "best", "recent")}
        state |= {
            "mark": mark,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        with atomic_path(folder / CHECKPOINT) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path, mark: str) -> bool:
        """Continue from a checkpoint of the same run, if there is one."""
        if not path.is_file():
            return False
        state = torch.load(path, weights_only=True, map_location=self.inputs.device)
        if state["mark"] != mark:
            return False
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("epoch", "history", "best", "recent"):
            setattr(self, name, state[name])
        return True


def train(config: TrainConfig) -> dict:
    """Train one network, or finish what an interrupted run began, and write its run folder.

    The folder gets ``metrics.jsonl``, ``model.pt``, ``scores.npz`` and, last, ``manifest.json``.

    Args:
        config: Settings.

    Returns:
        The manifest, with the valid score (mean and per graph).

    Raises:
        DataError: The features are missing or teach no order.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            inputs = Inputs(Features(resolve(config.features)), config.depth, pick_device(config.device))
            training = Training(config, inputs)
            training.run(artifact.folder, artifact.fingerprint)
            valid = training.choose_weights()
            _write_run(artifact.folder, training)
            artifact.finish(valid=valid, epochs=training.epoch)
            (artifact.folder / CHECKPOINT).unlink(missing_ok=True)
    return read_manifest(artifact.folder)


def _write_run(folder: Path, training: Training) -> None:
    with atomic_path(folder / WEIGHTS) as temporary:
        torch.save(training.network.state_dict(), temporary)
    together = training.config.inference_configs
    write_scores(
        folder,
        {split: predict(training.network, training.inputs, split, together) for split in SCORED_SPLITS},
    )
