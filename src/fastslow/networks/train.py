"""Training of the layout and the tile network: one path, one loop, exact resume."""

import json
import math
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import read_manifest
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.progress import progress
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.predictions import PREDICTED_SPLITS, write_predictions
from fastslow.features.store import Features
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import GraphDataset, autocast, pick_device, predict
from fastslow.networks.graph_batch import Batch
from fastslow.networks.losses import pairwise_hinge
from fastslow.networks.model import RankingNetwork
from fastslow.networks.prefetch import prefetch
from fastslow.networks.sparse import move

METRICS = "metrics.jsonl"
PLOT = "training.png"
CHECKPOINT = "checkpoint.pt"
WEIGHTS = "model.pt"


def make_dataset(config: TrainConfig, sources: Sequence[Features] | None = None) -> GraphDataset:
    """The graphs to train on, of the features that the settings name or of others."""
    sources = config.sources() if sources is None else sources
    return GraphDataset(sources, config.num_layers, pick_device(config.device), config.joins_pairs())


def make_network(config: TrainConfig, inputs: GraphDataset) -> RankingNetwork:
    """A network of the configured size, with weights drawn from the seed."""
    torch.manual_seed(config.seed)
    return RankingNetwork(
        numeric_width=len(inputs.node_scaler.kept),
        config_width=len(inputs.config_scaler.kept),
        width=config.hidden_channels,
        depth=config.num_layers,
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

    def __init__(self, config: TrainConfig, inputs: GraphDataset):
        self.config, self.inputs = config, inputs
        self.network = make_network(config, inputs)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.names = inputs.trainable()
        self._whole: dict[str, tuple[Batch, torch.Tensor]] = {}
        self.labels = {slug: source.labels("valid") for slug, source in inputs.sources.items()}
        draw, most = np.random.default_rng(0), config.valid_configs
        self.drawn = {
            slug: {
                name: np.sort(draw.choice(len(label), min(most, len(label)), replace=False))
                for name, label in labels.items()
            }
            for slug, labels in self.labels.items()
        }
        self.epoch = 0
        self.history: list[dict] = []
        self.best: dict = {slug: {"score": -math.inf, "epoch": 0, "weights": {}} for slug in inputs.sources}
        self.recent: list[dict] = []

    def run_epoch(self) -> float:
        """Train on every graph once; the mean loss."""
        config = self.config
        rng = np.random.default_rng([config.seed, self.epoch])
        torch.manual_seed(int(rng.integers(2**63)))
        self.network.train()
        names = rng.permutation(self.names)
        examples = prefetch(self._example, [(name, self._draw(name, rng)) for name in names])
        steps = math.ceil(len(names) / config.graphs_per_step)
        losses = []
        for position, group in enumerate(np.array_split(names, steps)):
            rate = learning_rate(config, self.epoch * steps + position, config.epochs * steps)
            losses += self._step(islice(examples, len(group)), len(group), rate)
        self.epoch += 1
        return float(torch.stack(losses).mean())

    def _step(self, examples: Iterable[tuple[Batch, torch.Tensor]], size: int, rate: float) -> list:
        """One step on ``size`` examples; the losses, which stay on the device: nothing here waits for it."""
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch, runtime in examples:
            loss = self._loss(batch, runtime)
            (loss / size).backward()
            losses.append(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        return losses

    def _draw(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Positions of the configurations of a step."""
        total, size = self.inputs.graph("train", name).graph.num_configs, self.config.configs_per_step
        return rng.choice(total, size, replace=False) if size < total else np.arange(total)

    def _example(self, drawn: tuple[str, np.ndarray]) -> tuple[Batch, torch.Tensor]:
        """A batch and its runtimes on the device; one of all configurations is the same at every step."""
        name, configs = drawn
        if name in self._whole:
            return self._whole[name]
        graph = self.inputs.graph("train", name).graph
        runtime = move(torch.from_numpy(graph.runtime[configs]), self.inputs.device)
        example = self.inputs.batch("train", name, configs), runtime
        if len(configs) == graph.num_configs:
            self._whole[name] = example
        return example

    def _loss(self, batch: Batch, runtime: torch.Tensor) -> torch.Tensor:
        with autocast(self.inputs.device):
            score = self.network(batch)
        return pairwise_hinge(score, runtime)

    def valid_score(self, slug: str, every: bool = False) -> dict:
        """A collection's metric on valid, mean and per graph, of the drawn or of every configuration."""
        labels, only = self.labels[slug], None if every else self.drawn[slug]
        scores = predict(self.network, self.inputs, slug, "valid", self.config.inference_configs, only)
        if only:
            labels = {name: labels[name][drawn] for name, drawn in only.items()}
        return collection_score(self.config.kind, labels, scores)

    def evaluate(self, loss: float) -> None:
        """Score every collection's valid, note it, and keep the weights."""
        scores = {slug: self.valid_score(slug)["mean"] for slug in self.inputs.sources}
        mean = sum(scores.values()) / len(scores)
        self.history.append({"epoch": self.epoch, "loss": loss, "valid": mean, **scores})
        weights = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        for slug, score in scores.items():
            if score > self.best[slug]["score"]:
                self.best[slug] = {"score": score, "epoch": self.epoch, "weights": weights}
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
                    bar.set_postfix(
                        loss=f"{loss:.3f}", valid=f"{self.history[-1]['valid']:.3f}", refresh=False
                    )

    def finished(self) -> bool:
        """Whether all epochs ran, or patience ran out."""
        config = self.config
        newest = max(best["epoch"] for best in self.best.values())
        stale = (self.epoch - newest) // config.evaluate_every
        return self.epoch >= config.epochs or bool(
            config.patience and self.history and stale >= config.patience
        )

    def choose_weights(self, slug: str) -> dict:
        """Load the better on a collection's valid of the best and the averaged weights; the score it has."""
        candidates, best = {}, self.best[slug]
        if self.recent:
            candidates[f"average of the last {len(self.recent)} evaluations"] = self.recent_average()
        candidates[f"epoch {best['epoch']}"] = best["weights"]
        scores = {}
        for label, weights in candidates.items():
            self.network.load_state_dict(weights)
            scores[label] = {**self.valid_score(slug, every=True), "weights": label}
        chosen = max(candidates, key=lambda label: scores[label]["mean"])
        self.network.load_state_dict(candidates[chosen])
        return scores[chosen]

    def recent_average(self) -> dict:
        """Mean of the weights of the last evaluations."""
        return {name: torch.stack([w[name].float() for w in self.recent]).mean(0) for name in self.recent[0]}

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
        # to the CPU, where evaluate keeps the best and the recent weights
        state = torch.load(path, weights_only=True, map_location="cpu")
        if state["mark"] != mark:
            return False
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("epoch", "history", "best", "recent"):
            setattr(self, name, state[name])
        return True


def train(config: TrainConfig) -> dict:
    """Train one network, or finish what an interrupted training began, and write a run for each collection.

    A run folder gets ``model.pt``, ``predictions.npz`` and, last, ``manifest.json`` with the valid score
    (mean and per graph). The training's own gets ``metrics.jsonl``, ``training.png`` and a manifest.

    Args:
        config: Settings.

    Returns:
        The training's manifest; ``valid`` is the mean over the collections.

    Raises:
        ConfigError: The features are of another kind, or two of the same collection.
        DataError: The features are missing or teach no order.
    """
    artifact = config.artifact()
    with artifact.building() as needed:
        if needed:
            training = Training(config, make_dataset(config))
            training.run(artifact.folder, artifact.fingerprint)
            valid = {}
            for slug, run in zip(training.inputs.sources, artifact.parts, strict=True):
                valid[slug] = training.choose_weights(slug)
                _write_run(run.folder, training, slug)
                run.finish(valid=valid[slug], epochs=training.epoch)
            figure = plot_training(pd.DataFrame(training.history), artifact.folder.name)
            save_figure(figure, artifact.folder / PLOT)
            artifact.finish(valid=_together(valid), epochs=training.epoch)
            (artifact.folder / CHECKPOINT).unlink(missing_ok=True)
    return read_manifest(artifact.folder)


def _write_run(folder: Path, training: Training, slug: str) -> None:
    with atomic_path(folder / WEIGHTS) as temporary:
        torch.save(training.network.state_dict(), temporary)
    together = training.config.inference_configs
    scores = {
        split: predict(training.network, training.inputs, slug, split, together) for split in PREDICTED_SPLITS
    }
    write_predictions(folder, scores)


def _together(valid: dict[str, dict]) -> dict:
    """The scores of several collections together: mean, by collection, by graph, and whose weights."""
    means = {slug: score["mean"] for slug, score in valid.items()}
    return {
        "mean": sum(means.values()) / len(means),
        "weights": ", ".join(dict.fromkeys(score["weights"] for score in valid.values())),
        "by_collection": means,
        "per_graph": {
            f"{slug}/{name}": value
            for slug, score in valid.items()
            for name, value in score["per_graph"].items()
        },
    }
