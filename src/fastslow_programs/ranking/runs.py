"""Which run ranks: the one that is named, the user's newest complete one, or the models in the package."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.evaluation.run_record import is_rehearsal
from fastslow.runs.predictions import read_run_manifest
from fastslow_programs.ranking.packaged import describe_packaged, packaged_models

_BEHIND = 0.05  # of the mean valid score: repeated trainings of one recipe differ by less


class _Complete(NamedTuple):
    """A complete run: when its last ensemble was finished, its valid programs, their mean score."""

    finished: str
    programs: list[list[str]]
    valid: float


def find_members(ensemble: Path, manifest: dict) -> dict[str, Path]:
    """Return the run folder of each member of an ensemble by name; nothing for a single model.

    Raises:
        DataError: A member is missing, or was trained again since.
    """
    found = {}
    for name, member in manifest.get("members", {}).items():
        recorded, wanted = member["folder"], manifest["inputs"].get(name)
        for folder in (ensemble.parent / Path(recorded).name, resolve(recorded)):
            here = name not in found and (folder / MANIFEST).is_file()
            if here and read_manifest(folder)["fingerprint"] == wanted:
                found[name] = folder
        if name not in found:
            problem = f"its member {recorded} is missing, or was trained again since"
            raise DataError(ensemble, problem, "Copy the members beside it, or run `make ensemble` again")
    return found


def runs_folder(named: str | Path = "") -> Path:
    """Return the folder of runs that a setting names.

    If it is empty, the newest complete run of the user's own, or else the models in the package.

    Raises:
        DataError: Nothing is named, there is no such run, and the package has no models.
    """
    if named:
        return resolve(str(named))
    try:
        return newest_run()
    except DataError as none:
        try:
            return packaged_models()
        except FileNotFoundError:
            raise none from None


def newest_run() -> Path:
    """Return the complete folder of runs whose ensembles were finished last, such as ``runs/sample``.

    A complete one has an ensemble of every collection, each with the members that it was made of. Runs of the
    preset ``smoke``, what notebooks write by default, and a run far behind another one or the models in the
    package on the same valid programs are left out: they are used where they are named.

    Raises:
        DataError: There is none; the message has the reason for each folder.
    """
    runs, complete, left_out = resolve("runs"), {}, []
    for folder in sorted(runs.glob("*/")):
        try:
            complete[folder] = _complete(folder)
        except DataError as error:
            path, problem, _ = error.args
            left_out.append(f"{os.path.relpath(path, runs)}: {problem}")
    rivals = [*complete.values()]
    with contextlib.suppress(FileNotFoundError):
        rivals += [_complete(packaged_models())] if complete else []
    for folder, run in [*complete.items()]:
        best = max(rival.valid for rival in rivals if rival.programs == run.programs)
        if run.valid < best - _BEHIND:
            reached = f"its valid score of {run.valid:.2f} is behind {best:.2f}, reached on the same programs"
            left_out.append(f"{folder.name}: {reached}; used only where it is named")
            del complete[folder]
    if not complete:
        remedy = "Train one with `make submit` (minutes on the embedded sample), or name another with RUN="
        raise DataError(runs, f"holds no complete run ({'; '.join(left_out) or 'nor any other'})", remedy)
    return max(complete, key=lambda folder: complete[folder].finished)


def _complete(folder: Path) -> _Complete:
    """Return the facts of a complete run.

    Raises:
        DataError: The run is not complete, or was made to try something.
    """
    if is_rehearsal(folder):
        raise DataError(folder, "used only where it is named", f"Name it with RUN=runs/{folder.name}")
    manifests = []
    for collection in COLLECTIONS:
        ensemble = folder / f"ensemble-{collection.slug}"
        manifests.append(read_run_manifest(ensemble))
        for member in find_members(ensemble, manifests[-1]).values():
            if not read_manifest(member).get("code"):
                problem = f"its member {member.name} was written by hand: it cannot rank other programs"
                raise DataError(ensemble, problem, "Name another run")
    return _Complete(
        max(str(manifest.get("created", "")) for manifest in manifests),
        [sorted(manifest["valid"]["per_graph"]) for manifest in manifests],
        sum(manifest["valid"]["mean"] for manifest in manifests) / len(manifests),
    )


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
            found = ", ".join(sorted(path.parent.name for path in folder.glob(f"ensemble-*/{MANIFEST}")))
            problem = f"holds no finished ensemble for {collection.name} ({found or 'nor any other'})"
            raise DataError(folder, problem, "Train it with `make ensemble`, or choose another collection")
        return run
    own = read_run_manifest(folder)["settings"]["collection"]
    if own != collection.name:
        remedy = f"Name a run of {collection.name}, or set collection={own} if the program belongs there"
        raise DataError(folder, f"a run of {own}, {collection.name} wanted", remedy)
    return folder


def describe_run(run: Path) -> str:
    """Return in words which models a run folder holds: where they are from, and how many of each kind."""
    manifest = read_run_manifest(run)
    members = manifest.get("members", {})
    kinds = [str(member["model"]) for member in members.values()] or [str(manifest["settings"]["model"])]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    packaged = describe_packaged(run.parent, manifest)
    return f"{packaged or run}: {counts}, for {manifest['settings']['collection']}"
