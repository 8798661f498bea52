"""Training of the layout and the tile network: one path, one loop, exact resume.

:func:`train`, at the end, is the whole path. To change something, edit

- the network in ``model.py`` and ``layers.py``, or its construction in :func:`make_network`,
- the loss in ``losses.py``,
- the optimizer in :class:`Training`, its schedule in :func:`learning_rate`,
- what a step sees in :meth:`Training.run_epoch` and :meth:`Training._draw`,
- which weights are kept in ``validation.py``.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fastslow.competition.catalog import TRAIN
from fastslow.core.artifacts import read_manifest
from fastslow.core.bounded_cache import BoundedCache
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.memory import FreedMemory, held_bytes, step_memory
from fastslow.core.progress import progress
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.predictions import PREDICTED_SPLITS, PREDICTIONS, write_predictions
from fastslow.evaluation.training_files import METRICS
from fastslow.features.scaling import write_scalers
from fastslow.features.store import SCALERS, Features
from fastslow.networks import distributed
from fastslow.networks.config import TrainConfig
from fastslow.networks.dataset import GraphDataset, predict
from fastslow.networks.devices import autocast, loss_scaler, pick_device
from fastslow.networks.graph_batch import Batch
from fastslow.networks.losses import Loss
from fastslow.networks.model import RankingNetwork
from fastslow.networks.prefetch import prefetch
from fastslow.networks.sparse import move
from fastslow.networks.stored_weights import read_checkpoint
from fastslow.networks.validation import Validation, pool_scores

PLOT = "training.png"
CHECKPOINT = "checkpoint.pt"
WEIGHTS = "model.pt"
OUTPUTS = (WEIGHTS, SCALERS, PREDICTIONS)


def make_dataset(config: TrainConfig, sources: Sequence[Features] | None = None) -> GraphDataset:
    """Return the graphs to train on.

    Args:
        config: Settings.
        sources: Features to read; by default those that the settings name.
    """
    sources = config.sources() if sources is None else sources
    device = distributed.own_device(pick_device(config.device))
    return GraphDataset(sources, config.num_layers, device, config.joins_pairs())


def make_network(config: TrainConfig, dataset: GraphDataset) -> RankingNetwork:
    """Return a network of the configured size for these graphs, with weights drawn from the seed."""
    torch.manual_seed(config.seed)
    return RankingNetwork(
        node_channels=len(dataset.node_scaler.kept),
        config_channels=len(dataset.config_scaler.kept),
        hidden_channels=config.hidden_channels,
        num_layers=config.num_layers,
        cross_config=config.attends_configs(),
        dropout=config.dropout,
    ).to(dataset.device)


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return a step's learning rate: linear warm-up, then cosine to 0 (arXiv 1608.03983)."""
    warm = config.warmup * steps
    if step < warm:
        return config.learning_rate * (step + 1) / (warm + 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Training:
    """A training and its state: network, optimizer, number of epochs done, validation so far.

    Every random choice of an epoch comes from (seed, epoch). So a checkpoint between epochs needs no
    generator state, and a resumed training equals an uninterrupted one.

    Args:
        config: Settings.
        dataset: Graphs to train on.
    """

    def __init__(self, config: TrainConfig, dataset: GraphDataset):
        self.config, self.dataset = config, dataset
        self.network = make_network(config, dataset)
        self.loss = Loss(config.loss)
        self.scaler = loss_scaler(dataset.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=config.learning_rate,  # replaced at every step
            weight_decay=config.weight_decay,
            fused=self.scaler.is_enabled() or None,  # so that a scaled step needs no answer from the GPU
        )
        self.names = dataset.trainable()
        self.validation = Validation(config, dataset, self.network)
        self.epoch = 0
        self._whole = BoundedCache[tuple[Batch, torch.Tensor]](step_memory() // 4, held_bytes)
        self._freed = FreedMemory()

    def run_epoch(self) -> float:
        """Train on every graph once; return the mean loss."""
        config = self.config
        rng = np.random.default_rng([config.seed, self.epoch])
        self.network.train()
        names = rng.permutation(self.names)
        drawn = [(name, self._draw(name, rng)) for name in names]
        seeds = rng.integers(2**63, size=len(names))  # for dropout
        steps = math.ceil(len(names) / config.graphs_per_step)
        groups = np.array_split(np.arange(len(names)), steps)
        own = np.concatenate([distributed.share(group) for group in groups])  # of several processes
        examples, own_seeds = prefetch(self._example, [drawn[n] for n in own]), iter(seeds[own].tolist())
        losses = []
        for position, group in enumerate(groups):
            rate = learning_rate(config, self.epoch * steps + position, config.epochs * steps)
            losses += self._step(islice(examples, len(distributed.share(group))), own_seeds, len(group), rate)
            self._freed.after_step()
        self.epoch += 1
        return distributed.mean_loss(losses, self.dataset.device)

    def _step(
        self, examples: Iterable[tuple[Batch, torch.Tensor]], seeds: Iterator[int], size: int, rate: float
    ) -> list:
        """Take one step on ``size`` graphs, of which this process has some.

        Returns:
            The losses of its examples on the device, without waiting for it.
        """
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        # a loss that compares graphs needs all of a step in memory; else one after the other
        together = [list(examples)] if self.loss.across_graphs else ([example] for example in examples)
        for graphs in together:
            torch.manual_seed([next(seeds) for _ in graphs][0])  # the same dropout whichever process has it
            loss = self._loss(graphs)
            self.scaler.scale(loss * len(graphs) / size).backward()
            losses.append(loss.detach())
        distributed.add_gradients(self.network)
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return losses

    def _draw(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Draw the configurations of a step, as positions in the graph."""
        total, size = self.dataset.num_configs(TRAIN, name), self.config.configs_per_step
        return rng.choice(total, size, replace=False) if size < total else np.arange(total)

    def _example(self, drawn: tuple[str, np.ndarray]) -> tuple[Batch, torch.Tensor]:
        """Return a batch and its runtimes on the device; those of all configurations are kept."""
        name, configs = drawn
        if len(configs) < self.dataset.num_configs(TRAIN, name):
            return self._make_example(name, configs)
        return self._whole.get(name, lambda: self._make_example(name, configs))

    def _make_example(self, name: str, configs: np.ndarray) -> tuple[Batch, torch.Tensor]:
        runtime = self.dataset.graph(TRAIN, name).graph.runtime[configs]
        batch = self.dataset.batch(TRAIN, name, configs)
        return batch, move(torch.from_numpy(runtime), self.dataset.device)

    def _loss(self, examples: Sequence[tuple[Batch, torch.Tensor]]) -> torch.Tensor:
        """Return the mean loss of some graphs."""
        with autocast(self.dataset.device):
            predictions = [self.network(batch) for batch, _ in examples]
        return self.loss(predictions, [runtime for _, runtime in examples])

    def run(self, folder: Path, mark: str) -> None:
        """Train to the end, resuming from the folder's checkpoint where it carries the same mark."""
        config, validation = self.config, self.validation
        quiet = distributed.rank() > 0
        if self.load(folder / CHECKPOINT, mark) and not quiet:
            print(f"{folder.name}: resumed after epoch {self.epoch}")
        options = {"total": config.epochs, "initial": self.epoch, "desc": folder.name, "unit": "epoch"}
        with progress(**options, disable=quiet) as bar:
            while self.epoch < config.epochs and not validation.is_stale(self.epoch):
                loss = self.run_epoch()
                bar.update()
                if self.epoch % config.evaluate_every == 0 or self.epoch == config.epochs:
                    validation.evaluate(self.epoch, loss)
                    self.save(folder, mark)
                    valid = validation.history[-1]["valid"]
                    bar.set_postfix(loss=f"{loss:.3f}", valid=f"{valid:.3f}", refresh=False)

    def save(self, folder: Path, mark: str) -> None:
        """Write the history and a checkpoint, each atomically; of several processes the first one does."""
        if distributed.rank():
            return
        with atomic_path(folder / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in self.validation.history))
        state = {
            "mark": mark,
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "validation": self.validation.state_dict(),
        }
        with atomic_path(folder / CHECKPOINT) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path, mark: str) -> bool:
        """Restore a checkpoint that carries the mark; return whether there is one."""
        state = distributed.from_first(lambda: read_checkpoint(path, mark, self))
        if state is None:
            return False
        self.epoch = state["epoch"]
        for name in ("network", "optimizer", "scaler", "validation"):
            getattr(self, name).load_state_dict(state[name])
        return True


def train(config: TrainConfig) -> dict:
    """Train one network, or resume an interrupted training, and write a run folder per collection.

    A run folder gets ``model.pt`` and ``scalers.npz``, which predict without the features,
    ``predictions.npz`` and, last, ``manifest.json`` with the valid score (mean and per graph). The training's
    own folder gets ``metrics.jsonl``, ``training.png`` and a manifest.

    Args:
        config: Settings.

    Returns:
        The training's manifest; its ``valid`` is the mean over the collections.

    Raises:
        ConfigError: The features are of another kind or two of the same collection, or the device is not
            there.
        DataError: The features are missing or carry no ranking signal.
    """
    if config.processes > 1 and not distributed.launched():
        distributed.launch(config)
        return read_manifest(config.artifact().folder)
    with distributed.joined(config):
        return _train(config)


def _train(config: TrainConfig) -> dict:
    artifact = config.artifact()
    with distributed.building(artifact) as needed:
        if needed:
            training = Training(config, make_dataset(config))
            training.run(artifact.folder, artifact.fingerprint)
            valid = {}
            for slug, run in zip(training.dataset.sources, artifact.parts, strict=True):
                valid[slug] = training.validation.choose_weights(slug)
                predictions = _predict(training, slug)
                if distributed.rank() == 0:
                    _write_run(run.folder, training, predictions)
                    recipe = training.dataset.sources[slug].recipe
                    run.finish(OUTPUTS, valid=valid[slug], epochs=training.epoch, features=recipe)
            if distributed.rank() == 0:
                figure = plot_training(pd.DataFrame(training.validation.history), artifact.folder.name)
                save_figure(figure, artifact.folder / PLOT)
                artifact.finish((METRICS, PLOT), valid=pool_scores(valid), epochs=training.epoch)
                (artifact.folder / CHECKPOINT).unlink(missing_ok=True)
        return distributed.from_first(lambda: read_manifest(artifact.folder))


def _predict(training: Training, slug: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the predictions of a collection by split and graph."""
    together = training.config.inference_configs
    return {
        split: predict(training.network, training.dataset, slug, split, together)
        for split in PREDICTED_SPLITS
    }


def _write_run(folder: Path, training: Training, predictions: dict[str, dict[str, np.ndarray]]) -> None:
    """Write the network's weights, its scalers, and its predictions of a collection."""
    # into an open file: given a path, torch writes its name into the file
    with atomic_path(folder / WEIGHTS) as temporary, open(temporary, "wb") as handle:
        torch.save(training.network.state_dict(), handle)
    dataset = training.dataset
    write_scalers(folder / SCALERS, node=dataset.node_scaler, config=dataset.config_scaler)
    write_predictions(folder, predictions)
