"""How configurations are drawn, in a few numbers per layout file: of the real files, and of any other."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.competition.reader import read_choices
from fastslow.competition.tied_choices import Choices
from fastslow.core.progress import progress
from fastslow.core.settings import resolve

LARGEST = 5  # groups whose sizes are kept


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
        commonest: Mean share of a column's commonest layout.
        hamming: Mean share of columns in which two configurations differ, over all pairs.
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


REAL_FILES = {
    "nlp:random test 23559853": ChoiceStatistics(
        1000, 56, 139, 28, (12, 12, 12, 12, 8), 2.1295, 0.2371, 0.4987, 0.5187
    ),
    "nlp:default test 3a0c5517": ChoiceStatistics(
        1001, 848, 2467, 55, (144, 144, 144, 96, 96), 2.0122, 0.0451, 0.7769, 0.2938
    ),
    "xla:random test cd708819": ChoiceStatistics(
        1000, 38, 93, 23, (18, 18, 18, 4, 4), 2.4731, 0.2512, 0.4917, 0.5459
    ),
    "xla:default test cd708819": ChoiceStatistics(
        1000, 38, 93, 23, (18, 18, 18, 4, 4), 2.4731, 0.2812, 0.5964, 0.4417
    ),
    "xla:default train alexnet": ChoiceStatistics(
        23856, 26, 74, 21, (8, 8, 8, 8, 8), 2.2432, 0.103, 0.6434, 0.4008
    ),
    "xla:default train unet3d": ChoiceStatistics(
        1159, 56, 127, 17, (31, 31, 15, 15, 15), 2.0, 0.0467, 0.7997, 0.3136
    ),
    "xla:default valid unet_3d.4x4.bf16": ChoiceStatistics(
        1965, 62, 137, 18, (31, 31, 15, 15, 15), 2.2336, 0.0924, 0.7256, 0.384
    ),
}
"""TpuGraphs' published layout files that are at hand (arXiv 2308.13490), by collection, split and name.

``alexnet`` has half of its published configurations. ``openai_v0_rnn`` is left out: nothing varies in its
twenty configurations. Rounded to four digits.
"""


def choice_statistics(choices: Choices) -> ChoiceStatistics:
    """Return the statistics of configurations, at the cost of their groups rather than of their columns.

    Args:
        choices: The configurations as tied choices; means are 0 if nothing varies.
    """
    num_configs = len(choices)
    counts = np.zeros((choices.num_groups, choices.options.max(initial=1)))
    for group, values in enumerate(choices.values.T):
        counts[group] = np.bincount(values, minlength=counts.shape[1])
    used = (counts > 0).sum(1)
    sizes = np.bincount(choices.group.ravel(), minlength=choices.num_groups) * (used > 1)
    pairs = num_configs * (num_configs - 1)
    alike = (counts * (counts - 1)).sum(1) / max(1, pairs)
    left_to_compiler = (choices.codes == 0) * counts[choices.group]

    def mean(of_group: np.ndarray) -> float:
        return float(of_group @ sizes / max(1, sizes.sum()))

    return ChoiceStatistics(
        configs=num_configs,
        nodes=len(choices.group),
        columns=int(sizes.sum()),
        groups=int((sizes > 0).sum()),
        largest=tuple(np.sort(sizes[sizes > 0])[::-1][:LARGEST].tolist()),
        layouts=mean(used),
        left=float(left_to_compiler.sum() / max(1, num_configs * choices.group.size)),
        commonest=mean(counts.max(1) / max(1, num_configs)),
        hamming=mean(1 - alike),
    )


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
        _, choices = read_choices(program.path)
        row = as_row(choice_statistics(choices))
        rows.append({"collection": program.collection.name} | row)
    return pd.DataFrame(rows)


def real_statistics() -> pd.DataFrame:
    """Return the recorded statistics of the real files, one row per file, indexed by its name."""
    return pd.DataFrame([as_row(s) for s in REAL_FILES.values()], index=list(REAL_FILES))
