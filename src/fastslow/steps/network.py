"""The step of networks: train one, with checkpoints, and write a run folder for each collection."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastslow.competition.catalog import TRAIN
from fastslow.core.artifacts import Artifact, finished_file, read_manifest
from fastslow.core.errors import FastslowError, SettingsError
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.core.memory import step_memory
from fastslow.core.progress import name_score, progress
from fastslow.core.settings import resolve
from fastslow.evaluation.training_files import METRICS, TRAINING_PLOT
from fastslow.features.folds import HELD_OUT_CONFIGS
from fastslow.features.graph import GraphSet, draw_configs
from fastslow.features.scaling import Scaler
from fastslow.networks.hardware import distributed
from fastslow.networks.hardware.devices import pick_device, ran_out_of_memory
from fastslow.networks.predict.dataset import GraphDataset
from fastslow.networks.training.train import Training
from fastslow.networks.training.validation import predict_shared
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import write_held_out, write_predictions
from fastslow.runs.run_manifest import HELD_OUT, PREDICTIONS
from fastslow.runs.scalers import SCALERS, write_scalers
from fastslow.runs.tensors import load_weights, read_checkpoint, write_tensors
from fastslow.runs.trained_network import WEIGHTS, read_scalers
from fastslow.steps.loggers import opened_logger
from fastslow.steps.network_processes import building, joined, launch, launched, own_device
from fastslow.steps.network_settings import AGAIN, TrainSettings
from fastslow.steps.training_groups import warn_of_predicted

CHECKPOINT = "checkpoint.pt"
OUTPUTS = (WEIGHTS, SCALERS, PREDICTIONS)
_FACTS = ("epoch", "first_loss", "seconds")
_VALIDATED = ("history", "best", "recent")


class OutOfMemory(FastslowError):
    """A training needs more memory than there is."""


@contextlib.contextmanager
def explain_memory() -> Iterator[None]:
    """Raise an :class:`OutOfMemory` that names the settings to lower where memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        lower = "lower configs_per_step, hidden_channels, num_layers or the hops of the features"
        raise OutOfMemory(f"memory ran out: {lower}, or take JOBS=1") from None


def train_gnn(settings: TrainSettings, on_metrics: Callable[[dict], None] | None = None) -> dict:
    """Train one network, or resume an interrupted training, and write a run folder per collection.

    A run folder then holds ``model.pt`` and ``scalers.npz``, which predict without the features,
    ``predictions.npz`` and, written last, ``manifest.json`` with the valid score (mean and per graph). The
    training's own folder holds ``metrics.jsonl``, ``training.png`` and a manifest.

    Args:
        settings: Settings.
        on_metrics: Called with every row of metrics as it is added to ``metrics.jsonl``.

    Returns:
        The training's manifest; its ``valid`` is the mean over the collections.

    Raises:
        SettingsError: The features have another kind, two have the same collection, the device is not there,
            or ``on_metrics`` is given with several processes.
        DataError: The features are missing or carry no ranking signal.
        Diverged: The training diverged before its first evaluation.
        OutOfMemory: The network is too large for this machine.
    """
    if settings.processes > 1 and not launched():
        if on_metrics:
            problem = f"with {settings.processes} processes `on_metrics` cannot be called"
            raise SettingsError("processes", f"{problem}. Use logger=module:function or processes=1")
        launch(settings)
        return read_manifest(settings.artifact().folder)
    with joined(settings), explain_memory():
        artifact = settings.artifact()
        with building(artifact) as needed:
            if needed:
                training = begin_training(settings)
                training.warnings += warn_of_predicted(training.dataset.sources)
                name = "" if distributed.rank() else settings.logger
                title = "-".join(artifact.folder.parts[-2:])
                with opened_logger(name, title, settings.asdict(), training.warnings) as log:
                    hooks = [on_metrics, log] if on_metrics else [log]
                    run_training(training, artifact, settings.hours, hooks)
                write_runs(artifact, training)
            return distributed.from_first(lambda: read_manifest(artifact.folder))


def graphs_of(
    settings: TrainSettings, sources: Sequence[GraphSet], scalers: tuple[Scaler, Scaler] | None = None
) -> GraphDataset:
    """Return graphs as a network reads them on this machine.

    Args:
        settings: Settings of the network, with device and configurations per batch.
        sources: The graphs of each collection.
        scalers: Scalers of nodes and of configurations; by default the sources' scalers, pooled.

    Raises:
        SettingsError: The features lack columns of ``node_inputs``, or the device is not there.
        DataError: The collections were built with different options.
    """
    device = own_device(pick_device(settings.device))
    together = settings.configs_together
    return GraphDataset(settings, sources, scalers, str(device), together, memory=step_memory())


def read_graphs(settings: TrainSettings) -> GraphDataset:
    """Return the graphs of the features folders that the settings name, as a network reads them."""
    return graphs_of(settings, settings.sources())


def begin_training(settings: TrainSettings) -> Training:
    """Return a training at its start: with drawn weights, or with weights and scalers of ``init``.

    Raises:
        SettingsError: The network of ``init`` has another architecture, or read other features.
        DataError: It is not finished or damaged, or the features are missing.
    """
    if not settings.init:
        return Training(settings, read_graphs(settings))
    settings.check_init()
    start = resolve(settings.init)
    sources = settings.sources()
    columns = read_manifest(start)["features"]["config_columns"]
    if columns != sources[0].config_columns:
        problem = f"{settings.init} reads other columns than {sources[0].folder} has"
        raise SettingsError("init", f"{problem}. Build the features with its settings, or leave init empty")
    training = Training(settings, graphs_of(settings, sources, read_scalers(start)))
    load_weights(training.network, finished_file(start, WEIGHTS, AGAIN), AGAIN)
    return training


def run_training(
    training: Training,
    artifact: Artifact,
    hours: float = 0.0,
    hooks: Sequence[Callable[[dict], Any]] = (),
) -> None:
    """Run a training to the end, with a progress bar and a checkpoint after every evaluation.

    It resumes from the folder's checkpoint where that belongs to the same training.

    Args:
        training: The training.
        artifact: Its folder.
        hours: Hours after which no further epoch begins; 0 has no limit.
        hooks: Each is called with every row of metrics; of several processes in the first one.

    Raises:
        Diverged: It did so before the first evaluation.
    """
    folder = artifact.folder
    quiet = distributed.rank() > 0
    resumed = load_checkpoint(training, folder, artifact.fingerprint)
    if resumed and not quiet:
        print(f"{folder.name}: resumed after epoch {training.epoch}")
    elif not quiet:
        (folder / METRICS).unlink(missing_ok=True)  # of a former training: the run's bar shows its last row
    scored = name_score(list(training.dataset.sources))
    epochs = {"total": training.options.epochs, "initial": training.epoch, "unit": "epoch"}
    with progress(**epochs, desc=folder.name, disable=quiet) as bar:

        def show(row: dict) -> None:
            bar.set_postfix({"loss": f"{row['loss']:.3f}", scored: f"{row['valid']:.3f}"}, refresh=False)

        def keep(row: dict) -> None:
            save_checkpoint(training, folder, artifact.fingerprint)
            for hook in (show, *hooks):
                if not quiet:
                    hook(row)

        training.run(3600 * hours or math.inf, lambda _: bar.update(), keep)
    for warning in training.warnings:
        if not quiet:
            print(f"warning: {warning}")


def write_runs(artifact: Artifact, training: Training) -> None:
    """Choose each collection's weights, predict its valid and test graphs, and write its run folder.

    The training's own folder is written last. Of several processes all predict, and the first one writes.

    Args:
        artifact: The training's folder; its parts are the runs.
        training: The finished training.
    """
    dataset = training.dataset
    writes = distributed.rank() == 0
    valid = {}
    references = {}
    warnings = list(training.warnings)
    for (slug, source), run_artifact in zip(dataset.sources.items(), artifact.parts, strict=True):
        assert isinstance(source, Features)
        references[slug] = source.references
        valid[slug], predictions = training.predict(slug)
        held_out = predict_held_out(training, slug) if training.held_out else {}
        if writes:
            folder = run_artifact.folder
            write_tensors(folder / WEIGHTS, training.network.state_dict())
            write_scalers(folder / SCALERS, node=dataset.node_scaler, config=dataset.config_scaler)
            problems = write_predictions(folder, predictions)
            outputs = OUTPUTS
            if training.options.folds:
                write_held_out(folder, held_out)
                outputs = (*OUTPUTS, HELD_OUT)
            facts = {"valid": valid[slug], "epochs": training.epoch, "features": source.recipe}
            facts["warnings"] = [*training.warnings, *problems]
            run_artifact.finish(outputs, training.stopped, **facts)
            warnings += [f"{slug}: {warning}" for warning in problems]
    if writes:
        from fastslow.evaluation.plots import plot_training  # matplotlib, at the end of a training

        history = pd.DataFrame(training.validation.history)
        figure = plot_training(history, artifact.folder.name, valid, references)
        save_figure(figure, artifact.folder / TRAINING_PLOT)
        facts = {"valid": pool_scores(valid), "epochs": training.epoch, "warnings": warnings}
        artifact.finish((METRICS, TRAINING_PLOT), training.stopped, **facts)
        (artifact.folder / CHECKPOINT).unlink(missing_ok=True)


def predict_held_out(training: Training, slug: str) -> dict[str, np.ndarray]:
    """Predict the train graphs of a collection that ``folds`` left out, with the weights that are loaded.

    Returns:
        By graph, ``(n,)`` of its distinct configurations that :func:`draw_configs` draws.
    """
    only = {}
    for name in training.held_out:
        prefix, _, stem = name.partition("/")
        if prefix == slug:
            graph = training.dataset.sources[slug].graph(TRAIN, stem)
            only[stem] = graph.config_ids[draw_configs(graph.num_configs, HELD_OUT_CONFIGS, 0, stem)]
    return predict_shared(training.network, training.dataset, slug, TRAIN, only)


def pool_scores(valid: dict[str, dict]) -> dict:
    """Return the scores of several collections as one: mean, by collection, per graph, and whose weights."""
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


def save_checkpoint(training: Training, folder: Path, mark: str) -> None:
    """Write the history and a checkpoint, each atomically; of several processes the first one does.

    Args:
        training: A training between two epochs.
        folder: The training's folder.
        mark: Digest of all that the training depends on.
    """
    if distributed.rank():
        return
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in training.validation.history))
    facts = {name: getattr(training, name) for name in _FACTS}
    parts = {name: part.state_dict() for name, part in _parts(training).items()}
    validation = {name: getattr(training.validation, name) for name in _VALIDATED}
    state = {"mark": mark, **facts, **parts, "validation": validation}
    write_tensors(folder / CHECKPOINT, state, sealed=True)


def load_checkpoint(training: Training, folder: Path, mark: str) -> bool:
    """Restore the state of an interrupted training; return whether there was one.

    Args:
        training: The training, which takes the state.
        folder: Folder of the checkpoint.
        mark: Digest of all that the training depends on; a checkpoint with another digest is not read.
    """
    state = distributed.from_first(lambda: read_checkpoint(folder / CHECKPOINT, mark))
    if state is None:
        return False
    for name in _FACTS:
        setattr(training, name, state[name])
    for name, part in _parts(training).items():
        part.load_state_dict(state[name])
    for name in _VALIDATED:
        setattr(training.validation, name, state["validation"][name])
    return True


def _parts(training: Training) -> dict[str, Any]:
    """Return what has a state of its own in a checkpoint, by name."""
    parts = {"network": training.network, "optimizer": training.optimizer, "scaler": training.scaler}
    return parts | ({"segments": training.segments} if training.segments else {})
