"""Settings of feature building."""

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from fastslow.competition.catalog import SPLITS, VALID, ProgramFile, get_collection, list_programs
from fastslow.competition.reader import file_fingerprint
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError
from fastslow.core.files import digest, file_digest
from fastslow.core.settings import Names, Settings, Threads, Unread, find_data, resolve, unkeyed
from fastslow.features.configs.default_layouts import default_file
from fastslow.features.nodes.protobuf import find_protobuf, require_protobufs
from fastslow.features.nodes.pruning import WHOLE_GRAPH

FEATURES_ENTRY = "fastslow.features.build:build_features"


class KindSettings(Settings):
    """Base of the settings of a step that runs on layout and on tile collections.

    A subclass has an attribute ``kind`` and lists the fields that are read for layout only.
    """

    if TYPE_CHECKING:
        kind: ClassVar[Any]
    layout_only: ClassVar[tuple[str, ...]] = ()
    """Fields that are read for layout only."""

    def unread(self) -> Unread:
        """Return the fields of ``layout_only`` if the kind is tile, each with the reason and a remedy."""
        names = () if self.kind == "layout" else self.layout_only
        return dict.fromkeys(names, (f"for {self.kind}", "set it for layout only"))


class FeatureSettings(KindSettings):
    """Settings of the feature notebook."""

    layout_only: ClassVar[tuple[str, ...]] = ("hops", "compiler_defaults")
    former: ClassVar[dict[str, Any]] = {"copies_through": 8}

    collection: str = "layout:xla:random"
    """One of the five collections: tile:xla, layout:xla:default, layout:xla:random, layout:nlp:default or
    layout:nlp:random."""
    data_root: str = unkeyed("data/sample")
    """Folder that holds ``npz_all/``."""
    folder: str = unkeyed("features/play/layout-xla-random")
    """Features folder to write."""
    workers: Threads = unkeyed(0)
    """Processes that build graphs in parallel; 0 for the cores that the step may use."""
    padding: Literal[-1, 0] = -1
    """Value after the end of a list feature: -1 distinguishes padding from a true 0, 0 is as published."""
    hlo_folder: str = unkeyed("")
    """Folder of TpuGraphs' ``.pb`` files, flat or in TpuGraphs' tree; empty for none. A graph whose
    ``<name>.pb`` is found has its exact padding and the exact order of its operands."""
    skip_valid: Names = unkeyed([])
    """Valid programs that are left out, so that no model is selected on them: patterns of their IDs
    (``layout:xla:default:*unet*``; ``*`` any letters), separated by commas."""
    merge_duplicates: bool = True
    """Merge identical configurations of a graph, in every split; a train label is their mean."""
    hops: Annotated[int, Ge(WHOLE_GRAPH), Le(1000)] = 2
    """Layout only. Keep nodes within this many hops of a configurable node; -1 keeps the whole graph. More
    hops show the model more of the program and cost time."""
    compiler_defaults: bool = True
    """Layout only. Compare each layout with the compiler's own. The commonest layout of the ``default`` file
    is taken for it, also in the program's ``random`` file; False leaves these columns 0."""

    @property
    def kind(self) -> str:
        """``layout`` or ``tile``: the collection's kind."""
        return get_collection(self.collection).kind

    def programs(self) -> list[ProgramFile]:
        """Return the programs of all splits, without the programs of ``skip_valid``."""
        collection = get_collection(self.collection)
        every = [p for split in SPLITS for p in list_programs(find_data(self.data_root), collection, split)]
        found = [program for program in every if not self._skips(program)]
        kept = any(program.split == VALID for program in found)
        if not kept:
            problem = f"{self.skip_valid!r} leaves no valid program of {self.collection} to choose models on"
            raise SettingsError(f"skip_valid: {problem}. Name fewer programs")
        return found

    def skipped(self) -> list[ProgramFile]:
        """Return the valid programs that ``skip_valid`` leaves out."""
        if not self.skip_valid:
            return []
        programs = list_programs(find_data(self.data_root), get_collection(self.collection), VALID)
        return [program for program in programs if self._skips(program)]

    def _skips(self, program: ProgramFile) -> bool:
        patterns = self.skip_valid if program.split == VALID else []
        return any(fnmatch.fnmatchcase(program.id, pattern) for pattern in patterns)

    def artifact(self) -> Artifact:
        """Return the features folder; it depends on the content of every data file and protobuf used."""
        if self.hlo_folder:
            require_protobufs(resolve(self.hlo_folder))
        sources = {f"{p.split}/{p.name}": self.sources(p) for p in self.programs()}
        settings = self.identity()
        return Artifact(resolve(self.folder), settings, {"data": digest(sources)}, FEATURES_ENTRY)

    def sources(self, program: ProgramFile) -> list[str]:
        """Return the fingerprint of each file that a program's features are built from."""
        protobuf = self.protobuf(program)
        other = default_file(program) if self.kind == "layout" and self.compiler_defaults else None
        files = [file_fingerprint(path) for path in (program.path, other) if path]
        return files + ([file_digest(protobuf)] if protobuf else [])

    def protobuf(self, program: ProgramFile) -> Path | None:
        """Return the path of a program's protobuf; None where there is none or none is wanted."""
        return find_protobuf(resolve(self.hlo_folder), program) if self.hlo_folder else None
