"""Settings of feature building."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fastslow.competition.catalog import SPLITS, Program, get_collection, list_programs
from fastslow.competition.reader import file_fingerprint
from fastslow.core.artifacts import Artifact
from fastslow.core.files import digest
from fastslow.core.settings import Config, elsewhere, resolve
from fastslow.features.protobuf import find_protobuf, protobuf_fingerprint, require_protobufs
from fastslow.features.pruning import DIRECTIONS, WHOLE_GRAPH
from fastslow.features.violation import DEFAULT_LAYOUTS

FORMAT = 4  # raise it with every change of code that changes the bytes written


@dataclass(frozen=True)
class FeatureConfig(Config):
    """Settings that both feature notebooks share.

    Args:
        collection: Which of the five collections.
        data_root: Folder that holds ``npz_all/``.
        folder: Where the features go.
        workers: Processes that build graphs side by side; raise it to the number of cores for real data.
        padding: Value after the end of a list feature: -1 tells padding from a true 0, 0 is as published.
        hlo_folder: Folder of TpuGraphs' ``.pb`` files, flat or in TpuGraphs' tree; empty for none. A graph
            whose ``<name>.pb`` is there gets its exact padding and the exact order of its operands.
        merge_duplicates: Merge identical configurations of a train graph; the label is their mean.
    """

    kind: ClassVar[str]

    collection: str = "layout:xla:random"
    data_root: str = elsewhere("data/sample")
    folder: str = elsewhere("features/sample/layout-xla-random")
    workers: int = elsewhere(2)
    padding: int = -1
    hlo_folder: str = elsewhere("")
    merge_duplicates: bool = True

    def check(self) -> None:
        """Check ranges."""
        collection = get_collection(self.collection)
        self.require(collection.kind == self.kind, "collection", f"a {self.kind} collection")
        self.require(self.padding in (0, -1), "padding", "0 or -1")
        self.require(self.workers >= 1, "workers", "1 or more")

    def programs(self) -> list[Program]:
        """The programs of all splits."""
        collection = get_collection(self.collection)
        return [p for split in SPLITS for p in list_programs(resolve(self.data_root), collection, split)]

    def artifact(self) -> Artifact:
        """The features folder; it depends on the content of every data file and of every protobuf used."""
        if self.hlo_folder:
            require_protobufs(resolve(self.hlo_folder))
        sources = {f"{p.split}/{p.name}": self.sources(p) for p in self.programs()}
        settings = {"format": FORMAT, **self.identity()}
        return Artifact(resolve(self.folder), settings, {"data": digest(sources)})

    def sources(self, program: Program) -> list[str]:
        """Fingerprint of each file that a program's features are made of."""
        protobuf = self.protobuf(program)
        return [file_fingerprint(program.path)] + ([protobuf_fingerprint(protobuf)] if protobuf else [])

    def protobuf(self, program: Program) -> Path | None:
        """The protobuf of a program, if it is to be used."""
        return find_protobuf(resolve(self.hlo_folder), program) if self.hlo_folder else None


@dataclass(frozen=True)
class LayoutFeatureConfig(FeatureConfig):
    """Settings of the layout feature notebook; for those not described here see :class:`FeatureConfig`.

    Args:
        hops: Keep nodes within this many hops of a configurable node; -1 keeps the whole graph. More hops
            show the model more of the program and cost time.
        direction: Walk those hops to ``operands``, to ``users`` or ``both`` ways.
        default_layout: A tensor left to the compiler counts as ``row_major`` in the violation ratio, or is
            ``leave_out``.
        copies_through: How many element-wise nodes and transposes may lie between two configurable nodes
            whose layouts are compared.
    """

    kind: ClassVar[str] = "layout"

    hops: int = 2
    direction: str = "both"
    default_layout: str = "row_major"
    copies_through: int = 8

    def check(self) -> None:
        """Check ranges."""
        super().check()
        self.require(self.hops >= WHOLE_GRAPH, "hops", "-1 or more")
        self.require(self.direction in DIRECTIONS, "direction", f"one of {', '.join(DIRECTIONS)}")
        self.require(
            self.default_layout in DEFAULT_LAYOUTS, "default_layout", f"one of {', '.join(DEFAULT_LAYOUTS)}"
        )
        self.require(self.copies_through >= 0, "copies_through", "0 or more")


@dataclass(frozen=True)
class TileFeatureConfig(FeatureConfig):
    """Settings of the tile feature notebook, see :class:`FeatureConfig`."""

    kind: ClassVar[str] = "tile"

    collection: str = "tile:xla"
    folder: str = elsewhere("features/sample/tile-xla")
