"""The ranker of a finished run, as its folder holds it, read to predict further graphs."""

from pathlib import Path
from typing import Literal

from fastslow.core.artifacts import MANIFEST, finished_file
from fastslow.core.errors import DataError
from fastslow.core.records import Record, check_record
from fastslow.core.settings import NonNegative
from fastslow.rankers.fit import Fitted
from fastslow.rankers.libraries import LIBRARIES
from fastslow.rankers.options import OBJECTIVES, RankerOptions
from fastslow.runs.run_manifest import read_finished

MODEL = "model.txt"
_AGAIN = "Train this model again"
_REGISTER = f"Register what this code does not have (CONTRIBUTING.md), or: {_AGAIN}"


class _Manifest(Record):
    """Keys of a ranker's manifest that prediction needs."""

    objective: Literal[*OBJECTIVES]
    trees: NonNegative


def read_ranker(folder: Path) -> Fitted:
    """Read the ranker of a run folder.

    Returns:
        The trees, which predict graphs with :meth:`~fastslow.rankers.fit.Fitted.predict_split`.

    Raises:
        DataError: The run is not finished, or is not a ranker's.
    """
    manifest = read_finished(folder)
    if (model := manifest["settings"].get("model")) != "ranker":
        problem = f"is a run of {model!r}, not of a ranker"
        raise DataError(folder, problem, "Name a folder that the ranker notebook wrote")
    check_record(Path(folder) / MANIFEST, manifest, _Manifest, _REGISTER)
    library = manifest["settings"].get("library", RankerOptions.library)
    if library not in LIBRARIES:
        problem = f"{library!r} grew its trees; this code has {', '.join(LIBRARIES)}"
        raise DataError(folder, problem, _REGISTER)
    # an edited file would end LightGBM, or never return
    trees = LIBRARIES[library].read(finished_file(folder, MODEL, _AGAIN))
    return Fitted(manifest["objective"], trees, manifest["trees"], [])
