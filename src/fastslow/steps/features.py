"""The step of features: from competition npz files to one features folder for each collection."""

import fnmatch
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import joblib
import numpy as np
import pandas as pd

from fastslow.competition.catalog import (
    LABELLED_SPLITS,
    SPLITS,
    TEST,
    TRAIN,
    VALID,
    ProgramFile,
    get_collection,
    list_programs,
)
from fastslow.competition.reader import read_npz
from fastslow.competition.row_order import row_order
from fastslow.competition.rules.program_rules import check_program
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError
from fastslow.core.files import atomic_path, digest, file_digest
from fastslow.core.isolated import end_with_parent
from fastslow.core.memory import step_cores, step_memory
from fastslow.core.npz_io import file_fingerprint
from fastslow.core.progress import progress
from fastslow.core.settings import Names, NonNegative, Settings, Threads, Unread, find_data, resolve, unkeyed
from fastslow.core.source import source_digest
from fastslow.ensemble.baselines import score_references
from fastslow.features.build import GraphOptions, build_graph, graph_of
from fastslow.features.configs.default_layouts import default_file
from fastslow.features.graph import draw_configs, fit_scalers
from fastslow.features.nodes.protobuf import find_protobuf, require_protobufs
from fastslow.runs.features_folder import (
    INDEX,
    Features,
    WrittenGraphs,
    files_of,
    graph_files,
    is_written,
    read_graph,
    write_graph,
)
from fastslow.runs.scalers import SCALERS, write_scalers
from fastslow.steps.unseen import read_recipe, recipe_options

FEATURES_ENTRY = "fastslow.steps.features:build_features"
WORKER_BYTES = 1 << 29  # of a process that builds graphs, at its peak


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


class FeatureSettings(KindSettings, GraphOptions):
    """Settings of the feature notebook."""

    layout_only: ClassVar[tuple[str, ...]] = ("hops", "compiler_defaults")

    collection: str = "layout:xla:random"
    """The collection: tile:xla, layout:xla:default, layout:xla:random, layout:nlp:default or
    layout:nlp:random."""
    data_root: str = unkeyed("data/sample")
    """Folder that holds ``npz_all/``."""
    folder: str = unkeyed("features/play/layout-xla-random")
    """Features folder to write."""
    workers: Threads = unkeyed(0)
    """Processes that build graphs in parallel; 0 for the cores that the step may use."""
    hlo_folder: str = unkeyed("", decisive=True)
    """Folder of TpuGraphs' ``.pb`` files, flat or in TpuGraphs' tree; empty for none. A graph whose
    ``<name>.pb`` is found has its exact padding and the exact order of its operands."""
    skip_valid: Names = unkeyed([], decisive=True)
    """Valid programs that are left out, so that no model is selected on them: patterns of their IDs
    (``layout:xla:default:*unet*``; ``*`` any letters), separated by commas."""
    train: bool = unkeyed(True)
    """Whether train programs are built too; trained models predict without them."""
    valid_configs: NonNegative = unkeyed(0, decisive=True)
    """Maximum configurations of a valid program; more are sampled down to this number. 0 takes all."""

    @property
    def kind(self) -> str:
        """``layout`` or ``tile``: the collection's kind."""
        return get_collection(self.collection).kind

    def programs(self) -> list[ProgramFile]:
        """Return the programs of all splits, or without ``train``; not the programs of ``skip_valid``."""
        collection = get_collection(self.collection)
        root = find_data(self.data_root)
        splits = [split for split in SPLITS if self.train or split != TRAIN]
        every = [program for split in splits for program in list_programs(root, collection, split)]
        kept = [program for program in every if not self._skips(program)]
        validates = any(program.split == VALID for program in kept)
        if not validates:
            problem = f"{self.skip_valid!r} leaves no valid program of {self.collection} to choose models on"
            raise SettingsError("skip_valid", f"{problem}. Name fewer programs")
        return kept

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
        """Return the fingerprint of each file that a program's features are built from, and what is drawn."""
        protobuf = self.protobuf(program)
        other = default_file(program) if self.kind == "layout" and self.compiler_defaults else None
        files = [file_fingerprint(path) for path in (program.path, other) if path]
        drawn = [f"{self.valid_configs} drawn"] if self.draws(program) else []
        return files + ([file_digest(protobuf)] if protobuf else []) + drawn

    def draws(self, program: ProgramFile) -> bool:
        """Return whether ``valid_configs`` may leave out configurations of a program."""
        return self.valid_configs > 0 and program.split == VALID

    def protobuf(self, program: ProgramFile) -> Path | None:
        """Return the path of a program's protobuf; None where there is none or none is wanted."""
        return find_protobuf(resolve(self.hlo_folder), program) if self.hlo_folder else None


def recipe_settings(folder: Path) -> FeatureSettings:
    """Return the settings that build further features as a run, or a folder, has them.

    Raises:
        DataError: As of :func:`fastslow.steps.unseen.read_recipe`.
    """
    recipe = read_recipe(folder)
    options = asdict(recipe_options(recipe))
    return FeatureSettings(collection=recipe["settings"]["collection"], **options)


def _build_one(program: ProgramFile, settings: FeatureSettings) -> list[str] | None:
    """Build and write one graph unless it is up to date; return its column names if it was built."""
    folder = resolve(settings.folder)
    mark = digest([source_digest(FEATURES_ENTRY), settings.identity(), *settings.sources(program)])
    if is_written(folder, program.split, program.name, mark):
        return None
    read = read_npz(program, program.split in LABELLED_SPLITS)
    check_program(read)
    if settings.draws(program):
        read = read.take(draw_configs(len(read.runtime), settings.valid_configs, 0, program.name))
    graph, names = graph_of(read, settings, settings.protobuf(program))
    write_graph(folder, program.split, graph, mark)
    return names


def build_features(settings: FeatureSettings) -> pd.DataFrame:
    """Build the features of one collection: those that are missing or out of date.

    Returns:
        One row per graph: ``split``, ``name``, ``nodes`` and ``edges`` after pruning, ``configurable``
        (nodes), ``configs`` (distinct configurations), ``merged`` (configurations of the file minus
        distinct ones), ``spread`` (maximum over minimum runtime, NaN in test) and ``exact`` (whether its
        protobuf was used). Last is ``content``, equal for copies of a program.

    Raises:
        DataError: A file is missing or broken.
    """
    artifact = settings.artifact()
    with artifact.building() as needed:
        if needed:
            programs = settings.programs()
            _drop_foreign_graphs(artifact.folder, programs)
            names = _build_all(programs, settings)
            summary = _summarise(programs, settings)
            files = [*summary, *graph_files(artifact.folder)]
            collection = get_collection(settings.collection)
            layout = collection.kind == "layout"
            ranked = [program for program in programs if layout and program.split == TEST]
            orders = {program.name: row_order(program.path).order for program in ranked}
            by_split = {split: [p.name for p in programs if p.split == split] for split in SPLITS}
            references = score_references(WrittenGraphs(artifact.folder, collection, by_split, names))
            facts = {"graphs": len(programs), "row_order": orders, "references": references}
            artifact.finish(files, config_columns=names, **facts)
    return Features(artifact.folder).index


def _build_all(programs: list[ProgramFile], settings: FeatureSettings) -> list[str]:
    """Build every graph that is missing or out of date; return the names of the config_feat columns."""
    jobs = [joblib.delayed(_build_one)(program, settings) for program in programs]
    leash = {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    workers = settings.workers or max(1, min(step_cores(), step_memory() // WORKER_BYTES))
    results = joblib.Parallel(n_jobs=workers, return_as="generator", **leash)(jobs)
    bar = progress(results, total=len(programs), desc=settings.collection, unit="graph")
    built = [names for names in bar if names]
    return built[0] if built else build_graph(programs[0], settings)[1]


def _drop_foreign_graphs(folder: Path, programs: list[ProgramFile]) -> None:
    """Remove graphs of programs that are no longer in the data."""
    known = {path for p in programs for path in files_of(folder, p.split, p.name)}
    for path in {*graph_files(folder)} - known:
        path.unlink()


def _summarise(programs: list[ProgramFile], settings: FeatureSettings) -> list[str]:
    """Write the index and, where there are train graphs, the scalers; return the names of these files."""
    folder = resolve(settings.folder)
    rows = [_index_row(program, settings) for program in progress(programs, desc="index", unit="graph")]
    with atomic_path(folder / INDEX) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)
    train = [program for program in programs if program.split == TRAIN]
    if not train:
        (folder / SCALERS).unlink(missing_ok=True)
        return [INDEX]
    graphs = (read_graph(folder, TRAIN, program.name) for program in train)
    write_scalers(
        folder / SCALERS, **fit_scalers(progress(graphs, total=len(train), desc="scalers", unit="graph"))
    )
    return [INDEX, SCALERS]


def _index_row(program: ProgramFile, settings: FeatureSettings) -> dict[str, Any]:
    """Return the index's row of a program's graph, see :func:`build_features`."""
    graph = read_graph(resolve(settings.folder), program.split, program.name)
    known = graph.runtime.min() > 0
    return {
        "split": program.split,
        "name": program.name,
        "nodes": graph.num_nodes,
        "edges": len(graph.edge_index),
        "configurable": len(graph.config_index),
        "configs": graph.num_configs,
        "merged": len(graph.config_row) - graph.num_configs,
        "spread": graph.runtime.max() / graph.runtime.min() if known else np.nan,
        "exact": settings.protobuf(program) is not None,
        "content": graph.content,
    }
