"""Training of the layout and the tile network with exact resume: :func:`train`, at the end, is the path."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fastslow.competition.catalog import PREDICTED_SPLITS, TRAIN, VALID
from fastslow.core.errors import DataError, registered
from fastslow.features.folds import leave_fold_out
from fastslow.features.graph import GraphSet, Predictions, trainable
from fastslow.networks.hardware import distributed
from fastslow.networks.hardware.devices import autocast, loss_scaler, seed_generator
from fastslow.networks.hardware.memory import AdamW, FreedMemory, prefetch
from fastslow.networks.model.losses import Loss
from fastslow.networks.predict.dataset import GraphDataset, make_network
from fastslow.networks.settings.options import NetworkOptions
from fastslow.networks.settings.segments import same_schedule
from fastslow.networks.training.validation import (
    Diverged,
    Validation,
    check_loss,
    check_weights,
    predict_shared,
)


class Training:
    """A training and its state: network, optimizer, number of epochs done, validation so far.

    Every random choice of an epoch comes from (seed, epoch). So a checkpoint between epochs needs no
    generator state, and a resumed training equals an uninterrupted one.

    Attributes:
        held_out: Names of the train graphs that ``folds`` leaves out.
        stopped: The epoch after which its time was over; empty where it was not.
    """

    def __init__(self, options: NetworkOptions, dataset: GraphDataset):
        self.options, self.dataset = options, dataset
        self.network = make_network(options, dataset)
        self.loss = Loss(options.loss)
        self.scaler = loss_scaler(dataset.device)
        self.parameters = list(self.network.parameters())
        self.optimizer = AdamW(
            self.parameters,
            lr=options.learning_rate,  # replaced at every step
            weight_decay=options.weight_decay,
            fused=True,  # a seventh of the time on a CPU; a scaled step needs no answer from the GPU
        )
        self.names = trainable(dataset.sources)
        self.held_out: list[str] = []
        if options.folds:
            sources = dataset.sources
            self.names, self.held_out = leave_fold_out(sources, self.names, options.folds, options.seed)
        self.validation = Validation(options, dataset, self.network)
        self.segments = None
        if options.segment_training != "none":
            from fastslow.networks.segments.training import SegmentTraining

            self.segments = SegmentTraining(options, dataset, self.network)
        self.epoch, self.first_loss, self.seconds = 0, math.nan, 0.0
        self.warnings: list[str] = []
        self.stopped = ""
        self._freed = FreedMemory(most=dataset.memory // 4)

    def run_epoch(self) -> float:
        """Train on every graph once; return the mean loss."""
        options = self.options
        rng = np.random.default_rng([options.seed, self.epoch])
        self.network.train()
        if self.segments:
            self.segments.begin(self.epoch)
        names = rng.permutation(self.names)
        drops = options.edge_dropout > 0 or self.segments
        drawn = [(name, self.draw(name, rng), int(rng.integers(2**63)) if drops else None) for name in names]
        seeds = rng.integers(2**63, size=len(names))  # for dropout
        steps = math.ceil(len(names) / options.graphs_per_step)
        groups = np.array_split(np.arange(len(names)), steps)
        share = np.concatenate([distributed.share(group) for group in groups])  # of several processes
        examples = prefetch(map(self.example, [drawn[n] for n in share]))
        epochs = range(options.epochs)  # of the learning rate's schedule
        if self.segments:
            epochs = same_schedule(options, self.epoch)
        first = (self.epoch - epochs.start) * steps
        losses = []
        for position, group in enumerate(groups):
            rate = learning_rate(options, first + position, len(epochs) * steps)
            losses += self.step(examples, seeds[distributed.share(group)].tolist(), len(group), rate)
            self._freed.after_step()
        self.epoch += 1
        return distributed.mean_loss(losses, self.dataset.device)

    def step(self, examples: Iterator, seeds: list[int], size: int, rate: float) -> list:
        """Take one step and return the losses of its examples on the device, without waiting for it.

        The next ``examples`` are taken, each with the seed of its dropout. ``size`` is the number of graphs
        of the step, of all processes, ``rate`` the learning rate.
        """
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        for parameter in self.parameters:
            parameter.grad = None
        losses = []
        for seed, example in zip(seeds, examples, strict=False):
            seed_generator(self.dataset.device, seed)  # the same dropout whichever process has it
            loss = self.graph_loss(example)
            self.scaler.scale(loss / size).backward()
            losses.append(loss.detach())
        distributed.add_gradients(self.network)
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return losses

    def draw(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Draw the configurations of a step, as positions ``(C,)`` in the graph."""
        total = self.dataset.num_configs(TRAIN, name)
        size = self.options.configs_per_step
        return rng.choice(total, size, replace=False) if size < total else np.arange(total)

    def example(self, drawn: tuple[str, np.ndarray, int | None]) -> Any:
        """Return a batch of one train graph on the device, or its segments, for a step.

        ``drawn`` are the graph, positions ``(C,)`` of its configurations, and the seed of dropped edges or of
        the segment; None where nothing is drawn.
        """
        name, configs, seed = drawn
        if self.segments:
            return self.segments.example(name, configs, seed)
        kept = None
        if seed is not None:  # the same edges for all configurations
            edges = self.dataset.graph(TRAIN, name).edge_index
            kept = np.random.default_rng(seed).random(len(edges)) >= self.options.edge_dropout
        return self.dataset.batch(TRAIN, name, configs, kept)

    def graph_loss(self, example: Any) -> torch.Tensor:
        """Return the loss ``()`` of some configurations of a graph."""
        with autocast(self.dataset.device):
            prediction = (self.segments or self.network)(example)
        return self.loss(prediction, example.runtime)

    def run(
        self,
        seconds: float = math.inf,
        on_epoch: Callable[[float], None] | None = None,
        on_metrics: Callable[[dict], None] | None = None,
    ) -> None:
        """Train to the end, from the epoch that is reached.

        A training that diverges ends there; the weights of its evaluations before are kept.

        Args:
            seconds: Time of the whole training after which no further epoch begins.
            on_epoch: Called with the mean loss of every epoch.
            on_metrics: Called after every evaluation with its row of the history, see :class:`Validation`.

        Raises:
            Diverged: It did so before the first evaluation.
        """
        options = self.options
        validation = self.validation
        began = time.monotonic() - self.seconds
        late = self.seconds > seconds
        while self.epoch < options.epochs and not (late or validation.is_stale(self.epoch)):
            loss = self.run_epoch()
            self.seconds = time.monotonic() - began
            late = distributed.from_first(lambda: self.seconds) > seconds
            self.first_loss = self.first_loss if math.isfinite(self.first_loss) else loss
            if on_epoch:
                on_epoch(loss)
            due = self.epoch % options.evaluate_every == 0 or self.epoch == options.epochs or late
            try:
                check_loss(loss, self.first_loss)
                check_weights(self.network)
                if due:
                    validation.evaluate(self.epoch, loss)
            except Diverged as error:
                self.warnings.append(self._why_stopped(error, loss))
                break
            if due and on_metrics:
                on_metrics(validation.history[-1])
        else:  # also of a training that ended before an interruption
            if self.epoch < options.epochs and not validation.is_stale(self.epoch):
                self.stopped = f"epoch {self.epoch} of {options.epochs}"
                over = f"its time is over (hours={seconds / 3600:g})"
                self.warnings.append(f"stopped after {self.stopped}: {over}")

    def _why_stopped(self, error: Diverged, loss: float) -> str:
        """Return why the training ended, the remedy, and which weights are kept; raise if there are none."""
        rate, norm = self.options.learning_rate, self.options.max_grad_norm
        said = (
            f"diverged in epoch {self.epoch} (loss {loss:.4g}): {error}; lower learning_rate (now {rate:g})"
            f" or max_grad_norm (now {norm:g})"
        )
        history = self.validation.history
        if not history:
            raise Diverged(f"{said}. There are no weights to keep: it was not evaluated before") from None
        return f"{said}. Stopped; the weights up to epoch {history[-1]['epoch']} are kept"

    def predict(self, slug: str) -> tuple[dict, Predictions]:
        """Choose a collection's weights and predict its valid and test graphs with them.

        Returns:
            The metric on valid as of :meth:`Validation.choose_weights`, and predictions by split and graph.

        Raises:
            Diverged: There are no weights whose predictions are finite.
            SettingsError: No graphs of this slug were trained on.
        """
        registered(self.dataset.sources, "slug", slug)
        score, predictions = self.validation.choose_weights(slug)
        others = [split for split in PREDICTED_SPLITS if split != VALID]
        rest = {split: predict_shared(self.network, self.dataset, slug, split) for split in others}
        return score, {VALID: predictions, **rest}


def train(
    sources: Sequence[GraphSet],
    options: NetworkOptions = NetworkOptions(),
    on_metrics: Callable[[dict], None] | None = None,
) -> Training:
    """Train one network on the train graphs of several collections of a kind.

    Args:
        sources: The graphs of each collection.
        options: Options of the network and of its training.
        on_metrics: Called with a row of metrics after every evaluation, see :meth:`Training.run`.

    Returns:
        The finished training; its ``predict`` gives predictions for each collection, by slug.

    Raises:
        SettingsError: The device is not there, or the options do not suit the graphs.
        DataError: The graphs carry no ranking signal, or were built with different options.
        Diverged: The training diverged before its first evaluation.
    """
    if not sources:
        raise DataError("train", "got no graphs", "Give what build_graphs returns, of each collection")
    training = Training(options, GraphDataset(options, sources))
    training.run(on_metrics=on_metrics)
    return training


def learning_rate(options: NetworkOptions, step: int, steps: int) -> float:
    """Return the learning rate of a step, from 0, of a schedule of so many steps.

    It is a linear warm-up, then a cosine to 0 (arXiv 1608.03983), or constant.
    """
    warm = options.warmup * steps
    if step < warm:
        return options.learning_rate * (step + 1) / (warm + 1)
    if options.schedule == "constant":
        return options.learning_rate
    return options.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
