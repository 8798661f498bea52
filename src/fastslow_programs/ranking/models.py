"""The models of a folder of runs, each read when it is first needed."""

from pathlib import Path

from fastslow.competition.catalog import COLLECTIONS, Collection
from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError
from fastslow.core.shown import Shown
from fastslow.runs.predictions import find_run, read_run_manifest
from fastslow.steps.finished_run import FinishedRun
from fastslow_programs.ranking.runs import describe_run, runs_folder
from fastslow_programs.ranking.trust import Seen


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
        """Return what the models of a kind of collection have seen; None where it is not known."""
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
            newest complete run of your own, or else the models in the package.

    Raises:
        DataError: There is no such folder, or it holds no models.
    """
    models = Models(runs_folder(path))
    if not models._folders():
        problem = "holds no finished ensemble" if models.folder.is_dir() else "no such folder"
        raise DataError(models.folder, problem, "Name a folder of runs/, such as runs/sample")
    return models
