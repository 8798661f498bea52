"""The order of the configurations in layout files: two releases hold the same ones in two orders.

A submission ranks positions, so a CSV made from one release is noise for the other, though it passes every
check of form. Four test files and one valid file of the release of August 2023 are known, by digest; what
Kaggle scores since October 2023 has another order. Predictions that others published for valid files fit one
release alone too. Labels follow their rows, so a score on valid does not depend on the release.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, VALID, ProgramFile, list_programs
from fastslow.competition.layouts import MAX_DIMENSION
from fastslow.competition.schema import refuse
from fastslow.core.errors import DataError
from fastslow.core.npz_io import read_headers, stream_rows

Release = Literal["launch", "reordered", "unknown"]
_IN_WORDS: Mapping[Release, str] = {
    "launch": "as in the launch release (August 2023)",
    "reordered": "not as in the launch release (August 2023), so a later one",
    "unknown": "not known: no file has configurations whose order at the launch (August 2023) is known",
}


class RowOrder(NamedTuple):
    """Two digests of 16 hexadecimal digits that identify the rows of a layout file."""

    order: str  # of the rows in their order
    rows: str  # of the same rows in any order


LAUNCH: Mapping[str, RowOrder] = {
    "layout:xla:default:cd708819d3f5103afd6460b15e74eaf3": RowOrder("4e816044e548731a", "b307423d7113872a"),
    "layout:xla:random:cd708819d3f5103afd6460b15e74eaf3": RowOrder("b533f2ecbcff773e", "9943c75211b4dece"),
    "layout:nlp:default:3a0c5517a87df8d82fd637b83298a3ba": RowOrder("c9865f5fcc69a7c8", "c668f504ee95e043"),
    "layout:nlp:random:23559853d9702baaaacbb0c83fd32266": RowOrder("9250e1baa9e0900c", "111c3d578dddce84"),
    "layout:xla:default:unet_3d.4x4.bf16": RowOrder("87fe84d304a2fc76", "8530ca1005ed2f36"),
}
"""Layout files of the launch release (Kaggle, 30 August 2023), by their ID: four of test, one of valid."""


def row_order(path: Path) -> RowOrder:
    """Return two digests of a layout file's configurations: in the order of the file, and in any order.

    The type that the file stores them as does not count.

    Raises:
        DataError: The file is missing or broken, or is no layout file, or a value is no number of a layout.
    """
    if "node_config_feat" not in read_headers(path):
        raise DataError(path, "has no node_config_feat", "Give a layout file")
    whole = hashlib.sha256()
    rows: list[bytes] = []
    for chunk in stream_rows(path, "node_config_feat"):
        with np.errstate(invalid="ignore"):  # infinity becomes a number, and is refused
            values = np.ascontiguousarray(chunk.reshape(len(chunk), -1), np.int8)
        numbers = values.reshape(chunk.shape)
        bad = (numbers != chunk) | (numbers < -1) | (numbers > MAX_DIMENSION)
        rule = f"a whole number from -1 to {MAX_DIMENSION}"
        refuse(path, "node_config_feat", chunk, bad, rule, row=len(rows))
        whole.update(values.data)
        rows += [hashlib.sha256(row.data).digest()[:8] for row in values]
    return RowOrder(whole.hexdigest()[:16], hashlib.sha256(b"".join(sorted(rows))).hexdigest()[:16])


def layout_files(root: Path, split: str) -> list[ProgramFile]:
    """Return the layout files of a split that are under a data root."""
    there = [c for c in COLLECTIONS if c.kind == "layout" and c.folder(root, split).is_dir()]
    return [program for collection in there for program in list_programs(root, collection, split)]


def release_of(root: Path, split: str) -> Release:
    """Return the release of the layout files of a split under a data root, as far as known files tell it."""
    orders = [(row_order(p.path), LAUNCH[p.id]) for p in layout_files(root, split) if p.id in LAUNCH]
    if any(here == known for here, known in orders):
        return "launch"
    return "reordered" if any(here.rows == known.rows for here, known in orders) else "unknown"


def releases_in_words(root: Path) -> str:
    """Say in words in which of the published row orders the layout files of valid and of test are.

    Args:
        root: The folder that holds ``npz_all/``.

    Returns:
        A line for each split, each with a line break at its end. A split without layout files has none.
    """
    return "".join(
        f"row order of the layout files of {split}: {_IN_WORDS[release_of(root, split)]}\n"
        for split in (VALID, TEST)
        if layout_files(root, split)
    )
