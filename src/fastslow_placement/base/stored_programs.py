"""Programs of the zoo at the sizes of GO's experiments, stored as HLO in ``data/placement``.

They are training steps (float32) of the families of GO's table: recurrent networks are stored as loops and
unrolled when they are read. ``data/make_sample/placement_graphs.py`` made the files.
"""

from pathlib import Path
from typing import NamedTuple

from fastslow.core.settings import PROJECT

FOLDER = PROJECT / "data" / "placement"


class StoredProgram(NamedTuple):
    """A stored program: its architecture, and on how many devices GO placed it."""

    family: str
    devices: int


PROGRAMS = {
    "rnnlm_2": StoredProgram("rnnlm", 2),
    "rnnlm_4": StoredProgram("rnnlm", 4),
    "rnnlm_8": StoredProgram("rnnlm", 8),
    "gnmt_2": StoredProgram("gnmt", 2),
    "gnmt_4": StoredProgram("gnmt", 4),
    "gnmt_8": StoredProgram("gnmt", 8),
    "transformer_2": StoredProgram("transformer", 2),
    "transformer_4": StoredProgram("transformer", 4),
    "transformer_8": StoredProgram("transformer", 8),
    "inception_b32": StoredProgram("inception", 2),
    "inception_b64": StoredProgram("inception", 2),
    "amoebanet": StoredProgram("amoebanet", 4),
    "wavenet_2": StoredProgram("wavenet", 2),
    "wavenet_4": StoredProgram("wavenet", 4),
}
"""Programs by name, in the order of GO's table."""


def program_path(name: str) -> Path:
    """Return the file of a stored program."""
    return FOLDER / f"{name}.pb.xz"
