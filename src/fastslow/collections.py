"""The five collections of the competition and where their files lie."""

from dataclasses import dataclass
from pathlib import Path

from fastslow.errors import ConfigError, DataError

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Collection:
    """One collection of programs, such as ``layout:xla:random``.

    Args:
        name: Competition name: kind, source and (for layout) search, joined by ``:``.
    """

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
        """Folder of a split's npz files under the data root."""
        return Path(root) / "npz_all" / "npz" / self.name.replace(":", "/") / split


COLLECTIONS = tuple(
    Collection(name)
    for name in (
        "tile:xla",
        "layout:xla:default",
        "layout:xla:random",
        "layout:nlp:default",
        "layout:nlp:random",
    )
)


def get_collection(name: str) -> Collection:
    """The collection of that name (``layout:xla:random``) or slug (``layout-xla-random``).

    Raises:
        ConfigError: No collection is called so.
    """
    for collection in COLLECTIONS:
        if name in (collection.name, collection.slug):
            return collection
    raise ConfigError(f"collection: {name!r} is none of {', '.join(c.name for c in COLLECTIONS)}")


TRAIN_ON = ("collection", "source", "layout")
"""Whose train graphs a model learns from, from few to many."""


def trained_together(own: Collection, train_on: str) -> list[Collection]:
    """The other collections whose train graphs are trained on with a collection's own.

    Args:
        own: The collection that is scored.
        train_on: ``collection`` (none), ``source`` (the other search of xla or nlp), or ``layout`` (every
            other layout collection). For tile there is none.
    """
    parts = {"collection": 3, "source": 2, "layout": 1}[train_on]
    same = own.name.split(":")[:parts]
    return [other for other in COLLECTIONS if other != own and other.name.split(":")[:parts] == same]


@dataclass(frozen=True)
class Program:
    """One npz file: a program (layout) or a kernel (tile) with its configurations.

    Args:
        collection: The collection it belongs to.
        split: ``train``, ``valid`` or ``test``.
        path: The npz file.
    """

    collection: Collection
    split: str
    path: Path

    @property
    def name(self) -> str:
        """File stem."""
        return self.path.stem

    @property
    def id(self) -> str:
        """ID of the submission's row: ``layout:xla:random:<stem>``."""
        return f"{self.collection.name}:{self.name}"


def list_programs(root: Path, collection: Collection, split: str) -> list[Program]:
    """The programs of one split, sorted by file name.

    Args:
        root: Data root, the folder that holds ``npz_all/``.
        collection: Which collection.
        split: ``train``, ``valid`` or ``test``.

    Raises:
        DataError: The folder is missing or holds no npz file.
    """
    folder = collection.folder(root, split)
    paths = sorted(folder.glob("[!.]*.npz")) if folder.is_dir() else []
    if not paths:
        raise DataError(
            folder, "no npz files", "Run `make data` for the real competition, or check the data root"
        )
    return [Program(collection, split, path) for path in paths]
