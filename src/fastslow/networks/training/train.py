"""Training of the layout and the tile network: one path, one loop, exact resume.

:func:`train`, at the end, is the whole path. To change something, edit

- the network in ``model.py`` and ``layers.py``, or its construction in :func:`make_network`,
- the loss in ``losses.py``,
- the optimizer in :class:`Training`, its schedule in ``schedule.py``,
- what a step sees in :meth:`Training.run_epoch` and :meth:`Training._draw`,
- which weights are kept in ``validation.py``.
"""

import json
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastslow.competition.catalog import TRAIN
from fastslow.core.artifacts import read_manifest
from fastslow.core.files import atomic_path
from fastslow.core.memory import FreedMemory, held_bytes, step_memory
from fastslow.core.progress import progress
from fastslow.evaluation.training_files import METRICS
from fastslow.features.scaling import Scaler
from fastslow.features.store import Features
from fastslow.networks.machine import distributed
from fastslow.networks.machine.bounded_cache import BoundedCache
from fastslow.networks.machine.devices import autocast, loss_scaler, pick_device, seed_generator
from fastslow.networks.machine.out_of_memory import Shrinking, explain_memory
from fastslow.networks.machine.step_examples import StepExamples
from fastslow.networks.machine.stored_weights import read_checkpoint, write_tensors
from fastslow.networks.model.graph_batch import Batch
from fastslow.networks.model.losses import Loss
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.settings.train_settings import TrainSettings
from fastslow.networks.states.sparse import move
from fastslow.networks.training.divergence import Diverged, LossWatch, check_weights, stop
from fastslow.networks.training.run_folder import write_runs
from fastslow.networks.training.schedule import scheduled
from fastslow.networks.training.validation import Validation

CHECKPOINT = "checkpoint.pt"


def make_dataset(
    settings: TrainSettings,
    sources: Sequence[Features] | None = None,
    scalers: tuple[Scaler, Scaler] | None = None,
) -> GraphDataset:
    """Return the graphs to train on, or to predict.

    Args:
        settings: Settings.
        sources: Features to read; by default those that the settings name.
        scalers: Scalers of nodes and of configurations; by default those of the sources, pooled.
    """
    sources = settings.sources() if sources is None else sources
    architecture = settings.architecture()
    device = distributed.own_device(pick_device(settings.device))
    graphs = {"pair_edges": settings.joins_pairs(), "whole_graph": architecture.whole_graph}
    inputs = {"node_inputs": settings.node_inputs, "config_inputs": settings.config_inputs}
    reads = {"joins_nodes": architecture.joins_nodes, "dimension_tokens": architecture.dimension_tokens}
    options = {"scalers": scalers, **graphs, **inputs, **reads}
    return GraphDataset(sources, architecture.num_levels, device, **options)


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

    Args:
        settings: Settings.
        dataset: Graphs to train on.
    """

    def __init__(self, settings: TrainSettings, dataset: GraphDataset):
        self.settings, self.dataset = settings, dataset
        self.network = make_network(settings, dataset)
        self.loss = Loss(settings.loss)
        self.scaler = loss_scaler(dataset.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=settings.learning_rate,  # replaced at every step
            weight_decay=settings.weight_decay,
            fused=True,  # a seventh of the time on a CPU; a scaled step needs no answer from the GPU
        )
        self.names = dataset.trainable()
        self.validation = Validation(settings, dataset, self.network)
        self._stored = ["network", "optimizer", "scaler", "validation", "watch"]
        self.segments = None
        if settings.segment_training != "none":
            from fastslow.networks.segments.training import SegmentTraining

            self.segments = SegmentTraining(settings, dataset, self.network)
            self._stored.append("segments")
        self.epoch = 0
        self.warnings: list[str] = []
        self._whole = BoundedCache[tuple[Batch, torch.Tensor]](step_memory() // 4, held_bytes)
        self._freed = FreedMemory()
        caches = self._whole.clear, dataset.clear, self._freed.release
        self.fits = Shrinking(settings.configs_per_step, "configs_per_step", caches)
        self.watch = LossWatch()

    def run_epoch(self) -> float:
        """Train on every graph once; return the mean loss."""
        settings = self.settings
        rng = np.random.default_rng([settings.seed, self.epoch])
        self.network.train()
        names = rng.permutation(self.names)
        drops = settings.edge_dropout > 0 or self.segments
        drawn = [(name, self.draw(name, rng), int(rng.integers(2**63)) if drops else None) for name in names]
        seeds = rng.integers(2**63, size=len(names))  # for dropout
        steps = math.ceil(len(names) / settings.graphs_per_step)
        groups = np.array_split(np.arange(len(names)), steps)
        own = np.concatenate([distributed.share(group) for group in groups])  # of several processes
        random = [settings.seed, self.epoch]
        examples = StepExamples(self.example, [drawn[n] for n in own], self.fits, random)
        losses = []
        for position, group in enumerate(groups):
            if self.segments:
                self.segments.begin(self.epoch, self.epoch * steps + position)
            rate = scheduled(settings, self.epoch, position, steps)
            losses += self.step(examples, seeds[distributed.share(group)].tolist(), len(group), rate)
            self._freed.after_step()
        if self.segments:
            self.segments.end(self.epoch)
        self.epoch += 1
        return distributed.mean_loss(losses, self.dataset.device)

    def step(self, examples: StepExamples, seeds: list[int], size: int, rate: float) -> list:
        """Take one step on ``size`` graphs, of which this process has one for each of its ``seeds``.

        Returns:
            The losses of its examples on the device, without waiting for it.
        """
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        losses = examples.take(len(seeds), partial(self._add_gradients, seeds, size))
        distributed.add_gradients(self.network)
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return losses

    def _add_gradients(
        self, seeds: list[int], size: int, examples: Iterable[tuple[Batch, torch.Tensor]]
    ) -> list:
        """Add up the gradients of the examples of a step on ``size`` graphs, and return their losses."""
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for seed, (batch, runtime) in zip(seeds, examples, strict=True):
            seed_generator(self.dataset.device, seed)  # the same dropout whichever process has it
            loss = self.graph_loss(batch, runtime)
            self.scaler.scale(loss / size).backward()
            losses.append(loss.detach())
        return losses

    def draw(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Draw the configurations of a step, as positions in the graph."""
        total, size = self.dataset.num_configs(TRAIN, name), self.settings.configs_per_step
        return rng.choice(total, size, replace=False) if size < total else np.arange(total)

    def example(self, drawn: tuple[str, np.ndarray, int | None]) -> tuple[Batch, torch.Tensor]:
        """Return a batch and its runtimes on the device; those of all configurations and edges are kept."""
        name, configs, seed = drawn
        if seed is not None or len(configs) < self.dataset.num_configs(TRAIN, name):
            return self.make_example(name, configs, seed)
        return self._whole.get(name, lambda: self.make_example(name, configs))

    def make_example(
        self, name: str, configs: np.ndarray, seed: int | None = None
    ) -> tuple[Batch, torch.Tensor]:
        batch: Any
        graph, kept = self.dataset.graph(TRAIN, name), []
        if self.segments:
            batch = self.segments.example(name, configs, seed)
        else:
            if seed is not None:  # the same edges for all configurations
                share = np.random.default_rng(seed).random(len(graph.edge_index))
                kept = [share >= self.settings.edge_dropout]
            batch = self.dataset.batch(TRAIN, name, configs, *kept)
        return batch, move(torch.from_numpy(graph.graph.runtime[configs]), self.dataset.device)

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
        if self.load(folder / CHECKPOINT, mark) and not quiet:
            print(f"{folder.name}: resumed after epoch {self.epoch}")
        options = {"total": settings.epochs, "initial": self.epoch, "desc": folder.name, "unit": "epoch"}
        with progress(**options, disable=quiet) as bar:
            while self.epoch < settings.epochs and not validation.is_stale(self.epoch):
                loss = self.run_epoch()
                bar.update()
                due = self.epoch % settings.evaluate_every == 0 or self.epoch == settings.epochs
                try:
                    self.watch.check(loss)
                    check_weights(self.network)
                    if due:
                        validation.evaluate(self.epoch, loss)
                except Diverged as error:
                    self.warnings.append(stop(error, self.epoch, loss, settings, validation.history))
                    if not quiet:
                        print(f"warning: {self.warnings[-1]}")
                    break
                if due:
                    self.save(folder, mark)
                    valid = validation.history[-1]["valid"]
                    bar.set_postfix(loss=f"{loss:.3f}", valid=f"{valid:.3f}", refresh=False)

    def save(self, folder: Path, mark: str) -> None:
        """Write the history and a checkpoint, each atomically; of several processes the first one does."""
        if distributed.rank():
            return
        with atomic_path(folder / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in self.validation.history))
        if self.segments:
            self.segments.write(folder)
        parts = {name: getattr(self, name).state_dict() for name in self._stored}
        state = {"mark": mark, "epoch": self.epoch, **parts}
        write_tensors(folder / CHECKPOINT, state, sealed=True)

    def load(self, path: Path, mark: str) -> bool:
        """Restore a checkpoint that carries the mark; return whether there is one."""
        state = distributed.from_first(lambda: read_checkpoint(path, mark))
        if state is None:
            return False
        self.epoch = state["epoch"]
        for name in self._stored:
            getattr(self, name).load_state_dict(state[name])
        return True


def train(settings: TrainSettings) -> dict:
    """Train one network, or resume an interrupted training, and write a run folder per collection.

    A run folder gets ``model.pt`` and ``scalers.npz``, which predict without the features,
    ``predictions.npz`` and, last, ``manifest.json`` with the valid score (mean and per graph). The training's
    own folder gets ``metrics.jsonl``, ``training.png`` and a manifest.

    Args:
        settings: Settings.

    Returns:
        The training's manifest; its ``valid`` is the mean over the collections.

    Raises:
        SettingsError: The features are of another kind or two of the same collection, or the device is not
            there.
        DataError: The features are missing or carry no ranking signal.
        Diverged: The training diverged before its first evaluation.
        OutOfMemory: The network is too large for this machine.
    """
    if settings.processes > 1 and not distributed.launched():
        distributed.launch(settings)
        return read_manifest(settings.artifact().folder)
    with distributed.joined(settings), explain_memory():
        return _train(settings)


def _train(settings: TrainSettings) -> dict:
    artifact = settings.artifact()
    with distributed.building(artifact) as needed:
        if needed:
            training = Training(settings, make_dataset(settings))
            training.run(artifact.folder, artifact.fingerprint)
            write_runs(artifact, training)
            if distributed.rank() == 0:
                (artifact.folder / CHECKPOINT).unlink(missing_ok=True)
        return distributed.from_first(lambda: read_manifest(artifact.folder))
