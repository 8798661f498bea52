"""Programs that are labelled whole, kept on disk: an interrupted ``make sample`` continues after them."""

import base64
from pathlib import Path
from typing import Any

from fastslow.core.errors import DataError
from fastslow.core.files import digest, write_json
from fastslow.core.records import Record, read_record
from fastslow.core.source import source_digest
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.layout_choices import tie
from fastslow_programs.compiler.layout_space import configurable_nodes
from make_sample.layout_search import Search

_SOURCES = Path(__file__).resolve().parents[1]
_AGAIN = "Delete it: the program is then labelled again"


class _Searched(Record):
    configurations: list[list[int]]
    cycles: list[int | None]  # of each, None where its compile failed
    exhausted: bool


class _Finished(Record):
    """Keys of the file of a program."""

    module: str  # in base64
    layouts: Any  # as the compiler gave them
    searches: dict[str, _Searched]
    tiles: dict[str, Any]
    compiles: list[dict[str, Any]]


def finished_path(folder: Path, entry: str, name: str, settings: dict[str, Any]) -> Path:
    """Return the file of a program, another one for other settings or other code.

    Args:
        folder: Folder of the files.
        entry: Function that labels programs, whose code counts, as ``package.module:function``.
        name: Name of the program.
        settings: Those that change its labels.
    """
    code = source_digest(entry, _SOURCES)
    return folder / f"{name}-{digest({'code': code, 'settings': settings})}.json"


def keep_finished(path: Path, module: Module, layouts: Any, searches, tiles: dict, compiles: list) -> None:
    """Write the file of a program that is labelled whole."""
    code = module.SerializeToString(deterministic=True)
    searched = {}
    for kind, search in searches.items():
        searched[kind] = {
            "configurations": [list(configuration) for configuration, _ in search.labels],
            "cycles": [cycles for _, cycles in search.labels],
            "exhausted": search.exhausted,
        }
    write_json(
        path,
        {
            "module": base64.b64encode(code).decode(),
            "layouts": layouts,
            "searches": searched,
            "tiles": tiles,
            "compiles": compiles,
        },
    )


def read_finished(path: Path, seed: str) -> dict[str, Any] | None:
    """Return module, nodes, searches, tiles and compiles of a program; None where they are not kept.

    Args:
        path: Its file.
        seed: Seed of its searches.
    """
    if not path.is_file():
        return None
    try:
        kept = read_record(path, _Finished, _AGAIN)
        module = Module.FromString(base64.b64decode(kept["module"]))
    except (DataError, ValueError) as error:
        print(f"{error}; it is labelled again")
        return None
    nodes = configurable_nodes(module, kept["layouts"])
    choices = tie(nodes)
    searches = {}
    for kind, searched in kept["searches"].items():
        configurations = [tuple(configuration) for configuration in searched["configurations"]]
        labels = [*zip(configurations, searched["cycles"], strict=True)]
        searches[kind] = Search(kind, choices, seed, labels, searched["exhausted"])
    return {
        "module": module,
        "nodes": nodes,
        "searches": searches,
        "tiles": kept["tiles"],
        "compiles": kept["compiles"],
    }
