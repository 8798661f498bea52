"""Programs of the zoo at the sizes of GO's experiments, stored as HLO in ``data/placement``.

They are training steps (float32) of the families of GO's table: recurrent networks are stored as loops and
unrolled when they are read. ``python -m fastslow_placement.programs.zoo_graphs`` makes them again, with jax.
The transformers are stored as the zoo wrote attention before, with heads split off by a reshape: made again,
they differ, and figures measured on them need to be measured again.
"""

import lzma
from pathlib import Path
from typing import NamedTuple

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import atomic_path
from fastslow.core.settings import PROJECT
from fastslow.hlo.messages import Module
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.hlo_graph import graph_of_module
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.roofline import Device

FOLDER = PROJECT / "data" / "placement"


class Program(NamedTuple):
    """One program: architecture, network of the zoo, sizes, and on how many devices GO placed it."""

    family: str
    network: str
    width: int
    depth: int
    batch: int
    devices: int
    floats: tuple = ()
    tokens: tuple = ()
    block: str = ""


def _steps(length: int, width: int) -> tuple:
    return ((length, width),)


PROGRAMS = {
    "rnnlm_2": Program("rnnlm", "sequences.lstm", 1024, 2, 64, 2, _steps(6, 1024)),
    "rnnlm_4": Program("rnnlm", "sequences.lstm", 1024, 4, 64, 4, _steps(4, 1024)),
    "rnnlm_8": Program("rnnlm", "sequences.lstm", 1024, 8, 64, 8, _steps(3, 1024)),
    "gnmt_2": Program("gnmt", "sequences.translator", 1024, 2, 64, 2, (), (4, 4)),
    "gnmt_4": Program("gnmt", "sequences.translator", 1024, 4, 64, 4, (), (3, 3)),
    "gnmt_8": Program("gnmt", "sequences.translator", 1024, 8, 64, 8, (), (2, 2)),
    "transformer_2": Program("transformer", "language.gpt", 1024, 2, 16, 2, (), (256,)),
    "transformer_4": Program("transformer", "language.gpt", 1024, 4, 16, 4, (), (256,)),
    "transformer_8": Program("transformer", "language.gpt", 1024, 8, 16, 8, (), (256,)),
    "inception_b32": Program("inception", "classifiers.inception", 256, 3, 32, 2, ((32, 32, 3),)),
    "inception_b64": Program("inception", "classifiers.inception", 256, 3, 64, 2, ((32, 32, 3),)),
    "amoebanet": Program("amoebanet", "classifiers.staged", 256, 2, 32, 4, ((32, 32, 3),), (), "nasnet"),
    "wavenet_2": Program("wavenet", "sequences.wavenet", 256, 18, 8, 2, ((1024, 8),)),
    "wavenet_4": Program("wavenet", "sequences.wavenet", 256, 36, 8, 4, ((1024, 8),)),
}
"""Programs by name, in the order of GO's table."""


def program_path(name: str) -> Path:
    """Return the file of a stored program."""
    return FOLDER / f"{name}.pb.xz"


def read_zoo_graph(name: str, device: Device) -> CostGraph:
    """Return the cost graph of a stored program.

    Raises:
        SettingsError: There is no program of that name.
        DataError: Its file is missing or broken.
    """
    if name not in PROGRAMS:
        raise SettingsError(f"source: no zoo program {name!r}; known are {', '.join(PROGRAMS)}")
    path = program_path(name)
    try:
        module = Module.FromString(lzma.decompress(path.read_bytes()))
    except (OSError, lzma.LZMAError) as error:
        raise DataError(path, f"cannot be read ({error})", "Restore it with git checkout") from None
    return graph_of_module(module, path, name, device)


def zoo_placement(name: str, device: Device, devices: int = 0, memory: float = 0.0) -> PlacementProblem:
    """Return the placement of a zoo program, each operator fused with its only consumer.

    Args:
        name: Name of the program.
        device: Constants of a device.
        devices: Largest number of devices; by default and at most the program's own.
        memory: Limit of a device in bytes; by default the device's memory.
    """
    graph, own = contract(read_zoo_graph(name, device), device), PROGRAMS[name].devices
    return PlacementProblem(graph, min(own, devices or own), device, memory)


def lower_program(program: Program) -> bytes:
    """Return the HLO of a training step, as JAX lowers it; needs jax."""
    from fastslow_programs.compiler.libtpu import lower
    from make_sample.zoo.families import Family, train

    settings = {"block": program.block} if program.block else {}
    inputs = program.floats, program.tokens
    family = Family("xla", program.family, program.network, (), (), *inputs, settings)
    return lower(*family.build(train(program.width, program.depth, program.batch, "float32")))


def export(folder: Path = FOLDER) -> None:
    """Lower every program and write its HLO, compressed."""
    for name, program in PROGRAMS.items():
        with atomic_path(folder / f"{name}.pb.xz") as temporary:
            temporary.write_bytes(lzma.compress(lower_program(program), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    export()
