"""Graphs that a model never saw, built as those that it learned from: what a finished run is applied to."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from fastslow.competition.catalog import COLLECTIONS, TEST, ProgramFile, get_collection
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.rules.program_rules import check_program
from fastslow.core.artifacts import MANIFEST
from fastslow.core.errors import DataError
from fastslow.core.records import Record, check_record
from fastslow.core.settings import resolve
from fastslow.features.build import GraphOptions, graph_of
from fastslow.features.graph import Graph, GraphSet
from fastslow.features.nodes.protobuf import find_protobuf
from fastslow.runs.features_folder import RECIPE, CollectionRecord
from fastslow.runs.run_manifest import read_finished

_AGAIN = "Train this model again"


class _Settings(Record, GraphOptions):
    """Settings of features: how graphs are built, and what is recorded beside it."""

    model_config = ConfigDict(extra="forbid")

    collection: Literal[*(collection.name for collection in COLLECTIONS)]
    copies_through: Literal[8] = 8  # of former versions, which had others


class _Recipe(CollectionRecord):
    settings: _Settings
    config_columns: list[str]


class UnseenGraphs(GraphSet):
    """Graphs, each with its own name, as the test split of the features that a run learned from.

    Whatever predicts a test split predicts these graphs, exactly as if they had been among the features. The
    folder is the run's, whose manifest keeps how its features were built, or the features' own; ``recipe`` is
    what :func:`read_recipe` returned of it, where it was read before.

    Raises:
        DataError: The folder is not finished, or does not keep how features are built.
    """

    def __init__(self, folder: Path, graphs: Iterable[Graph], recipe: dict | None = None):
        self.recipe = recipe or read_recipe(folder)
        collection = get_collection(self.recipe["settings"]["collection"])
        super().__init__(collection, {TEST: graphs}, self.recipe["config_columns"])
        self.folder = Path(folder)


def read_recipe(folder: Path) -> dict:
    """Return how the features of a run, or of a folder, are built: the keys ``features_folder.RECIPE``.

    Raises:
        DataError: The folder is not finished, belongs to a run that does not keep them, or this code cannot
            build such features.
    """
    manifest = read_finished(folder)
    recipe = manifest.get("features", manifest)
    if not isinstance(recipe, dict) or not all(key in recipe for key in RECIPE):
        raise DataError(folder, "does not keep how its features were built", _AGAIN)
    check_record(Path(folder) / MANIFEST, recipe, _Recipe, _AGAIN)
    return recipe


def recipe_options(recipe: dict) -> GraphOptions:
    """Return how graphs are built, of what :func:`read_recipe` returned."""
    settings = recipe["settings"]
    names = (field.name for field in fields(GraphOptions))
    return GraphOptions(**{name: settings[name] for name in names if name in settings})


def read_unseen(folder: Path, paths: Iterable[Path]) -> UnseenGraphs:
    """Read competition files (npz) and build their graphs, see :func:`build_unseen`.

    Args:
        folder: Folder of the run that the graphs are built for.
        paths: The files, all of the run's kind of collection.

    Raises:
        DataError: A file is broken (the message names the key), or as there.
    """
    collection = UnseenGraphs(folder, []).collection
    files = (ProgramFile(collection, TEST, Path(path)) for path in paths)
    return build_unseen(folder, map(_read_program, files))


def _read_program(file: ProgramFile) -> Program:
    program = read_npz(file)
    check_program(program)
    return program


def build_unseen(folder: Path, programs: Iterable[Program], hlo_folder: str = "") -> UnseenGraphs:
    """Build graphs of programs in the same way as a run's graphs were built.

    Runtimes of the programs, if any, are in the graphs; no model reads them.

    Args:
        folder: A run folder, or its features folder.
        programs: Programs of its collection.
        hlo_folder: As the setting of feature building.

    Returns:
        The graphs, in the order of the programs, as graphs of the split ``test``.

    Raises:
        DataError: The folder is not finished, or this code builds other features than those that the run
            learned from.
    """
    unseen = UnseenGraphs(folder, [])
    options = recipe_options(unseen.recipe)
    folder_of_hlo = resolve(hlo_folder) if hlo_folder else None
    graphs = []
    for program in programs:
        protobuf = find_protobuf(folder_of_hlo, program.file) if folder_of_hlo else None
        graph, columns = graph_of(program, options, protobuf)
        if columns != unseen.config_columns:
            problem = "learned from other features than this code builds"
            raise DataError(folder, problem, "Use the code of its commit, or train it again")
        graphs.append(graph)
    return UnseenGraphs(folder, graphs)
