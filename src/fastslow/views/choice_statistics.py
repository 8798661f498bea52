"""How configurations are drawn, in a few numbers per layout file: of the real files, and of any other."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fastslow.choices.tied_choices import Choices
from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.competition.opcodes import DOT, RESHAPE
from fastslow.competition.reader import read_checked, read_choices
from fastslow.core.progress import progress
from fastslow.core.settings import resolve

LARGEST = 5  # groups whose sizes are kept
SAMPLE_ROWS = 24  # configurations of a file of the sample competition


@dataclass(frozen=True)
class ChoiceStatistics:
    """Statistics of the configurations of one layout file.

    A column is a tensor of ``node_config_feat``: the layout of a node's output, input or kernel. It varies if
    two configurations give it different layouts; means over columns are over those that vary.

    Args:
        configs: Number of configurations.
        nodes: Number of configurable nodes.
        columns: Number of columns that vary.
        groups: Number of groups of columns that determine each other.
        largest: Columns in each of the five largest groups, descending.
        layouts: Mean number of layouts of a column.
        left: Share of the entries that are left to the compiler, over all columns and configurations.
        commonest: Mean share of a column's commonest layout; fewer configurations raise it.
        hamming: Mean share of columns in which two configurations differ, over all pairs.
        reshapes: Share of reshapes among the configurable nodes.
        left_dots: Share left to the compiler of the operands of dots; NaN without dots. Outputs of dots, and
            tensors of convolutions, are never left.
        left_reshapes: Share left to the compiler of the outputs and operands of reshapes; NaN without any.
    """

    configs: int
    nodes: int
    columns: int
    groups: int
    largest: tuple[int, ...]
    layouts: float
    left: float
    commonest: float
    hamming: float
    reshapes: float
    left_dots: float
    left_reshapes: float


_NONE = float("nan")  # no such node
REAL_FILES = {
    "nlp:random test 23559853": ChoiceStatistics(
        1000, 56, 139, 28, (12, 12, 12, 12, 8), 2.1295, 0.2371, 0.4987, 0.5187, 0.375, 0.0113, 0.4293
    ),
    "nlp:default test 3a0c5517": ChoiceStatistics(
        1001, 848, 2467, 55, (144, 144, 144, 96, 96), 2.0122, 0.0451, 0.7769, 0.2938, 0.0566, 0.0042, 0.624
    ),
    "xla:random test cd708819": ChoiceStatistics(
        1000, 38, 93, 23, (18, 18, 18, 4, 4), 2.4731, 0.2512, 0.4917, 0.5459, 0.3947, 0.0976, 0.3049
    ),
    "xla:default test cd708819": ChoiceStatistics(
        1000, 38, 93, 23, (18, 18, 18, 4, 4), 2.4731, 0.2812, 0.5964, 0.4417, 0.3947, 0.183, 0.2878
    ),
    "xla:default train alexnet": ChoiceStatistics(
        23856, 26, 74, 21, (8, 8, 8, 8, 8), 2.2432, 0.103, 0.6434, 0.4008, 0.1154, 0.1948, 0.2541
    ),
    "xla:default train unet3d": ChoiceStatistics(
        1159, 56, 127, 17, (31, 31, 15, 15, 15), 2.0, 0.0467, 0.7997, 0.3136, 0.0536, _NONE, 0.8063
    ),
    "xla:default valid unet_3d.4x4.bf16": ChoiceStatistics(
        1965, 62, 137, 18, (31, 31, 15, 15, 15), 2.2336, 0.0924, 0.7256, 0.384, 0.1452, _NONE, 0.4546
    ),
}
"""TpuGraphs' published layout files that are at hand (arXiv 2308.13490), by collection, split and name.

``alexnet`` has half of its published configurations. ``openai_v0_rnn`` is left out: nothing varies in its
twenty configurations. Rounded to four digits.
"""


AT_ROWS_COLUMNS = (
    *("nodes", "columns", "groups", "largest_1", "layouts", "left", "commonest", "hamming"),
    *("reshapes", "left_dots", "left_reshapes"),
)
REAL_AT_SAMPLE_ROWS = {
    "nlp:random test 23559853": (56, 139, 28, 12, 2.128, 0.237, 0.567, 0.518, 0.375, 0.011, 0.428),
    "nlp:default test 3a0c5517": (
        848,
        1967.38,
        46.1,
        144,
        2.013,
        0.045,
        0.726,
        0.372,
        0.057,
        0.004,
        0.622,
    ),
    "xla:random test cd708819": (38, 93, 23, 18, 2.437, 0.25, 0.549, 0.545, 0.395, 0.092, 0.307),
    "xla:default test cd708819": (
        38,
        81.44,
        21.7,
        18,
        2.534,
        0.28,
        0.585,
        0.511,
        0.395,
        0.179,
        0.289,
    ),
    "xla:default train alexnet": (
        26,
        67.82,
        19.53,
        8,
        2.26,
        0.101,
        0.654,
        0.436,
        0.115,
        0.186,
        0.255,
    ),
    "xla:default train unet3d": (56, 124.76, 16.58, 31, 2, 0.046, 0.798, 0.318, 0.054, _NONE, 0.799),
    "xla:default valid unet_3d.4x4.bf16": (
        62,
        133.3,
        17.68,
        31,
        2.205,
        0.092,
        0.721,
        0.396,
        0.145,
        _NONE,
        0.454,
    ),
}
"""Means of these columns over random subsets of :data:`SAMPLE_ROWS` configurations, see :func:`at_rows`.

Rounded to three digits. TpuGraphs' sample protobuf of ``unet_3d`` holds 112 rows of the ``default`` file.
"""


def choice_statistics(choices: Choices, opcodes: np.ndarray) -> ChoiceStatistics:
    """Return the statistics of configurations, at the cost of their groups rather than of their columns.

    Args:
        choices: The configurations as tied choices; means are 0 if nothing varies.
        opcodes: ``(K,)`` opcodes of the configurable nodes.
    """
    num_configs = len(choices)
    counts = np.zeros((choices.num_groups, choices.options.max(initial=1)))
    for group, values in enumerate(choices.values.T):
        counts[group] = np.bincount(values, minlength=counts.shape[1])
    used = (counts > 0).sum(1)
    sizes = np.bincount(choices.group.ravel(), minlength=choices.num_groups) * (used > 1)
    pairs = num_configs * (num_configs - 1)
    alike = (counts * (counts - 1)).sum(1) / max(1, pairs)
    left = ((choices.codes == 0) * counts[choices.group]).sum(2) / max(1, num_configs)

    def mean(of_group: np.ndarray) -> float:
        return float(of_group @ sizes / max(1, sizes.sum()))

    return ChoiceStatistics(
        configs=num_configs,
        nodes=len(choices.group),
        columns=int(sizes.sum()),
        groups=int((sizes > 0).sum()),
        largest=tuple(np.sort(sizes[sizes > 0])[::-1][:LARGEST].tolist()),
        layouts=mean(used),
        left=float(left.mean()) if left.size else 0.0,
        commonest=mean(counts.max(1) / max(1, num_configs)),
        hamming=mean(1 - alike),
        reshapes=float(np.mean(opcodes == RESHAPE)) if len(opcodes) else 0.0,
        left_dots=_mean_or_nan(left[opcodes == DOT, 1:]),
        left_reshapes=_mean_or_nan(left[opcodes == RESHAPE, :2]),
    )


def _mean_or_nan(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")


def at_rows(
    choices: Choices, opcodes: np.ndarray, rows: int = SAMPLE_ROWS, draws: int = 100
) -> dict[str, float]:
    """Return the statistics that a file would have with fewer configurations, as :func:`as_row`.

    Args:
        choices: All configurations.
        opcodes: ``(K,)`` opcodes of the configurable nodes.
        rows: Number of configurations to keep.
        draws: Number of random subsets, of a fixed seed, that are averaged.
    """
    rng = np.random.default_rng(0)
    subsets = (rng.choice(len(choices), min(rows, len(choices)), replace=False) for _ in range(draws))
    table = [as_row(choice_statistics(choices.take(subset), opcodes)) for subset in subsets]
    return pd.DataFrame(table).mean().to_dict()


def as_row(statistics: ChoiceStatistics) -> dict[str, float]:
    """Return statistics as a flat row: ``largest`` becomes ``largest_1`` to ``largest_5``, 0 if missing."""
    row = asdict(statistics)
    largest = row.pop("largest")
    padded = (*largest, *[0] * (LARGEST - len(largest)))
    return row | {f"largest_{rank}": size for rank, size in enumerate(padded, 1)}


def survey_choices(data_root: str, max_programs: int | None = None) -> pd.DataFrame:
    """Read the statistics of the layout files of a data root.

    Args:
        data_root: Folder that holds ``npz_all/``.
        max_programs: Maximum number of programs per collection, train first; None for all.

    Returns:
        One row per file: ``collection``, and the columns of :func:`as_row`.

    Raises:
        DataError: A file is missing or broken.
    """
    layouts = [collection for collection in COLLECTIONS if collection.kind == "layout"]
    programs = []
    for collection in layouts:
        own = [p for split in SPLITS for p in list_programs(resolve(data_root), collection, split)]
        programs += own[:max_programs]
    rows = []
    for program in progress(programs, desc="choices", unit="file"):
        row = as_row(choice_statistics(*read_file(program.path)))
        rows.append({"collection": program.collection.name} | row)
    return pd.DataFrame(rows)


def read_file(path: Path) -> tuple[Choices, np.ndarray]:
    """Read the configurations of a layout file, and the opcodes ``(K,)`` of its configurable nodes.

    Raises:
        DataError: The file is missing or broken.
    """
    arrays = read_checked(path, "layout", ["node_opcode", "node_config_ids"])
    return read_choices(path)[1], arrays["node_opcode"][arrays["node_config_ids"]]


def real_statistics(rows: int = 0) -> pd.DataFrame:
    """Return the recorded statistics of the real files, one row per file, indexed by its name.

    Args:
        rows: 0 for all configurations, or :data:`SAMPLE_ROWS`: the columns of :data:`REAL_AT_SAMPLE_ROWS`.
    """
    if rows:
        return pd.DataFrame(REAL_AT_SAMPLE_ROWS, index=list(AT_ROWS_COLUMNS)).T
    return pd.DataFrame([as_row(s) for s in REAL_FILES.values()], index=list(REAL_FILES))
