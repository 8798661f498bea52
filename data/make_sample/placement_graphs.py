"""Make the programs of ``data/placement`` again: HLO of training steps of the zoo, as JAX lowers them.

Run it with ``PYTHONPATH=data python -m make_sample.placement_graphs``; it needs jax.
"""

import lzma
from pathlib import Path

from fastslow.core.files import atomic_path
from fastslow_placement.programs.zoo_graphs import FOLDER, PROGRAMS, ZooGraph
from fastslow_programs.compiler.libtpu import lower
from make_sample.zoo.families import Family, train


def lower_program(program: ZooGraph) -> bytes:
    """Return the serialised HLO module of a program's training step."""
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
