"""The ensemble of one collection where trained models are given: they predict, and nothing is searched."""

from pathlib import Path

from fastslow.competition.catalog import PREDICTED_SPLITS, TEST, VALID, ProgramFile
from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import counted
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow.features.graph import Predictions
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import RUN_FILES, replace_run, write_predictions
from fastslow.runs.run_manifest import PREDICTIONS
from fastslow.steps.finished_run import FinishedRun
from fastslow.steps.unseen import UnseenGraphs, read_unseen


def check_trained(folder: Path, program: ProgramFile) -> None:
    """Refuse a finished run that cannot predict the programs of a collection.

    Args:
        folder: Folder of its ensemble or model of the collection.
        program: One of the programs.

    Raises:
        DataError: The run or a member is not finished, was changed since it was written, or learned from
            other features than this code builds; or the program's file is broken.
    """
    FinishedRun(folder)
    read_unseen(folder, [program.path])


def write_trained(trained: Path, features: Features, artifact: Artifact, members: str) -> None:
    """Predict the valid and test programs with a finished run, and finish the folder of an ensemble.

    Every program is predicted as ``fastslow rank`` predicts it: networks have no weight on programs whose
    tensors are far larger than the train programs'.

    Args:
        trained: Folder of a finished ensemble or model of the same collection.
        features: Features of the programs, built as the run's were.
        artifact: The folder to finish.
        members: Folder to write a run folder for each of the run's models to, as settings name it.

    Raises:
        DataError: The run learned from other features, is not finished, or was changed since.
    """
    run = FinishedRun(trained)
    predictions, far = _predict(run, features)
    joined = predictions[run.name]
    single = {run.name: {"model": run.model, "weight": 1.0}}
    facts: dict[str, dict] = {}
    outputs: list[Path] = []
    for name, member in run.manifest.get("members", single).items():
        folder = f"{members}/{name}"
        manifest = replace_run(resolve(folder), features, predictions[name], model=member["model"])
        facts[name] = {"valid": manifest["valid"]["mean"], "weight": member["weight"]}
        facts[name] |= {"folder": folder, "model": member["model"]}
        outputs += [resolve(folder) / file for file in RUN_FILES]
    warnings = write_predictions(artifact.folder, joined)
    if far:
        warnings.append(
            f"networks have no weight on {counted(len(far), 'program')}: their tensors are far larger"
        )
    valid = collection_score(features.collection.kind, features.labels(VALID), joined[VALID])
    artifact.finish(
        (PREDICTIONS, *outputs),
        valid={**valid, "weights": "of the trained models"},
        members=facts,
        features=features.recipe,
        gain=valid["mean"] - max(member["valid"] for member in facts.values()),
        normalisation=run.manifest.get("normalisation", "raw"),
        baselines={},
        warnings=warnings,
    )


def _predict(run: FinishedRun, features: Features) -> tuple[dict[str, Predictions], list[str]]:
    """Predict with each member and with the run itself, holding one graph at a time.

    Returns:
        Predictions by the name of the member and, last, of the run; and the graphs on which networks have no
        weight.
    """
    graphs = [(split, name) for split in PREDICTED_SPLITS for name in features.names(split)]
    predictions: dict[str, Predictions] = {}
    far = []
    for split, name in progress(graphs, desc=f"{features.collection.name}, trained models", unit="graph"):
        graph = features.graph(split, name)
        alone = UnseenGraphs(features.folder, [graph], features.recipe)
        for member, predicted in run.predict_members(alone, TEST).items():
            empty: Predictions = {part: {} for part in PREDICTED_SPLITS}
            predictions.setdefault(member, empty)[split][name] = predicted[name]
        if run.is_far(graph):
            far.append(name)
    return predictions, far
