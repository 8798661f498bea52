"""Train and valid graphs dealt anew, so that every one of them is held out once; test is never read."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fastslow.competition.catalog import COLLECTIONS, get_collection, trained_together
from fastslow.core.errors import DataError
from fastslow.features.build import FeatureConfig, build_features
from fastslow.features.scaling import Scaler, expand_node_features
from fastslow.features.store import Features, Graph

SPLITS = ("train", "valid")


def family_of(name: str) -> str:
    """The architecture of a program: its name up to the first ``_``, such as ``resnet``.

    Programs of one architecture resemble each other, so they are held out together.
    """
    return name.partition("_")[0]


def deal(names: Iterable[str], num_folds: int) -> list[set[str]]:
    """Families by fold, so that folds hold about as many programs each.

    Args:
        names: Names of programs, of train and valid.
        num_folds: How many folds.

    Raises:
        DataError: There are fewer families than folds.
    """
    sizes = Counter(family_of(name) for name in sorted(set(names)))
    if len(sizes) < num_folds:
        problem = f"{len(sizes)} families of programs cannot be dealt into {num_folds} folds"
        raise DataError("train and valid", problem, "Ask for fewer folds")
    folds: list[set[str]] = [set() for _ in range(num_folds)]
    for family, _ in sizes.most_common():
        min(folds, key=lambda fold: sum(sizes[other] for other in fold)).add(family)
    return folds


def deal_source(folder: Path, slug: str, num_folds: int) -> list[set[str]]:
    """Families by fold of the train and valid programs of a collection and of its source's other search.

    Args:
        folder: Features folders of both, by slug.
        slug: The collection; with the other one's the folds are the same.
        num_folds: How many folds.
    """
    own = get_collection(slug)
    every = [Features(folder / c.slug) for c in (own, *trained_together(own, "source"))]
    return deal([name for features in every for split in SPLITS for name in features.names(split)], num_folds)


def build_layouts(settings: dict, data_root: str, folder: Path) -> None:
    """Build the features of every layout collection, by slug in a folder."""
    for collection in COLLECTIONS:
        if collection.kind == "layout":
            where = {"collection": collection.name, "data_root": data_root, "workers": 1}
            where["folder"] = str(folder / collection.slug)
            build_features(FeatureConfig(**{**settings, **where}))


class HeldOut(Features):
    """A features folder in which some families are valid and all others train; it has no test.

    Scalers are fitted on its own train graphs.

    Args:
        folder: The folder that a feature notebook wrote.
        families: Which are held out.
    """

    def __init__(self, folder: Path, families: set[str]):
        super().__init__(folder)
        known = self.index[self.index["split"].isin(SPLITS)]
        self._origin = dict(zip(known["name"], known["split"], strict=True))
        held_out = known["name"].map(family_of).isin(families)
        self.index = known.assign(split=held_out.map({True: "valid", False: "train"}))

    def graph(self, split: str, name: str) -> Graph:
        """Read one graph from where it lies."""
        return super().graph(self._origin[name], name)

    def scaler(self, name: str) -> Scaler:
        """The ``node`` or ``config`` scaler."""
        graphs = (self.graph("train", graph) for graph in self.names("train"))
        if name == "node":
            return Scaler.fit(expand_node_features(graph.node_feat) for graph in graphs)
        return Scaler.fit(graph.config_feat for graph in graphs)
