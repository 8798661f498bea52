"""Tables and figures of notebook 00: sizes of files, a program, a configuration, runtimes; and of labels."""

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.competition import node_columns
from fastslow.competition.catalog import COLLECTIONS, SPLITS, TRAIN, get_collection, list_programs
from fastslow.competition.data_quality import config_groups
from fastslow.competition.layouts import LAYOUT_WIDTH, LEFT_TO_COMPILER, ROLES, format_layout
from fastslow.competition.opcodes import opcode_name
from fastslow.competition.reader import Program, read_npz
from fastslow.competition.rules.program_rules import check_program
from fastslow.competition.schema import check_schema
from fastslow.core.errors import counted
from fastslow.core.figures import NETWORK, RULE, WIDTH, in_style, shortened
from fastslow.core.npz_io import read_headers
from fastslow.core.progress import progress
from fastslow.core.settings import NonNegative, Settings, find_data
from fastslow.features.configs.config_tensors import config_tensors

_COLOURS = {  # pink for tiles, sky blue for xla, indigo for nlp; marks tell the searches apart
    "tile:xla": "#cc79a7",
    "layout:xla:default": "#56b4e9",
    "layout:xla:random": "#56b4e9",
    "layout:nlp:default": "#332288",
    "layout:nlp:random": "#332288",
}


class DataReportSettings(Settings):
    """Settings of the notebook that looks at the data."""

    data_root: str = "data/sample"
    """Folder that holds ``npz_all/``."""
    collection: Literal[*(c.name for c in COLLECTIONS)] = "layout:xla:random"
    """Collection whose train programs are shown."""
    program: str = ""
    """File name, without ``.npz``, of the program shown in detail; empty: the smallest."""
    configuration: NonNegative = 0
    """Number of the configuration that is put into words, from 0 in file order."""


def survey(settings: DataReportSettings) -> pd.DataFrame:
    """Read the sizes of every competition file of a data root.

    Returns:
        One row per file: ``collection``, ``split``, ``name``, ``nodes``, ``edges``, ``configurable`` (nodes),
        ``configs`` (configurations, repeated ones included) and ``config_mb``, the size of the configuration
        features as float32 in MB, which a naive reader would hold.

    Raises:
        DataError: A file is missing, or its keys, types or shapes are not the competition's.
    """
    root = find_data(settings.data_root)
    rows = []
    programs = [p for c in COLLECTIONS for split in SPLITS for p in list_programs(root, c, split)]
    for program in progress(programs, desc="survey", unit="file"):
        headers = read_headers(program.path)
        sizes = check_schema(program.path, program.collection.kind, headers)
        features = headers["node_config_feat" if program.collection.kind == "layout" else "config_feat"]
        rows.append(
            {
                "collection": program.collection.name,
                "split": program.split,
                "name": program.name,
                "nodes": sizes["N"],
                "edges": sizes["E"],
                "configurable": sizes.get("K", 0),
                "configs": sizes["C"],
                "config_mb": float(np.prod(features.shape)) * 4 / 1e6,
            }
        )
    return pd.DataFrame(rows)


def summarise(files: pd.DataFrame) -> pd.DataFrame:
    """Return counts, rounded medians and maxima of :func:`survey`, one row per collection and split."""
    groups = files.groupby(["collection", "split"], sort=False)

    def middle(counts: pd.Series) -> int:
        return round(counts.median())

    columns = {
        "files": ("name", "size"),
        "nodes, median": ("nodes", middle),
        "nodes, most": ("nodes", "max"),
        "configurations, median": ("configs", middle),
        "configurations, most": ("configs", "max"),
        "configurable, most": ("configurable", "max"),
        "MB, most": ("config_mb", "max"),
    }
    return groups.agg(**columns)


def count_configurations(files: pd.DataFrame) -> pd.DataFrame:
    """Return the number of layout files by their configurations, one row per split.

    Args:
        files: As from :func:`survey`.

    Returns:
        Columns ``24 or fewer``, ``25 to 100`` and ``over 100``.
    """
    layout = files[files["collection"].str.startswith("layout")]
    sizes = pd.cut(layout["configs"], [0, 24, 100, np.inf], labels=["24 or fewer", "25 to 100", "over 100"])
    order = layout["split"].drop_duplicates()
    counts = pd.crosstab(layout["split"], sizes, dropna=False).reindex(order)
    return counts.rename_axis(columns=None)


def read_shown(settings: DataReportSettings) -> Program:
    """Read the program that is shown in detail.

    Raises:
        SettingsError: No program has that name, or it has no such configuration.
        DataError: The split is missing or the file is broken.
    """
    collection = get_collection(settings.collection)
    files = {file.name: file for file in list_programs(find_data(settings.data_root), collection, TRAIN)}
    nodes = {name: read_headers(file.path)["node_opcode"].shape for name, file in files.items()}
    name = settings.program or min(nodes, key=nodes.__getitem__)
    settings.require(name in files, "program", f"one of {', '.join(files)}")
    program = read_npz(files[name], labelled=True)
    check_program(program)
    allowed = f"below {len(program.runtime)}, the number of configurations of {name}"
    settings.require(settings.configuration < len(program.runtime), "configuration", allowed)
    return program


def describe_configuration(program: Program, configuration: int) -> pd.DataFrame:
    """Put one configuration into words: the layout of each tensor of each configurable node, or the tile.

    Returns:
        One row per tensor, those that the configuration sets first: ``node`` (opcode and number), ``tensor``
        (output, input, kernel), ``shape``, ``layout`` (dimensions minor to major, as XLA prints them, or
        ``compiler``) and the same ``in words``. Of a tile file a row per window, with its bounds.
    """
    if program.config_feat is not None:
        bounds = program.config_feat[configuration].reshape(len(ROLES), -1).astype(int)
        names = [*(f"bound {dimension}" for dimension in range(LAYOUT_WIDTH)), "sum", "product"]
        return pd.DataFrame(bounds, pd.Index(("kernel", "output", "input"), name="window"), names)
    ids = program.node_config_ids
    tensors = config_tensors(program.node_feat, program.node_opcode, program.edge_index, ids)
    (codes,) = program.choices.layout_codes([configuration])
    rows = []
    for position, role in np.argwhere(tensors.known):
        sizes = tensors.dims[position, role, : tensors.rank[position, role]]
        layout = program.layouts[codes[position, role]]
        order = layout[layout >= 0].tolist()
        rows.append(
            {
                "node": f"{opcode_name(int(program.node_opcode[ids[position]]))} #{ids[position]}",
                "tensor": ROLES[role],
                "shape": _shape(program.node_feat[tensors.source_ids[position, role]], sizes),
                "layout": format_layout(order),
                "in words": _in_words(order, sizes),
            }
        )
    rows.sort(key=lambda row: row["layout"] == LEFT_TO_COMPILER)
    return pd.DataFrame(rows, columns=["node", "tensor", "shape", "layout", "in words"])


def _shape(row: np.ndarray, sizes: np.ndarray) -> str:
    """Return a shape as in HLO's text (``f32[8,128]``) from a node's features ``(140,)`` and its sizes."""
    element_type = node_columns.ELEMENT_TYPES[np.argmax(row[node_columns.ELEMENT_TYPE])]
    return f"{element_type}[{','.join(map(str, sizes))}]"


def _in_words(order: list[int], sizes: np.ndarray) -> str:
    if not order:
        return "left to the compiler"
    named = [f"{axis} (size {sizes[axis]})" if axis < len(sizes) else str(axis) for axis in order]
    return f"dimension {named[0]} is contiguous in memory" + "".join(f", then {name}" for name in named[1:])


@in_style
def plot_survey(files: pd.DataFrame) -> Figure:
    """Plot nodes against configurations of every file of :func:`survey`, one colour per collection."""
    figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
    axes = figure.subplots()
    for collection, rows in files.groupby("collection", sort=False):
        ring = collection.endswith("default")  # both searches hold the same programs: a ring around a dot
        colour = _COLOURS.get(collection, RULE)
        ink = {"facecolors": "none" if ring else colour, "edgecolors": colour, "alpha": 0.6}
        size = {"s": 45, "linewidths": 0.8} if ring else {"s": 12, "linewidths": 0}
        axes.scatter(rows["nodes"], rows["configs"], label=collection, **ink, **size)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="configurations")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    most = files["nodes"].max()
    axes.set_title(f"{counted(len(files), 'file')}, up to {counted(most, 'node')}")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@in_style
def plot_runtimes(program: Program) -> Figure:
    """Plot the histogram of the runtimes of a labelled file, as multiples of the fastest."""
    runtime, _ = config_groups(program)
    relative = runtime / runtime.min()
    fastest = f"{program.runtime.min():,} in the unit of the file"
    if program.normalizers is not None:
        fastest = f"{runtime.min():.2f} of the compiler's default tile"
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.hist(relative, bins=60, color=NETWORK)
    median = np.median(relative)
    axes.axvline(median, color="black", linestyle="--", label=f"median {median:.2f}")
    slowest = f"the slowest of {counted(len(relative), 'configuration')}"
    found = f"{slowest} takes {relative.max():.2f} times as long as the fastest"
    axes.set(
        title=f"{shortened(program.path.stem, 60)}\n{found}",
        xlabel=f"runtime, in multiples of the fastest (1: {fastest})",
        ylabel="configurations",
    )
    axes.legend()
    return figure
