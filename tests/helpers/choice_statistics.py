"""A few numbers per layout file that show how its configurations are drawn: of real files, and of others."""

from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.competition.opcodes import DOT, RESHAPE
from fastslow.competition.reader import read_checked, read_choices
from fastslow.competition.tied_choices import Choices
from fastslow.core.progress import progress
from fastslow.core.settings import find_data

_LARGEST = 5  # groups whose sizes are kept
COLUMNS = (
    *("configs", "nodes", "columns", "groups", *(f"largest_{rank}" for rank in range(1, _LARGEST + 1))),
    *("layouts", "left", "commonest", "hamming", "reshapes", "left_dots", "left_reshapes"),
)
"""Columns of :func:`choice_statistics`."""
_NONE = float("nan")  # no such node


def choice_statistics(choices: Choices, opcodes: np.ndarray) -> dict[str, float]:
    """Return the statistics of configurations, at the cost of their groups rather than of their columns.

    A *column* is a tensor of ``node_config_feat``: the layout of a node's output, input or kernel. It varies
    if two configurations give it different layouts.

    Args:
        choices: The configurations as tied choices.
        opcodes: ``(K,)`` opcodes of the configurable nodes.

    Returns:
        Counts of ``configs``, configurable ``nodes``, ``columns`` that vary and ``groups`` of columns that
        determine each other; ``largest_1`` to ``largest_5``, the columns of the largest groups. Means over
        the columns that vary, 0 without any: number of ``layouts``, share of the ``commonest`` layout (fewer
        configurations raise it) and ``hamming``, the share of pairs of configurations that differ. The share
        ``left`` to the compiler of all entries, of operands of dots (``left_dots``) and of outputs and
        operands of reshapes (``left_reshapes``), NaN without such nodes. The share of ``reshapes`` among the
        nodes.
    """
    num_configs = len(choices)
    counts = np.zeros((choices.num_groups, choices.options.max(initial=1)))
    for group, values in enumerate(choices.values.T):
        counts[group] = np.bincount(values, minlength=counts.shape[1])
    used = (counts > 0).sum(1)
    sizes = np.bincount(choices.group.ravel(), minlength=choices.num_groups) * (used > 1)
    alike = (counts * (counts - 1)).sum(1) / max(1, num_configs * (num_configs - 1))
    left = ((choices.codes == 0) * counts[choices.group]).sum(2) / max(1, num_configs)
    largest = np.sort(np.append(sizes, [0] * _LARGEST))[::-1][:_LARGEST].tolist()

    def mean(of_group: np.ndarray) -> float:
        return float(of_group @ sizes / max(1, sizes.sum()))

    means = mean(used), _mean(left, 0.0), mean(counts.max(1) / max(1, num_configs)), mean(1 - alike)
    of_kind = _mean(left[opcodes == DOT, 1:]), _mean(left[opcodes == RESHAPE, :2])
    sums = num_configs, len(choices.group), int(sizes.sum()), int((sizes > 0).sum()), *largest
    return dict(zip(COLUMNS, (*sums, *means, _mean(opcodes == RESHAPE, 0.0), *of_kind), strict=True))


def _mean(values: np.ndarray, none: float = _NONE) -> float:
    return float(values.mean()) if values.size else none


def survey_choices(data_root: str, max_programs: int | None = None) -> pd.DataFrame:
    """Read the statistics of the layout files of a data root: ``collection`` and :data:`COLUMNS` of each.

    Args:
        data_root: Folder that holds ``npz_all/``.
        max_programs: Maximum number of programs per collection, train first; None for all.
    """
    programs = []
    for collection in [collection for collection in COLLECTIONS if collection.kind == "layout"]:
        own = [p for split in SPLITS for p in list_programs(find_data(data_root), collection, split)]
        programs += own[:max_programs]
    return pd.DataFrame(
        {"collection": program.collection.name} | choice_statistics(*read_file(program.path))
        for program in progress(programs, desc="choices", unit="file")
    )


def read_file(path: Path) -> tuple[Choices, np.ndarray]:
    """Read the configurations of a layout file, and the opcodes ``(K,)`` of its configurable nodes."""
    arrays = read_checked(path, "layout", ["node_opcode", "node_config_ids"])
    return read_choices(path)[1], arrays["node_opcode"][arrays["node_config_ids"]]
