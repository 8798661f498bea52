"""Pictures of how good a graph's labels are: runtimes over the rows, and two runs of equal configurations."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastslow.competition.data_quality import two_runs
from fastslow.competition.reader import CompetitionFile, config_groups
from fastslow.features.scaling import unit_ranks

_ALL, _REPEATED = "#0072b2", "#e69f00"
_SHOWN = 5_000  # points of a panel
_BLOCKS, _BLOCK_ROWS = 50, 20


def plot_quality(file: CompetitionFile) -> Figure:
    """Plot the ranks of a file's runtimes over its rows, and of two runs of each repeated configuration.

    Blocks of rows that are slower than their neighbours, or a slope, are a machine that changed. Points far
    from the diagonal are configurations whose order is noise.

    Args:
        file: A labelled file.
    """
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    runtime, group = config_groups(file)
    draw_rows(left, runtime, file.path.stem)
    counts = np.bincount(group)
    repeated = np.flatnonzero(counts > 1)
    right.set(
        title=f"{len(repeated):,} repeated configurations", xlabel="rank of one run", ylabel="rank of another"
    )
    if len(repeated):
        one, other = two_runs(unit_ranks(runtime), group, repeated, np.random.default_rng(0))
        right.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        right.plot(one[:_SHOWN], other[:_SHOWN], ".", markersize=3, color=_REPEATED)
    return figure


def draw_rows(axes: Axes, runtime: np.ndarray, title: str) -> None:
    """Draw the ranks of runtimes ``(C,)`` over the rows, of many rows every n-th, and their mean by blocks.

    Runtimes themselves hide small jumps below a few slow configurations. Sound labels give a level line.
    """
    ranks = unit_ranks(runtime)
    rows = np.arange(0, len(ranks), max(1, len(ranks) // _SHOWN))
    axes.plot(rows, ranks[rows], ".", markersize=2, color=_ALL, alpha=0.4)
    blocks = np.array_split(np.arange(len(ranks)), min(_BLOCKS, max(1, len(ranks) // _BLOCK_ROWS)))
    middle, mean = [block.mean() for block in blocks], [ranks[block].mean() for block in blocks]
    axes.step(middle, mean, where="mid", color=_REPEATED, linewidth=2)
    axes.set(title=title, xlabel="row of the file", ylabel="rank of runtime")
