"""What a finished training writes: a run folder per collection, and its own history and plot."""

from typing import Any

import pandas as pd

from fastslow.competition.catalog import TEST, VALID
from fastslow.core.artifacts import Artifact
from fastslow.core.figures import save_figure
from fastslow.evaluation.plots import plot_training
from fastslow.evaluation.predictions import PREDICTIONS, write_predictions
from fastslow.evaluation.training_files import METRICS
from fastslow.features.scaling import write_scalers
from fastslow.features.store import SCALERS
from fastslow.networks.machine import distributed
from fastslow.networks.machine.stored_weights import write_tensors
from fastslow.networks.predict.dataset import predict
from fastslow.networks.training.validation import pool_scores

PLOT = "training.png"
WEIGHTS = "model.pt"
OUTPUTS = (WEIGHTS, SCALERS, PREDICTIONS)


def write_runs(artifact: Artifact, training: Any) -> None:
    """Choose each collection's weights, predict its test graphs, write its run folder; then the training's.

    Of several processes all predict, and the first one writes.

    Args:
        artifact: The training's folder; its parts are the runs.
        training: The finished :class:`fastslow.networks.training.train.Training`.
    """
    dataset, writes = training.dataset, distributed.rank() == 0
    valid, of_training = {}, [*training.warnings, *training.fits.warnings]
    warnings = list(of_training)
    for slug, run in zip(dataset.sources, artifact.parts, strict=True):
        valid[slug], predicted = training.validation.choose_weights(slug)
        configs = training.settings.configs_together
        tested = predict(training.network, dataset, slug, TEST, configs)
        if writes:
            write_tensors(run.folder / WEIGHTS, training.network.state_dict())
            write_scalers(run.folder / SCALERS, node=dataset.node_scaler, config=dataset.config_scaler)
            own = write_predictions(run.folder, {VALID: predicted, TEST: tested})
            facts = {"epochs": training.epoch, "features": dataset.sources[slug].recipe}
            run.finish(OUTPUTS, valid=valid[slug], **facts, warnings=[*of_training, *own])
            warnings += [f"{slug}: {warning}" for warning in own]
    if writes:
        figure = plot_training(pd.DataFrame(training.validation.history), artifact.folder.name)
        save_figure(figure, artifact.folder / PLOT)
        facts = {"valid": pool_scores(valid), "epochs": training.epoch, "warnings": warnings}
        artifact.finish((METRICS, PLOT, *(training.segments.files if training.segments else ())), **facts)
