"""Training of the layout and the tile network with exact resume: :func:`train`, at the end, is the path."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastslow.competition.catalog import TRAIN
from fastslow.core.artifacts import read_manifest
from fastslow.core.memory import FreedMemory, held_bytes, step_memory
from fastslow.core.progress import progress
from fastslow.networks.hardware import distributed
from fastslow.networks.hardware.adamw import AdamW
from fastslow.networks.hardware.bounded_cache import BoundedCache
from fastslow.networks.hardware.devices import autocast, loss_scaler, seed_generator
from fastslow.networks.hardware.out_of_memory import explain_memory
from fastslow.networks.hardware.prefetch import prefetch
from fastslow.networks.model.graph_batch import Batch
from fastslow.networks.model.losses import Loss
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.states.sparse import move
from fastslow.networks.training.divergence import Diverged, check_loss, check_weights, stop
from fastslow.networks.training.run_folder import load_checkpoint, save_checkpoint, write_runs
from fastslow.networks.training.schedule import scheduled
from fastslow.networks.training.validation import Validation

Example = tuple[Any, torch.Tensor]  # a batch, and the runtimes of its configurations


def make_network(settings: TrainSettings, dataset: GraphDataset) -> RankingNetwork:
    """Return a network of the configured size for these graphs, with weights drawn from the seed."""
    torch.manual_seed(settings.seed)
    return RankingNetwork(
        node_channels=len(dataset.node_scaler.kept),
        config_channels=len(dataset.config_scaler.kept),
        architecture=settings.architecture(),
    ).to(dataset.device)


class Training:
    """A training and its state: network, optimizer, number of epochs done, validation so far.

    Every random choice of an epoch comes from (seed, epoch). So a checkpoint between epochs needs no
    generator state, and a resumed training equals an uninterrupted one.

    Attributes:
        stored: Names of the attributes whose state is in a checkpoint.
    """

    def __init__(self, settings: TrainSettings, dataset: GraphDataset):
        self.settings, self.dataset = settings, dataset
        self.network = make_network(settings, dataset)
        self.loss = Loss(settings.loss)
        self.scaler = loss_scaler(dataset.device)
        self.optimizer = AdamW(
            self.network.parameters(),
            lr=settings.learning_rate,  # replaced at every step
            weight_decay=settings.weight_decay,
            fused=True,  # a seventh of the time on a CPU; a scaled step needs no answer from the GPU
        )
        self.names = dataset.trainable()
        self.validation = Validation(settings, dataset, self.network)
        self.stored = ["network", "optimizer", "scaler", "validation"]
        self.segments = None
        if settings.segment_training != "none":
            from fastslow.networks.segments.training import SegmentTraining

            self.segments = SegmentTraining(settings, dataset, self.network)
            self.stored.append("segments")
        self.epoch, self.first_loss, self.seconds = 0, math.nan, 0.0
        self.warnings: list[str] = []
        self._whole = BoundedCache[Example](step_memory() // 4, held_bytes)
        self._freed = FreedMemory()

    def run_epoch(self) -> float:
        """Train on every graph once; return the mean loss."""
        settings = self.settings
        rng = np.random.default_rng([settings.seed, self.epoch])
        self.network.train()
        if self.segments:
            self.segments.begin(self.epoch)
        names = rng.permutation(self.names)
        drops = settings.edge_dropout > 0 or self.segments
        drawn = [(name, self.draw(name, rng), int(rng.integers(2**63)) if drops else None) for name in names]
        seeds = rng.integers(2**63, size=len(names))  # for dropout
        steps = math.ceil(len(names) / settings.graphs_per_step)
        groups = np.array_split(np.arange(len(names)), steps)
        share = np.concatenate([distributed.share(group) for group in groups])  # of several processes
        examples = prefetch(map(self.example, [drawn[n] for n in share]))
        losses = []
        for position, group in enumerate(groups):
            rate = scheduled(settings, self.epoch, position, steps)
            losses += self.step(examples, seeds[distributed.share(group)].tolist(), len(group), rate)
            self._freed.after_step()
        self.epoch += 1
        return distributed.mean_loss(losses, self.dataset.device)

    def step(self, examples: Iterator[Example], seeds: list[int], size: int, rate: float) -> list:
        """Take one step on ``size`` graphs, of which this process takes an example for each of its ``seeds``.

        Returns:
            The losses of its examples on the device, without waiting for it.
        """
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for seed, (batch, runtime) in zip(seeds, examples, strict=False):
            seed_generator(self.dataset.device, seed)  # the same dropout whichever process has it
            loss = self.graph_loss(batch, runtime)
            self.scaler.scale(loss / size).backward()
            losses.append(loss.detach())
        distributed.add_gradients(self.network)
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return losses

    def draw(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Draw the configurations of a step, as positions in the graph."""
        total = self.dataset.num_configs(TRAIN, name)
        size = self.settings.configs_per_step
        return rng.choice(total, size, replace=False) if size < total else np.arange(total)

    def example(self, drawn: tuple[str, np.ndarray, int | None]) -> Example:
        """Return a batch and its labels on the device; an example of all configurations and edges is kept."""
        name, configs, seed = drawn
        if seed is not None or len(configs) < self.dataset.num_configs(TRAIN, name):
            return self.make_example(name, configs, seed)
        return self._whole.get(name, lambda: self.make_example(name, configs))

    def make_example(self, name: str, configs: np.ndarray, seed: int | None = None) -> Example:
        """Return a step's input of one train graph, and its labels, on the device.

        Args:
            name: The graph.
            configs: ``(C,)`` positions of its configurations.
            seed: Draws the dropped edges, or the segments; None where nothing is drawn.

        Returns:
            The batch (or the segments) and the ``(C,)`` runtimes.
        """
        graph = self.dataset.graph(TRAIN, name)
        kept = None
        runtime = move(torch.from_numpy(graph.graph.runtime[configs]), self.dataset.device)
        if self.segments:
            return self.segments.example(name, configs, seed), runtime
        if seed is not None:  # the same edges for all configurations
            kept = np.random.default_rng(seed).random(len(graph.edge_index)) >= self.settings.edge_dropout
        return self.dataset.batch(TRAIN, name, configs, kept), runtime

    def graph_loss(self, batch: Batch, runtime: torch.Tensor) -> torch.Tensor:
        """Return the loss of some configurations of a graph."""
        with autocast(self.dataset.device):
            prediction = (self.segments or self.network)(batch)
        return self.loss(prediction, runtime)

    def run(self, folder: Path, mark: str) -> None:
        """Train to the end, resuming from the folder's checkpoint where it carries the same mark.

        A training that diverges ends there; the weights of its evaluations before are kept.

        Raises:
            Diverged: It did so before the first evaluation.
        """
        settings, validation = self.settings, self.validation
        quiet = distributed.rank() > 0
        if load_checkpoint(self, folder, mark) and not quiet:
            print(f"{folder.name}: resumed after epoch {self.epoch}")
        options = {"total": settings.epochs, "initial": self.epoch, "desc": folder.name, "unit": "epoch"}
        began = time.monotonic() - self.seconds
        late = 0 < 3600 * settings.hours < self.seconds
        with progress(**options, disable=quiet) as bar:
            while self.epoch < settings.epochs and not (late or validation.is_stale(self.epoch)):
                loss = self.run_epoch()
                self.seconds = time.monotonic() - began
                late = 0 < 3600 * settings.hours < distributed.from_first(lambda: self.seconds)
                self.first_loss = self.first_loss if math.isfinite(self.first_loss) else loss
                bar.update()
                due = self.epoch % settings.evaluate_every == 0 or self.epoch == settings.epochs or late
                try:
                    check_loss(loss, self.first_loss)
                    check_weights(self.network)
                    if due:
                        validation.evaluate(self.epoch, loss)
                except Diverged as error:
                    self.warnings.append(stop(error, self.epoch, loss, settings, validation.history))
                    if not quiet:
                        print(f"warning: {self.warnings[-1]}")
                    break
                if late and self.epoch < settings.epochs:
                    over = f"stopped after epoch {self.epoch} of {settings.epochs}"
                    self.warnings.append(f"{over}: its time is over (hours={settings.hours:g})")
                if due:
                    save_checkpoint(self, folder, mark)
                    valid = validation.history[-1]["valid"]
                    bar.set_postfix(loss=f"{loss:.3f}", valid=f"{valid:.3f}", refresh=False)


def train(settings: TrainSettings) -> dict:
    """Train one network, or resume an interrupted training, and write a run folder per collection.

    A run folder then holds ``model.pt`` and ``scalers.npz``, which predict without the features,
    ``predictions.npz`` and, written last, ``manifest.json`` with the valid score (mean and per graph). The
    training's own folder holds ``metrics.jsonl``, ``training.png`` and a manifest.

    Returns:
        The training's manifest; its ``valid`` is the mean over the collections.

    Raises:
        SettingsError: The features have another kind, two have the same collection, or the device is not
            there.
        DataError: The features are missing or carry no ranking signal.
        Diverged: The training diverged before its first evaluation.
        OutOfMemory: The network is too large for this machine.
    """
    if settings.processes > 1 and not distributed.launched():
        distributed.launch(settings)
        return read_manifest(settings.artifact().folder)
    with distributed.joined(settings), explain_memory():
        artifact = settings.artifact()
        with distributed.building(artifact) as needed:
            if needed:
                training = Training(settings, GraphDataset(settings))
                training.run(artifact.folder, artifact.fingerprint)
                write_runs(artifact, training)
            return distributed.from_first(lambda: read_manifest(artifact.folder))
