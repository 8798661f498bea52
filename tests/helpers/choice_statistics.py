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
_REAL_FILES = {
    "nlp:random test 23559853": (
        *(1000, 56, 139, 28, 12, 12, 12, 12, 8),
        *(2.1295, 0.2371, 0.4987, 0.5187, 0.375, 0.0113, 0.4293),
    ),
    "nlp:default test 3a0c5517": (
        *(1001, 848, 2467, 55, 144, 144, 144, 96, 96),
        *(2.0122, 0.0451, 0.7769, 0.2938, 0.0566, 0.0042, 0.624),
    ),
    "xla:random test cd708819": (
        *(1000, 38, 93, 23, 18, 18, 18, 4, 4),
        *(2.4731, 0.2512, 0.4917, 0.5459, 0.3947, 0.0976, 0.3049),
    ),
    "xla:default test cd708819": (
        *(1000, 38, 93, 23, 18, 18, 18, 4, 4),
        *(2.4731, 0.2812, 0.5964, 0.4417, 0.3947, 0.183, 0.2878),
    ),
    "xla:default train alexnet": (
        *(23856, 26, 74, 21, 8, 8, 8, 8, 8),
        *(2.2432, 0.103, 0.6434, 0.4008, 0.1154, 0.1948, 0.2541),
    ),
    "xla:default train unet3d": (
        *(1159, 56, 127, 17, 31, 31, 15, 15, 15),
        *(2.0, 0.0467, 0.7997, 0.3136, 0.0536, _NONE, 0.8063),
    ),
    "xla:default valid unet_3d.4x4.bf16": (
        *(1965, 62, 137, 18, 31, 31, 15, 15, 15),
        *(2.2336, 0.0924, 0.7256, 0.384, 0.1452, _NONE, 0.4546),
    ),
}


def real_statistics() -> pd.DataFrame:
    """Return the statistics of TpuGraphs' published layout files that are at hand (arXiv 2308.13490).

    A row per file, by collection, split and name, rounded to four digits. ``alexnet`` has half of its
    published configurations. ``openai_v0_rnn`` is left out: nothing varies in its twenty configurations.
    """
    return pd.DataFrame.from_dict(_REAL_FILES, orient="index", columns=COLUMNS)


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
