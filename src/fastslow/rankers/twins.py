"""Trees of their own for a program whose graph is that of train programs: the same network, other sizes.

What the 8th place of the competition did for test programs with as many nodes and edges as a train program.
Between such *twins* a configurable node is the same node, so trees may split on the layouts themselves, and
on their interactions: the flattened layouts of all tensors, of which tied and constant ones are left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np

from fastslow.competition.catalog import TRAIN
from fastslow.core.artifacts import finished_file
from fastslow.core.errors import DataError
from fastslow.core.files import atomic_path, digest
from fastslow.features.scaling import unit_ranks
from fastslow.features.store import Features, Graph
from fastslow.features.train_graphs import draw_graphs
from fastslow.rankers.config import RankerConfig
from fastslow.rankers.model_text import read_booster_text

TWINS = "twins.jsonl"


def signature(graph: Graph) -> str:
    """Return a digest that two layout graphs share if their configurable tensors correspond.

    They have as many nodes and edges, and the same opcodes and ranks of configurable nodes in the same order.
    """
    opcodes = graph.node_opcode[graph.config_index]
    ranks = (graph.tensor_sizes > 0).sum(2)
    return digest([graph.num_nodes, len(graph.edge_index), opcodes.tolist(), ranks.tolist()])


def flat_layouts(graph: Graph, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Return the layouts of all tensors, ``(rows, 18 K)`` int8, minor to major, -1 padded."""
    layouts = graph.layouts[graph.choices.layout_codes(rows)]
    return layouts.reshape(len(layouts), -1)


@dataclass(frozen=True)
class Twin:
    """Trees for the programs of one signature.

    Args:
        columns: ``(V,)`` columns of :func:`flat_layouts` that they read.
        booster: The trees.
    """

    columns: np.ndarray
    booster: lightgbm.Booster

    def predict(self, graph: Graph) -> np.ndarray:
        """Predict the configurations ``(C,)`` of a graph of the signature, lower = predicted faster."""
        return self.booster.predict(flat_layouts(graph)[:, self.columns], raw_score=True)


class Twins:
    """Trees by signature.

    Args:
        known: A :class:`Twin` per signature.
    """

    def __init__(self, known: Mapping[str, Twin]):
        self.known = dict(known)

    def predict_split(self, features: Features, split: str) -> dict[str, np.ndarray]:
        """Predict those graphs of a split that have a twin, ``(C_file,)`` float64 each."""
        found = {}
        for name in features.names(split) if self.known else ():
            graph = features.graph(split, name)
            if twin := self.known.get(signature(graph)):
                found[name] = graph.expand(twin.predict(graph))
        return found

    def write(self, folder: Path) -> None:
        """Write all trees as ``twins.jsonl`` of a run folder."""
        with atomic_path(folder / TWINS) as temporary, open(temporary, "w") as handle:
            for key, twin in self.known.items():
                row = {"signature": key, "columns": twin.columns.tolist()}
                handle.write(json.dumps({**row, "trees": twin.booster.model_to_string()}) + "\n")


def read_twins(folder: Path, remedy: str) -> Twins:
    """Read what :meth:`Twins.write` wrote.

    Args:
        folder: A finished run folder.
        remedy: What to do where the file cannot be read.

    Raises:
        DataError: The run is not finished, or the file is missing, was changed or cannot be read.
    """
    path = finished_file(folder, TWINS, remedy)
    known = {}
    try:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            booster = read_booster_text(row["trees"])
            known[row["signature"]] = Twin(np.array(row["columns"], np.int64), booster)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(path, f"cannot be read ({error})", remedy) from None
    return Twins(known)


def fit_twins(config: RankerConfig, sources: Mapping[str, Features], names: Iterable[str]) -> Twins:
    """Fit trees for every signature of the train graphs; of fixed number, as nothing tells when to stop.

    Args:
        config: Settings of the trees; targets are ranks, with LightGBM's ``cross_entropy``.
        sources: Features by the prefix of their graphs' names, see :func:`draw_graphs`.
        names: Train graphs.
    """
    groups: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for key, rows, runtime in _read(config, sources, names):
        groups.setdefault(key, []).append((rows, unit_ranks(runtime)))
    known = {}
    for key, parts in groups.items():
        rows = np.concatenate([rows for rows, _ in parts])
        columns = _distinct_columns(rows)
        if len(columns):
            weight = np.concatenate([np.full(len(label), 1 / len(label)) for _, label in parts])
            target = np.concatenate([label for _, label in parts])
            data = lightgbm.Dataset(rows[:, columns], target, weight=weight, params={"verbosity": -1})
            parameters = {**config.tree_parameters(), "objective": "cross_entropy"}
            known[key] = Twin(columns, lightgbm.train(parameters, data, config.num_iterations))
    return Twins(known)


def _read(
    config: RankerConfig, sources: Mapping[str, Features], names: Iterable[str]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield signature, flat layouts and runtimes of a sample of each graph's configurations."""
    most, seed = config.configs_per_graph, config.seed
    for graph, rows, runtime in draw_graphs(sources, TRAIN, list(names), most, seed):
        yield signature(graph), flat_layouts(graph, rows), runtime


def _distinct_columns(rows: np.ndarray) -> np.ndarray:
    """Return the positions of the columns that vary, of equal ones the first, ascending."""
    varying = np.flatnonzero((rows != rows[:1]).any(0))
    return varying[np.sort(np.unique(rows[:, varying], axis=1, return_index=True)[1])]
