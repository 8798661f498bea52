"""The order of the configurations in layout test files: two releases hold the same ones in two orders.

A submission ranks positions, so a CSV made from one release is noise for the other, though it passes every
check of form. Four files of the release of August 2023 are known, by digest; what Kaggle scores since October
2023 has another order.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, list_programs
from fastslow.core.files import digest
from fastslow.core.npz_io import stream_rows
from fastslow.core.progress import progress

Release = Literal["launch", "reordered", "unknown"]
"""``launch``: a file has its rows in the order of August 2023. ``reordered``: a file has the same
configurations in another order, and no file has the order of the launch. ``unknown``: none of the known files
is there."""


class RowOrder(NamedTuple):
    """Two digests of 16 hexadecimal digits that identify the rows of a layout file."""

    order: str  # of the rows in their order
    rows: str  # of the same rows in any order


LAUNCH: Mapping[str, RowOrder] = {
    "layout:xla:default:cd708819d3f5103afd6460b15e74eaf3": RowOrder("4e816044e548731a", "b307423d7113872a"),
    "layout:xla:random:cd708819d3f5103afd6460b15e74eaf3": RowOrder("b533f2ecbcff773e", "9943c75211b4dece"),
    "layout:nlp:default:3a0c5517a87df8d82fd637b83298a3ba": RowOrder("c9865f5fcc69a7c8", "c668f504ee95e043"),
    "layout:nlp:random:23559853d9702baaaacbb0c83fd32266": RowOrder("9250e1baa9e0900c", "111c3d578dddce84"),
}
"""Layout test files of the launch release (Kaggle, 30 August 2023), by their ID."""


def row_order(path: Path) -> RowOrder:
    """Return the digests of a layout file's configurations; what type they are stored as does not count."""
    whole, rows = hashlib.sha256(), []
    for chunk in stream_rows(path, "node_config_feat"):
        values = np.ascontiguousarray(chunk.reshape(len(chunk), -1), np.int8)
        whole.update(values.data)
        rows += [hashlib.sha256(row.data).digest()[:8] for row in values]
    return RowOrder(whole.hexdigest()[:16], hashlib.sha256(b"".join(sorted(rows))).hexdigest()[:16])


def read_row_orders(root: Path) -> dict[str, RowOrder]:
    """Return the row order of every layout test file under a data root, by the file's ID."""
    there = [c for c in COLLECTIONS if c.kind == "layout" and c.folder(root, TEST).is_dir()]
    programs = [program for collection in there for program in list_programs(root, collection, TEST)]
    few = len(programs) < 10  # a fifth of a second each
    bar = progress(programs, desc="row order of the test files", unit="file", disable=few)
    return {program.id: row_order(program.path) for program in bar}


def release_of(orders: Mapping[str, RowOrder]) -> Release:
    """Return the release that the known files belong to.

    Args:
        orders: Row orders by ID of the file, as :func:`read_row_orders` returns them.
    """
    if any(orders.get(key) == known for key, known in LAUNCH.items()):
        return "launch"
    same = [key for key, known in LAUNCH.items() if key in orders and orders[key].rows == known.rows]
    return "reordered" if same else "unknown"


def digest_of_orders(orders: Mapping[str, RowOrder]) -> dict[str, str]:
    """Return one digest of the row orders of each layout collection, by its name."""
    own = {
        c.name: [(key, o.order) for key, o in sorted(orders.items()) if key.startswith(f"{c.name}:")]
        for c in COLLECTIONS
    }
    return {name: digest(found) for name, found in own.items() if found}
