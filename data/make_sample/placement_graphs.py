"""Make the programs of ``data/placement`` again, with jax.

Run it as ``PYTHONPATH=data python -m make_sample.placement_graphs``.

The transformers are stored as the zoo wrote attention before, with heads split off by a reshape: made again,
they differ, and figures measured on them need to be measured again.
"""

import lzma
from typing import NamedTuple

from fastslow.core.files import atomic_path
from fastslow_placement.base.stored_programs import PROGRAMS, program_path
from fastslow_programs.compiler.libtpu import lower
from make_sample.zoo.families import Family, train


class Recipe(NamedTuple):
    """The recipe of a program: network of the zoo, its sizes, shapes of its inputs, kind of block."""

    network: str
    width: int
    depth: int
    batch: int
    floats: tuple = ()
    tokens: tuple = ()
    block: str = ""


RECIPES = {
    "rnnlm_2": Recipe("sequences.lstm", 1024, 2, 64, ((6, 1024),)),
    "rnnlm_4": Recipe("sequences.lstm", 1024, 4, 64, ((4, 1024),)),
    "rnnlm_8": Recipe("sequences.lstm", 1024, 8, 64, ((3, 1024),)),
    "gnmt_2": Recipe("sequences.translator", 1024, 2, 64, (), (4, 4)),
    "gnmt_4": Recipe("sequences.translator", 1024, 4, 64, (), (3, 3)),
    "gnmt_8": Recipe("sequences.translator", 1024, 8, 64, (), (2, 2)),
    "transformer_2": Recipe("language.gpt", 1024, 2, 16, (), (256,)),
    "transformer_4": Recipe("language.gpt", 1024, 4, 16, (), (256,)),
    "transformer_8": Recipe("language.gpt", 1024, 8, 16, (), (256,)),
    "inception_b32": Recipe("classifiers.inception", 256, 3, 32, ((32, 32, 3),)),
    "inception_b64": Recipe("classifiers.inception", 256, 3, 64, ((32, 32, 3),)),
    "amoebanet": Recipe("classifiers.staged", 256, 2, 32, ((32, 32, 3),), (), "nasnet"),
    "wavenet_2": Recipe("sequences.wavenet", 256, 18, 8, ((1024, 8),)),
    "wavenet_4": Recipe("sequences.wavenet", 256, 36, 8, ((1024, 8),)),
}
"""Recipes by name, for each of :data:`~fastslow_placement.programs.zoo_graphs.PROGRAMS`."""


def lower_program(name: str) -> bytes:
    """Return the HLO of a training step, as JAX lowers it."""
    recipe = RECIPES[name]
    settings = {"block": recipe.block} if recipe.block else {}
    inputs = recipe.floats, recipe.tokens
    family = Family("xla", PROGRAMS[name].family, recipe.network, (), (), *inputs, settings)
    return lower(*family.build(train(recipe.width, recipe.depth, recipe.batch, "float32")))


def export() -> None:
    """Lower every program and write its HLO, compressed."""
    for name in RECIPES:
        with atomic_path(program_path(name)) as temporary:
            temporary.write_bytes(lzma.compress(lower_program(name), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    export()
