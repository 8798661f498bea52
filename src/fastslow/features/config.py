"""Settings of feature building."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from fastslow.competition.catalog import SPLITS, Program, get_collection, list_programs
from fastslow.competition.reader import file_fingerprint
from fastslow.core.artifacts import Artifact
from fastslow.core.files import digest
from fastslow.core.settings import Config, NonNegative, Positive, resolve, unkeyed
from fastslow.features.protobuf import find_protobuf, protobuf_fingerprint, require_protobufs
from fastslow.features.pruning import DIRECTIONS, WHOLE_GRAPH
from fastslow.features.violation import DEFAULT_LAYOUTS

ENTRY = "fastslow.features.build:build_features"


class FeatureConfig(Config):
    """Settings that both feature notebooks share."""

    kind: ClassVar[str]

    collection: str = "layout:xla:random"
    """Which of the five collections."""
    data_root: str = unkeyed("data/sample")
    """Folder that holds ``npz_all/``."""
    folder: str = unkeyed("features/sample/layout-xla-random")
    """Where the features go."""
    workers: Positive = unkeyed(2)
    """Processes that build graphs side by side; raise it to the number of cores for real data."""
    padding: Literal[-1, 0] = -1
    """Value after the end of a list feature: -1 tells padding from a true 0, 0 is as published."""
    hlo_folder: str = unkeyed("")
    """Folder of TpuGraphs' ``.pb`` files, flat or in TpuGraphs' tree; empty for none. A graph whose
    ``<name>.pb`` is there gets its exact padding and the exact order of its operands."""
    merge_duplicates: bool = True
    """Merge identical configurations of a train graph; the label is their mean."""

    def check(self) -> None:
        """Check ranges."""
        collection = get_collection(self.collection)
        self.require(collection.kind == self.kind, "collection", f"a {self.kind} collection")

    def programs(self) -> list[Program]:
        """The programs of all splits."""
        collection = get_collection(self.collection)
        return [p for split in SPLITS for p in list_programs(resolve(self.data_root), collection, split)]

    def artifact(self) -> Artifact:
        """The features folder; it depends on the content of every data file and of every protobuf used."""
        if self.hlo_folder:
            require_protobufs(resolve(self.hlo_folder))
        sources = {f"{p.split}/{p.name}": self.sources(p) for p in self.programs()}
        settings = self.identity()
        return Artifact(resolve(self.folder), settings, {"data": digest(sources)}, ENTRY)

    def sources(self, program: Program) -> list[str]:
        """Fingerprint of each file that a program's features are made of."""
        protobuf = self.protobuf(program)
        return [file_fingerprint(program.path)] + ([protobuf_fingerprint(protobuf)] if protobuf else [])

    def protobuf(self, program: Program) -> Path | None:
        """The protobuf of a program, if it is to be used."""
        return find_protobuf(resolve(self.hlo_folder), program) if self.hlo_folder else None


class LayoutFeatureConfig(FeatureConfig):
    """Settings of the layout feature notebook; for those not described here see :class:`FeatureConfig`."""

    kind: ClassVar[str] = "layout"

    hops: Annotated[int, Ge(WHOLE_GRAPH)] = 2
    """Keep nodes within this many hops of a configurable node; -1 keeps the whole graph. More hops show the
    model more of the program and cost time."""
    direction: Literal[*DIRECTIONS] = "both"
    """Walk those hops to ``operands``, to ``users`` or ``both`` ways."""
    default_layout: Literal[*DEFAULT_LAYOUTS] = "row_major"
    """A tensor left to the compiler counts as ``row_major`` in the violation ratio, or is ``leave_out``."""
    copies_through: NonNegative = 8
    """How many element-wise nodes and transposes may lie between two configurable nodes whose layouts are
    compared."""


class TileFeatureConfig(FeatureConfig):
    """Settings of the tile feature notebook, see :class:`FeatureConfig`."""

    kind: ClassVar[str] = "tile"

    collection: str = "tile:xla"
    folder: str = unkeyed("features/sample/tile-xla")
