"""Survey of a data root, from the headers of its files alone."""

import numpy as np
import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, SPLITS, list_programs
from fastslow.competition.schema import check_schema
from fastslow.core.npz_io import read_headers
from fastslow.core.progress import progress
from fastslow.core.settings import Settings, resolve


class SurveySettings(Settings):
    """Settings of the notebook that looks at the data."""

    data_root: str = "data/sample"
    """Folder that holds ``npz_all/``."""


def survey(settings: SurveySettings) -> pd.DataFrame:
    """Read the sizes of every competition file of a data root.

    Args:
        settings: Settings.

    Returns:
        One row per file: ``collection``, ``split``, ``name``, ``nodes``, ``edges``, ``configurable`` (nodes),
        ``configs`` (configurations, repeated ones included) and ``config_mb``, the size of the configuration
        features as float32 in MB, which a naive reader would hold.

    Raises:
        DataError: A file is missing, or its keys, types or shapes are not the competition's.
    """
    programs = [
        p
        for c in COLLECTIONS
        for split in SPLITS
        for p in list_programs(resolve(settings.data_root), c, split)
    ]
    rows = []
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
    """Return counts, medians and maxima of :func:`survey`, one row per collection and split."""
    groups = files.groupby(["collection", "split"], sort=False)
    return groups.agg(
        files=("name", "size"),
        median_nodes=("nodes", "median"),
        max_nodes=("nodes", "max"),
        median_configs=("configs", "median"),
        max_configs=("configs", "max"),
        max_configurable=("configurable", "max"),
        max_config_mb=("config_mb", "max"),
    ).round(1)
