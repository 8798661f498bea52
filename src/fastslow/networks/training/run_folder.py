"""The files of a training: checkpoints, then a run folder per collection, and its own history and plot."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from fastslow.competition.catalog import PREDICTED_SPLITS, VALID
from fastslow.core.artifacts import Artifact
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path
from fastslow.evaluation.training_files import METRICS
from fastslow.features.scaling import write_scalers
from fastslow.networks.hardware import distributed
from fastslow.networks.hardware.stored_weights import read_checkpoint, write_tensors
from fastslow.networks.predict.dataset import predict
from fastslow.networks.training.validation import pool_scores
from fastslow.runs.features_folder import SCALERS
from fastslow.runs.predictions import PREDICTIONS, write_predictions

CHECKPOINT = "checkpoint.pt"
PLOT = "training.png"
WEIGHTS = "model.pt"
OUTPUTS = (WEIGHTS, SCALERS, PREDICTIONS)
_FACTS = ("epoch", "first_loss", "seconds")


def write_runs(artifact: Artifact, training: Any) -> None:
    """Choose each collection's weights, predict its valid and test graphs, and write its run folder.

    The training's own folder is written last. Of several processes all predict, and the first one writes.

    Args:
        artifact: The training's folder; its parts are the runs.
        training: The finished :class:`fastslow.networks.training.train.Training`.
    """
    dataset = training.dataset
    writes = distributed.rank() == 0
    valid = {}
    warnings = list(training.warnings)
    for slug, run in zip(dataset.sources, artifact.parts, strict=True):
        valid[slug], predicted = training.validation.choose_weights(slug)
        configs = training.settings.configs_together
        others = [split for split in PREDICTED_SPLITS if split != VALID]
        stored = {split: predict(training.network, dataset, slug, split, configs) for split in others}
        if writes:
            write_tensors(run.folder / WEIGHTS, training.network.state_dict())
            write_scalers(run.folder / SCALERS, node=dataset.node_scaler, config=dataset.config_scaler)
            problems = write_predictions(run.folder, {VALID: predicted, **stored})
            facts = {"epochs": training.epoch, "features": dataset.sources[slug].recipe}
            run.finish(OUTPUTS, valid=valid[slug], **facts, warnings=[*training.warnings, *problems])
            warnings += [f"{slug}: {warning}" for warning in problems]
    if writes:
        from fastslow.evaluation.plots import plot_training  # matplotlib, at the end of a training

        figure = plot_training(pd.DataFrame(training.validation.history), artifact.folder.name)
        save_figure(figure, artifact.folder / PLOT)
        facts = {"valid": pool_scores(valid), "epochs": training.epoch, "warnings": warnings}
        artifact.finish((METRICS, PLOT), **facts)
        (artifact.folder / CHECKPOINT).unlink(missing_ok=True)


def save_checkpoint(training: Any, folder: Path, mark: str) -> None:
    """Write the history and a checkpoint, each atomically; of several processes the first one does.

    Args:
        training: A :class:`fastslow.networks.training.train.Training` between two epochs.
        folder: The training's folder.
        mark: Digest of all that the training depends on.
    """
    if distributed.rank():
        return
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in training.validation.history))
    parts = {name: getattr(training, name).state_dict() for name in training.stored}
    facts = {name: getattr(training, name) for name in _FACTS}
    state = {"mark": mark, **facts, **parts}
    write_tensors(folder / CHECKPOINT, state, sealed=True)


def load_checkpoint(training: Any, folder: Path, mark: str) -> bool:
    """Restore the checkpoint of a folder where it carries the mark; return whether it did."""
    state = distributed.from_first(lambda: read_checkpoint(folder / CHECKPOINT, mark))
    if state is None:
        return False
    for name in _FACTS:
        setattr(training, name, state[name])
    for name in training.stored:
        getattr(training, name).load_state_dict(state[name])
    return True
