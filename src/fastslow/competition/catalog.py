"""The five collections of the competition, their splits, and where their files are."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastslow.core.errors import DataError, SettingsError

COMPETITION = "predict-ai-model-runtime"  # Kaggle's name of it
TRAIN, VALID, TEST = "train", "valid", "test"


class Split(NamedTuple):
    """One split of a collection."""

    name: str  # of its folder
    labelled: bool  # its files hold runtimes
    predicted: bool  # models predict it; no graph of such a split is trained on
    optional: bool = False  # a collection may lack its folder


ALL_SPLITS = (
    Split(TRAIN, labelled=True, predicted=False),
    Split(VALID, labelled=True, predicted=True),
    Split(TEST, labelled=False, predicted=True),  # its runtimes are not published
)
"""The registry of splits: a line here adds one to features, models, ensembles and score tables."""
SPLITS = tuple(split.name for split in ALL_SPLITS)
LABELLED_SPLITS = tuple(split.name for split in ALL_SPLITS if split.labelled)
PREDICTED_SPLITS = tuple(split.name for split in ALL_SPLITS if split.predicted)
_OPTIONAL_SPLITS = tuple(split.name for split in ALL_SPLITS if split.optional)


@dataclass(frozen=True)
class Collection:
    """One collection of programs; its name is kind, source and (for layout) search, joined by ``:``."""

    name: str

    @property
    def kind(self) -> str:
        """``tile`` or ``layout``."""
        return self.name.split(":")[0]

    @property
    def slug(self) -> str:
        """Name for files and folders: ``layout-xla-random`` (a colon would break Make)."""
        return self.name.replace(":", "-")

    def folder(self, root: Path, split: str) -> Path:
        """Return the folder of a split's npz files; ``root`` is the folder that holds ``npz_all/``."""
        return Path(root) / "npz_all" / "npz" / self.name.replace(":", "/") / split


_NAMES = "tile:xla layout:xla:default layout:xla:random layout:nlp:default layout:nlp:random"
COLLECTIONS = tuple(map(Collection, _NAMES.split()))


def get_collection(name: str) -> Collection:
    """Return the collection of a name (``layout:xla:random``) or slug; SettingsError where there is none."""
    for collection in COLLECTIONS:
        if name in (collection.name, collection.slug):
            return collection
    raise SettingsError("collection", f"{name!r} is none of {', '.join(c.name for c in COLLECTIONS)}")


@dataclass(frozen=True)
class ProgramFile:
    """One npz file: a program (layout) or a kernel (tile) with its configurations."""

    collection: Collection
    split: str
    path: Path

    @property
    def name(self) -> str:
        """File stem."""
        return self.path.stem

    @property
    def id(self) -> str:
        """ID of the program's row in a submission: ``layout:xla:random:<stem>``."""
        return f"{self.collection.name}:{self.name}"


def list_programs(root: Path, collection: Collection, split: str) -> list[ProgramFile]:
    """Return the files of a split of a collection, by name; ``root`` is the folder that holds ``npz_all/``.

    Raises:
        DataError: The folder contains no npz file, or is missing and not optional.
    """
    folder = collection.folder(root, split)
    paths = sorted(folder.glob("[!.]*.npz")) if folder.is_dir() else []
    if not paths and not (split in _OPTIONAL_SPLITS and not folder.exists()):
        remedy = "Run `make data` for the real competition, or check the data root"
        raise DataError(folder, "no npz files", remedy)
    for path in paths:
        if any("\ud800" <= letter <= "\udfff" for letter in path.name):
            problem = "its name is not UTF-8, which tables and submissions are written in"
            raise DataError(ascii(str(path)), problem, "Rename the file")
    return [ProgramFile(collection, split, path) for path in paths]
