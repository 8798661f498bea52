"""Validation while a network trains, and the choice of the weights that a run keeps."""

import contextlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from fastslow.competition.catalog import VALID
from fastslow.competition.metrics import collection_score, mean_metrics
from fastslow.core.errors import FastslowError
from fastslow.networks.hardware.distributed import merge, share
from fastslow.networks.model.network import RankingNetwork
from fastslow.networks.predict.dataset import GraphDataset, predict
from fastslow.networks.settings.options import NetworkOptions


def predict_shared(
    network: RankingNetwork,
    dataset: GraphDataset,
    slug: str,
    split: str,
    only: Mapping[str, np.ndarray | slice] | None = None,
) -> dict[str, np.ndarray]:
    """Predict as :func:`fastslow.networks.predict.dataset.predict` does; of several processes each a share.

    Returns:
        ``(C_file,)`` float64 per graph, or one value per position of ``only``, in every process.
    """
    names = [name for name in dataset.sources[slug].names(split) if only is None or name in only]
    mine = {name: slice(None) if only is None else only[name] for name in share(names)}
    return merge(predict(network, dataset, slug, split, mine), names)


class Validation:
    """Score a network on the valid graphs of every collection; keep its best and its latest weights.

    Each collection keeps the weights that are best on its own valid graphs.

    Attributes:
        labels: Valid runtimes, per collection slug and graph.
        history: One row per evaluation: epoch, loss, mean valid score, valid score of each collection, and
            every metric, mean over collections.
        best: Score, epoch and weights (on the CPU) of the best evaluation, per collection slug.
        recent: Weights of the last ``average_last`` evaluations, on the CPU.
    """

    STATE = ("history", "best", "recent")

    def __init__(self, options: NetworkOptions, dataset: GraphDataset, network: RankingNetwork):
        self.options, self.dataset, self.network = options, dataset, network
        self.labels = {slug: source.labels(VALID) for slug, source in dataset.sources.items()}
        rng = np.random.default_rng(0)
        self._drawn = {slug: self._draw(labels, rng) for slug, labels in self.labels.items()}
        self.history: list[dict] = []
        self.best: dict = {slug: {"score": -math.inf, "epoch": 0, "weights": {}} for slug in dataset.sources}
        self.recent: list[dict] = []

    def _draw(self, labels: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the configurations of each graph that are evaluated, as positions in ascending order."""
        most = self.options.valid_configs
        return {
            name: np.sort(rng.choice(len(label), min(most, len(label)), replace=False))
            for name, label in labels.items()
        }

    def predict(self, slug: str, only: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Predict a collection's valid graphs, see :func:`predict_shared`; Diverged if one is not finite."""
        predictions = predict_shared(self.network, self.dataset, slug, VALID, only)
        check_outputs(predictions)
        return predictions

    def score(self, slug: str) -> tuple[float, dict[str, float]]:
        """Return a collection's metric, and every metric by name, on the drawn configurations of valid.

        Raises:
            Diverged: A prediction is not finite.
        """
        drawn = self._drawn[slug]
        labels = {name: self.labels[slug][name][rows] for name, rows in drawn.items()}
        predictions = self.predict(slug, drawn)
        mean = collection_score(self.options.kind, labels, predictions)["mean"]
        return mean, mean_metrics(labels, predictions)

    def evaluate(self, epoch: int, loss: float) -> None:
        """Score every collection after an epoch with this mean loss: extend the history, keep the weights."""
        scored = {slug: self.score(slug) for slug in self.dataset.sources}
        scores = {slug: score for slug, (score, _) in scored.items()}
        mean = sum(scores.values()) / len(scores)
        every = [metrics for _, metrics in scored.values()]
        metrics = {name: sum(of_one[name] for of_one in every) / len(every) for name in every[0]}
        self.history.append({"epoch": epoch, "loss": loss, "valid": mean, **scores, **metrics})
        weights = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        for slug, score in scores.items():
            if score > self.best[slug]["score"]:
                self.best[slug] = {"score": score, "epoch": epoch, "weights": weights}
        self.recent = (
            [*self.recent, weights][-self.options.average_last :] if self.options.average_last else []
        )

    def is_stale(self, epoch: int) -> bool:
        """Return whether ``patience`` evaluations passed without a better score of any collection."""
        newest = max(best["epoch"] for best in self.best.values())
        stale = (epoch - newest) // self.options.evaluate_every
        return bool(self.options.patience and self.history and stale >= self.options.patience)

    def choose_weights(self, slug: str) -> tuple[dict, dict[str, np.ndarray]]:
        """Load the better of the best and the averaged weights, by every valid configuration of a collection.

        Returns:
            The collection's metric with these weights, mean and per graph, and ``weights``: which they are;
            and their predictions ``(C_file,)`` of each valid graph.

        Raises:
            Diverged: There are no weights whose predictions are finite.
        """
        kind, candidates, best = self.options.kind, {}, self.best[slug]
        if self.recent:
            candidates[f"average of the last {len(self.recent)} evaluations"] = self.recent_average()
        if best["weights"]:
            candidates[f"epoch {best['epoch']}"] = best["weights"]
        tried = {}
        for label, weights in candidates.items():
            self.network.load_state_dict(weights)
            with contextlib.suppress(Diverged):
                predictions = self.predict(slug)
                tried[label] = collection_score(kind, self.labels[slug], predictions), predictions
        if not tried:
            raise Diverged(f"{slug}: no evaluation had finite predictions")
        chosen = max(tried, key=lambda label: tried[label][0]["mean"])
        self.network.load_state_dict(candidates[chosen])
        score, predictions = tried[chosen]
        return {**score, "weights": chosen}, predictions

    def recent_average(self) -> dict:
        """Return the mean of the recent weights (stochastic weight averaging, arXiv 1803.05407)."""
        return {name: torch.stack([w[name].float() for w in self.recent]).mean(0) for name in self.recent[0]}

    def state_dict(self) -> dict:
        """Return the state for a checkpoint: the attributes that ``STATE`` names."""
        return {name: getattr(self, name) for name in self.STATE}

    def load_state_dict(self, state: dict) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name in self.STATE:
            setattr(self, name, state[name])


EXPLODED = 10.0
"""Multiple of the first epoch's mean loss that counts as exploded; none of 25 recorded trainings exceeds
it."""


class Diverged(FastslowError):
    """A network computes numbers that are not finite or far off: it diverged, its data are not to blame."""


def check_loss(loss: float, first: float) -> None:
    """Look at the mean loss of an epoch; one that is not finite is left to :func:`check_weights`.

    The first epoch is mostly warm-up of a network that knows nothing, so no healthy epoch is much worse.

    Args:
        loss: The loss.
        first: The loss of the first epoch that had a finite one.

    Raises:
        Diverged: It is more than :data:`EXPLODED` times the first one.
    """
    if math.isfinite(loss) and 0 < EXPLODED * first < loss:
        raise Diverged(f"the loss is more than {EXPLODED:g} times the first epoch's, {first:.4g}")


def check_weights(network: nn.Module) -> None:
    """Raise :class:`Diverged` if a weight is not finite, as after one step on a loss that is not.

    The loss is not asked: with a loss scaler (float16) single steps may overflow and are left out.
    """
    # torch.stack waits for a GPU once, not once a tensor
    finite = torch.stack([torch.isfinite(values).all() for values in network.state_dict().values()])
    if not finite.all():
        raise Diverged("weights of the network are not finite")


def check_outputs(predictions: Mapping[str, np.ndarray]) -> None:
    """Raise :class:`Diverged` if a prediction ``(C,)`` of a graph is not finite."""
    for name, prediction in predictions.items():
        if not np.isfinite(prediction).all():
            raise Diverged(f"the network's predictions of {name} are not finite")


def stop(
    error: Diverged, epoch: int, loss: float, options: NetworkOptions, history: Sequence[Mapping]
) -> str:
    """Return a warning: why a training ended, the remedy, and which weights are kept.

    Args:
        error: What diverged.
        epoch: Number of the epoch, from 1.
        loss: Its mean loss.
        options: Options of the training.
        history: A row for each evaluation before.

    Raises:
        Diverged: No weights were evaluated before.
    """
    said = (
        f"diverged in epoch {epoch} (loss {loss:.4g}): {error}; lower learning_rate (now"
        f" {options.learning_rate:g}) or max_grad_norm (now {options.max_grad_norm:g})"
    )
    if not history:
        raise Diverged(f"{said}. There are no weights to keep: it was not evaluated before") from None
    return f"{said}. Stopped; the weights up to epoch {history[-1]['epoch']} are kept"
