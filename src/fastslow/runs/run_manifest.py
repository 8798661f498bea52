"""The manifests of runs: their keys, checked, and which runs belong together.

``predictions.py`` documents the keys. The members of an ensemble, and the seeds of a model, are found by what
their manifests say.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len
from pydantic import AfterValidator

from fastslow.competition.catalog import COLLECTIONS, Collection, get_collection
from fastslow.core.artifacts import MANIFEST, how_to_make, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.files import digest
from fastslow.core.records import FileName, Record, check_record
from fastslow.core.settings import resolve
from fastslow.ensemble.weights import NORMALISATIONS
from fastslow.runs.features_folder import CollectionRecord, CollectionSettings

PREDICTIONS = "predictions.npz"
HELD_OUT = "held_out.npz"
"""Predictions of the train programs that ``folds`` left out of a training."""
INIT = "init"
"""Input of a network that started from trained weights; each seed may start from its own."""
REWRITE = "Train this model again, or write the run with fastslow.runs.predictions.write_run"
"""Remedy for a run whose files are not as they were written."""
_ROUNDING = 1e-9  # of a score, and of their mean relative to the largest of them


class _Valid(Record):
    mean: float
    per_graph: Annotated[dict[str, float], Len(1)]


class _Member(Record):
    weight: Annotated[float, Ge(0), Le(1)]
    valid: float
    folder: FileName
    model: str


class _Baseline(Record):
    valid: float
    folder: FileName
    columns: Annotated[list[str], Len(1)] = []  # of a rule that is applied to new programs
    sign: Literal[-1, 1] = 1


def _sum_to_one(members: dict[str, _Member]) -> dict[str, _Member]:
    total = math.fsum(member.weight for member in members.values())
    if members and not math.isclose(total, 1, rel_tol=1e-6):
        raise ValueError(f"the weights sum to {total:g}, not to 1")
    return members


class _Settings(CollectionSettings):
    model: str | None = None


class _Manifest(CollectionRecord):
    settings: _Settings
    valid: _Valid
    members: Annotated[dict[str, _Member], AfterValidator(_sum_to_one)] = {}
    normalisation: Literal[*NORMALISATIONS] = "raw"
    baselines: dict[str, _Baseline] = {}
    gain: float = 0.0
    warnings: list[str] = []


def read_finished(folder: Path) -> dict:
    """Read the manifest of a run folder, as :func:`read_manifest`, with the advice how to make the run."""
    return read_manifest(
        folder, how_to_make(folder, "ensemble", "the notebook that writes it (its `folder`)")
    )


def read_run_manifest(folder: Path) -> dict:
    """Read a run's manifest and check the keys that other steps read.

    Raises:
        DataError: There is none, or it belongs to no run. It lacks a key or holds one of another type, a
            score is beyond the range of its metric, or the mean is not the mean of the graphs; the key is
            named.
    """
    path = Path(folder) / MANIFEST
    manifest = read_finished(folder)
    if "valid" not in manifest or "collection" not in manifest["settings"]:
        problem = "is no run of a collection; another step has made it"
        raise DataError(folder, problem, "Name a folder of a run, such as runs/sample/ranker-tile-xla-s0")
    check_record(path, manifest, _Manifest, REWRITE)
    lowest = -math.inf if get_collection(manifest["settings"]["collection"]).kind == "tile" else -1.0
    valid = manifest["valid"]
    scores = {f"valid.per_graph.{graph}": score for graph, score in valid["per_graph"].items()}
    for group in ("members", "baselines"):
        scores |= {f"{group}.{name}.valid": of["valid"] for name, of in manifest.get(group, {}).items()}
    for key, score in scores.items():
        if not lowest - _ROUNDING <= score <= 1 + _ROUNDING:
            wanted = "at most 1" if lowest < -1 else "from -1 to 1"
            raise DataError(path, f"{key} is {score:g}, a score {wanted} wanted", REWRITE)
    graphs = valid["per_graph"].values()
    mean = math.fsum(graphs) / len(graphs)
    if abs(valid["mean"] - mean) > _ROUNDING * max(1.0, *map(abs, graphs)):
        problem = f"valid.mean is {valid['mean']:g}, the mean of valid.per_graph is {mean:g}"
        raise DataError(path, problem, REWRITE)
    return manifest


def identity_of(manifest: Mapping) -> str:
    """Return the identity of a run as an input of others: training it again may predict otherwise."""
    outputs = manifest.get("outputs")
    made = [outputs.get(name) for name in (PREDICTIONS, HELD_OUT)] if isinstance(outputs, dict) else []
    values = [facts.get("sha256") for facts in made if isinstance(facts, dict)]
    return digest([manifest["fingerprint"], *values])


def find_members(ensemble: Path, manifest: dict, model: str = "") -> dict[str, Path]:
    """Return the run folder of each member of an ensemble by name; nothing for a single model.

    Args:
        ensemble: Its folder.
        manifest: Its manifest.
        model: Model of the members to look for, such as ``gnn``; all if empty.

    Raises:
        DataError: A member is missing, was trained again since, or is a rule in place of a model.
    """
    folders = {}
    rules = {rule["folder"] for rule in manifest.get("baselines", {}).values()}
    members = manifest.get("members", {}).items()
    for name, member in [(name, of) for name, of in members if model in ("", of["model"])]:
        recorded = member["folder"]
        if recorded in rules:
            problem = "a rule filled this collection, and it ranks no new program"
            raise DataError(ensemble, problem, "Name a run that trained a model of it, or RUN=package")
        known = manifest["inputs"].get(name)
        for folder in (ensemble.parent / Path(recorded).name, resolve(recorded)):
            if name not in folders and (folder / MANIFEST).is_file():
                made = read_manifest(folder)
                if known in (identity_of(made), made["fingerprint"]):  # the latter in older ensembles
                    folders[name] = folder
        if name not in folders:
            problem = f"its member {recorded} is missing, or was trained again since"
            raise DataError(ensemble, problem, "Copy the members beside it, or run `make ensemble` again")
    return folders


def find_run(folder: Path, collection: Collection) -> Path:
    """Return the run folder to predict a collection's programs with.

    Args:
        folder: A run folder, or the folder of a whole run with an ensemble per collection.
        collection: The collection.

    Raises:
        DataError: There is no such folder, it belongs to another collection, or it has no ensemble for this
            one.
    """
    if not folder.is_dir():
        raise DataError(folder, "no such folder", "Name a folder of runs/, such as runs/sample")
    run = folder / f"ensemble-{collection.slug}"
    if not (folder / MANIFEST).is_file() or (run / MANIFEST).is_file():
        if not (run / MANIFEST).is_file():
            others = ", ".join(sorted(path.parent.name for path in folder.glob(f"ensemble-*/{MANIFEST}")))
            problem = f"holds no finished ensemble for {collection.name} ({others or 'nor any other'})"
            raise DataError(folder, problem, "Train it with `make ensemble`, or choose another collection")
        return run
    trained_on = read_run_manifest(folder)["settings"]["collection"]
    if trained_on != collection.name:
        remedy = f"Name a run of {collection.name}, or choose its collection: collection={trained_on} for a"
        remedy += f" program that belongs there, collections={trained_on} for a run"
        raise DataError(folder, f"is a run of {trained_on}, not of {collection.name}", remedy)
    return folder


def models_of(manifests: Mapping[str, dict]) -> dict[str, list[str]]:
    """Group runs, given the manifest of each, that differ only in their seed: they are one model.

    Settings of a run that no command made need not tell all of its model. So the folder's name, without a
    seed that it ends in, has to be equal too. Two runs with one seed are two models.

    Returns:
        Runs by name of the model, which is the name of its first run without collection and seed (``gnn`` for
        ``gnn-tile-xla-s0``), or the run's full name where two models would share a name.
    """
    groups: dict[str, dict[int | None, str]] = {}
    for run, manifest in manifests.items():
        settings = dict(manifest["settings"])
        seed = settings.pop("seed", None)
        inputs = {name: mark for name, mark in manifest["inputs"].items() if name != INIT}
        name = "" if manifest.get("code") else Path(run).name.removesuffix(str(seed))
        same = run if seed is None else digest([settings, inputs, name])
        if seed in groups.get(same, {}):
            same = run
        groups.setdefault(same, {})[seed] = run
    runs = [list(seeds.values()) for seeds in groups.values()]
    short = [_model_name(first, manifests[first]["settings"]) for first, *_ in runs]
    return {
        name if short.count(name) == 1 else members[0]: members
        for name, members in zip(short, runs, strict=True)
    }


def models_by_collection(manifests: Mapping[Path, dict]) -> dict[str, dict[str, list[Path]]]:
    """Group the run folders of a run, given the manifest of each, by model and by collection.

    Returns:
        By name of the model (``gnn``), by name of the collection, the folder of each seed.
    """
    models: dict[str, dict[str, list[Path]]] = {}
    for collection in COLLECTIONS:
        of_it = {
            path.name: path
            for path, manifest in manifests.items()
            if manifest["settings"]["collection"] == collection.name
        }
        for model, seeds in models_of({name: manifests[path] for name, path in of_it.items()}).items():
            models.setdefault(model, {})[collection.name] = [of_it[seed] for seed in seeds]
    return models


def _model_name(run: str, settings: Mapping) -> str:
    slug = settings.get("collection", "").replace(":", "-")
    return run.removesuffix(f"-s{settings.get('seed')}").removesuffix(f"-{slug}")
