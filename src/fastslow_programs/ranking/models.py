"""Which models rank: of the run that is named, of the user's newest complete one, or of the package."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.core.artifacts import MANIFEST, read_manifest
from fastslow.core.errors import DataError
from fastslow.core.settings import resolve
from fastslow.core.shown import Shown
from fastslow.evaluation.run_record import is_rehearsal
from fastslow.runs.packaged import describe_packaged, packaged_models
from fastslow.runs.run_manifest import find_members, find_run, read_run_manifest
from fastslow.steps.finished_run import FinishedRun
from fastslow.workflow.settings.presets import PACKAGED
from fastslow_programs.ranking.trust import Seen

_BEHIND = 0.05  # of the mean valid score: repeated trainings of one recipe differ by less


class Models(Shown):
    """Trained models, to rank any number of programs with.

    Args:
        folder: A folder with an ensemble per collection, or the folder of one ensemble or model.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._runs: dict[str, FinishedRun] = {}
        self._seen: dict[str, Seen | None] = {}

    def of(self, collection: Collection) -> FinishedRun:
        """Return the models that rank the programs of a collection.

        Raises:
            DataError: There are none, or they are not finished or damaged.
        """
        if collection.name not in self._runs:
            self._runs[collection.name] = FinishedRun(find_run(self.folder, collection))
        return self._runs[collection.name]

    def seen(self, kind: str) -> Seen | None:
        """Return the programs that models of a kind learned from and were scored on; None if not known."""
        if kind not in self._seen:
            whole = self.folder.parent if (self.folder / MANIFEST).is_file() else self.folder
            self._seen[kind] = Seen.of(whole, kind)
        return self._seen[kind]

    @property
    def table(self):
        """One row per collection and model: ``collection``, ``model``, ``valid``, its score there."""
        import pandas as pd

        rows = []
        for folder in self._folders():
            manifest = read_run_manifest(folder)
            collection = manifest["settings"]["collection"]
            rules = {name: scores["valid"] for name, scores in manifest.get("baselines", {}).items()}
            rows += [(collection, name, score) for name, score in rules.items()]
            rows.append((collection, folder.name.split("-")[0], manifest["valid"]["mean"]))
        return pd.DataFrame(rows, columns=["collection", "model", "valid"])

    def words(self) -> list[str]:
        """Return for each collection which models there are."""
        return [describe_run(folder) for folder in self._folders()]

    def _folders(self) -> list[Path]:
        if (self.folder / MANIFEST).is_file():
            return [self.folder]
        folders = (self.folder / f"ensemble-{collection.slug}" for collection in COLLECTIONS)
        return [folder for folder in folders if (folder / MANIFEST).is_file()]


def read_models(path: str | Path = "") -> Models:
    """Return trained models.

    Args:
        path: A folder of runs such as ``runs/sample``, or the folder of one ensemble or model. By default the
            newest complete run of your own, or else the models in the package, which ``package`` names.

    Raises:
        DataError: There is no such folder, or it holds no models.
    """
    models = Models(runs_folder(path))
    if not models._folders():
        problem = "holds no finished ensemble" if models.folder.is_dir() else "no such folder"
        raise DataError(models.folder, problem, "Name a folder of runs/, such as runs/sample")
    return models


class _Complete(NamedTuple):
    """A complete run: when its last ensemble was finished, its valid programs, their mean score."""

    finished: str
    programs: list[list[str]]
    valid: float


def runs_folder(named: str | Path = "") -> Path:
    """Return the folder of runs that a setting names; ``package`` is the one of the models in the package.

    If it is empty, the newest complete run of the user's own, or else the models in the package.

    Raises:
        DataError: Nothing is named, there is no such run, and the package has no models.
    """
    if named == PACKAGED:
        return packaged_models()
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
    runs = resolve("runs")
    complete = {}
    left_out = []
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


def describe_run(run: Path) -> str:
    """Return in words which models a run folder holds: where they are from, and how many of each kind."""
    manifest = read_run_manifest(run)
    members = manifest.get("members", {})
    single = manifest["settings"].get("model", "model of yours")
    kinds = [str(member["model"]) for member in members.values()] or [str(single)]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    packaged = describe_packaged(run.parent, manifest)
    return f"{packaged or run}: {counts}, for {manifest['settings']['collection']}"
